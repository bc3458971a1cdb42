"""Warnings are shown for the line that called scanpy_ext, whichever package they come from."""

from __future__ import annotations

import anndata
import numpy as np
import pytest
import scipy.sparse as sp

import scanpy_ext as cx
from contrast_core import ContrastWarning

DESIGN = ("condition", "ctrl", "donor")
CALLS = {
    "core": (
        "negative",
        lambda a: cx.tl.cpca(a, groupby="condition", reference="ctrl", alpha=99.0),
    ),
    "pairs": ("are not paired", lambda a: cx.pp.match_pairs(a, *DESIGN, n_comps=4)),
    "tool": ("are not paired", lambda a: cx.tl.pca_pp(a, **PAIRED, n_comps=2)),
    "lambda": ("leading lambda", lambda a: cx.tl.pca_pp(shuffled(a), pairs="random", n_comps=2)),
    "counts": ("raw counts", lambda a: cx.pp.match_pairs(counts(a), *DESIGN, n_comps=4)),
    "check": (
        "not be sound",
        lambda a: cx.pp.contrast_check(lacking(a), **REFERENCE, cell_type="type"),
    ),
}
REFERENCE = {"groupby": "condition", "reference": "ctrl"}
PAIRED = REFERENCE | {"donor": "donor"}


@pytest.fixture
def noise():
    rng = np.random.default_rng(0)
    adata = anndata.AnnData(rng.normal(size=(80, 6)))
    adata.obs["condition"] = ["ctrl", "stim"] * 40
    adata.obs["donor"] = ["a"] * 70 + [np.nan] * 10
    return adata


def counts(adata):
    adata.X = np.random.default_rng(0).poisson(5.0, size=adata.shape).astype("float32")
    return adata


def lacking(adata):
    """A type of cells that the background lacks."""
    adata.obs["type"] = np.where(adata.obs["condition"] == "ctrl", "T", "B")
    return adata


def shuffled(adata):
    """Half the cells paired with the other half at random."""
    ends = np.arange(40), 40 + np.random.default_rng(0).permutation(40)
    adata.obsp["random"] = sp.csr_matrix((np.ones(40), ends), shape=(80, 80))
    return adata


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_points_at_the_callers_line(name, noise):
    message, call = CALLS[name]
    with pytest.warns(ContrastWarning) as caught:
        call(noise)
    [warning] = [one for one in caught if message in str(one.message)]
    assert warning.filename == __file__
    assert warning.lineno in [line for *_, line in call.__code__.co_lines()]
