"""Matrices in a file and in dask give what the same matrix in memory gives."""

from __future__ import annotations

import anndata
import numpy as np
import pytest
import scipy.sparse as sp

import scanpy_ext as cx
from scanpy_ext import _matrix

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
FUNCTIONS = [cx.tl.cpca, cx.tl.cpca_path, cx.tl.cpca_star, cx.tl.pcpca]
FORMATS = {"dense": np.asarray, "csr": sp.csr_matrix, "csc": sp.csc_matrix}


@pytest.fixture
def backed(cells, tmp_path):
    """The cells in a file, in each format; closed after the test."""
    opened = []

    def write(kind):
        cells.X = FORMATS[kind](cells.X)
        cells.write_h5ad(tmp_path / f"{kind}.h5ad")
        opened.append(anndata.read_h5ad(tmp_path / f"{kind}.h5ad", backed="r"))
        return opened[-1]

    yield write
    for adata in opened:
        adata.file.close()


def dask_backed(adata, n_rows=37):
    """A copy with a dask matrix in chunks that split genes too, where they are dense."""
    array = pytest.importorskip("dask.array")
    other = adata.copy()
    chunks = (n_rows, -1 if sp.issparse(adata.X) else 5)
    other.X = array.from_array(adata.X, chunks=chunks, asarray=False)
    return other


def assert_same(adata, expected):
    assert list(adata.obsm) == list(expected.obsm)
    for slot in ("obsm", "varm"):
        for key, value in getattr(expected, slot).items():
            found = getattr(adata, slot)[key]
            assert type(found) is np.ndarray
            np.testing.assert_allclose(found, value, atol=1e-6 * np.abs(value).max())


@pytest.mark.parametrize("mask_var", [None, np.arange(12) % 3 > 0], ids=["all genes", "masked"])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_backed(cells, backed, monkeypatch, function, kind, mask_var):
    monkeypatch.setattr(_matrix, "_READ_ELEMENTS", 40 * 12)  # several blocks
    arguments = {**REFERENCE, "mask_var": mask_var, "n_comps": 1}
    adata = backed(kind)
    function(cells, **arguments)
    function(adata, **arguments)
    assert adata.isbacked
    assert_same(adata, cells)


@pytest.mark.parametrize("mask_var", [None, np.arange(12) % 3 > 0], ids=["all genes", "masked"])
@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_dask(cells, function, kind, mask_var):
    cells.X = FORMATS[kind](cells.X)
    arguments = {**REFERENCE, "mask_var": mask_var, "n_comps": 1}
    adata = dask_backed(cells)
    function(cells, **arguments)
    function(adata, **arguments)
    assert hasattr(adata.X, "dask")
    assert_same(adata, cells)


def test_a_dask_layer_and_another_anndata_on_disk(cells, backed):
    control, stimulated = (cells[cells.obs["condition"] == c].copy() for c in ("ctrl", "stim"))
    expected = cx.tl.cpca(stimulated, background=control, n_comps=1, copy=True)
    lazy = dask_backed(stimulated)
    lazy.layers["log"] = lazy.X
    control.layers["log"] = control.X
    cx.tl.cpca(lazy, background=control, layer="log", n_comps=1)
    assert_same(lazy, expected)
    on_disk = backed("csr")
    cx.tl.cpca(stimulated, background=on_disk.to_memory()[cells.obs["is_ctrl"]].copy(), n_comps=1)
    cx.tl.cpca(lazy, background=on_disk, n_comps=1)


def test_a_file_is_read_once_for_the_fit(cells, backed, monkeypatch):
    adata = backed("csr")
    read = []
    original = _matrix.StoredMatrix.__getitem__
    monkeypatch.setattr(_matrix, "_READ_ELEMENTS", 40 * 12)

    def counted(self, rows):
        read.append(range(*rows.indices(self.shape[0])))
        return original(self, rows)

    monkeypatch.setattr(_matrix.StoredMatrix, "__getitem__", counted)
    cx.tl.cpca(adata, **REFERENCE)
    # Once for the moments of both sets, once to embed the cells.
    assert sum(map(len, read)) == 2 * adata.n_obs


def test_new_cells_and_corrected_layers_from_files(cells, backed):
    adata = backed("csr")
    for one in (cells, adata, lazy := dask_backed(cells)):
        cx.tl.cpca(one, **REFERENCE)
        cx.tl.denoise(one)
    for one in (adata, lazy):
        np.testing.assert_allclose(one.layers["denoised"], cells.layers["denoised"], atol=1e-4)
        cx.tl.project(one, cells, key_added="again")
        np.testing.assert_allclose(one.obsm["again"], cells.obsm["X_cpca"], atol=1e-5)


def test_what_a_backed_anndata_cannot_do_is_said(cells, backed):
    adata = backed("csr")
    with pytest.raises(ValueError, match="copy=True: a backed AnnData cannot be copied"):
        cx.tl.cpca(adata, **REFERENCE, copy=True)
    with pytest.raises(ValueError, match="a view of a backed AnnData"):
        cx.tl.cpca(adata[:150], **REFERENCE)
    for function in (cx.tl.kernel_cpca, cx.pp.contrast_check):
        with pytest.raises(TypeError, match=r"in a file or in dask.*adata\.to_memory"):
            function(adata, **REFERENCE)
    with pytest.raises(TypeError, match=r"adata\.to_memory"):
        cx.tl.significance(adata, donor=None, **REFERENCE)
    with pytest.raises(TypeError, match=r"in memory.*adata\.to_memory"):
        cx.pp.match_pairs(adata, "condition", "ctrl", n_comps=5)
    assert not adata.obsm


@pytest.mark.parametrize("where", ["file", "dask"])
def test_values_that_are_not_finite_are_found_wherever_they_are(cells, backed, where):
    cells.X[3, 4] = np.nan
    adata = backed("dense") if where == "file" else dask_backed(cells)
    with pytest.raises(ValueError, match="NaN"):
        cx.tl.cpca(adata, **REFERENCE)
    assert not adata.obsm
    cx.tl.cpca(adata, **REFERENCE, mask_var=np.arange(12) != 4)


def test_progress_is_shown_if_asked_for(cells, backed):
    shown = []

    def bar(items, total, desc):
        items = list(items)
        shown.append((len(items), total))
        return items

    for adata in (cells, backed("csr")):
        shown.clear()
        cx.tl.cpca(adata, **REFERENCE, progress=bar)
        assert shown
        assert all(n == total for n, total in shown)
