"""Tests of minibatches: each row comes once, in random order, from any storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core.rows import minibatches, rows_of
from tests.core.kinds import KINDS, Watched

N, D = 230, 11
VALUES = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
VALUES[np.random.default_rng(1).random((N, D)) < 0.5] = 0
SMALL = 4 * 16 * D  # values in 4 blocks of 16 rows, which are shuffled together


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("selection", [None, np.arange(N) % 3 > 0], ids=["all", "some"])
def test_every_row_comes_once_and_unchanged(kind: str, selection: Any, tmp_path: Path) -> None:
    rows = rows_of(KINDS[kind](VALUES, tmp_path), elements=SMALL)
    expected = VALUES
    if selection is not None:
        rows, expected = rows.take(selection), VALUES[selection]
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
    kind: str, tmp_path: Path
) -> None:
    """Check that sorted data are mixed: each minibatch has rows of both halves."""
    rows = rows_of(KINDS[kind](VALUES, tmp_path), elements=SMALL)
    shares = []
    for seed in range(20):
        parts = minibatches(rows, 10, np.random.default_rng(seed))
        shares += [(index < N // 2).mean() for index, _ in parts]
    assert 0.4 < np.mean(shares) < 0.6
    assert np.mean((np.array(shares) < 0.05) | (np.array(shares) > 0.95)) < 0.1


def test_a_stored_dataset_is_read_once_in_whole_chunks() -> None:
    dataset = Watched(VALUES, (25, D))
    list(minibatches(rows_of(dataset, elements=SMALL // 4), 9, np.random.default_rng(0)))
    assert sorted(dataset.read) == [(start, min(start + 25, N)) for start in range(0, N, 25)]
    assert dataset.read != sorted(dataset.read)


def test_large_means_do_not_cost_precision() -> None:
    values = 1e6 + np.random.default_rng(0).normal(size=(50, 3))
    rng = np.random.default_rng(0)
    ((index, block),) = minibatches(rows_of(values), 1, rng, shift=np.full(3, 1e6))
    np.testing.assert_allclose(block, values[index] - 1e6, atol=1e-6)
    ((index, block),) = minibatches(rows_of(values), 1, rng, dtype=np.float64)
    np.testing.assert_array_equal(block, values[index])


def test_invalid_minibatches_are_refused() -> None:
    with pytest.raises(ValueError, match="X has 5 rows, which cannot be 6 minibatches"):
        next(minibatches(rows_of(np.zeros((5, 2))), 6, np.random.default_rng(0)))
    bad = sp.csr_matrix([[1.0, np.nan], [0.0, 1.0]])
    with pytest.raises(ValueError, match="NaN"):
        list(minibatches(rows_of(bad), 2, np.random.default_rng(0)))
