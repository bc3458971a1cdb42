"""Moments that are given, rather than taken from data."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

from contrast_core import CPCA, PCAPlusPlus, SecondMoments
from contrast_core.moments import PairMoments

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3)) * [3.0, 2.0, 1.0]
POSITIVE = X + 0.1 * RNG.normal(size=(30, 3))
COVARIANCE = np.cov(X.T, bias=True)
CROSS = np.cov(X.T, POSITIVE.T, bias=True)[:3, 3:]


def changed(matrix: Any, value: float, row: int = 0, column: int = 1) -> Any:
    other = matrix.copy()
    other[row, column] = value
    return other


SECOND = {"n_samples": 30, "mean": X.mean(axis=0), "covariance": COVARIANCE}
PAIRS = {
    name: SecondMoments(30, rows.mean(axis=0), np.cov(rows.T, bias=True))
    for name, rows in (
        ("average", (X + POSITIVE) / 2),
        ("difference", (X - POSITIVE) / 2),
        ("first", X),
    )
}
VECTORS = [
    (np.zeros(4), ValueError, r"shape \(4,\)|has shape \(3, 3\), but the mean has 4 features"),
    (np.zeros((3, 1)), ValueError, r"has shape \(3, 1\); expected \("),
    (np.zeros(0), ValueError, r"has shape \(0,\); expected \("),
    (1.0, ValueError, r"has shape \(\); expected \("),
    ([0, np.nan, 0], ValueError, "NaN or infinity"),
    ([0, np.inf, 0], ValueError, "NaN or infinity"),
    (["a", "b", "c"], TypeError, r"=\['a', 'b', 'c'\] is list without real numbers"),
    ([1j, 0, 0], TypeError, "without real numbers"),
    (None, TypeError, "=None is NoneType without real numbers"),
    (np.ma.masked_array(np.zeros(3), [0, 1, 0]), TypeError, "1 masked entries"),
]
MATRICES = [
    (changed(COVARIANCE, np.nan), ValueError, "holds NaN or inf"),
    (changed(COVARIANCE, np.inf, 1, 1), ValueError, "holds NaN or inf"),
    (changed(COVARIANCE, 5.0), ValueError, "is not symmetric"),
    (changed(COVARIANCE, COVARIANCE[0, 1] + 1e-4), ValueError, "is not symmetric"),
    (np.triu(COVARIANCE), ValueError, "is not symmetric"),
    (COVARIANCE[:2], ValueError, r"has shape \(2, 3\), but the mean has 3 features"),
    (COVARIANCE[:2, :2], ValueError, r"shape \(2, 2\)"),
    (COVARIANCE[0], ValueError, r"shape \(3,\)"),
    (np.full((3, 3), 1.7e308), ValueError, "numbers near the largest of float64"),
    (COVARIANCE.astype(str), TypeError, "without real numbers"),
    (COVARIANCE + 0j, TypeError, "without real numbers"),
    ([[1, 2], [3]], TypeError, "without real numbers"),
    (np.ma.masked_array(COVARIANCE, COVARIANCE > 8), TypeError, "masked entries"),
]
COUNTS = [
    (0, ValueError, "=0 is out of range: it must be at least 1"),
    (-3, ValueError, "=-3 is out of range"),
    (-2.5, ValueError, "must be a positive, finite number"),
    (float("nan"), ValueError, "must be a positive, finite number"),
    (None, TypeError, "must be an integer, got None"),
    (True, TypeError, "must be an integer, got True"),
]
NAMES = [
    (("a", "b"), ValueError, "2 feature_names were given for the 3 features"),
    (("a", "b", 3), TypeError, "must be a sequence of strings, one for each of the 3"),
    ("ab", ValueError, "2 feature_names were given for the 3 features"),
    (3, TypeError, "feature_names=3 must be a sequence of strings"),
]


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        (field, *case)
        for field, cases in {
            "mean": VECTORS,
            "covariance": MATRICES,
            "n_samples": COUNTS,
            "feature_names": NAMES,
        }.items()
        for case in cases
    ],
)
def test_what_are_no_moments_are_refused_by_name(
    field: str, value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        SecondMoments(**SECOND | {field: value})
    assert field in str(caught.value) or "covariance has shape" in str(caught.value)


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


def test_a_negative_variance_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^covariance has the negative variance -2 of feature 1"):
        SecondMoments(**SECOND | {"covariance": changed(COVARIANCE, -2.0, 1, 1)})
    rounding = changed(COVARIANCE, -1e-12, 2, 2)
    rounding[2, :2] = rounding[:2, 2] = 0
    assert SecondMoments(**SECOND | {"covariance": rounding}).covariance is rounding


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e300])
def test_the_scale_of_a_covariance_does_not_matter(scale: float) -> None:
    SecondMoments(30, X.mean(axis=0), scale * COVARIANCE)
    with pytest.raises(ValueError, match="not symmetric"):
        SecondMoments(30, X.mean(axis=0), scale * changed(COVARIANCE, COVARIANCE[0, 1] + 1e-3))


def test_one_wrong_entry_among_many_is_found() -> None:
    matrix = np.eye(500)
    for row, column in ((3, 400), (499, 0), (250, 251)):
        with pytest.raises(ValueError, match="not symmetric"):
            SecondMoments(9, np.zeros(500), changed(matrix, 1e-3, row, column))
        with pytest.raises(ValueError, match="NaN"):
            SecondMoments(9, np.zeros(500), changed(matrix, np.nan, row, column))


@pytest.mark.parametrize(
    "form",
    [
        np.ndarray.tolist,
        np.asfortranarray,
        pd.DataFrame,
        np.ma.masked_array,
        lambda a: np.repeat(a, 2, axis=0)[::2],
        lambda a: a.astype(np.float32),
        lambda a: np.cov(X.astype(np.float32).T, bias=True),
    ],
)
def test_other_forms_of_a_covariance_are_taken(form: Any) -> None:
    given = SecondMoments(np.int64(30), [0, 1, 2], form(COVARIANCE), list("abc"))
    assert type(given.covariance) is np.ndarray
    assert given.covariance.dtype == given.mean.dtype == np.float64
    assert given.feature_names == ("a", "b", "c")
    np.testing.assert_allclose(given.covariance, COVARIANCE, rtol=1e-6)
    whole = SecondMoments.from_data(X)
    expected = CPCA(2, alpha=0.5).fit(whole, background=whole).components_
    ours = CPCA(2, alpha=0.5).fit(given, background=given).components_
    np.testing.assert_allclose(np.abs(ours), np.abs(expected), atol=1e-4)


def test_given_moments_are_those_of_the_data() -> None:
    given, taken = SecondMoments(**SECOND), SecondMoments.from_data(X)
    copied = pickle.loads(pickle.dumps(taken))
    for field in ("n_samples", "mean", "covariance"):
        np.testing.assert_allclose(getattr(given, field), getattr(taken, field), atol=1e-12)
        np.testing.assert_array_equal(getattr(copied, field), getattr(taken, field))
    np.testing.assert_allclose(copied.merge(taken).covariance, taken.covariance)
    ours, theirs = (
        PCAPlusPlus(1, truncation=3).fit(pairs)
        for pairs in (PairMoments(**PAIRS), PairMoments.from_data(X, POSITIVE))
    )
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-9)


@pytest.mark.parametrize("other", [None, X, "moments", PairMoments(**PAIRS)])
def test_only_moments_merge_with_moments(other: Any) -> None:
    with pytest.raises(TypeError, match="SecondMoments merge with SecondMoments, got"):
        SecondMoments(**SECOND).merge(other)
    if not isinstance(other, PairMoments):
        with pytest.raises(TypeError, match="PairMoments merge with PairMoments, got"):
            PairMoments(**PAIRS).merge(other)


def test_an_indefinite_covariance_is_refused() -> None:
    with pytest.raises(ValueError, match="covariance is indefinite"):
        SecondMoments(10, np.zeros(2), np.array([[1.0, 2.0], [2.0, 1.0]]))
    rows = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    rows = (rows - rows.mean(axis=0)) * np.geomspace(1e-3, 1e3, 40, dtype=np.float32)
    assert SecondMoments(5, np.zeros(40), rows.T @ rows / 5).n_features == 40
    assert SecondMoments(5, np.zeros(3), np.zeros((3, 3))).total_variance == 0
