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
PAIRED = {"condition": "condition", "reference": "ctrl", "n_comps": 1}
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
    message = rf"adata has 4 of the 9 genes that adata.uns\['{name}'\] was fitted to"
    with untouched(fewer), pytest.raises(ValueError, match=message):
        cx.tl.project(cells.copy(), fewer, key=name)
    if name in LINEAR:
        with untouched(fewer), pytest.raises(ValueError, match=message):
            cx.tl.denoise(fewer, key=name)


@pytest.mark.parametrize("file_format", ["h5ad", "zarr"])
def test_a_result_is_used_from_a_file(fitted, tmp_path, file_format):
    cells, name = fitted
    path = tmp_path / f"cells.{file_format}"
    getattr(cells, f"write_{file_format}")(path)
    read = getattr(anndata, f"read_{file_format}")(path)
    check(read[:, ::-1].copy(), name, cells)


def test_results_of_an_earlier_version_are_refused(fitted):
    cells, name = fitted
    old = cells.copy()
    old.uns[name] = dict(old.uns[name]) | {"mean": old.var[f"{name}_mean"].to_numpy()}
    old.var = old.var.drop(columns=[column for column in old.var if column.startswith(name)])
    message = rf"no column '{name}_in_use' .* an earlier version kept the means in .uns.*again"
    with pytest.raises(ValueError, match=message):
        cx.tl.project(cells, old, key=name)
    del old.uns[name]["mean"]
    with pytest.raises(ValueError, match=rf"no column '{name}_in_use' .*\]: Run the method again"):
        cx.tl.project(cells, old, key=name)


def test_a_method_leaves_nothing_of_another_under_its_name(cells):
    cx.tl.pca_pp(cells, **PAIRED, key_added="mine")
    assert {"mine_cap", "mine_mean", "mine_in_use"} <= set(cells.var)
    cx.tl.cpca(cells, **REFERENCE, key_added="mine")
    assert "mine_cap" not in cells.var
    assert "mine_filters" not in cells.varm
    new = cells.copy()
    cx.tl.project(new, cells, key="mine", key_added="again")
    np.testing.assert_allclose(new.obsm["again"], cells.obsm["mine"], atol=1e-4)
