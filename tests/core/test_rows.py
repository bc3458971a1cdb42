"""Rows of data of every kind: the same numbers wherever they lie, whatever is selected of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core.rows import Rows, joint_blocks, pieces, rows_of

N, D = 230, 11


@pytest.fixture(scope="module")
def values() -> Any:
    rng = np.random.default_rng(0)
    made = rng.normal(size=(N, D))
    made[rng.random(made.shape) < 0.5] = 0
    return made.astype(np.float32)


def _frame(values: Any, folder: Path) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(values, columns=list("abcdefghijk"))


def _memory_map(values: Any, folder: Path) -> Any:
    np.save(folder / "x.npy", values)
    return np.load(folder / "x.npy", mmap_mode="r")


def _h5py(values: Any, folder: Path, **options: Any) -> Any:
    file = pytest.importorskip("h5py").File(folder / "x.h5", "w")
    return file.create_dataset("X", data=values, **options)


def _zarr(values: Any, folder: Path) -> Any:
    zarr = pytest.importorskip("zarr")
    dataset = zarr.create_array(folder / "x.zarr", shape=values.shape, chunks=(30, 4), dtype="f4")
    dataset[:] = values
    return dataset


def _backed(kind: Any, values: Any, folder: Path) -> Any:
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(kind(values)).write_h5ad(folder / "x.h5ad")
    return anndata.read_h5ad(folder / "x.h5ad", backed="r").X


def _dask(values: Any, folder: Path, chunks: Any = (40, 4), kind: Any = None) -> Any:
    array = pytest.importorskip("dask.array").from_array(values, chunks=chunks)
    return array if kind is None else array.map_blocks(kind)


def _tensor(values: Any, folder: Path, dtype: str = "float32") -> Any:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.as_tensor(values).to(getattr(torch, dtype)).requires_grad_()


def _duplicated(values: Any, folder: Path) -> Any:
    """A CSR matrix with every entry in two parts and columns out of order."""
    once = sp.csr_matrix(values[:, ::-1])
    twice = sp.csr_matrix(
        (once.data.repeat(2) / 2, D - 1 - once.indices.repeat(2), once.indptr * 2), shape=(N, D)
    )
    assert not twice.has_canonical_format
    return twice


KINDS: dict[str, Callable[[Any, Path], Any]] = {
    "array": lambda values, folder: values,
    "Fortran order": lambda values, folder: np.asfortranarray(values),
    "list": lambda values, folder: values.tolist(),
    "data frame": _frame,
    "memory map": _memory_map,
    "CSR": lambda values, folder: sp.csr_matrix(values),
    "CSC array": lambda values, folder: sp.csc_array(values),
    "COO": lambda values, folder: sp.coo_matrix(values),
    "duplicates": _duplicated,
    "HDF5": _h5py,
    "HDF5 in chunks": partial(_h5py, chunks=(25, 3), compression="gzip"),
    "HDF5 in rows": partial(_h5py, chunks=(25, D)),
    "zarr": _zarr,
    "backed": partial(_backed, np.asarray),
    "backed CSR": partial(_backed, sp.csr_matrix),
    "backed CSC": partial(_backed, sp.csc_matrix),
    "dask": _dask,
    "dask CSR": partial(_dask, chunks=(40, D), kind=sp.csr_matrix),
    "dask CSC": partial(_dask, chunks=(40, D), kind=sp.csc_array),
    "tensor": _tensor,
    "rows": lambda values, folder: rows_of(values),
}
SELECTIONS: dict[str, tuple[Any, Any]] = {
    "all": (slice(None), slice(None)),
    "masks": (np.arange(N) % 7 > 2, np.arange(D) % 3 > 0),
    "indices": (np.flatnonzero(np.arange(N) % 5 == 1), np.array([9, 2, 3])),
    "slices": (slice(30, 150), slice(2, 9)),
}


@pytest.fixture(params=list(KINDS))
def data(request: pytest.FixtureRequest, values: Any, tmp_path: Path) -> Any:
    return KINDS[request.param](values, tmp_path)


@pytest.fixture(params=list(SELECTIONS))
def selection(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return SELECTIONS[request.param]


def picked(values: Any, selection: tuple[Any, Any]) -> Any:
    rows, columns = selection
    return values[rows][:, columns]


def dense(block: Any) -> Any:
    return block.toarray() if sp.issparse(block) else block


def made(data: Any, selection: tuple[Any, Any], elements: int = 20 * D) -> Rows:
    rows, columns = selection
    return rows_of(data, "cells", elements=elements).columns(columns).take(rows)


def test_every_way_of_reading_gives_what_was_selected(
    values: Any, data: Any, selection: tuple[Any, Any]
) -> None:
    rows, expected = made(data, selection), picked(values, selection)
    assert rows.shape == expected.shape
    np.testing.assert_array_equal(dense(rows.load()), expected)
    np.testing.assert_array_equal(rows.load(dense=True), expected)
    blocks = list(rows.blocks())
    np.testing.assert_array_equal(np.concatenate([dense(block) for block in blocks]), expected)
    for block in blocks:
        assert sp.issparse(block) == rows.is_sparse
        assert not rows.is_sparse or (block.format == "csr" and block.has_canonical_format)
        assert block.dtype == rows.dtype
        assert 0 < block.shape[0] <= 60
    dense_blocks = list(rows.blocks(dense=True, elements=10 * D))
    assert all(type(block) in (np.ndarray, np.memmap) for block in dense_blocks)
    np.testing.assert_array_equal(np.concatenate(dense_blocks), expected)
    edges = rows.edges()
    assert edges[0] == 0 and edges[-1] == len(expected)
    for start, stop in [*pairwise(edges), (0, len(expected)), (1, len(expected)), (0, 0)]:
        np.testing.assert_array_equal(dense(rows.read(start, stop)), expected[start:stop])


def test_columns_are_read_in_blocks(values: Any, data: Any, selection: tuple[Any, Any]) -> None:
    rows, expected = made(data, selection), picked(values, selection)
    for width in (None, 2, 3, 100):
        found = list(rows.column_blocks(width))
        starts = [which.start for which, _ in found]
        assert [which.stop for which, _ in found] == [*starts[1:], expected.shape[1]]
        for which, block in found:
            np.testing.assert_array_equal(dense(block), expected[:, which])
            assert sp.issparse(block) == rows.is_sparse
            assert not sp.issparse(block) or block.format == "csc"
            np.testing.assert_array_equal(rows.read_columns(which), expected[:, which])
    assert [which.start for which, _ in rows.column_blocks(2)] == [*range(0, rows.shape[1], 2)]


def test_a_map_stays_where_the_data_are(values: Any, data: Any, selection: tuple[Any, Any]) -> None:
    rows, expected = made(data, selection), picked(values, selection)
    matrix = np.random.default_rng(1).normal(size=(rows.shape[1], 2))
    found = rows.map(partial(_product, matrix=matrix), 2)
    assert found.shape == (len(expected), 2)
    if rows.place == "dask":
        found = found.compute()
    if hasattr(found, "detach"):
        assert found.requires_grad
        found = found.detach().numpy()
    np.testing.assert_allclose(found, expected @ matrix, atol=1e-6)


def _product(rows: Any, matrix: Any) -> Any:
    return rows @ matrix


def test_selections_of_selections(values: Any, data: Any) -> None:
    rows = rows_of(data).columns(np.arange(D) != 3).take(np.arange(N) > 20)
    some = rows.take(np.arange(N - 21) % 3 == 0).columns([4, 5, 6]).take(slice(5, 40))
    expected = values[21:][::3][5:40][:, [5, 6, 7]]
    np.testing.assert_array_equal(dense(some.load()), expected)
    every = np.delete(values, 3, axis=1)[:, [4, 5, 6]]
    np.testing.assert_array_equal(dense(some.take_all().load()), every)
    np.testing.assert_array_equal(dense(rows.load()), np.delete(values, 3, axis=1)[21:])


def test_several_selections_are_read_in_one_pass(values: Any, data: Any) -> None:
    sets = [np.isin(np.arange(N) % 9, some) for some in ([0, 4], [1], [5, 7, 8])]
    sets.append((np.arange(N) % 9 == 2) & (np.arange(N) > 200))
    whole = rows_of(data, elements=20 * D).columns(np.arange(D) > 1)
    found: list[list[Any]] = [[] for _ in sets]
    for i, block in joint_blocks([whole.take(mask) for mask in sets]):
        assert block.shape[0] > 0
        found[i].append(dense(block))
    for blocks, mask in zip(found, sets, strict=True):
        np.testing.assert_array_equal(np.concatenate(blocks), values[mask][:, 2:])


def test_selections_that_overlap_are_made_of_pieces(values: Any, data: Any) -> None:
    whole = rows_of(data, elements=20 * D).columns(np.arange(D) > 1)
    sets = [np.arange(N) < 90, np.arange(N) % 2 == 0, (np.arange(N) > 50) & (np.arange(N) < 70)]
    found = pieces([whole.take(mask) for mask in sets])
    assert found is not None
    parts, made_of = found
    together = np.concatenate([dense(part.load()) for part in parts])
    assert len(together) == np.logical_or.reduce(sets).sum()
    for mask, which in zip(sets, made_of, strict=True):
        rows = np.concatenate([dense(parts[i].load()) for i in which])
        expected = values[mask][:, 2:]
        np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(expected, axis=0))


def test_what_is_not_of_one_dataset_has_no_pieces(values: Any) -> None:
    whole = rows_of(values)
    assert pieces([whole.take(slice(9)), rows_of(values.copy())]) is None
    assert pieces([whole.take(slice(9)), whole.columns(slice(1, 5))]) is None
    assert pieces([whole.take([3, 2]), whole]) is None
    assert pieces([whole.take([]), whole]) is None


class Watched:
    """A dataset that records which rows are read."""

    def __init__(self, values: Any, chunks: tuple[int, int] | None = None) -> None:
        self.values, self.chunks = values, chunks
        self.shape, self.dtype = values.shape, values.dtype
        self.read: list[tuple[int, int]] = []

    def __getitem__(self, key: Any) -> Any:
        assert isinstance(key, slice)
        self.read.append((key.start, key.stop))
        return self.values[key]


@pytest.mark.parametrize(("n_chunk", "step"), [(25, 50), (60, 60), (1, 64)])
def test_blocks_are_whole_storage_chunks(values: Any, n_chunk: int, step: int) -> None:
    dataset = Watched(values, (n_chunk, 5))
    list(rows_of(dataset, elements=64 * D).blocks())
    assert dataset.read == [(i, min(i + step, N)) for i in range(0, N, step)]
    dataset.read.clear()
    # Of chunks without a row that was asked for, nothing is read; of others what is between them.
    mask = np.zeros(N, dtype=bool)
    mask[[3, 7, 151, 152]] = True
    list(rows_of(dataset, elements=64 * D).take(mask).blocks())
    assert dataset.read == [(3, 8), (151, 153)]


def test_one_pass_reads_no_row_twice(values: Any) -> None:
    dataset = Watched(values, (10, D))
    whole = rows_of(dataset, elements=40 * D)
    parts = [whole.take(np.arange(N) % 2 == parity) for parity in (0, 1)]
    list(joint_blocks(parts))
    assert [start for start, _ in dataset.read] == [*range(0, N, 40)]
    assert sum(stop - start for start, stop in dataset.read) == N


def test_nothing_is_copied_where_nothing_is_left_out(values: Any) -> None:
    for data in (values, np.asfortranarray(values)):
        rows = rows_of(data)
        assert np.shares_memory(rows.load(), data)
        assert all(np.shares_memory(block, data) for block in rows.blocks())
        assert np.shares_memory(rows.take(slice(3, 50)).columns(slice(2, 6)).load(), data)
    sparse = sp.csr_matrix(values)
    assert rows_of(sparse).load() is sparse
    tensor = pytest.importorskip("torch", reason="torch is not installed").as_tensor(values)
    assert np.shares_memory(rows_of(tensor).load(), values)


def test_data_stay_as_they_were(values: Any, tmp_path: Path) -> None:
    twice = _duplicated(values, tmp_path)
    entries = twice.nnz
    rows_of(twice).load().data[:] = 0
    assert twice.nnz == entries
    assert twice.data.any()


def test_rows_say_what_they_are(values: Any, tmp_path: Path) -> None:
    said = {}
    for kind, make in KINDS.items():
        folder = tmp_path / kind
        folder.mkdir()
        rows = rows_of(make(values, folder), "cells")
        said[kind] = (rows.place, rows.is_sparse, rows.reads_rows, rows.reads_columns)
        assert rows.in_memory == (rows.place == "memory")
        assert rows.name == ("cells" if kind != "rows" else "X")
        assert rows.names == (tuple("abcdefghijk") if kind == "data frame" else None)
        assert rows.dtype == (np.float64 if kind == "list" else np.float32)
        assert (rows.device is not None) == (kind == "tensor")
    assert said["array"] == said["memory map"] == ("memory", False, True, True)
    assert said["CSR"] == said["COO"] == ("memory", True, True, True)
    assert said["CSC array"] == ("memory", True, False, True)
    assert said["HDF5 in chunks"] == said["zarr"] == ("stored", False, True, True)
    assert said["HDF5 in rows"] == ("stored", False, True, False)
    assert said["backed CSR"] == ("stored", True, True, False)
    assert said["backed CSC"] == ("stored", True, False, True)
    assert said["dask"] == ("dask", False, True, False)
    assert said["dask CSC"] == ("dask", True, True, False)


def test_names_follow_the_columns(values: Any, tmp_path: Path) -> None:
    frame = _frame(values, tmp_path)
    assert rows_of(frame).columns([2, 0]).names == ("c", "a")
    assert rows_of(values, names="ABCDEFGHIJK").columns(slice(0, 3)).names == ("A", "B", "C")
    assert rows_of(rows_of(frame), names="ABCDEFGHIJK").names == tuple("ABCDEFGHIJK")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("list", "rows")])
def test_only_what_is_selected_must_be_finite(values: Any, tmp_path: Path, kind: str) -> None:
    bad = values.copy()
    bad[100, 3] = np.nan
    bad[7, 5] = np.inf
    rows = rows_of(KINDS[kind](bad, tmp_path), "cells", elements=20 * D)
    reads: list[Callable[[Rows], Any]] = [
        lambda some: list(some.blocks()),
        lambda some: some.load(),
        lambda some: some.read_columns(slice(0, some.shape[1])),
        lambda some: np.asarray(some.map(partial(_product, matrix=np.ones((some.shape[1], 1))), 1)),
    ]
    if kind == "tensor":
        reads.pop()
    with pytest.raises(ValueError, match=r"NaN first met in feature 3\)"):
        rows.columns(slice(2, 5)).load()
    clean = rows.take(np.arange(N) % 93 != 7).columns(np.arange(D) != 3)
    for read in reads:
        with pytest.raises(ValueError, match=r"cells.* contains NaN or inf"):
            read(rows)
        with pytest.raises(ValueError, match="contains NaN or inf"):
            read(rows.take(np.arange(N) > 10))
        read(clean)
    list(rows.blocks(check=False))


def test_a_tensor_that_is_not_finite_is_refused(values: Any, tmp_path: Path) -> None:
    bad = values.copy()
    bad[100, 3] = np.nan
    rows = rows_of(_tensor(bad, tmp_path))
    with pytest.raises(ValueError, match="X contains NaN or inf"):
        rows.map(partial(_product, matrix=np.ones((D, 1))), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_selected_is_refused(values: Any, tmp_path: Path, kind: str) -> None:
    rows = rows_of(KINDS[kind](values, tmp_path))
    with pytest.raises(ValueError, match=f"mask of rows has 5 entries but X has {N} rows"):
        rows.take(np.ones(5, bool))
    with pytest.raises(ValueError, match=f"mask of columns has {N} entries but X has {D} columns"):
        rows.columns(np.ones(N, bool))
    with pytest.raises(ValueError, match=f"0 to {N} asked for; X has {N} rows"):
        rows.take([0, N])
    with pytest.raises(TypeError, match=r"columns of X are float64 .* expected a mask or whole"):
        rows.columns([0.5])
    if rows.in_memory:
        np.testing.assert_array_equal(dense(rows.take([5, 2, 5, -1]).load()), values[[5, 2, 5, -1]])
        return
    with pytest.raises(ValueError, match="not in memory: give ascending indices or a mask"):
        rows.take([5, 2])
    with pytest.raises(ValueError, match="not in memory"):
        rows.take([5, 5])


def test_what_holds_no_table_is_refused(values: Any) -> None:
    for data in (values[0], values[None], Watched(values[:, 0]), 3.0, "text"):
        with pytest.raises(ValueError, match=r"Expected 2D|dim 3|two dimensions|expected <= 2"):
            rows_of(data)
    with pytest.raises(ValueError, match="Complex data not supported"):
        rows_of(values * 1j)
    with pytest.raises(ValueError, match="Complex data not supported"):
        list(rows_of(Watched(values * 1j)).blocks())
    masked = np.ma.masked_greater(values, 1)
    with pytest.raises(TypeError, match=r"X is a masked array with \d+ masked entries"):
        rows_of(masked)
    np.testing.assert_array_equal(rows_of(np.ma.masked_array(values)).load(), values)
    with pytest.raises(ValueError, match=r"cells has n_samples=3, but at least 4 is needed"):
        rows_of(rows_of(values, "cells").take(slice(0, 3)), min_rows=4)
    with pytest.raises(ValueError, match="2 feature_names were given for the 11 features of X"):
        rows_of(values, names="ab")


@pytest.mark.parametrize("kind", ["array", "CSR", "HDF5", "backed CSR", "backed CSC", "dask"])
def test_no_rows_are_no_blocks(values: Any, tmp_path: Path, kind: str) -> None:
    rows = rows_of(KINDS[kind](values, tmp_path)).take(np.zeros(N, bool))
    assert rows.shape == (0, D)
    assert list(rows.blocks()) == []
    assert rows.load().shape == (0, D)
    assert np.asarray(rows.map(partial(_product, matrix=np.ones((D, 2))), 2)).shape == (0, 2)


def test_chunks_of_unknown_size(values: Any) -> None:
    array = _dask(values, Path())
    rows = rows_of(array[array[:, 0] > 0])
    assert np.isnan(rows.shape[0])
    expected = values[values[:, 0] > 0]
    np.testing.assert_array_equal(rows.load(), expected)
    np.testing.assert_array_equal(np.concatenate(list(rows.blocks())), expected)
    np.testing.assert_array_equal(
        rows.columns([2, 1]).map(partial(_product, matrix=np.eye(2)), 2), expected[:, [2, 1]]
    )
    with pytest.raises(ValueError, match=r"unknown size: call compute_chunk_sizes\(\)"):
        rows.take(slice(0, 3))


@pytest.mark.parametrize("kind", ["array", "HDF5", "backed CSC", "dask", "tensor"])
def test_progress_counts_blocks(values: Any, tmp_path: Path, kind: str) -> None:
    seen: list[tuple[int, str, int]] = []

    def bar(items: Any, *, total: int, desc: str) -> Any:
        taken = list(items)
        seen.append((total, desc, len(taken)))
        return taken

    rows = rows_of(KINDS[kind](values, tmp_path), "cells", elements=20 * D, progress=bar)
    for read in (rows.blocks, rows.column_blocks):
        seen.clear()
        assert list(read())
        [(total, desc, count)] = seen
        assert total == count and desc == "cells"


def test_a_selected_part_of_dask_reads_no_other_chunk(values: Any) -> None:
    array = pytest.importorskip("dask.array")
    computed: list[int] = []

    def seen(block: Any, block_info: Any = None) -> Any:
        if block_info:
            computed.append(block_info[0]["chunk-location"][0])
        return block

    lazy = array.from_array(values, chunks=(40, D)).map_blocks(seen, dtype=values.dtype)
    computed.clear()
    rows = rows_of(lazy).take(np.isin(np.arange(N), [50, 130]))
    assert not computed
    np.testing.assert_array_equal(rows.load(), values[[50, 130]])
    assert sorted(computed) == [1, 3]


@pytest.mark.parametrize(("module", "name"), [("cupy", "ndarray"), ("cupyx.scipy.sparse", "csr")])
def test_arrays_on_a_gpu_that_are_no_tensors_are_refused_in_words(module: str, name: str) -> None:
    kind = type(name, (), {"__module__": module, "shape": (4, 2), "dtype": np.dtype("f4")})
    with pytest.raises(TypeError, match=rf"cells is {module}.{name}, on a GPU; .*\.get\(\).*torch"):
        rows_of(kind(), "cells")
