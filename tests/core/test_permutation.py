"""Tests of `permutation_test`: its statistics for rows and for units, and what it refuses.

Units are groups of rows, such as donors, that are relabelled as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray

from contrast_core import CPCA, PCPCA, CPCAStar, permutation_test
from contrast_core._validation import FloatArray
from contrast_core.significance import _statistic
from tests.core.samples import (
    error_of_centre,
    geometric_median,
    leading_by_hand,
    quiet,
    rows,
    units_of,
)

Units = Sequence[FloatArray]  # each unit has the shape (number of rows, number of features)


def covariance(units: Units) -> FloatArray:
    """Return the covariance of rows that are weighted so that each unit has the same weight."""
    mean = np.mean([unit.mean(axis=0) for unit in units], axis=0)
    spread = [(unit - mean).T @ (unit - mean) / len(unit) for unit in units]
    return np.asarray(np.mean(spread, axis=0))


def by_hand(
    X: Units,
    Y: Units,
    labels: list[tuple[NDArray[np.bool_], FloatArray, FloatArray]],
    k: int,
    *,
    alpha: float | None = None,
    beta: float | None = None,
) -> FloatArray:
    """Compute the statistics of k components for the original labels and for each relabelling.

    Each relabelling consists of a mask of the units that are called foreground, and of one random
    draw for each unit of X and of Y. From these draws, `error_of_centre` computes by how much the
    centres of X and Y are shifted. For a test without units, each row is a unit.
    """
    datasets, means = [], []
    for units in (X, Y):
        own = np.array([unit.mean(axis=0) for unit in units])
        centre = geometric_median(own)
        datasets.append([unit - centre for unit in units])
        means.append(own - centre)
    start = (np.arange(len(X) + len(Y)) < len(X), np.zeros(len(X)), np.zeros(len(Y)))
    basis, table = np.eye(means[0].shape[1]), []
    for _ in range(k):
        totals = [np.trace(covariance(units)) for units in datasets]
        sizes = [np.sort([(unit**2).sum(axis=1).mean() for unit in units]) for units in datasets]
        scales = [np.sqrt(each[(len(each) - 1) // 2]) for each in sizes]
        found = []
        for is_x, *draws in [start, *labels]:
            moved = []
            for units, own, draw, scale in zip(datasets, means, draws, scales, strict=True):
                shift = error_of_centre(own, draw) @ basis
                moved += [(unit + shift) / scale for unit in units]
            P, Q = (
                covariance([moved[i] for i in np.flatnonzero(chosen)]) for chosen in (is_x, ~is_x)
            )
            found.append(leading_by_hand(P, Q, totals, alpha, beta))
        table.append([statistic for statistic, _ in found])
        rest = scipy.linalg.null_space(found[0][1][None])
        datasets = [[unit @ rest for unit in units] for units in datasets]
        basis = basis @ rest
    return np.array(table).T


@quiet
@pytest.mark.parametrize(
    ("estimator", "given"),
    [
        (CPCA(3), {}),
        (CPCAStar(3), {}),
        (CPCA(3, alpha=2.0), {"alpha": 2.0}),
        (CPCA(3, alpha=0.0), {"alpha": 0.0}),
        (CPCAStar(3, beta=0.4), {"beta": 0.4}),
        (PCPCA(3, gamma=0.2), {}),
        (PCPCA(3), {}),
    ],
)
def test_the_statistics_agree_with_plain_numpy(estimator: Any, given: Any) -> None:
    rng = np.random.default_rng(20)
    X, Y = 2 * rows(12, rng, spike=3.0) + 1.0, rows(9, rng)
    if isinstance(estimator, PCPCA):  # an automatic gamma is chosen once, for all components
        given = {"alpha": estimator.fit(X, background=Y).gamma_}
    test = permutation_test(estimator, X, background=Y, n_permutations=19, random_state=0)
    again, labels = np.random.default_rng(0), []
    for _ in range(19):
        again.random(0)
        is_x = np.isin(np.arange(21), again.permutation(21)[:12])
        labels.append((is_x, again.normal(size=12), again.normal(size=9)))
    expected = by_hand(X[:, None], Y[:, None], labels, 3, **given)
    np.testing.assert_allclose(test.statistics, expected[0], rtol=1e-9)
    if given:
        np.testing.assert_array_equal(test.strengths, 3 * list(given.values()))
    # The tolerance allows for the error of the geometric median, which is found by BFGS.
    np.testing.assert_allclose(test.null_statistics, expected[1:], rtol=1e-5)
    reached = (expected[1:] >= expected[0] * (1 - 1e-9)).sum(axis=0)
    np.testing.assert_array_equal(test.p_values, np.maximum.accumulate((1 + reached) / 20))


@quiet
def test_each_component_has_its_own_contrast_and_uncorrelated_scores() -> None:
    rng = np.random.default_rng(21)
    X, Y = rows(80, rng, spike=6.0), rows(70, rng)
    X[:, 5] *= 4.0
    test = permutation_test(CPCA(3), X, background=Y, n_permutations=19, random_state=0)
    first = CPCA(1).fit(X, background=Y)
    assert test.strengths[0] == pytest.approx(first.alpha_)
    assert test.statistics[0] == pytest.approx(
        first.alpha_ * Y.var(axis=0).sum() / X.var(axis=0).sum()
    )
    np.testing.assert_allclose(test.components[0], first.components_[0], atol=1e-7)
    np.testing.assert_allclose(np.linalg.norm(test.components, axis=1), 1.0)
    scores = np.corrcoef(test.components @ X.T)
    np.testing.assert_allclose(scores, np.eye(3), atol=1e-9)
    assert test.strengths[0] > 2 * test.strengths[1] > 2 * test.strengths[2]
    star = permutation_test(CPCAStar(3), X, background=Y, n_permutations=19, random_state=0)
    np.testing.assert_allclose(star.null_statistics, test.null_statistics)
    np.testing.assert_allclose(star.components, test.components)
    assert star.strengths[0] == pytest.approx(CPCAStar(1).fit(X, background=Y).beta_)


SQUARE = np.array([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]])
FLAT = np.random.default_rng(25).normal(size=(20, 6)) * [1, 1, 0, 0, 0, 0] + 3.0
WIDE = np.random.default_rng(27).normal(size=(6, 20))
TWO, THREE = [0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]  # the unit of each row
UNTESTABLE: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
    (CPCA(3), FLAT, FLAT[:, ::-1], {}, "component 3 .* X does not vary after the earlier"),
    (CPCA(2, alpha=0.0), SQUARE, SQUARE * [1, 0], {}, "component 2 .*: background does not vary a"),
    (CPCA(3), WIDE[:3], WIDE[2:], {}, "component 3 cannot be tested: X does not vary"),
    (CPCA(7), FLAT, FLAT, {}, "n_components=7 is out of range"),
    (CPCA(alpha="denoise"), WIDE, WIDE, {}, "alpha='denoise' is chosen for two components tog"),
    (CPCA(1, alpha=np.inf), WIDE, SQUARE @ WIDE[:2], {}, "alpha=inf cannot be tested"),
    (CPCA(1), WIDE[:2], WIDE[4:], {}, r"6 ways to say which rows .* At least 20 are needed"),
    (CPCA(1), WIDE, WIDE[:5], units_of(THREE, TWO), "1 units occur in X alone"),
    (CPCA(1), WIDE[:5], WIDE, units_of(TWO, THREE), "1 units occur in background alone"),
]


@pytest.mark.filterwarnings("ignore:every row of background")
@pytest.mark.parametrize(("estimator", "X", "Y", "units", "message"), UNTESTABLE)
def test_data_that_cannot_be_tested_are_refused(
    estimator: Any, X: Any, Y: Any, units: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        permutation_test(estimator, X, background=Y, **units)


def test_relabellings_of_few_units_are_enumerated_and_units_count_equally() -> None:
    rng = np.random.default_rng(4)
    parts = [rows(n, rng) for n in (5, 20, 1, 8, 6, 30, 9)]
    X, Y = np.vstack(parts[:4]), np.vstack(parts[4:])
    units = np.repeat(["a", "b", "c", "d"], [5, 20, 1, 8])
    given = {"background": Y, "background_units": np.repeat(["e", "f", "g"], [6, 30, 9])}
    test = permutation_test(CPCA(1, alpha=1.0), X, units=units, **given, random_state=0)
    assert test.exact
    assert test.n_distinct == test.n_permutations == len(test.null_statistics) == 35
    assert test.smallest_p_value == 1 / 35
    again = np.random.default_rng(0)
    labels = [
        (np.isin(range(7), chosen), again.normal(size=4), again.normal(size=3))
        for chosen in combinations(range(7), 4)
    ]
    (original, *table) = by_hand(parts[:4], parts[4:], labels, 1, alpha=1.0)[:, 0]
    np.testing.assert_allclose(test.null_statistics[:, 0], table, rtol=1e-5)
    np.testing.assert_allclose(test.statistics, original, rtol=1e-5)
    assert test.p_values[0] == np.mean(np.array(table) >= original - 1e-5)
    with pytest.raises(ValueError, match=r"10 ways to say which units .* below 0\.1\. .*5 units"):
        permutation_test(CPCA(1), X[:25], units=units[:25], **given)


def test_rows_of_a_donor_in_both_datasets_are_swapped_about_the_mean_of_the_donor() -> None:
    """Check that the random shifts of both datasets use the same draws.

    Each donor has rows in both datasets. After the mean of the donor is subtracted, its foreground
    rows and its background rows have opposite means. The sampling errors of the centres of both
    datasets are therefore opposite, not independent.
    """
    rng = np.random.default_rng(6)
    parts = [rows(n, rng) + 9 * rng.normal(size=6) for n in (5, 20, 4, 8, 6, 30, 9, 7, 5, 11)]
    X, Y = np.vstack(parts[:5]), np.vstack(parts[5:])
    units = (np.repeat(range(5), [len(part) for part in own]) for own in (parts[:5], parts[5:]))
    test = permutation_test(CPCA(1, alpha=1.0), X, background=Y, random_state=0, **units_of(*units))
    for i in range(5):
        middle = (parts[i].mean(axis=0) + parts[i + 5].mean(axis=0)) / 2
        parts[i], parts[i + 5] = parts[i] - middle, parts[i + 5] - middle
    again, labels = np.random.default_rng(0), []
    for swaps in product([False, True], repeat=5):
        draws = again.normal(size=5), again.normal(size=5)
        labels.append((np.append(~np.array(swaps), swaps), draws[0], draws[0]))
    expected = by_hand(parts[:5], parts[5:], labels, 1, alpha=1.0)[1:]
    np.testing.assert_allclose(test.null_statistics, expected, rtol=1e-5)


def test_datasets_of_units_with_equal_means_are_distinguished_by_their_covariances() -> None:
    halves = np.random.default_rng(7).integers(-9, 10, size=(2, 4, 5, 3)) * [3, 1, 1]
    X, Y = (np.concatenate([half, -half], axis=1).reshape(40, 3) for half in halves)
    units = np.arange(40) // 10
    test = permutation_test(
        CPCA(1), X * [4, 1, 1], background=Y, units=units, background_units=100 + units
    )
    assert np.isfinite(test.null_statistics).all()
    assert test.p_values[0] < 0.05


def test_a_dataset_without_variance_is_scaled_by_zero() -> None:
    assert [_statistic._ratio(2.0, of) for of in (4.0, 0.0)] == [0.5, 0.0]
