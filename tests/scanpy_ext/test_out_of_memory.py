"""Matrices in a file and in dask give what the same matrix in memory gives."""

from __future__ import annotations

import tracemalloc
from functools import partial

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import scanpy_ext as cx
from contrast_core import ContrastWarning
from contrast_core.rows import load_into_memory
from scanpy_ext import _read

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
PAIRING = {"groupby": "condition", "reference": "ctrl", "donor": "donor"}
FUNCTIONS = [cx.tl.cpca, cx.tl.cpca_path, cx.tl.cpca_star, cx.tl.pcpca, cx.tl.clvm]
# Those that need rows.
NEED_ROWS = {
    "match_pairs": partial(cx.pp.match_pairs, **PAIRING, n_comps=3, cell_type="type"),
    "pca_pp": partial(cx.tl.pca_pp, **PAIRING, n_comps=2, truncation=6),
    "pca_plus": partial(cx.tl.pca_plus, **PAIRING, n_comps=2, scale=False),
    "significance": partial(
        cx.tl.significance,
        donor="donor",
        **REFERENCE,
        test_kwargs={"n_permutations": 19, "n_resamples": 5},
    ),
    "significance by cell": partial(
        cx.tl.significance,
        donor=None,
        **REFERENCE,
        test_kwargs={"n_permutations": 19, "n_resamples": 5},
    ),
    "contrast_check": partial(cx.pp.contrast_check, **REFERENCE, donor="donor", cell_type="type"),
    "kernel_cpca": partial(cx.tl.kernel_cpca, **REFERENCE, alpha=1.0),
}
WHERE = ["dense", "csr", "csc", "dense in dask", "csr in dask", "dense in zarr", "csr in zarr"]
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


@pytest.fixture
def design(cells):
    """The cells, of five donors and two types; 20 without a condition."""
    cells.obs["donor"] = [f"donor {i % 5}" for i in range(200)]
    cells.obs["type"] = [f"type {i // 4 % 2}" for i in range(200)]
    cells.obs["condition"] = cells.obs["condition"].where(np.arange(200) % 10 > 0)
    cells.X[cells.obs["type"] == "type 1", 3:6] += 6
    cells.X = np.maximum(cells.X, 0) / 3
    return cells


@pytest.fixture
def lazy(design, backed, tmp_path):
    """The same cells somewhere else than in memory."""

    def put(where):
        kind, _, place = where.partition(" in ")
        if not place:
            return backed(kind)
        design.X = FORMATS[kind](design.X)
        if place == "dask":
            return dask_backed(design)
        zarr = pytest.importorskip("zarr")
        design.write_zarr(tmp_path / "cells.zarr")
        stored = zarr.open(tmp_path / "cells.zarr", mode="r")["X"]
        other = design.copy()
        other.X = stored if kind == "dense" else anndata.io.sparse_dataset(stored)
        return other

    return put


def assert_alike(found, expected):
    """Equal, but for rounding, in all that an AnnData can hold."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_alike(found[key], expected[key])
    elif isinstance(expected, pd.DataFrame):
        # anndata names the index of a table in a lazy AnnData `_index`.
        pd.testing.assert_frame_equal(found, expected, rtol=1e-5, check_names=False)
    elif sp.issparse(expected):
        np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-5)
    elif np.asarray(expected).dtype.kind == "f":
        scale = np.abs(expected).max() if np.isfinite(expected).all() else 0
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * scale)
    else:
        np.testing.assert_array_equal(found, expected)


def results(adata):
    return {slot: dict(getattr(adata, slot)) for slot in ("obsm", "varm", "obsp", "uns")}


def assert_same(adata, expected):
    assert list(adata.obsm) == list(expected.obsm)
    for slot in ("obsm", "varm"):
        for key, value in getattr(expected, slot).items():
            found = getattr(adata, slot)[key]
            assert type(found) is type(value)
            largest = np.nanmax(np.abs(np.asarray(value)))
            np.testing.assert_allclose(found, value, atol=1e-6 * largest)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_backed(cells, backed, function, kind):
    arguments = {**REFERENCE, "mask_var": np.arange(12) % 3 > 0, "n_comps": 1}
    adata = backed(kind)
    function(cells, **arguments)
    function(adata, **arguments)
    assert adata.isbacked
    assert_same(adata, cells)


@pytest.mark.parametrize(
    ("kind", "mask_var"), [("dense", None), ("csr", np.arange(12) % 3 > 0)], ids=["all", "masked"]
)
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
    dataset = type(adata.X)
    original = dataset.__getitem__

    def counted(self, rows):
        read.append(range(*rows.indices(self.shape[0])))
        return original(self, rows)

    monkeypatch.setattr(dataset, "__getitem__", counted)
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
    assert not adata.obsm


@pytest.mark.parametrize("mask_var", [None, np.arange(12) < 11], ids=["all genes", "masked"])
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", NEED_ROWS)
def test_methods_that_need_rows(design, lazy, name, where, mask_var):
    adata = lazy(where)
    matrix = type(adata.X)
    NEED_ROWS[name](design, mask_var=mask_var)
    NEED_ROWS[name](adata, mask_var=mask_var)
    assert type(adata.X) is matrix
    assert any(results(adata).values())
    assert_alike(results(adata), results(design))


@pytest.mark.parametrize("where", WHERE)
def test_stored_pairs_serve_cells_that_are_elsewhere(design, lazy, where):
    adata = lazy(where)
    for one in (design, adata):
        cx.pp.match_pairs(one, *PAIRING.values(), method="clusters", clusters="type", n_comps=3)
        cx.tl.pca_pp(one, n_comps=2, truncation=6)
        cx.tl.project(one, one, key="pca_pp", key_added="again")
    assert_alike(results(adata), results(design))
    np.testing.assert_allclose(adata.obsm["again"], adata.obsm["X_pca_pp"], atol=1e-6)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    "function", [cx.tl.kernel_cpca, partial(cx.tl.significance, donor="donor")]
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


@pytest.mark.parametrize("where", ["dense", "csr", "csc", "csr in dask"])
@pytest.mark.parametrize("name", NEED_ROWS)
def test_if_it_fails_nothing_is_written(design, lazy, name, where):
    design.X[[3, 4], 4] = np.nan
    adata = lazy(where)
    with pytest.raises(ValueError, match="NaN"):
        NEED_ROWS[name](adata)
    if name != "contrast_check":
        with pytest.raises(ValueError, match="n_comps=13, but it must be from 1 to 12"):
            NEED_ROWS[name](adata, n_comps=13)
    if adata.isbacked:
        with pytest.raises(ValueError, match="copy=True: a backed AnnData cannot be copied"):
            NEED_ROWS[name](adata, copy=True)
        with pytest.raises(ValueError, match="a view of a backed AnnData"):
            NEED_ROWS[name](adata[:150])
    assert not any(results(adata).values())
    NEED_ROWS[name](adata, mask_var=np.arange(12) != 4)


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

    with dask.config.set(scheduler="synchronous"):  # as many chunks at once as there are threads
        load()  # imports
        tracemalloc.start()
        found = load()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found != matrix[:1000, :400]).nnz == 0
    assert peak < matrix.data.nbytes  # which is half of the matrix; a dense one is ten times that


@pytest.mark.parametrize("where", ["file", "dask"])
def test_values_that_are_not_finite_are_found_wherever_they_are(cells, backed, where):
    cells.X[3, 4] = np.nan
    adata = backed("dense") if where == "file" else dask_backed(cells)
    with pytest.raises(ValueError, match="NaN"):
        cx.tl.cpca(adata, **REFERENCE)
    assert not adata.obsm
    cx.tl.cpca(adata, **REFERENCE, mask_var=np.arange(12) != 4)


@pytest.mark.parametrize("where", ["zarr", "h5ad"])
def test_a_lazy_anndata_gives_the_same_or_is_refused_in_words(cells, tmp_path, where):
    experimental = pytest.importorskip("anndata.experimental")
    pytest.importorskip("xarray")
    cells.obs["donor"] = [f"d{i // 2 % 8}" for i in range(200)]
    cells.var["used"] = np.arange(12) > 2
    getattr(cells, f"write_{where}")(tmp_path / f"cells.{where}")
    lazy = experimental.read_lazy(tmp_path / f"cells.{where}")
    calls = [
        partial(cx.tl.cpca, **REFERENCE, mask_var="used"),
        partial(cx.tl.pcpca, **REFERENCE, within="donor", key_added="mine"),
        partial(cx.tl.cpca_star, foreground="is_stim", background="is_ctrl"),
        partial(cx.pp.match_pairs, groupby="condition", reference="ctrl", donor="donor", n_comps=4),
        partial(cx.tl.pca_plus, n_comps=2),
        partial(cx.tl.denoise, key="cpca_star"),
    ]
    for call in calls:
        call(cells)
        call(lazy)
    assert_same(lazy, cells)
    np.testing.assert_allclose(lazy.layers["denoised"], cells.layers["denoised"], atol=1e-4)
    options = {"groupby": "condition", "cell_type": "donor", "reps": "X_cpca", "n_seeds": 1}
    reports = [cx.get.mixing_report(adata, **options) for adata in (lazy, cells)]
    np.testing.assert_allclose(*reports, atol=0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two processes on this machine; a slow start is no failure."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "60s"}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",  # a free port
            local_directory=str(tmp_path_factory.mktemp("dask")),
            silence_logs=50,
        ) as started,
        distributed.Client(started) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_lazy_anndata_on_a_cluster_gives_what_one_in_memory_does(design, tmp_path):
    experimental = pytest.importorskip("anndata.experimental")
    pytest.importorskip("xarray")
    design.obs["condition"] = np.where(np.arange(200) < 100, "ctrl", "stim")
    design.X = sp.csr_matrix(design.X)
    design.write_zarr(tmp_path / "cells.zarr")
    lazy = experimental.read_lazy(tmp_path / "cells.zarr")
    calls = [
        *(partial(function, **REFERENCE) for function in FUNCTIONS),
        *NEED_ROWS.values(),
        partial(cx.pp.genes_by_variance, n_top_genes=5),
        partial(cx.tl.contrasts, **REFERENCE, by="type"),
        partial(cx.tl.contrasts, **REFERENCE, by="type", donor="donor", key_added="by donor"),
        partial(cx.tl.response, **REFERENCE, donor="donor"),
        partial(cx.tl.denoise, key="cpca"),
    ]
    for call in calls:
        call(design)
        call(lazy)
    assert_alike(results(lazy), results(design))
