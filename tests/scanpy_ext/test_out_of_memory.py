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
from contrast_core import ContrastWarning
from contrast_core.rows import load_into_memory
from scanpy_ext import _read

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
PAIRING = REFERENCE | {"donor": "donor"}
FEW = {"n_permutations": 19, "n_resamples": 5}
# Functions that need only moments of the data, and functions that need the cells themselves.
BY_MOMENTS = {
    name: partial(getattr(cx.tl, name), **REFERENCE)
    for name in ("cpca", "cpca_path", "cpca_star", "pcpca", "clvm")
}
BY_ROWS = {
    "match_pairs": partial(cx.pp.match_pairs, **PAIRING, n_comps=3, cell_type="type"),
    "pca_pp": partial(cx.tl.pca_pp, **PAIRING, n_comps=2, truncation=6),
    "pca_plus": partial(cx.tl.pca_plus, **PAIRING, n_comps=2, scale=False),
    "significance": partial(cx.tl.significance, donor="donor", **REFERENCE, test_kwargs=FEW),
    "significance by cell": partial(cx.tl.significance, donor=None, **REFERENCE, test_kwargs=FEW),
    "contrast_check": partial(cx.pp.contrast_check, **REFERENCE, donor="donor", cell_type="type"),
    "kernel_cpca": partial(cx.tl.kernel_cpca, **REFERENCE, alpha=1.0),
}
EVERY = BY_MOMENTS | BY_ROWS
WHERE = ["dense", "csr", "csc", "dense in dask", "csr in dask", "dense in zarr", "csr in zarr"]
# Some storage formats are tested with all genes, and others with a mask of genes.
MASKED = {None: WHERE[::2], "masked": ["dense", "csr", "csc", "dense in dask", "csr in zarr"]}
FORMATS = {"dense": np.asarray, "csr": sp.csr_matrix, "csc": sp.csc_matrix}


@pytest.fixture
def backed(cells, tmp_path):
    """Return a function that writes the cells to a file and opens it in backed mode."""
    opened = []

    def write(kind):
        cells.X = FORMATS[kind](cells.X)
        cells.write_h5ad(tmp_path / f"{kind}.h5ad")
        opened.append(anndata.read_h5ad(tmp_path / f"{kind}.h5ad", backed="r"))
        return opened[-1]

    yield write
    for adata in opened:
        adata.file.close()


@pytest.fixture
def design(cells):
    """Return cells of five donors and two types, of which 20 cells have no condition."""
    cells.obs["donor"] = [f"donor {i % 5}" for i in range(200)]
    cells.obs["type"] = [f"type {i // 4 % 2}" for i in range(200)]
    cells.obs["condition"] = cells.obs["condition"].where(np.arange(200) % 10 > 0)
    cells.X[cells.obs["type"] == "type 1", 3:6] += 6
    cells.X = np.maximum(cells.X, 0) / 3
    return cells


@pytest.fixture
def lazy(design, backed, tmp_path):
    """Return a function that stores the cells of `design` in a file or a dask array."""

    def put(where):
        kind, _, place = where.partition(" in ")
        if not place:
            return backed(kind)
        design.X = FORMATS[kind](design.X)
        if place == "dask":
            other = design.copy()
            # Chunks of a dense matrix also split the genes.
            chunks = (37, 5 if kind == "dense" else -1)
            dask = pytest.importorskip("dask.array")
            other.X = dask.from_array(design.X, chunks=chunks, asarray=False)
            return other
        zarr = pytest.importorskip("zarr")
        design.write_zarr(tmp_path / "cells.zarr")
        stored = zarr.open(tmp_path / "cells.zarr", mode="r")["X"]
        other = design.copy()
        other.X = stored if kind == "dense" else anndata.io.sparse_dataset(stored)
        return other

    return put


def assert_alike(found, expected):
    """Check that two values that an AnnData can hold are equal up to rounding."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_alike(found[key], expected[key])
    elif isinstance(expected, pd.DataFrame):
        # anndata names the index of a table `_index` in a lazy AnnData, so names are not compared.
        pd.testing.assert_frame_equal(found, expected, rtol=1e-5, check_names=False)
    elif sp.issparse(expected):
        np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-5)
    elif np.asarray(expected).dtype.kind == "f":
        scale = np.abs(expected).max() if np.isfinite(expected).all() else 0
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * scale)
    else:
        np.testing.assert_array_equal(found, expected)


def results(adata):
    layers = {key: np.asarray(value) for key, value in adata.layers.items()}
    slots = ("obsm", "varm", "obsp", "uns")
    return {"layers": layers} | {slot: dict(getattr(adata, slot)) for slot in slots}


@pytest.mark.parametrize(("masked", "where"), [(m, where) for m in MASKED for where in MASKED[m]])
@pytest.mark.parametrize("name", EVERY)
def test_the_same_wherever_the_matrix_is(design, lazy, name, where, masked):
    mask_var = np.arange(12) < 11 if masked else None
    adata = lazy(where)
    matrix = type(adata.X)
    for one in (design, adata):
        EVERY[name](one, mask_var=mask_var)
    assert type(adata.X) is matrix
    assert any(results(adata).values())
    assert_alike(results(adata), results(design))


@pytest.mark.parametrize("where", WHERE)
def test_functions_after_a_fit_work_wherever_the_matrix_is(design, lazy, where):
    adata = lazy(where)
    for one in (design, adata):
        cx.pp.match_pairs(one, *PAIRING.values(), method="clusters", clusters="type", n_comps=3)
        cx.tl.pca_pp(one, n_comps=2, truncation=6)
        cx.tl.project(one, one, key="pca_pp", key_added="again")
        cx.tl.cpca(one, **REFERENCE)
        cx.tl.denoise(one)
        cx.tl.project(one, design, key_added="new")
    assert_alike(results(adata), results(design))


@pytest.mark.parametrize("where", ["dense", "csr", "csc", "csr in dask"])
@pytest.mark.parametrize("name", ["cpca", *BY_ROWS])
def test_if_it_fails_nothing_is_written(design, lazy, name, where):
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


def test_a_file_is_read_once_for_the_fit(cells, backed, monkeypatch):
    adata = backed("csr")
    read = []
    dataset = type(adata.X)
    original = dataset.__getitem__

    def counted(self, rows):
        read.append(range(*rows.indices(self.shape[0])))
        return original(self, rows)

    monkeypatch.setattr(dataset, "__getitem__", counted)
    cx.tl.cpca(adata, **REFERENCE)
    # All cells are read twice: once for the moments of both sets, and once to embed the cells.
    assert sum(map(len, read)) == 2 * adata.n_obs


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    "function", [cx.tl.cpca, cx.tl.kernel_cpca, partial(cx.tl.significance, donor="donor")]
)
def test_the_background_may_be_elsewhere(design, lazy, function, where):
    expected, adata = design[100:].copy(), design[100:].copy()
    function(expected, background=design.copy())
    other = lazy(where)
    function(adata, background=other)
    assert_alike(results(adata), results(expected))


@pytest.mark.parametrize("where", WHERE)
def test_warnings_about_the_contrast_are_the_same(design, lazy, where):
    design.X[:, :10] = np.round(design.X[:, :10])
    design.var["one_sided"] = np.isin(np.arange(12), [0, 2, 1, 7])
    design.X[design.obs["is_ctrl"], 7:9] *= [1, 40]
    adata = lazy(where)
    told = []
    for one in (design, adata):
        with pytest.warns(ContrastWarning, match="look like raw counts.*gene") as caught:
            cx.pp.contrast_check(one, **REFERENCE, mask_var="one_sided")
        told.append(str(caught[0].message))
    assert told[0] == told[1]
    with pytest.warns(ContrastWarning, match="look like raw counts"):
        cx.pp.match_pairs(adata, *PAIRING.values(), n_comps=3, mask_var=np.arange(12) < 10)


@pytest.mark.parametrize("where", ["csr", "csc", "csr in dask"])
def test_only_the_cells_and_genes_in_use_are_held(tmp_path, where):
    rng = np.random.default_rng(0)
    matrix = sp.random(3000, 4000, density=0.05, format="csr", random_state=rng, dtype="float32")
    adata = anndata.AnnData(sp.csc_matrix(matrix) if where == "csc" else matrix)
    adata.obs["condition"] = np.where(np.arange(3000) % 2, "stim", "ctrl")
    adata.obs.loc[adata.obs_names[1000:], "condition"] = None
    adata.write_h5ad(tmp_path / "cells.h5ad")
    adata = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    if where == "csr in dask":
        lazy = anndata.experimental.read_elem_lazy(adata.file["X"], chunks=(250, 4000))
        adata = anndata.AnnData(lazy, adata.obs)
    used = np.zeros(3000, dtype=bool)
    used[:1000] = True
    dask = pytest.importorskip("dask")

    def load():
        read = _read.read_matrix(adata, layer=None, mask_var=np.arange(4000) < 400, n_comps=2)
        return load_into_memory(read[0].replace(elements=2**18).take(used)).load()

    # By default dask would load as many chunks at once as there are threads.
    with dask.config.set(scheduler="synchronous"):
        load()  # the first call imports modules
        tracemalloc.start()
        found = load()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found != matrix[:1000, :400]).nnz == 0
    # The limit is the size of the stored values, which take half of the sparse matrix's memory. A
    # dense matrix would need ten times the memory of the sparse matrix.
    assert peak < matrix.data.nbytes


CALLS = [
    *EVERY.values(),
    partial(cx.tl.pcpca, **REFERENCE, within="donor", mask_var="used", key_added="mine"),
    partial(cx.pp.genes_by_variance, n_top_genes=5),
    partial(cx.tl.contrasts, **REFERENCE, by="type"),
    partial(cx.tl.contrasts, **REFERENCE, by="type", donor="donor", key_added="by donor"),
    partial(cx.tl.response, **REFERENCE, donor="donor"),
    partial(cx.tl.denoise, key="cpca"),
    partial(cx.tl.impute, key="pcpca", layer="dense"),
]


@pytest.fixture
def stored(design, tmp_path):
    """Return the cells in memory, and a function that writes them and reads them lazily."""
    experimental = pytest.importorskip("anndata.experimental")
    pytest.importorskip("xarray")
    design.obs["condition"] = np.where(np.arange(200) < 100, "ctrl", "stim")
    design.var["used"] = np.arange(12) > 2
    design.layers["dense"] = np.array(design.X)

    def read(file_format):
        getattr(design, f"write_{file_format}")(tmp_path / f"cells.{file_format}")
        return experimental.read_lazy(tmp_path / f"cells.{file_format}")

    return design, read


def compare(cells, lazy):
    """Run every function on both AnnData, and compare the written slots and returned values."""
    for call in CALLS:
        call(cells)
        call(lazy)
    for one in (cells, lazy):
        cx.tl.project(one, cells, key="cpca", key_added="projected")
    assert_alike(results(lazy), results(cells))
    options = {"groupby": "condition", "cell_type": "type", "reps": "X_cpca", "n_seeds": 1}
    assert_alike(*(cx.get.mixing_report(one, **options) for one in (lazy, cells)))


@pytest.mark.parametrize("file_format", ["zarr", "h5ad"])
def test_a_lazy_anndata_gives_the_same(stored, file_format):
    cells, read = stored
    compare(cells, read(file_format))


@pytest.mark.parametrize("file_format", ["zarr", "h5ad"])
def test_results_survive_a_file_and_are_plotted(stored, tmp_path, file_format):
    cells, _ = stored
    for call in CALLS:
        call(cells)
    cx.tl.cpca(
        cells, foreground="is_stim", background="is_ctrl", obsm="X_cpca", alpha=0.0, key_added="on"
    )
    cx.tl.cpca_path(cells, **REFERENCE, obsm="X_pcpca", key_added="path")
    cx.tl.pca_pp(cells, n_comps=2, truncation=6, key_added="stored")  # uses the stored pairs
    path = tmp_path / f"results.{file_format}"
    getattr(cells, f"write_{file_format}")(path)
    again = getattr(anndata, f"read_{file_format}")(path)
    assert_plain(results(again), results(cells))
    assert_plain(dict(again.obs), dict(cells.obs))
    cx.tl.pca_pp(again, n_comps=2, truncation=6, key_added="stored")
    assert_alike(again.obsm["stored"], cells.obsm["stored"])
    assert len(cx.pl.match_pairs(again, show=False)) == 3
    assert len(cx.pl.contrast_check(again, show=False)) == 2
    axes = cx.pl.cpca_path(again, "condition", show=False)
    assert len(axes) == len(again.uns["cpca_path"]["representatives"])
    assert "exploratory" in cx.pl.significance(again, show=False)[0].get_title()
    for key in ("contrasts", "by donor"):
        assert len(cx.pl.contrasts(again, key=key, show=False)) == 2
    plt.close("all")


def assert_plain(found, expected):
    """Check that two values are equal, apart from types that a file may have changed."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_plain(found[key], expected[key])
    elif sp.issparse(expected):
        assert (found != expected).nnz == 0
    elif isinstance(expected, pd.DataFrame):
        kinds = {"check_dtype": False, "check_index_type": False, "check_column_type": False}
        pd.testing.assert_frame_equal(found, expected, **kinds)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Start a dask cluster of two processes, with a long time limit for the start."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "60s"}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",  # any free port
            local_directory=str(tmp_path_factory.mktemp("dask")),
            silence_logs=50,
        ) as started,
        distributed.Client(started) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_lazy_anndata_on_a_cluster_gives_the_same(stored):
    cells, read = stored
    cells.X = sp.csr_matrix(cells.X)
    lazy = read("zarr")
    compare(cells, lazy)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_the_network_is_trained_on_a_cluster(stored):
    """Compare losses approximately, because chunks change the order of minibatches."""
    pytest.importorskip("torch", reason="torch is not installed")
    cells, read = stored
    lazy = read("zarr")
    for one in (cells, lazy):
        cx.tl.cvae(one, **REFERENCE, noise="normal", model_kwargs={"max_iter": 3})
    found, expected = (one.uns["cvae"]["held_out_loss"] for one in (lazy, cells))
    np.testing.assert_allclose(found, expected, rtol=0.03)
    assert lazy.obsm["X_cvae"].shape == (200, 2)
