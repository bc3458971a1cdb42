"""Tests of properties that hold for every dataset, with random values, shapes and sizes.

The code under test processes data in blocks of rows or features. A fault at the end of a block
shows only for particular sizes. The sizes are therefore drawn near multiples of the block sizes.
"""

from __future__ import annotations

import pickle
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from contrast_core import CPCA, SecondMoments
from contrast_core.moments import PairMoments
from contrast_core.rows import rows_of
from tests.core.test_odd_inputs import optimum

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

SEEDS = st.integers(0, 2**32 - 1)
# The values are whole numbers, because their sums are exact in any order.
VALUES = st.integers(-50, 50).map(float)


def edges(width: int, most: int = 3) -> st.SearchStrategy[int]:
    """Return a strategy for sizes near multiples of the block size `width`."""
    return st.builds(
        lambda blocks, more: blocks * width + more, st.integers(1, most), st.integers(-1, 1)
    )


@st.composite
def matrices(draw: Any, least: int = 2, most: int = 40) -> Any:
    shape = draw(st.tuples(st.integers(least, most), st.integers(1, 12)))
    return draw(arrays(np.float64, shape, elements=VALUES))


def whole_numbers(seed: int, n: int, d: int, share: float = 1.0) -> Any:
    """Return rows of small whole numbers with columns of different scales.

    A fraction `share` of the numbers is nonzero.
    """
    rng = np.random.default_rng(seed)
    values = rng.integers(-9, 10, size=(n, d)) * rng.integers(1, 4, size=d)
    return np.where(rng.random((n, d)) < share, values, 0).astype(np.float64)


def covariance(rows: Any, weights: Any = None) -> Any:
    return np.cov(rows.T, bias=True, aweights=weights).reshape(rows.shape[1], -1)


def assert_moments(found: Any, rows: Any, weights: Any = None, rtol: float = 1e-12) -> None:
    mean, expected = np.average(rows, axis=0, weights=weights), covariance(rows, weights)
    scale = float(np.abs(expected).max(initial=1.0)) + float((mean**2).max(initial=0.0))
    np.testing.assert_allclose(found.mean, mean, rtol=0, atol=rtol * scale)
    np.testing.assert_allclose(found.covariance, expected, rtol=0, atol=rtol * scale)
    assert found.total_variance == pytest.approx(np.trace(found.covariance))


@given(matrices(), st.data())
def test_merged_moments_of_any_parts_are_the_moments_of_all_rows(rows: Any, data: Any) -> None:
    cuts = data.draw(st.lists(st.integers(1, len(rows) - 1), max_size=4, unique=True))
    parts = np.split(rows, sorted(cuts))
    kinds = cycle([sp.csc_matrix, np.asarray, sp.csr_array])
    chunks = [rows[:0], *(kind(part) for kind, part in zip(kinds, parts, strict=False))]
    merged, *others = SecondMoments.from_parts([rows_of(part) for part in parts])
    for part in others:
        merged = pickle.loads(pickle.dumps(merged)).merge(part)
    for found in (SecondMoments.from_data(rows), SecondMoments.from_chunks(iter(chunks)), merged):
        assert_moments(found, rows)
        assert (found.n_samples, found.n_features) == rows.shape


@given(matrices(), st.data())
def test_an_integer_weight_acts_like_that_number_of_copies_of_the_row(rows: Any, data: Any) -> None:
    """Compare the moments of weighted rows with the moments of repeated rows.

    A weight may be zero, and so may the total weight of a group. The moments are also computed by
    merging the moments of two selections of the rows.
    """
    counts = data.draw(arrays(np.int64, len(rows), elements=st.integers(0, 4)).filter(np.any))
    labels = data.draw(arrays(np.int64, len(rows), elements=st.integers(0, 3)))
    part = data.draw(arrays(np.bool_, len(rows)))
    halves = [mask for mask in (part, ~part) if counts[mask].any()]
    repeated, groups = (np.repeat(part, counts, axis=0) for part in (rows, labels))
    means = np.array([repeated[groups == label].mean(axis=0) for label in groups])
    for kind in (np.asarray, sp.csr_matrix, sp.csc_array):
        assert_moments(SecondMoments.from_data(kind(rows), sample_weight=counts), repeated)
        whole = rows_of(kind(rows), groups=labels, weights=counts)
        merged, *others = SecondMoments.from_parts([whole.take(mask) for mask in halves])
        for other in others:
            merged = pickle.loads(pickle.dumps(other)).merge(merged)
        for found in (SecondMoments.from_data(whole), merged):
            assert_moments(found, repeated)
            assert_moments(found.between, means)
            atol = 1e-12 * float((rows**2).max(initial=1.0))
            within = covariance(repeated - means)
            np.testing.assert_allclose(found.within.covariance, within, rtol=0, atol=atol)
            assert found.n_samples == len(repeated)
            np.testing.assert_array_equal(found.groups, np.unique(groups))


@given(edges(64), edges(8, 2), SEEDS, st.booleans())
def test_pair_moments_are_exact_at_the_edges_of_blocks(
    n: int, d: int, seed: int, is_sparse: bool
) -> None:
    first, second = (whole_numbers(seed + i, n, d, 0.3) for i in range(2))
    kind = sp.csr_matrix if is_sparse else np.asarray
    found = PairMoments.from_data(kind(first), kind(second))
    both = np.vstack([first, second])
    for moments, rows in (
        (found.first, first),
        (found.average, (first + second) / 2),
        (found.difference, (first - second) / 2),
        (found.second_moments(exchangeable=False), first),
        (found.second_moments(), both),
    ):
        assert_moments(moments, rows)
        assert moments.n_samples == len(rows)
    swapped = np.vstack([second, first])
    for exchangeable, x, y in ((False, first, second), (True, both, swapped)):
        cross = (x - x.mean(axis=0)).T @ (y - y.mean(axis=0)) / len(x)
        symmetric = (cross + cross.T) / 2
        found_cross = found.cross_moment(exchangeable=exchangeable)
        np.testing.assert_allclose(found_cross, symmetric, atol=1e-9)
    assert (found.n_pairs, found.n_features) == first.shape


@pytest.mark.parametrize("thin", [63, 64, 65, 128, 129])
@settings(max_examples=3)
@given(st.integers(0, 2), st.integers(-1, 1), st.booleans(), SEEDS)
def test_the_compiled_sparse_covariance_is_exact_at_the_edges_of_blocks(
    thin: int, full: int, more: int, weighted: bool, seed: int
) -> None:
    """Use sizes near the edges of blocks: multiples of 64 sparse columns and of 2,048 rows."""
    pytest.importorskip("numba")
    n = 5 * 2048 + more
    rows = np.hstack([whole_numbers(seed, n, full), whole_numbers(seed, n, thin, 0.12)])
    weights = 1.0 + np.arange(n) % 3 if weighted else None
    found = SecondMoments.from_data(sp.csr_matrix(rows), sample_weight=weights)
    assert_moments(found, rows, weights)


@given(edges(4096, 2), SEEDS)
def test_single_precision_is_accurate_at_the_edges_of_blocks(n: int, seed: int) -> None:
    rows = whole_numbers(seed, n, 5)
    assert_moments(SecondMoments.from_data(rows, precision="single"), rows, rtol=1e-5)


@given(st.integers(1, 7), edges(8), st.integers(1, 20), st.data())
def test_blocks_of_any_size_together_contain_all_rows(
    width: int, n: int, d: int, data: Any
) -> None:
    values = np.arange(n * d, dtype=np.float64).reshape(n, d)
    for make in (np.asarray, sp.csr_matrix):
        rows = rows_of(make(values), "X", elements=width * d)
        blocks = [np.asarray(block) for block in rows.blocks(dense=True)]
        np.testing.assert_array_equal(np.vstack(blocks), values)
        assert max(map(len, blocks)) <= max(width, 1)
    chosen = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=9))
    np.testing.assert_array_equal(
        rows_of(values, "X").take(np.array(chosen)).load(), values[chosen]
    )


@given(st.integers(2, 70), st.sampled_from([3, 16, 31, 32, 33, 64, 65]), st.floats(0, 5), SEEDS)
def test_the_leading_eigenvalues_of_the_contrast_agree_with_lapack(
    n: int, d: int, alpha: float, seed: int
) -> None:
    """Compare many shapes, because the shape decides in which form moments are computed."""
    X, Y = whole_numbers(seed, n, d), whole_numbers(seed + 1, n + 3, d)
    contrast = covariance(X) - alpha * covariance(Y)
    scale = 1e-9 * np.abs(np.linalg.eigvalsh(contrast)).max()
    for kind in (np.asarray, sp.csr_matrix):
        model = CPCA(2, alpha=alpha).fit(kind(X), background=kind(Y))
        values = np.einsum("ki,ij,kj->k", model.components_, contrast, model.components_)
        np.testing.assert_allclose(values, model.contrastive_eigenvalues_, rtol=0, atol=scale)
        np.testing.assert_allclose(values, optimum(contrast, X, Y), rtol=0, atol=scale)
