"""Tests of `FeatureMoments`, the mean and variance of every feature, for blocks of any size."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core.moments import FeatureMoments
from contrast_core.pairing import scaled_features
from contrast_core.rows import rows_of
from tests.core.kinds import KINDS


@pytest.fixture
def rows():
    """Return sparse rows with a constant feature, a feature of zeros, and one far from zero."""
    rng = np.random.default_rng(0)
    rows = rng.poisson(0.3, size=(700, 9)).astype(np.float32)
    rows[:, 0], rows[:, 1] = 0.7, 0
    rows[:, 2] += 1e4
    return rows


def long_indices(rows):
    """Return a read-only CSR matrix of integers with 64-bit indices."""
    matrix = sp.csr_matrix(rows.astype(np.int64))
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    return matrix


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array, long_indices])
@pytest.mark.parametrize("elements", [9 * 100, 2**22], ids=["blocks", "at once"])
def test_moments_agree_with_numpy(rows, kind, elements):
    if kind is long_indices:
        rows = rows.astype(np.int64)
    found = FeatureMoments.from_data(rows_of(kind(rows), elements=elements))
    assert found.n_samples == 700
    np.testing.assert_allclose(found.mean, rows.mean(axis=0, dtype=float), rtol=1e-12)
    np.testing.assert_allclose(found.variance, rows.var(axis=0, dtype=float), rtol=1e-9, atol=1e-12)


def test_duplicate_entries_are_added_up(rows, tmp_path):
    twice = KINDS["duplicates"](rows, tmp_path)
    n_entries = twice.nnz
    found, expected = FeatureMoments.from_data(twice), FeatureMoments.from_data(rows)
    np.testing.assert_allclose(found.squares, expected.squares, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        scaled_features(twice).matrix.toarray(), scaled_features(rows).matrix, rtol=1e-6
    )
    assert twice.nnz == n_entries  # the data were not changed


def test_merged_parts_have_the_moments_of_all_rows(rows):
    parts = [FeatureMoments.from_data(part) for part in np.split(rows, [1, 200])]
    found, whole = parts[0].merge(parts[1]).merge(parts[2]), FeatureMoments.from_data(rows)
    assert found.n_samples == whole.n_samples
    empty = FeatureMoments.at_once(sp.csr_matrix((0, 4)))
    assert empty.n_samples == 0 and not empty.squares.any() and not empty.mean.any()
    np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(found.squares, whole.squares, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_makes_the_mean_not_finite(rows, kind, bad):
    rows[3, 4] = bad
    found = FeatureMoments.from_data(kind(rows))
    assert np.array_equal(np.isfinite(found.mean), np.arange(9) != 4)
