"""Tests of the linear methods and of kernel cPCA: written slots, new cells and tables of genes.

The core is the package `contrast_core`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from anndata import AnnData
from sklearn.base import clone

import scanpy_ext as cx
from contrast_core import CLVM, CPCA, PCPCA, ContrastWarning, CPCAStar, KernelCPCA
from contrast_core.linalg import subspace_error

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
USED = np.arange(12) > 2
GAPS = {"layer": "levels", "mask_var": USED}
# Each entry holds the estimator of the core and the options of the function of `tl`.
CORE = {
    "cpca": (CPCA(3, alpha=0.5), {"alpha": 0.5}),
    "cpca_star": (CPCAStar(3), {}),
    "pcpca": (PCPCA(3, gamma=0.2), {"gamma": 0.2}),
    "pcpca with gaps": (PCPCA(3, gamma=0.1), {"gamma": 0.1} | GAPS),
    "clvm": (CLVM(n_shared=2, n_salient=3), {"n_shared": 2}),
} | {
    f"clvm with gaps and robust={robust}": (
        CLVM(n_shared=2, n_salient=3, robust=robust),
        {"n_shared": 2, "model_kwargs": {"robust": robust}} | GAPS,
    )
    for robust in (None, "rows", "entries")
}
# Names of the results in `.uns`.
STORED = {
    "cpca": ["alpha", "contrastive_eigenvalues"],
    "cpca_star": ["beta", "generalized_eigenvalues"],
    "pcpca": ["gamma", "gamma_max", "noise_variance", "objective", "converged"],
    "clvm": ["noise_variance", "log_likelihoods", "converged"],
}


@pytest.mark.parametrize("kind", CORE)
def test_slots_hold_the_results_of_the_core(cells, kind, monkeypatch):
    estimator, options = CORE[kind]
    name = kind.split()[0]
    used, X = np.ones(12, dtype=bool), cells.X
    if "gaps" in kind:
        gone = np.random.default_rng(0).random(cells.shape) < 0.2
        cells.layers["levels"] = np.where(gone, np.nan, cells.X)
        used, X = USED, cells.layers["levels"][:, USED]
    assert getattr(cx.tl, name)(cells, **REFERENCE, n_comps=3, **options) is None
    model = clone(estimator).fit(X, background=X[cells.obs["is_ctrl"]])
    scores = cells.obsm[f"X_{name}"]
    np.testing.assert_allclose(scores, model.transform(X), rtol=1e-5, atol=1e-5)
    loadings = {"clvm": "salient_loadings_", "pcpca": "loadings_"}.get(name)
    found = model.components_.T if loadings is None else getattr(model, loadings)
    np.testing.assert_allclose(cells.varm[f"PCs_{name}"][used], found, atol=1e-6)
    assert not cells.varm[f"PCs_{name}"][~used].any()
    result = cells.uns[name]
    for each in [*STORED[name], "foreground_variance", "background_variance"]:
        np.testing.assert_allclose(result[each], getattr(model, f"{each}_"), rtol=1e-5)
    assert (result["n_foreground"], result["n_background"]) == (200, 100)
    if name == "clvm":
        shared = cells.obsm["X_clvm_shared"]
        np.testing.assert_allclose(shared, model.transform_shared(X), atol=1e-5)
        found = cells.varm["PCs_clvm_shared"][used]
        np.testing.assert_allclose(found, model.shared_loadings_, atol=1e-6)
    table = cells.varm[f"PCs_{name}_fit"]
    np.testing.assert_allclose(table["mean"][used], model.mean_, atol=1e-6)
    if "entries" in kind:
        assert list(table) == ["mean", "background_mean"]
        return
    complete = np.nan_to_num(X)
    again = (complete - model.mean_) @ table[["filter_1", "filter_2", "filter_3"]][used]
    np.testing.assert_allclose(again, model.transform(complete), atol=1e-5)
    if "gaps" in kind:
        return
    assert result["params"].items() >= ({"n_comps": 3} | options).items()
    assert not {"layer", "mask_var"} & result["params"].keys()
    monkeypatch.setattr("scanpy_ext.tl._layers._AT_ONCE", 64)  # the 200 cells are four blocks
    for offset in ("foreground", "difference", "none"):
        cx.tl.denoise(cells, key=name, offset=offset)
        expected = model.denoise(X, offset=offset)
        np.testing.assert_allclose(cells.layers["denoised"], expected, atol=1e-4)
        assert cells.layers["denoised"].dtype == np.float32


def test_clvm_without_shared_variables_writes_an_empty_shared_embedding(cells):
    cx.tl.clvm(cells, **REFERENCE, n_shared=0, key_added="alone")
    assert cells.obsm["alone_shared"].shape == (200, 0)


def test_slots_of_kernel_cpca_hold_the_results_of_the_core(cells):
    cx.tl.kernel_cpca(cells, **REFERENCE, alpha=1.0, kernel_gamma=0.01)
    model = KernelCPCA(2, alpha=1.0, kernel_gamma=0.01)
    model.fit(cells.X, background=cells.X[cells.obs["is_ctrl"]])
    np.testing.assert_allclose(
        cells.obsm["X_kernel_cpca"], model.transform(cells.X), rtol=1e-5, atol=1e-5
    )
    assert "PCs_kernel_cpca" not in cells.varm
    # The default of `kernel_gamma` is computed from the scale of the data, so the scores do not
    # change if all data are multiplied by 10.
    other = cells.copy()
    other.X = sp.csr_matrix(other.X * 10)
    for adata in (cells, other):
        cx.tl.kernel_cpca(adata, **REFERENCE, alpha=1.0)
    np.testing.assert_allclose(other.obsm["X_kernel_cpca"], cells.obsm["X_kernel_cpca"], atol=1e-5)


@pytest.mark.parametrize("name", ["cpca", "cpca_star", "pcpca"])
def test_a_method_can_be_fitted_to_an_embedding(cells, name):
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0]
    cells.obsm["X_rotated"] = pd.DataFrame(cells.X @ rotation, index=cells.obs_names)
    getattr(cx.tl, name)(cells, **REFERENCE, n_comps=1)
    getattr(cx.tl, name)(cells, **REFERENCE, n_comps=1, obsm="X_rotated", key_added="on_top")
    # A rotation of all features changes at most the sign of the scores.
    plain, on_top = cells.obsm[f"X_{name}"], cells.obsm["on_top"]
    sign = np.sign(plain[:, 0] @ on_top[:, 0])
    np.testing.assert_allclose(sign * on_top, plain, atol=1e-4 * np.abs(plain).max())
    assert "on_top" not in cells.varm
    assert cells.uns["on_top"]["loadings"].shape == (12, 1)
    assert cells.uns["on_top"]["params"]["obsm"] == "X_rotated"
    new = cells[:50].copy()
    cx.tl.project(new, cells, key="on_top")
    np.testing.assert_allclose(new.obsm["on_top"], on_top[:50], atol=1e-5)
    with pytest.raises(ValueError, match="cannot be used for denoising"):
        cx.tl.denoise(cells, key="on_top")


def test_denoising_uses_the_layer_and_genes_of_the_fit(cells, untouched):
    cells.layers["log"] = sp.csr_matrix(cells.X.astype("float64"))
    cells.X = None
    with pytest.raises(ValueError, match=r"adata\.X is None. Give the name of the layer"):
        cx.tl.cpca(cells, **REFERENCE)
    use = np.arange(12) < 5
    cx.tl.cpca(cells, **REFERENCE, layer="log", mask_var=use)
    with untouched(cells), pytest.warns(ContrastWarning, match="7 of 12 genes .* are NaN in"):
        corrected = cx.tl.denoise(cells, layer_added="clean", copy=True)
    clean = corrected.layers["clean"]
    assert clean.dtype == np.float64
    assert np.isnan(clean[:, ~use]).all()
    centred = clean[:, use] - clean[:, use].mean(axis=0)
    assert subspace_error(np.linalg.svd(centred)[2][:2], cells.varm["PCs_cpca"][use].T) < 1e-6
    assert np.linalg.matrix_rank(centred) == 2


@pytest.mark.parametrize("n", [4096, 4097, 8193])  # near multiples of the block size
def test_every_cell_is_denoised(n):
    adata = AnnData(np.random.default_rng(0).normal([5, 0, 1], size=(n, 3)))
    adata.obs["condition"] = np.where(np.arange(n) % 2, "stim", "ctrl")
    cx.tl.cpca(adata, **REFERENCE, n_comps=2, alpha=0.5)
    cx.tl.denoise(adata)
    ctrl = (adata.obs["condition"] == "ctrl").to_numpy()
    expected = CPCA(2, alpha=0.5).fit(adata.X, background=adata.X[ctrl]).denoise(adata.X)
    np.testing.assert_allclose(adata.layers["denoised"], expected)


def test_errors_name_missing_and_repeated_genes(cells, untouched):
    cx.tl.cpca(cells, **REFERENCE)
    new = cells[:20, 2:].copy()
    with untouched(new), pytest.raises(ValueError, match=r"lacks 2 of the 12.*'gene0', 'gene1'"):
        cx.tl.project(new, cells)
    with pytest.warns(UserWarning, match="names are not unique"):
        both = AnnData(np.zeros((3, 13)), var=pd.DataFrame(index=[*cells.var_names, "gene0"]))
    with pytest.raises(ValueError, match="adata_new has several genes named 'gene0'"):
        cx.tl.project(both, cells)
    unique = cells.copy()
    cells.var_names = [*cells.var_names[:11], "gene0"]
    with pytest.raises(ValueError, match="adata_fitted has several genes named 'gene0'"):
        cx.tl.project(unique, cells)


def test_results_without_components_cannot_be_projected_or_denoised(cells):
    cx.tl.kernel_cpca(cells, **REFERENCE, alpha=1.0)
    cx.tl.cpca_path(cells, **REFERENCE)
    messages = {
        "kernel_cpca": "has no components in adata.*varm: expected a result of",
        "cpca_path": "has no components in adata.*varm: expected a result of",
        "cpca": r"no result 'cpca' of .*results are 'kernel_cpca', 'cpca_path'",
    }
    for key, message in messages.items():
        with pytest.raises(ValueError, match=message):
            cx.tl.project(cells, cells, key=key)
        with pytest.raises(ValueError, match=message):
            cx.tl.denoise(cells, key=key)


def test_top_genes_are_ranked_with_their_signs(cells):
    cx.tl.cpca(cells, **REFERENCE, mask_var=np.arange(12) < 8)
    table = cx.get.top_genes(cells, 2, None)
    loading = cells.varm["PCs_cpca"][:, 1]
    assert set(table.index) == set(cells.var_names[:8])
    np.testing.assert_array_equal(
        table["loading"], loading[cells.var_names.get_indexer(table.index)]
    )
    assert table["loading"].abs().is_monotonic_decreasing
    share = loading**2 / (loading**2).max()
    np.testing.assert_allclose(table["weight"], share[cells.var_names.get_indexer(table.index)])
    for positive in (True, False):
        ranks = table.loc[(table["loading"] > 0) == positive, "rank"]
        assert list(ranks) == list(range(1, len(ranks) + 1))
    pd.testing.assert_frame_equal(cx.get.top_genes(cells, 2, 3), table.iloc[:3])
    every = cx.get.top_genes(cells, None, 3)
    assert every["component"].to_list() == [1, 1, 1, 2, 2, 2]
    first, second = (
        every[every["component"] == number].drop(columns="component") for number in (1, 2)
    )
    pd.testing.assert_frame_equal(second, table.iloc[:3])
    pd.testing.assert_frame_equal(cx.get.top_genes(cells, n=3), first)  # without a component
