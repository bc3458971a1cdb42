"""Tests of the results of the functions of `tl`, and of the slots that they write."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from anndata import AnnData, ImplicitModificationWarning

import scanpy_ext as cx
from contrast_core import CPCA
from contrast_core.linalg import subspace_error

REFERENCE = {"groupby": "condition", "reference": "ctrl"}


def test_cells_in_neither_set_are_embedded(cells):
    half = np.arange(200) % 2 == 0
    stim = cells.obs["is_stim"].to_numpy()
    cx.tl.cpca(cells, foreground=half, background=half & ~stim)
    separate = cells[half].copy()
    cx.tl.cpca(separate, **REFERENCE)
    cx.tl.project(cells, separate, key_added="again")
    np.testing.assert_allclose(cells.obsm["X_cpca"], cells.obsm["again"], rtol=1e-5)


def test_the_slots_of_a_path_agree_with_each_other(cells):
    cx.tl.cpca_path(cells, **REFERENCE, alphas=[0, 0.1, 0.5, 1, 2])
    result = cells.uns["cpca_path"]
    np.testing.assert_array_equal(result["alphas"], [0, 0.1, 0.5, 1, 2])
    assert result["affinity"].shape == (5, 5)
    assert result["labels"].shape == (5,)
    for name in ("contrastive_eigenvalues", "foreground_variance", "background_variance"):
        assert result[name].shape == (5, 2)
    chosen = result["representatives"]
    assert result["alphas"][chosen[0]] == 0  # alpha = 0 is PCA of the foreground, for comparison
    assert np.unique(result["labels"][chosen]).size == 3
    assert chosen.size in (3, 4)
    for i, index in enumerate(chosen):
        alpha = result["alphas"][index]
        single = CPCA(2, alpha=alpha).fit(cells.X, background=cells.X[cells.obs["is_ctrl"]])
        assert subspace_error(single.components_, cells.varm[f"PCs_cpca_path_{i}"].T) < 1e-6
        assert cells.obsm[f"X_cpca_path_{i}"].shape == (200, 2)
        np.testing.assert_allclose(
            result["contrastive_eigenvalues"][index], single.contrastive_eigenvalues_
        )


@pytest.mark.parametrize(
    "as_matrix", [sp.csr_matrix, pytest.param(sp.csc_matrix, marks=pytest.mark.slow)]
)
def test_memory_stays_below_the_dense_matrix(as_matrix):
    n_obs, n_vars = 60_000, 500
    rng = np.random.default_rng(0)
    adata = AnnData(as_matrix(sp.random(n_obs, n_vars, 0.01, dtype="float32", rng=rng)))
    adata.obs["condition"] = np.where(np.arange(n_obs) % 2, "stim", "ctrl")
    tracemalloc.start()
    cx.tl.cpca(adata, **REFERENCE, alpha=1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * n_obs * n_vars * 8


@pytest.mark.parametrize("name", ["cpca", "cpca_path", "cpca_star", "pcpca", "clvm", "kernel_cpca"])
def test_views_and_copies_give_the_same_embedding(cells, name, untouched):
    """Check that a view becomes an actual AnnData, and that `copy=True` leaves a view as it is.

    The embedding is the same with and without `copy=True`.
    """
    function = getattr(cx.tl, name)
    cells.X = sp.csr_matrix(cells.X)
    view = cells[cells.obs["depth"] >= 20, :10]
    with untouched(view):
        copied = function(view, **REFERENCE, copy=True)
    assert not copied.is_view
    assert copied.X is not view.X
    with untouched(cells), pytest.warns(ImplicitModificationWarning, match="of view"):
        function(view, **REFERENCE)
    assert not view.is_view
    assert list(view.obsm) == list(copied.obsm) != []
    for key in copied.obsm:
        np.testing.assert_array_equal(view.obsm[key], copied.obsm[key])


def test_key_added_names_all_slots_and_a_shorter_path_replaces_a_longer_one(cells):
    cx.tl.cpca(cells, **REFERENCE, key_added="mine")
    for n_representatives in (4, 1):
        cx.tl.cpca_path(cells, **REFERENCE, key_added="all", n_representatives=n_representatives)
        numbered = [f"all_{i}" for i in range(len(cells.uns["all"]["representatives"]))]
        assert (len(numbered) > 3) == (n_representatives == 4)
        assert list(cells.obsm) == ["mine", *numbered]
        assert list(cells.varm) == ["mine", "mine_fit", *numbered]
        assert list(cells.uns) == ["mine", "all"]
