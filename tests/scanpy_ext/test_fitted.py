"""Tests of results that are used after genes were selected, reordered or renamed.

Other tests check which slots a result may replace.
"""

from __future__ import annotations

import anndata
import numpy as np
import pytest
import scipy.sparse as sp

import scanpy_ext as cx

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
USED = np.arange(12) > 2

# The pairs of simulated cells share little, which causes warnings.
pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")


LINEAR = ("cpca", "cpca_star", "pcpca", "clvm")


@pytest.mark.parametrize(
    "name",
    [
        *("cpca", "clvm", "pca_pp"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("cpca_star", "pcpca", "pca_plus")
        ),
    ],
)
def test_a_result_applies_after_genes_are_reordered_selected_or_renamed(
    cells, name, untouched, tmp_path
):
    cells.X[:, 5] += 20  # no other gene has this mean
    getattr(cx.tl, name)(cells, **REFERENCE, n_comps=1, mask_var=USED)
    assert list(cells.var.columns) == []  # the methods add no columns
    shared = {"PCs_clvm_shared"} if name == "clvm" else set()
    assert set(cells.varm) == {f"PCs_{name}", f"PCs_{name}_fit"} | shared
    assert next(iter(cells.obsm)) == f"X_{name}"
    assert set(cells.uns) - {"pairs"} == {name}
    if name in LINEAR:
        cx.tl.denoise(cells, key=name, offset="difference")

    order = np.random.default_rng(0).permutation(12)
    renamed, new = cells.copy(), cells.copy()
    renamed.var_names = [f"new {gene}" for gene in cells.var_names]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    cells.write_zarr(tmp_path / "cells.zarr")
    new = new[:, ::-1].copy()
    del new.obsm[f"X_{name}"]
    for fitted, genes in [
        (cells[:, order].copy(), order),
        (cells[:, USED].copy(), USED),
        (cells[:0, USED], None),  # an AnnData view
        (anndata.read_h5ad(tmp_path / "cells.h5ad")[:, ::-1].copy(), slice(None, None, -1)),
        (anndata.read_zarr(tmp_path / "cells.zarr"), slice(None)),
        (anndata.concat([cells[:90], cells[90:]], merge="same", uns_merge="same"), slice(None)),
        (renamed, slice(None)),
    ]:
        new.var_names = (renamed if fitted is renamed else cells).var_names[::-1]
        new.X = sp.csr_matrix(new.X) if fitted.is_view else new.X
        cx.tl.project(new, fitted, key=name, key_added="again")
        np.testing.assert_allclose(new.obsm["again"], cells.obsm[f"X_{name}"], atol=1e-4, rtol=1e-4)
        if name in LINEAR and genes is not None:
            cx.tl.denoise(fitted, key=name, offset="difference")
            expected = cells.layers["denoised"][:, genes]
            np.testing.assert_allclose(fitted.layers["denoised"], expected, atol=1e-5)

    fewer = cells[:, :7].copy()
    message = rf" has 4 of the 9 genes that \w+.uns\['{name}'\] was fitted to"
    with untouched(fewer):
        with pytest.raises(ValueError, match="adata_fitted" + message):
            cx.tl.project(cells.copy(), fewer, key=name)
        if name in LINEAR:
            with pytest.raises(ValueError, match="adata" + message):
                cx.tl.denoise(fewer, key=name)
    for slot in (f"PCs_{name}", f"PCs_{name}_fit"):
        incomplete = cells.copy()
        del incomplete.varm[slot]
        with pytest.raises(ValueError, match=r"has no components in adata_fitted\.varm"):
            cx.tl.project(cells.copy(), incomplete, key=name)


@pytest.mark.parametrize("key", ["spatial", "neighbors", "pca", "X_pca", "PCs"])
def test_results_of_other_packages_are_not_replaced(cells, key, untouched):
    """Check keys (`key_added`) that are names of slots of scanpy or squidpy."""
    cells.obsm["spatial"] = cells.obsm["X_pca"] = cells.X[:, :2]
    cells.varm["PCs"] = np.ones((12, 2))
    cells.uns["neighbors"] = {"params": {"method": "umap"}}
    cells.uns["pca"] = {"params": {}, "variance": np.ones(2)}
    calls = [getattr(cx.tl, name) for name in LINEAR]
    if key in cells.uns:
        calls += [cx.tl.cpca_path, cx.tl.kernel_cpca, cx.pp.contrast_check]
    with untouched(cells):
        for call in calls:
            with pytest.raises(ValueError, match=rf"'{key}'\] would be replaced"):
                call(cells, **REFERENCE, key_added=key)
    cx.tl.cpca(cells, **REFERENCE)
    cells.layers["mine"] = cells.X.copy()
    with untouched(cells):
        if key in cells.obsm:
            with pytest.raises(ValueError, match=rf"obsm\['{key}'\] would be replaced"):
                cx.tl.project(cells, cells, key_added=key)
        with pytest.raises(ValueError, match=r"layers\['mine'\] would be replaced"):
            cx.tl.denoise(cells, layer_added="mine")
    for offset in ("foreground", "none"):  # the second call replaces the layer of the first
        cx.tl.denoise(cells, offset=offset)
    assert cells.uns["denoise"]["denoised"] == {"key": "cpca", "offset": "none"}


def test_a_result_replaces_all_parts_of_an_earlier_result_with_the_same_key(cells):
    for _ in range(2):
        cx.tl.cpca_star(cells, **REFERENCE, key_added="mine")  # replaced in the second round
        cx.tl.project(cells, cells, key="mine", key_added="again")
    cx.tl.pca_pp(cells, **REFERENCE, n_comps=1, key_added="mine")
    assert "cap" in cells.varm["mine_fit"]
    cx.tl.cpca(cells, **REFERENCE, key_added="mine")
    assert "cap" not in cells.varm["mine_fit"]
    cx.tl.kernel_cpca(cells, **REFERENCE, alpha=1.0, key_added="mine")
    assert not {"mine", "mine_fit"} & set(cells.varm)
    cx.tl.cpca(cells, **REFERENCE, key_added="mine")
    new = cells.copy()
    cx.tl.project(new, cells, key="mine", key_added="again")
    np.testing.assert_allclose(new.obsm["again"], cells.obsm["mine"], atol=1e-4)
    # anndata.concat drops `.uns`, so nothing shows that scanpy_ext wrote obsm['mine'].
    joined = anndata.concat([cells[:90], cells[90:]])
    with pytest.raises(ValueError, match=r"obsm\['mine'\] would be replaced"):
        cx.tl.cpca(joined, **REFERENCE, key_added="mine")
    with pytest.raises(ValueError, match=r"is the name of the results of scanpy_ext\.tl\.pcpca"):
        cx.tl.cpca(cells, **REFERENCE, key_added="pcpca")
