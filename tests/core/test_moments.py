"""Tests of `SecondMoments` and `FeatureMoments`.

The moments come from data of every kind, from chunks, from merged parts, from rows with groups and
weights, or from the user.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from contrast_core import CPCA, ContrastWarning, PCAPlusPlus, SecondMoments
from contrast_core.moments import FeatureMoments, PairMoments, grouped_moments, warn_of_units
from contrast_core.rows import rows_of
from tests.core.kinds import KINDS, assert_same_moments, long_indices

N, D = 500, 7


@pytest.fixture(scope="module")
def rows() -> Any:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N, D)) @ rng.normal(size=(D, D)) + rng.normal(size=D) * 10
    values[rng.random(values.shape) < 0.3] = 0
    return values


@pytest.mark.parametrize("kind", KINDS)
def test_data_of_every_kind_have_the_same_moments(rows: Any, kind: str, tmp_path: Path) -> None:
    """Check blocks of 64 rows, and overlapping selections that are read together."""
    whole = rows_of(KINDS[kind](rows, tmp_path), elements=64 * D)
    assert_same_moments(SecondMoments.from_data(whole), SecondMoments.from_data(rows))
    masks = [np.arange(N) % 3 == 0, np.arange(N) < 300, np.arange(N) % 3 == 1]
    parts = [whole.columns(np.arange(D) != 2).take(mask) for mask in masks]
    for moments, mask in zip(SecondMoments.from_parts(parts), masks, strict=True):
        assert_same_moments(moments, SecondMoments.from_data(np.delete(rows[mask], 2, axis=1)))


@pytest.mark.parametrize("device", [None, "cpu"])
def test_chunks_are_read_in_the_callers_thread_and_may_be_reused(rows: Any, device: Any) -> None:
    """Check a reader that fills one array repeatedly and must run in one thread."""
    if device:
        pytest.importorskip("torch", reason="torch is not installed")
    rows = rows.astype(np.float32)
    kinds: list[Any] = [np.asarray, sp.csr_array, np.float32, sp.csc_matrix]

    def reader() -> Iterator[Any]:
        buffer = np.empty((100, D))
        for i in range(0, N, 100):
            assert threading.current_thread() is threading.main_thread()
            buffer[:] = rows[i : i + 100]
            chunk = kinds[i // 100 % 4](buffer)
            yield rows_of(chunk, elements=64 * D)
            (chunk.data if sp.issparse(chunk) else chunk)[:] = np.nan

    found = SecondMoments.from_chunks(reader(), device=device)
    assert_same_moments(found, SecondMoments.from_data(rows.astype(float)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_neither_a_mean_far_from_zero_nor_drift_costs_precision(dtype: Any) -> None:
    """Use a mean of 10,000 standard deviations, and a mean that changes from part to part.

    If the rows were not centred before they are multiplied, the first mean would cost eight digits.
    """
    rng = np.random.default_rng(1)
    drift = np.repeat([0.0, 50.0, -80.0], 1000)[:, None]
    for far, rtol in ((1e4, 1e-11), (drift, 1e-12)):
        rows = (rng.normal(size=(3000, 5)) + far).astype(dtype)
        exact = rows.astype(np.longdouble)
        exact = exact - exact.mean(axis=0)
        exact = (exact.T @ exact / len(exact)).astype(np.float64)
        for moments in (
            SecondMoments.from_data(rows),
            SecondMoments.from_chunks(np.array_split(rows, 17)),
        ):
            assert np.abs(moments.covariance - exact).max() < rtol * exact.max()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_blocks_of_rows_with_weight_zero_do_not_count(kind: Any) -> None:
    rows = sp.random(2000, 20, density=0.1, random_state=0).toarray()
    weights = (np.arange(2000) >= 1500).astype(float)
    blocks = rows_of(kind(rows), elements=64 * 20)
    found = SecondMoments.from_data(blocks, sample_weight=weights)
    expected = SecondMoments.from_data(rows[weights > 0])
    np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-15)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)


def test_a_constant_feature_has_no_variance() -> None:
    rows = np.column_stack([np.random.default_rng(3).normal(size=1000), np.full(1000, 0.1)])
    rounding = 8 * np.finfo(float).eps * 0.1
    assert 0 <= SecondMoments.from_data(rows).variances[1] < rounding**2


def test_feature_names_are_kept_and_must_agree(rows: Any) -> None:
    frame = pd.DataFrame(rows, columns=list("abcdefg"))
    assert SecondMoments.from_data(frame).feature_names == tuple("abcdefg")
    assert SecondMoments.from_data(rows, feature_names="abcdefg").feature_names == tuple("abcdefg")
    for chunks in ([frame[:9], frame[9:]], [rows[:9], rows[9:]]):
        renamed = SecondMoments.from_chunks(chunks, feature_names="ABCDEFG")
        assert renamed.feature_names == tuple("ABCDEFG")
    for names in (None, "ABCDEFG"):
        with pytest.raises(ValueError, match="chunk 1 of X has X's features in another order"):
            SecondMoments.from_chunks([frame, frame[list("bacdefg")]], feature_names=names)
    with pytest.raises(ValueError, match="2 feature_names were given for the 7 features of X"):
        SecondMoments.from_data(rows, feature_names="ab")
    with pytest.raises(ValueError, match="another order"):
        SecondMoments.from_data(frame).merge(SecondMoments.from_data(frame[list("bacdefg")]))


def test_bad_chunks_are_named(rows: Any) -> None:
    bad = rows.copy()
    bad[450, 2] = np.nan
    with pytest.raises(ValueError, match=r"chunk 3 of cells contains NaN or inf .* feature 2"):
        SecondMoments.from_chunks(np.array_split(bad, 4), name="cells")


def test_variances_that_overflow_are_refused() -> None:
    rows = np.array([[1e25], [-1e25], [2e25]])
    assert SecondMoments.from_data(rows).covariance[0, 0] > 1e49
    with pytest.raises(ValueError, match="variance of X overflows float32"):
        SecondMoments.from_data(rows, precision="single")
    for kind in (np.asarray, sp.csr_matrix):
        with pytest.raises(ValueError, match="the variance of X overflows float64"):
            SecondMoments.from_data(kind(1e150 * rows))


# `FeatureMoments`


@pytest.fixture
def counts() -> Any:
    """Return sparse counts with a constant feature, a feature of zeros, and one far from zero."""
    values = np.random.default_rng(0).poisson(0.3, size=(700, 9)).astype(np.float32)
    values[:, 0], values[:, 1] = 0.7, 0
    values[:, 2] += 1e4
    return values


SPARSE = [sp.csr_matrix, sp.csr_array, long_indices, partial(KINDS["duplicates"], folder=None)]


@pytest.mark.parametrize("kind", [np.asarray, *SPARSE])
@pytest.mark.parametrize("elements", [9 * 100, 2**22], ids=["blocks", "at once"])
def test_means_and_variances_agree_with_numpy(counts: Any, kind: Any, elements: int) -> None:
    if kind is long_indices:
        counts = counts.astype(np.int64)
    whole = FeatureMoments.from_data(rows_of(kind(counts), elements=elements))
    parts = [FeatureMoments.from_data(kind(part)) for part in np.split(counts, [1, 200])]
    for found in (whole, parts[0].merge(parts[1]).merge(parts[2])):
        assert found.n_samples == 700
        np.testing.assert_allclose(found.mean, counts.mean(axis=0, dtype=float), rtol=1e-12)
        variance = counts.var(axis=0, dtype=float)
        np.testing.assert_allclose(found.variance, variance, rtol=1e-9, atol=1e-12)
    empty = FeatureMoments.from_block(sp.csr_matrix((0, 4)))
    assert empty.n_samples == 0 and not empty.squares.any() and not empty.mean.any()


@pytest.mark.parametrize("kind", [np.asarray, *SPARSE[:2]])
@pytest.mark.parametrize("scale", [1e-170, 1.0, 1e160])
@pytest.mark.parametrize("n", [2, 999, 20011])
def test_rounding_does_not_make_a_constant_feature_vary(kind: Any, scale: float, n: int) -> None:
    """Use three constant columns, and three that vary by a millionth, one in a single row only."""
    values = np.tile([0.7, -0.1, 1e4 / 3], (n, 2)) * scale
    varies = np.arange(6) >= 3
    rows = np.where(varies & (np.arange(n)[:, None] % 7 == 0), values * (1 + 1e-6), values)
    rows[1:, 5] = values[1:, 5]
    weights = 0.1 + np.arange(n) % 3
    blocks = rows_of(kind(rows), elements=6 * 2**12)
    found = [FeatureMoments.from_data(kind(rows)), FeatureMoments.from_data(blocks)]
    if sp.issparse(kind(rows)):
        found.append(FeatureMoments.from_block(kind(rows), weights))
    for moments in found:
        np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=2e-6)
        np.testing.assert_array_less(moments.variance[:3] ** 0.5, 7e-15 * abs(values[0, :3]))
        assert not moments.varies[:3].any()
        if scale == 1:
            assert moments.varies[3:].all()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_nonfinite_value_makes_the_mean_nonfinite(counts: Any, kind: Any, bad: float) -> None:
    counts[3, 4] = bad
    found = FeatureMoments.from_data(kind(counts))
    assert np.array_equal(np.isfinite(found.mean), np.arange(9) != 4)


# Moments that the user gives instead of rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3)) * [3.0, 2.0, 1.0]
POSITIVE = X + 0.1 * RNG.normal(size=(30, 3))
COVARIANCE = np.cov(X.T, bias=True)
SECOND = {"n_samples": 30, "mean": X.mean(axis=0), "covariance": COVARIANCE}
PAIRS = {
    name: SecondMoments(30, rows.mean(axis=0), np.cov(rows.T, bias=True))
    for name, rows in (
        ("average", (X + POSITIVE) / 2),
        ("difference", (X - POSITIVE) / 2),
        ("first", X),
    )
}


def changed(matrix: Any, value: float, row: int = 0, column: int = 1) -> Any:
    other = matrix.copy()
    other[row, column] = value
    return other


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("covariance", changed(COVARIANCE, np.inf, 1, 1), ValueError, "holds NaN or inf"),
        ("covariance", changed(COVARIANCE, COVARIANCE[0, 1] + 1e-4), ValueError, "not symmetric"),
        ("covariance", 9 - 8 * np.eye(3), ValueError, "covariance is indefinite"),
        ("covariance", -np.eye(3), ValueError, "covariance has the negative variance"),
        ("covariance", np.eye(4), ValueError, r"covariance has shape \(4, 4\)"),
        ("covariance", np.eye(3) + 1.5e308, ValueError, "covariance holds numbers near"),
        ("covariance", sp.csr_matrix(np.eye(3)), TypeError, "covariance=.*real numbers"),
        ("covariance", np.ma.masked_array(COVARIANCE, COVARIANCE > 8), TypeError, "masked"),
        ("mean", list("abc"), TypeError, "mean=.*without real numbers"),
        ("mean", [1.0, 2.0, np.nan], ValueError, "mean holds NaN"),
        ("n_samples", 0, ValueError, "n_samples=0"),
        ("n_samples", float("nan"), ValueError, "must be a positive, finite number"),
        ("n_samples", True, TypeError, "must be an integer, got True"),
        ("feature_names", ["a"], ValueError, "1 feature_names"),
        ("feature_names", range(3), TypeError, "feature_names=range"),
    ],
)
def test_invalid_moments_are_refused(field: str, value: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        SecondMoments(**SECOND | {field: value})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (None, "difference is None"),
        (X, "difference is .*; expected moments of as many rows"),
        (SecondMoments(29, np.zeros(3), COVARIANCE), "as many rows as `average`, 30"),
        (SecondMoments(30, np.zeros(2), COVARIANCE[:2, :2]), "difference has 2 features but X has"),
    ],
)
def test_moments_that_are_not_of_the_same_pairs_are_refused(other: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PairMoments(**PAIRS | {"difference": other})


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-150, 1.0, 1e150, 1e300])
def test_neither_the_scale_nor_rounding_makes_moments_invalid(scale: float) -> None:
    SecondMoments(30, X.mean(axis=0), scale * COVARIANCE)
    if scale:
        with pytest.raises(ValueError, match="not symmetric"):
            SecondMoments(30, X.mean(axis=0), scale * changed(COVARIANCE, COVARIANCE[0, 1] + 1e-3))
    # Rounding can make a small variance negative, or a singular covariance slightly indefinite.
    rounding = changed(COVARIANCE, -1e-12, 2, 2)
    rounding[2, :2] = rounding[:2, 2] = 0
    SecondMoments(30, X.mean(axis=0), scale * rounding)
    rows = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    rows = (rows - rows.mean(axis=0)) * np.geomspace(1e-3, 1e3, 40, dtype=np.float32)
    SecondMoments(5, np.zeros(40), scale * (rows.T @ rows / 5).astype(float))


def test_one_wrong_entry_among_many_is_found() -> None:
    matrix = np.eye(500)
    for row, column in ((3, 400), (499, 0), (250, 251)):
        for value, message in ((1e-3, "not symmetric"), (np.nan, "NaN")):
            with pytest.raises(ValueError, match=message):
                SecondMoments(9, np.zeros(500), changed(matrix, value, row, column))


@pytest.mark.parametrize("form", [np.ndarray.tolist, pd.DataFrame, np.float32])
def test_other_forms_of_a_covariance_are_accepted(form: Any) -> None:
    given = SecondMoments(np.int64(30), [0, 1, 2], form(COVARIANCE), list("abc"))
    assert type(given.covariance) is np.ndarray
    assert given.covariance.dtype == given.mean.dtype == np.float64
    assert given.feature_names == ("a", "b", "c")
    np.testing.assert_allclose(given.covariance, COVARIANCE, rtol=1e-6)


def test_given_moments_give_the_same_fit_as_the_data() -> None:
    given, taken = SecondMoments(**SECOND), SecondMoments.from_data(X)
    for field in ("n_samples", "mean", "covariance"):
        np.testing.assert_allclose(getattr(given, field), getattr(taken, field), atol=1e-12)
    ours, theirs = (CPCA(2, alpha=0.5).fit(each, background=each) for each in (given, taken))
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-9)
    first, second = (
        PCAPlusPlus(1, truncation=3).fit(pairs)
        for pairs in (PairMoments(**PAIRS), PairMoments.from_data(X, POSITIVE))
    )
    np.testing.assert_allclose(first.components_, second.components_, atol=1e-9)


# Rows with groups and weights

G = 6  # number of groups
LABELS = np.array(list("abcdef"))


def parts_by_definition(X: Any, codes: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Compute the mean and both covariances, within and between groups, in extended precision."""
    x, w = np.asarray(X, dtype=np.longdouble), np.asarray(weights, dtype=np.longdouble)
    mean = w @ x / w.sum()
    within, between = np.zeros((2, D, D), np.longdouble)
    for g in np.unique(codes):
        own, rows = w[codes == g], x[codes == g]
        if own.sum() > 0:
            centre = own @ rows / own.sum()
            within += (own[:, None] * (rows - centre)).T @ (rows - centre)
            between += own.sum() * np.outer(centre - mean, centre - mean)
    return mean, within / w.sum(), between / w.sum()


def study(distance: float, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return rows, the group of each row, and weights.

    The means of the groups are about `distance` standard deviations apart.
    """
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, G, N)
    X = rng.normal(size=(N, D)) + distance * rng.normal(size=(G, D))[codes]
    return X, codes, rng.random(N) * (rng.random(N) < 0.9)


GIVEN: dict[str, Any] = {
    "array": np.asarray,
    "sparse": sp.csr_matrix,
    "dask": lambda X: pytest.importorskip("dask.array").from_array(X, chunks=(170, D)),
    "blocks": lambda X: rows_of(X, elements=400),
}


def relative_error(found: Any, wanted: Any) -> float:
    """Return the largest error, divided by the largest entry."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("distance", "tolerance"), [(0.0, 1e-11), (1e3, 1e-11), (1e6, 1e-6)])
def test_means_and_covariances_agree_with_their_definition(
    kind: str, weighted: bool, distance: float, tolerance: float
) -> None:
    X, codes, weights = study(distance)
    # In the sparse rows, feature 3 is nonzero in one group only.
    if kind == "sparse":
        X = X * (np.random.default_rng(1).random(X.shape) < 0.2)
        X[:, 3] = np.where(codes == 2, distance + X[:, 4], 0.0)
    options = {"sample_weight": weights} if weighted else {}
    moments = SecondMoments.from_data(GIVEN[kind](X), groups=LABELS[codes], **options)
    mean, within, between = parts_by_definition(X, codes, weights if weighted else np.ones(N))
    assert relative_error(moments.within.covariance, within) < tolerance
    assert relative_error(moments.between.covariance, between) < tolerance
    assert relative_error(moments.mean, mean) < tolerance
    assert moments.n_samples == pytest.approx(weights.sum() if weighted else N)
    np.testing.assert_array_equal(moments.groups, LABELS)
    total = moments.between.covariance + moments.within.covariance
    np.testing.assert_array_equal(moments.covariance, total)
    plain = SecondMoments.from_data(GIVEN[kind](X), **options)
    assert relative_error(moments.covariance, plain.covariance) < tolerance
    assert (moments.within.covariance == moments.within.covariance.T).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": ["a"] * (N - 1)}, r"labels of X.*one label for each of the 500 rows"),
        ({"groups": [1] * 5 + ["a"] * (N - 5)}, "mixes labels"),
        ({"sample_weight": [-1.0] * N}, "finite weights, none negative"),
        ({"sample_weight": [0.0] * N}, "not all zero"),
        ({"sample_weight": np.ones((N, 1))}, "one weight for each"),
    ],
)
def test_wrong_groups_and_weights_are_refused(options: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        SecondMoments.from_data(study(1.0)[0], **options)


def test_moments_that_do_not_belong_together_are_refused() -> None:
    X, codes, _ = study(1.0)
    grouped, plain = SecondMoments.from_data(X, groups=codes), SecondMoments.from_data(X)
    others: list[tuple[Any, type[Exception], str]] = [
        (plain, TypeError, "only one of the two moments was computed with groups"),
        (SecondMoments.from_data(X, groups=LABELS[codes]), TypeError, "mixes labels"),
        (SecondMoments.from_data(X[:, :5], groups=codes), ValueError, "5 features"),
    ]
    for other, error, message in others:
        with pytest.raises(error, match=message):
            grouped.merge(other)
    for part in ("within", "between"):
        with pytest.raises(AttributeError, match=f"'{part}' needs moments of rows with groups"):
            getattr(plain, part)
    parts = (grouped.groups, grouped.group_weights, grouped.group_means, grouped.within_covariance)
    again = grouped_moments(*parts)
    np.testing.assert_allclose(again.covariance, grouped.covariance, atol=1e-12)
    lighter = grouped_moments(parts[0], np.asarray(parts[1]) / 1e4, *parts[2:])
    np.testing.assert_allclose(lighter.covariance, grouped.covariance, atol=1e-12)
    for i, bad in enumerate([[1] * 6, [0.0, *[1.0] * 5], np.full((6, D), np.nan), np.ones((3, 3))]):
        with pytest.raises(ValueError, match=r"twice|holds 0|NaN|n_groups|shape"):
            grouped_moments(*parts[:i], bad, *parts[i + 1 :])


def test_constant_features_do_not_count_in_the_warning_about_units() -> None:
    variances = np.r_[100.0, 1.0, 1.0, np.zeros(20)]
    warn_of_units(variances, variances, 50)  # there is no warning about three features
    variances[3] = 1.0
    with pytest.warns(ContrastWarning, match="1 of 4 features .column 0. hold 97%"):
        warn_of_units(variances, variances, 50)
