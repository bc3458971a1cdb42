"""Tests of the moments of rows with groups and weights, in any order and in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core import SecondMoments
from contrast_core.moments import grouped_moments
from contrast_core.rows import rows_of

N, D, G = 900, 15, 6
LABELS = np.array(list("abcdef"))


def parts_by_definition(X: Any, codes: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Compute the mean and both covariances, within and between groups, in extended precision."""
    x, w = np.asarray(X, dtype=np.longdouble), np.asarray(weights, dtype=np.longdouble)
    mean = w @ x / w.sum()
    within, between = np.zeros((D, D), np.longdouble), np.zeros((D, D), np.longdouble)
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


def off(found: Any, wanted: Any) -> float:
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
    assert off(moments.within.covariance, within) < tolerance
    assert off(moments.between.covariance, between) < tolerance
    assert off(moments.mean, mean) < tolerance
    assert moments.n_samples == pytest.approx(weights.sum() if weighted else N)
    np.testing.assert_array_equal(moments.groups, LABELS)
    np.testing.assert_array_equal(
        moments.covariance, moments.between.covariance + moments.within.covariance
    )
    plain = SecondMoments.from_data(GIVEN[kind](X), **options)
    assert off(moments.covariance, plain.covariance) < tolerance
    assert (moments.within.covariance == moments.within.covariance.T).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": ["a"] * (N - 1)}, r"labels of X.*one label for each of the 900 rows"),
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
        (SecondMoments.from_data(X[:, :9], groups=codes), ValueError, "9 features"),
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
    for i, bad in enumerate([[1] * 6, [0.0, *[1.0] * 5], np.full((6, D), np.nan), np.ones((3, 3))]):
        with pytest.raises(ValueError, match=r"twice|holds 0|NaN|n_groups|shape"):
            grouped_moments(*parts[:i], bad, *parts[i + 1 :])
