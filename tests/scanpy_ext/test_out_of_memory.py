"""Tests that a matrix in a file or in dask gives the same results as a matrix in memory."""

from __future__ import annotations

import tracemalloc
from functools import partial

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib import pyplot as plt

import scanpy_ext as cx
from contrast_core.rows import load_into_memory, rows_of
from scanpy_ext import _read

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
PAIRING = REFERENCE | {"donor": "donor"}
BY_CLUSTER = {"method": "clusters", "clusters": "type", "key_added": "clusters"}
FEW = {"n_permutations": 19, "n_resamples": 5}
# Every function that reads the matrix. A later function can use the results of an earlier one.
EVERY = {
    "cpca": partial(cx.tl.cpca, **REFERENCE),
    "cpca_path": partial(cx.tl.cpca_path, **REFERENCE),
    "cpca_star": partial(cx.tl.cpca_star, **REFERENCE),
    "pcpca": partial(cx.tl.pcpca, **REFERENCE),
    "clvm": partial(cx.tl.clvm, **REFERENCE),
    "kernel_cpca": partial(cx.tl.kernel_cpca, **REFERENCE, alpha=1.0),
    "match_pairs": partial(cx.pp.match_pairs, **PAIRING, n_comps=3, cell_type="type"),
    "pca_pp": partial(cx.tl.pca_pp, **PAIRING, n_comps=2, truncation=6),
    "pca_plus": partial(cx.tl.pca_plus, **PAIRING, n_comps=2, scale=False),
    "significance": partial(cx.tl.significance, donor="donor", **REFERENCE, test_kwargs=FEW),
    "significance by cell": partial(
        cx.tl.significance, donor=None, **REFERENCE, test_kwargs=FEW, key_added="by cell"
    ),
    "contrast_check": partial(cx.pp.contrast_check, **REFERENCE, donor="donor", cell_type="type"),
    "within": partial(cx.tl.pcpca, **REFERENCE, within="donor", key_added="within"),
    "genes_by_variance": partial(cx.pp.genes_by_variance, n_top_genes=5),
    "contrasts": partial(cx.tl.contrasts, **REFERENCE, by="type"),
    "contrasts by donor": partial(
        cx.tl.contrasts, **REFERENCE, by="type", donor="donor", key_added="by donor"
    ),
    "response": partial(cx.tl.response, **PAIRING),
    "denoise": partial(cx.tl.denoise, key="cpca"),
    "impute": partial(cx.tl.impute, key="pcpca", layer="dense"),
    "clusters": partial(cx.pp.match_pairs, **PAIRING, **BY_CLUSTER, n_comps=3),
    "stored pairs": partial(cx.tl.pca_pp, n_comps=2, truncation=6, key_added="stored"),
}
FORMATS = {"dense": np.asarray, "csr": sp.csr_matrix, "csc": sp.csc_matrix}
# Where a matrix is stored; a name without a place means an h5ad file.
IN_FILE = ["dense", "csr", "csc"]

# The cells are few and some genes are left out, which causes warnings about the contrast.
pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")


@pytest.fixture
def design(cells):
    """Return cells of five donors and two types, of which two cells have no condition."""
    cells.obs["donor"] = [f"donor {i % 5}" for i in range(200)]
    cells.obs["type"] = [f"type {i // 4 % 2}" for i in range(200)]
    cells.obs["condition"] = cells.obs["condition"].where(np.arange(200) % 100 != 1)
    cells.X[cells.obs["type"] == "type 1", 3:6] += 6
    cells.X = np.maximum(cells.X, 0) / 3
    cells.layers["dense"] = np.array(cells.X)
    return cells


@pytest.fixture
def lazy(design, tmp_path):
    """Return a function that stores the cells of `design` in a file or a dask array."""
    opened = []

    def put(where):
        kind, _, place = where.partition(" in ")
        if kind == "lazy":
            experimental = pytest.importorskip("anndata.experimental")
            pytest.importorskip("xarray")
            getattr(design, f"write_{place}")(tmp_path / f"cells.{place}")
            return experimental.read_lazy(tmp_path / f"cells.{place}")
        design.X = FORMATS[kind](design.X)
        if not place:
            design.write_h5ad(tmp_path / f"{kind}.h5ad")
            opened.append(anndata.read_h5ad(tmp_path / f"{kind}.h5ad", backed="r"))
            return opened[-1]
        other = design.copy()
        if place == "dask":
            # Chunks of a dense matrix also split the genes.
            chunks = (37, 5 if kind == "dense" else -1)
            dask = pytest.importorskip("dask.array")
            other.X = dask.from_array(design.X, chunks=chunks, asarray=False)
            return other
        zarr = pytest.importorskip("zarr")
        design.write_zarr(tmp_path / "cells.zarr")
        stored = zarr.open(tmp_path / "cells.zarr", mode="r")["X"]
        other.X = stored if kind == "dense" else anndata.io.sparse_dataset(stored)
        return other

    yield put
    for adata in opened:
        adata.file.close()


def assert_alike(found, expected):
    """Check that two values that an AnnData can hold are equal up to rounding.

    The types of labels and numbers may differ, because a file can change them.
    """
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_alike(found[key], expected[key])
    elif isinstance(expected, pd.DataFrame):
        # anndata names the index of a table `_index` in a lazy AnnData, so names are not compared.
        kinds = {"check_dtype": False, "check_index_type": False, "check_column_type": False}
        kinds["check_categorical"] = False
        pd.testing.assert_frame_equal(found, expected, rtol=1e-5, check_names=False, **kinds)
    elif sp.issparse(expected):
        np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-5)
    elif np.asarray(expected).dtype.kind == "f":
        scale = np.nanmax(np.abs(expected), initial=0.0)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * scale)
    else:
        np.testing.assert_array_equal(found, expected)


def results(adata):
    layers = {key: np.asarray(value) for key, value in adata.layers.items() if key != "dense"}
    slots = ("obsm", "varm", "obsp", "uns")
    return {"layers": layers} | {slot: dict(getattr(adata, slot)) for slot in slots}


def compare(cells, stored):
    """Run every function on both AnnData, and compare the written slots and returned values."""
    for call in EVERY.values():
        call(cells)
        call(stored)
    for one in (cells, stored):
        cx.tl.project(one, cells, key="cpca", key_added="projected")
        cx.tl.project(one, one, key="pca_pp", key_added="again")
    assert_alike(results(stored), results(cells))


@pytest.mark.parametrize(
    ("where", "masked"),
    [
        *(("dense", False), ("lazy in zarr", False), ("csr", True)),
        *(
            pytest.param(where, False, marks=pytest.mark.slow)
            for where in ("csc", "csr in dask", "csr in zarr", "lazy in h5ad")
        ),
        *(pytest.param(where, True, marks=pytest.mark.slow) for where in ("csc", "dense in dask")),
    ],
)
def test_matrices_in_files_and_in_dask_give_the_same_results(design, lazy, where, masked):
    if masked:
        design.var["highly_variable"] = np.arange(12) < 11
    adata = lazy(where)
    matrix = type(adata.X)
    compare(design, adata)
    assert type(adata.X) is matrix


@pytest.mark.parametrize("where", ["dense", "csr", "csc", "csr in dask"])
@pytest.mark.parametrize("name", list(EVERY)[5:12])
def test_a_function_that_fails_writes_nothing(design, lazy, name, where):
    design.X[[3, 4], 4] = np.nan
    adata = lazy(where)
    call = EVERY[name]
    with pytest.raises(ValueError, match="NaN"):
        call(adata)
    if name != "contrast_check":
        with pytest.raises(ValueError, match="n_comps=13 is out of range: with 12 genes in use"):
            call(adata, n_comps=13)
    if adata.isbacked:
        with pytest.raises(ValueError, match="copy=True: a backed AnnData cannot be copied"):
            call(adata, copy=True)
        with pytest.raises(ValueError, match="a view of a backed AnnData"):
            call(adata[:150])
    assert not any(results(adata).values())
    call(adata, mask_var=np.arange(12) != 4)


def test_a_file_is_read_once_for_the_fit(design, lazy, monkeypatch):
    adata = lazy("csr")
    read = []
    dataset = type(adata.X)
    original = dataset.__getitem__

    def counted(self, rows):
        read.append(range(*rows.indices(self.shape[0])))
        return original(self, rows)

    monkeypatch.setattr(dataset, "__getitem__", counted)
    cx.tl.cpca(adata, **REFERENCE)
    # All cells are read twice: once for the moments of both sets, and once for the scores.
    assert sum(map(len, read)) <= 2 * adata.n_obs
    read.clear()
    cx.tl.contrasts(adata, **REFERENCE, by="type")
    assert sum(map(len, read)) <= 3 * adata.n_obs


@pytest.mark.parametrize("place", ["h5ad", "zarr"])
def test_chunks_of_a_lazy_sparse_matrix_are_joined(tmp_path, monkeypatch, place):
    for package in ("xarray", "dask", "zarr"):
        pytest.importorskip(package)
    adata = anndata.AnnData(sp.random(5500, 12, 0.5, "csr", "float32", random_state=0))
    path = tmp_path / f"cells.{place}"
    getattr(adata, f"write_{place}")(path)
    lazy = anndata.experimental.read_lazy(path).X
    for n_threads, edges in {
        1: [0, 5500],
        2: [0, 3000, 5500],
        6: [*range(0, 5500, 1000), 5500],  # every thread keeps a chunk
    }.items():
        monkeypatch.setattr("os.cpu_count", lambda n=n_threads: n)
        rows = rows_of(lazy)
        assert rows.edges() == edges
        assert (rows.load() != adata.X).nnz == 0
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    # A chunk may have half as many entries as a block; 1,000 rows have 6,000 entries.
    monkeypatch.setattr("contrast_core.rows._dask.ELEMENTS", 26_000)
    assert rows_of(lazy).edges() == [0, 2000, 4000, 5500]
    assert rows_of(lazy[:3500]).edges() == [0, 1000, 2000, 3000, 3500]  # a selection


@pytest.mark.parametrize("where", IN_FILE)
@pytest.mark.parametrize(
    "function", [cx.tl.cpca, cx.tl.kernel_cpca, partial(cx.tl.significance, donor="donor")]
)
def test_the_background_may_be_stored_elsewhere(design, lazy, function, where):
    expected, adata = design[100:].copy(), design[100:].copy()
    function(expected, background=design.copy())
    other = lazy(where)
    function(adata, background=other)
    assert_alike(results(adata), results(expected))


@pytest.mark.parametrize("where", ["csr", "csc", "csr in dask"])
def test_only_the_cells_and_genes_in_use_are_loaded_into_memory(tmp_path, where):
    rng = np.random.default_rng(0)
    matrix = sp.random(3000, 4000, density=0.05, format="csr", random_state=rng, dtype="float32")
    adata = anndata.AnnData(sp.csc_matrix(matrix) if where == "csc" else matrix)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    adata = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    if where == "csr in dask":
        chunks = anndata.experimental.read_elem_lazy(adata.file["X"], chunks=(250, 4000))
        adata = anndata.AnnData(chunks, adata.obs)
    dask = pytest.importorskip("dask")

    def load():
        read = _read.read_matrix(adata, layer=None, mask_var=np.arange(4000) < 400, n_comps=2)
        used = np.arange(3000) < 1000
        return load_into_memory(read[0].replace(elements=2**18).take(used)).load()

    # By default dask would load as many chunks at once as there are threads.
    with dask.config.set(scheduler="synchronous"):
        load()  # the first call imports modules
        tracemalloc.start()
        found = load()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found != matrix[:1000, :400]).nnz == 0
    # The limit is the size of the stored values, which is half of the memory of the sparse matrix.
    # A dense matrix would need ten times as much memory as the sparse matrix.
    assert peak < matrix.data.nbytes


@pytest.mark.parametrize("file_format", [pytest.param("zarr", marks=pytest.mark.slow), "h5ad"])
def test_results_read_from_a_file_can_be_plotted(design, tmp_path, file_format):
    for call in EVERY.values():
        call(design)
    cx.tl.cpca(
        design, foreground="is_stim", background="is_ctrl", obsm="X_cpca", alpha=0.0, key_added="on"
    )
    cx.tl.cpca_path(design, **REFERENCE, obsm="X_pcpca", key_added="path")
    path = tmp_path / f"results.{file_format}"
    getattr(design, f"write_{file_format}")(path)
    again = getattr(anndata, f"read_{file_format}")(path)
    assert_alike(results(again), results(design))
    assert_alike(again.obs, design.obs)
    EVERY["stored pairs"](again)
    assert_alike(again.obsm["stored"], design.obsm["stored"])
    assert len(cx.pl.match_pairs(again, show=False)) == 3
    assert len(cx.pl.contrast_check(again, show=False)) == 2
    axes = cx.pl.cpca_path(again, "condition", show=False)
    assert len(axes) == len(again.uns["cpca_path"]["representatives"])
    for key, exploratory in (("significance", False), ("by cell", True)):
        title = cx.pl.significance(again, key=key, show=False)[0].get_title()
        assert ("exploratory" in title) == exploratory
    for key in ("contrasts", "by donor"):
        assert len(cx.pl.contrasts(again, key=key, show=False)) == 2
    plt.close("all")


@pytest.mark.slow
@pytest.mark.usefixtures("cluster", "one_cluster")
def test_a_lazy_anndata_on_a_cluster_gives_the_same_results(design, lazy):
    design.X = sp.csr_matrix(design.X)
    stored = lazy("lazy in zarr")
    compare(design, stored)
    options = {"groupby": "condition", "cell_type": "type", "reps": "X_cpca"}
    assert_alike(*(cx.get.mixing_report(one, **options) for one in (stored, design)))
