"""Tests of rows of every kind of data, for every selection of rows, and of minibatches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core.rows import Rows, _minibatches, joint_blocks, minibatches, pieces, rows_of
from tests.core.kinds import KINDS, Watched, dense

N, D = 230, 11


@pytest.fixture(scope="module")
def values() -> Any:
    rng = np.random.default_rng(0)
    made = rng.normal(size=(N, D))
    made[rng.random(made.shape) < 0.5] = 0
    return made.astype(np.float32)


SELECTIONS: dict[str, tuple[Any, Any]] = {
    "all": (slice(None), slice(None)),
    "masks": (np.arange(N) % 7 > 2, np.arange(D) % 3 > 0),
    "indices": (np.flatnonzero(np.arange(N) % 5 == 1), np.array([9, 2, 3])),
    "slices": (slice(30, 150), slice(2, 9)),
    "no rows": (np.zeros(N, bool), slice(None)),
}


@pytest.fixture(params=list(KINDS))
def data(request: pytest.FixtureRequest, values: Any, tmp_path: Path) -> Any:
    return KINDS[request.param](values, tmp_path)


@pytest.fixture(
    params=[
        *(name for name in SELECTIONS if name != "indices"),
        pytest.param("indices", marks=pytest.mark.slow),
    ]
)
def selected(request: pytest.FixtureRequest, values: Any, data: Any) -> tuple[Rows, Any]:
    """Return a selection of rows and columns of the data, and the expected values."""
    rows, columns = SELECTIONS[request.param]
    made = rows_of(data, "cells", elements=20 * D).columns(columns).take(rows)
    return made, values[rows][:, columns]


def product(rows: Any, matrix: Any) -> Any:
    return rows @ matrix


def test_every_way_of_reading_gives_the_selected_values(selected: Any) -> None:
    rows, expected = selected
    assert rows.shape == expected.shape
    np.testing.assert_array_equal(dense(rows.load()), expected)
    np.testing.assert_array_equal(rows.load(dense=True), expected)
    blocks = list(rows.blocks())
    together = [expected[:0], *(dense(block) for block in blocks)]
    np.testing.assert_array_equal(np.concatenate(together), expected)
    for block in blocks:
        assert sp.issparse(block) == rows.is_sparse
        assert not rows.is_sparse or (block.format == "csr" and block.has_canonical_format)
        assert block.dtype == rows.dtype
        assert 0 < block.shape[0] <= 60
    dense_blocks = list(rows.blocks(dense=True, elements=10 * D))
    assert all(type(block) in (np.ndarray, np.memmap) for block in dense_blocks)
    np.testing.assert_array_equal(np.concatenate([expected[:0], *dense_blocks]), expected)
    edges = rows.edges()
    assert edges[0] == 0 and edges[-1] == len(expected)
    for start, stop in [*pairwise(edges), (0, len(expected)), (len(expected) // 2, len(expected))]:
        np.testing.assert_array_equal(dense(rows.read(start, stop)), expected[start:stop])


def test_columns_are_read_in_blocks(selected: Any) -> None:
    rows, expected = selected
    for width in (None, 3):
        found = list(rows.column_blocks(width))
        starts = [which.start for which, _ in found]
        assert [which.stop for which, _ in found] == [*starts[1:], expected.shape[1]]
        for which, block in found:
            np.testing.assert_array_equal(dense(block), expected[:, which])
            assert sp.issparse(block) == rows.is_sparse
            assert not sp.issparse(block) or block.format == "csc"
            np.testing.assert_array_equal(rows.read_columns(which), expected[:, which])
        if width == 3:
            assert starts == [*range(0, rows.shape[1], 3)]


def test_mapped_rows_have_the_right_values_in_every_container(selected: Any) -> None:
    rows, expected = selected
    matrix = np.random.default_rng(1).normal(size=(rows.shape[1], 2))
    found = rows.map(partial(product, matrix=matrix), 2)
    assert found.shape == (len(expected), 2)
    if rows.place == "dask":
        found = found.compute()
    if hasattr(found, "detach"):
        assert found.requires_grad == (len(expected) > 0)
        found = found.detach().numpy()
    np.testing.assert_allclose(found, expected @ matrix, atol=1e-6)


def test_selections_of_selections_give_the_right_values(values: Any, data: Any) -> None:
    rows = rows_of(data).columns(np.arange(D) != 3).take(np.arange(N) > 20)
    some = rows.take(np.arange(N - 21) % 3 == 0).columns([4, 5, 6]).take(slice(5, 40))
    expected = values[21:][::3][5:40][:, [5, 6, 7]]
    np.testing.assert_array_equal(dense(some.load()), expected)
    every = np.delete(values, 3, axis=1)[:, [4, 5, 6]]
    np.testing.assert_array_equal(dense(some.take_all().load()), every)
    np.testing.assert_array_equal(dense(rows.load()), np.delete(values, 3, axis=1)[21:])


def test_several_selections_are_read_in_one_pass(values: Any, data: Any) -> None:
    whole = rows_of(data, elements=20 * D).columns(np.arange(D) > 1)
    sets = [np.isin(np.arange(N) % 9, some) for some in ([0, 4], [1], [5, 7, 8])]
    sets.append((np.arange(N) % 9 == 2) & (np.arange(N) > 200))
    found: list[list[Any]] = [[] for _ in sets]
    for i, block, *_ in joint_blocks([whole.take(mask) for mask in sets]):
        assert block.shape[0] > 0
        found[i].append(dense(block))
    for blocks, mask in zip(found, sets, strict=True):
        np.testing.assert_array_equal(np.concatenate(blocks), values[mask][:, 2:])
    # Overlapping selections are composed of disjoint pieces.
    sets = [np.arange(N) < 90, np.arange(N) % 2 == 0, (np.arange(N) > 50) & (np.arange(N) < 70)]
    made = pieces([whole.take(mask) for mask in sets])
    assert made is not None
    parts, made_of = made
    assert sum(part.shape[0] for part in parts) == np.logical_or.reduce(sets).sum()
    for mask, which in zip(sets, made_of, strict=True):
        rows = np.concatenate([dense(parts[i].load()) for i in which])
        expected = values[mask][:, 2:]
        np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(expected, axis=0))


def test_data_are_not_copied_if_everything_is_selected(values: Any, tmp_path: Path) -> None:
    for data in (values, np.asfortranarray(values)):
        rows = rows_of(data)
        assert all(np.shares_memory(block, data) for block in rows.blocks())
        assert np.shares_memory(rows.take(slice(3, 50)).columns(slice(2, 6)).load(), data)
    sparse = sp.csr_matrix(values)
    assert rows_of(sparse).load() is sparse
    twice = KINDS["duplicates"](values, tmp_path)
    rows_of(twice).load().data[:] = 0
    assert twice.data.any()  # duplicate entries are summed in a copy


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("list", "rows")])
def test_only_the_selected_values_must_be_finite(values: Any, tmp_path: Path, kind: str) -> None:
    bad = values.copy()
    bad[100, 3] = np.nan
    bad[7, 5] = np.inf
    rows = rows_of(KINDS[kind](bad, tmp_path), "cells", elements=20 * D)

    def mapped(some: Rows) -> Any:
        found = some.map(partial(product, matrix=np.ones((some.shape[1], 1))), 1)
        return found.compute() if kind.startswith("dask") else found

    reads: list[Callable[[Rows], Any]] = [
        lambda some: list(some.blocks()),
        lambda some: some.load(),
        lambda some: some.read_columns(slice(0, some.shape[1])),
        mapped,
    ]
    with pytest.raises(ValueError, match=r"NaN first met in feature 3\)"):
        rows.columns(slice(2, 5)).load()
    clean = rows.take(np.arange(N) % 93 != 7).columns(np.arange(D) != 3)
    for read in reads:
        for spoilt in (rows, rows.take(np.arange(N) > 10)):
            with pytest.raises(ValueError, match=r"cells.* contains NaN or inf"):
                read(spoilt)
        read(clean)
    list(rows.blocks(check=False))


def test_invalid_selections_are_refused(values: Any, data: Any) -> None:
    rows = rows_of(data)
    with pytest.raises(ValueError, match=f"mask of rows has 5 entries but X has {N} rows"):
        rows.take(np.ones(5, bool))
    with pytest.raises(ValueError, match=f"mask of columns has {N} entries but X has {D} columns"):
        rows.columns(np.ones(N, bool))
    with pytest.raises(ValueError, match=f"0 to {N} were asked for, but X has only {N} rows"):
        rows.take([0, N])
    with pytest.raises(TypeError, match=r"by float64 .* expected a one-dimensional mask, or"):
        rows.columns([0.5])
    if rows.in_memory:
        np.testing.assert_array_equal(dense(rows.take([5, 2, 5, -1]).load()), values[[5, 2, 5, -1]])
        return
    for order in ([5, 2], [5, 5]):
        with pytest.raises(ValueError, match="not in memory: give ascending indices or a mask"):
            rows.take(order)


def _gpu_array(module: str, name: str) -> Any:
    kind = type(name, (), {"__module__": module, "shape": (4, 2), "dtype": np.dtype("f4")})
    return kind()


# tests/core/odd_inputs.py has the kinds of data in memory that are refused.
@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda v: Watched(v[:, 0]), ValueError, "two dimensions"),
        (lambda v: Watched(v * 1j), ValueError, "Complex data not supported"),
        (lambda v: _gpu_array("cupy", "ndarray"), TypeError, r"cupy.ndarray, on a GPU; .*\.get\("),
        (lambda v: _gpu_array("cupyx.scipy.sparse", "csr"), TypeError, r"csr, on a GPU; .*torch"),
    ],
)
def test_stored_data_that_are_not_a_table_and_gpu_arrays_are_refused(
    values: Any, make: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        list(rows_of(make(values), "cells").blocks())


def test_too_few_rows_are_refused(values: Any) -> None:
    with pytest.raises(ValueError, match=r"cells has n_samples=3, but at least 4 is needed"):
        rows_of(rows_of(values, "cells").take(slice(0, 3)), min_rows=4)


def test_dask_arrays_with_chunks_of_unknown_size_are_read(values: Any) -> None:
    array = KINDS["dask"](values, Path())
    rows = rows_of(array[array[:, 0] > 0])
    assert np.isnan(rows.shape[0])
    expected = values[values[:, 0] > 0]
    np.testing.assert_array_equal(rows.load(), expected)
    np.testing.assert_array_equal(np.concatenate(list(rows.blocks())), expected)
    np.testing.assert_array_equal(
        rows.columns([2, 1]).map(partial(product, matrix=np.eye(2)), 2), expected[:, [2, 1]]
    )
    with pytest.raises(ValueError, match=r"unknown size: call compute_chunk_sizes\(\)"):
        rows.take(slice(0, 3))


# Minibatches: each row comes once, in random order, from any storage.

SMALL = 4 * 16 * D  # values in 4 blocks of 16 rows, which are shuffled together


@pytest.mark.parametrize("selection", [None, np.arange(N) % 3 > 0], ids=["all", "some"])
def test_every_row_comes_once_and_unchanged(data: Any, values: Any, selection: Any) -> None:
    rows, expected = rows_of(data, elements=SMALL), values
    if selection is not None:
        rows, expected = rows.take(selection), values[selection]
    n = len(expected)
    found = list(minibatches(rows, 9, np.random.default_rng(0), shift=np.arange(D), scale=2.0))
    assert {len(index) for index, _ in found} <= {n // 9, n // 9 + 1}
    index, block = (np.concatenate(parts) for parts in zip(*found, strict=True))
    assert block.dtype == np.float32
    np.testing.assert_array_equal(np.sort(index), np.arange(n))
    np.testing.assert_allclose(block, (expected[index] - np.arange(D)) / 2, rtol=1e-6)
    for seed in (0, 1):
        again = minibatches(rows, 9, np.random.default_rng(seed))
        order = np.concatenate([index for index, _ in again])
        assert np.array_equal(order, index) == (seed == 0)


@pytest.mark.parametrize("kind", ["HDF5 in rows", "backed CSR", "dask", "array"])
def test_neighbouring_rows_in_storage_go_to_different_minibatches(
    kind: str, values: Any, tmp_path: Path
) -> None:
    """Check that sorted data are mixed: most minibatches have rows of both halves."""
    rows = rows_of(KINDS[kind](values, tmp_path), elements=SMALL)
    shares = []
    for seed in range(20):
        parts = minibatches(rows, 10, np.random.default_rng(seed))
        shares += [(index < N // 2).mean() for index, _ in parts]
    assert 0.4 < np.mean(shares) < 0.6
    assert np.mean((np.array(shares) < 0.05) | (np.array(shares) > 0.95)) < 0.1


def test_a_stored_dataset_is_read_once_in_whole_chunks(values: Any) -> None:
    dataset = Watched(values, (25, D))
    list(minibatches(rows_of(dataset, elements=SMALL // 4), 9, np.random.default_rng(0)))
    assert sorted(dataset.read) == [(start, min(start + 25, N)) for start in range(0, N, 25)]
    assert dataset.read != sorted(dataset.read)


@pytest.mark.parametrize(("most", "size"), [(10, 4), (50, 5), (60, 6)])
def test_at_least_four_blocks_and_as_many_as_fit_are_shuffled_together(
    most: int, size: int
) -> None:
    blocks = [(start, start + 10) for start in range(0, 120, 10)]
    groups = list(_minibatches._groups(blocks, most))
    assert groups == [blocks[i : i + size] for i in range(0, 12, size)]


def test_minibatches_of_rows_with_large_means_are_precise() -> None:
    values = 1e6 + np.random.default_rng(0).normal(size=(50, 3))
    rng = np.random.default_rng(0)
    ((index, block),) = minibatches(rows_of(values), 1, rng, shift=np.full(3, 1e6))
    np.testing.assert_allclose(block, values[index] - 1e6, atol=1e-6)
    ((index, block),) = minibatches(rows_of(values), 1, rng, dtype=np.float64)
    np.testing.assert_array_equal(block, values[index])


def test_invalid_minibatches_are_refused() -> None:
    with pytest.raises(ValueError, match="X has 5 rows, which cannot be split into 6 minibatches"):
        next(minibatches(rows_of(np.zeros((5, 2))), 6, np.random.default_rng(0)))
    bad = sp.csr_matrix([[1.0, np.nan], [0.0, 1.0]])
    with pytest.raises(ValueError, match="NaN"):
        list(minibatches(rows_of(bad), 2, np.random.default_rng(0)))
