"""Results go with their genes: chosen, reordered, renamed, in a file, or from another method."""

from __future__ import annotations

import anndata
import numpy as np
import pytest

import scanpy_ext as cx

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
LINEAR = {
    "cpca": cx.tl.cpca,
    "cpca_star": cx.tl.cpca_star,
    "pcpca": cx.tl.pcpca,
    "clvm": cx.tl.clvm,
}
PAIRED = {"groupby": "condition", "reference": "ctrl", "n_comps": 1}
USED = np.arange(12) > 2

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")  # of weak pairs


@pytest.fixture(params=[*LINEAR, "pca_pp", "pca_plus"])
def fitted(request, cells):
    """Cells with a result, and its name."""
    cells.X[:, 5] += 20  # a mean that another gene does not have
    if request.param in LINEAR:
        LINEAR[request.param](cells, **REFERENCE, mask_var=USED)
    else:
        getattr(cx.tl, request.param)(cells, **PAIRED, mask_var=USED)
    return cells, request.param


def check(cells, name, expected_cells):
    """The result of some cells against what it was before something was done to them."""
    new = expected_cells.copy()
    del new.obsm[f"X_{name}"]
    cx.tl.project(new, cells, key=name)
    expected = expected_cells.obsm[f"X_{name}"]
    np.testing.assert_allclose(new.obsm[f"X_{name}"], expected, atol=1e-4, rtol=1e-4)


def test_genes_may_be_reordered(fitted):
    cells, name = fitted
    order = np.random.default_rng(0).permutation(12)
    moved = cells[:, order].copy()
    check(moved, name, cells)
    if name in LINEAR:
        cx.tl.denoise(cells, key=name, offset="difference")
        cx.tl.denoise(moved, key=name, offset="difference")
        np.testing.assert_allclose(
            moved.layers["denoised"], cells.layers["denoised"][:, order], atol=1e-5
        )


def test_genes_not_in_use_may_go(fitted):
    cells, name = fitted
    fewer = cells[:, USED].copy()
    check(fewer, name, cells)
    check(cells[:0, USED], name, cells)  # a view
    if name in LINEAR:
        cx.tl.denoise(cells, key=name)
        cx.tl.denoise(fewer, key=name)
        np.testing.assert_allclose(
            fewer.layers["denoised"], cells.layers["denoised"][:, USED], atol=1e-5
        )


def test_genes_in_use_may_not_go(fitted, untouched):
    cells, name = fitted
    fewer = cells[:, [0, 1, 2, 3, 4, 5, 6]].copy()
    message = rf" has 4 of the 9 genes that \w+.uns\['{name}'\] was fitted to"
    with untouched(fewer), pytest.raises(ValueError, match="adata_fitted" + message):
        cx.tl.project(cells.copy(), fewer, key=name)
    if name in LINEAR:
        with untouched(fewer), pytest.raises(ValueError, match="adata" + message):
            cx.tl.denoise(fewer, key=name)


@pytest.mark.parametrize("file_format", ["h5ad", "zarr"])
def test_a_result_is_used_from_a_file(fitted, tmp_path, file_format):
    cells, name = fitted
    path = tmp_path / f"cells.{file_format}"
    getattr(cells, f"write_{file_format}")(path)
    read = getattr(anndata, f"read_{file_format}")(path)
    check(read[:, ::-1].copy(), name, cells)


def test_renamed_genes_and_joined_cells_keep_their_result(fitted):
    cells, name = fitted
    joined = anndata.concat([cells[:90], cells[90:]], merge="same", uns_merge="same")
    check(joined, name, cells)
    renamed = cells.copy()
    renamed.var_names = [f"new {gene}" for gene in cells.var_names]
    before = cells.copy()
    before.var_names = renamed.var_names
    check(renamed, name, before)


def test_all_of_a_result_is_under_one_key_and_no_column_of_the_genes(fitted):
    cells, name = fitted
    assert list(cells.var.columns) == []
    assert set(cells.varm) == {f"PCs_{name}", f"PCs_{name}_fit"} | (
        {"PCs_clvm_shared"} if name == "clvm" else set()
    )
    assert next(iter(cells.obsm)) == f"X_{name}"
    assert set(cells.uns) - {"pairs"} == {name}


@pytest.mark.parametrize("key", ["spatial", "neighbors", "pca", "X_pca", "PCs"])
def test_nothing_of_another_package_is_replaced(cells, key, untouched):
    """Slots of scanpy and squidpy, whichever of a result's slots they are."""
    cells.obsm["spatial"] = cells.obsm["X_pca"] = cells.X[:, :2]
    cells.varm["PCs"] = np.ones((12, 2))
    cells.uns["neighbors"] = {"params": {"method": "umap"}}
    cells.uns["pca"] = {"params": {}, "variance": np.ones(2)}
    calls = [*LINEAR.values(), cx.tl.cpca_path, cx.tl.kernel_cpca, cx.pp.contrast_check]
    with untouched(cells):
        for call in calls if key in cells.uns else calls[:-1]:
            if (call is cx.tl.cpca_path or call is cx.tl.kernel_cpca) and key not in cells.uns:
                continue
            with pytest.raises(ValueError, match=rf"'{key}'\] would be replaced"):
                call(cells, **REFERENCE, key_added=key)
    cx.tl.cpca(cells, **REFERENCE)
    if key in cells.obsm:
        with pytest.raises(ValueError, match=rf"obsm\['{key}'\] would be replaced"):
            cx.tl.project(cells, cells, key_added=key)
    cx.tl.cpca(cells, **REFERENCE, key_added="mine")
    cx.tl.cpca_star(cells, **REFERENCE, key_added="mine")  # its own
    cx.tl.project(cells, cells, key="mine", key_added="again")
    cx.tl.project(cells, cells, key="mine", key_added="again")
    joined = anndata.concat([cells[:90], cells[90:]])  # which loses .uns
    cx.tl.cpca(joined, **REFERENCE)
    with pytest.raises(ValueError, match=r"obsm\['mine'\] would be replaced"):
        cx.tl.cpca(joined, **REFERENCE, key_added="mine")
    with pytest.raises(ValueError, match=r"is the name of the results of scanpy_ext\.tl\.pcpca"):
        cx.tl.cpca(cells, **REFERENCE, key_added="pcpca")


def test_a_method_leaves_nothing_of_another_under_its_name(cells):
    cx.tl.pca_pp(cells, **PAIRED, key_added="mine")
    assert "cap" in cells.varm["mine_fit"]
    cx.tl.cpca(cells, **REFERENCE, key_added="mine")
    assert "cap" not in cells.varm["mine_fit"]
    cx.tl.kernel_cpca(cells, **REFERENCE, alpha=1.0, key_added="mine")
    assert not cells.varm
    cx.tl.cpca(cells, **REFERENCE, key_added="mine")
    new = cells.copy()
    cx.tl.project(new, cells, key="mine", key_added="again")
    np.testing.assert_allclose(new.obsm["again"], cells.obsm["mine"], atol=1e-4)
