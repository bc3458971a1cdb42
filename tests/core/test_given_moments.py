"""Tests of moments that the user gives instead of rows of data."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from contrast_core import CPCA, PCAPlusPlus, SecondMoments
from contrast_core.moments import PairMoments

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
def test_invalid_moments_are_refused_by_name(
    field: str, value: Any, error: type[Exception], message: str
) -> None:
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


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e300])
def test_neither_the_scale_nor_rounding_makes_moments_invalid(scale: float) -> None:
    SecondMoments(30, X.mean(axis=0), scale * COVARIANCE)
    with pytest.raises(ValueError, match="not symmetric"):
        SecondMoments(30, X.mean(axis=0), scale * changed(COVARIANCE, COVARIANCE[0, 1] + 1e-3))
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
    copied = pickle.loads(pickle.dumps(taken))
    for field in ("n_samples", "mean", "covariance"):
        np.testing.assert_allclose(getattr(given, field), getattr(taken, field), atol=1e-12)
        np.testing.assert_array_equal(getattr(copied, field), getattr(taken, field))
    np.testing.assert_allclose(copied.merge(taken).covariance, taken.covariance)
    ours, theirs = (CPCA(2, alpha=0.5).fit(each, background=each) for each in (given, taken))
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-9)
    first, second = (
        PCAPlusPlus(1, truncation=3).fit(pairs)
        for pairs in (PairMoments(**PAIRS), PairMoments.from_data(X, POSITIVE))
    )
    np.testing.assert_allclose(first.components_, second.components_, atol=1e-9)
