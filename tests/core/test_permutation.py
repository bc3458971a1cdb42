"""Tests of `permutation_test`: its statistics for rows and for units, and what it refuses.

Units are groups of rows, such as donors, that are relabelled as a whole.
"""

from __future__ import annotations

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
)


def by_hand(
    X: FloatArray,
    Y: FloatArray,
    labels: list[tuple[NDArray[np.bool_], FloatArray, FloatArray]],
    k: int,
    *,
    alpha: float | None = None,
    beta: float | None = None,
) -> FloatArray:
    """Compute the statistics of k components for the original labels and for each relabelling.

    Each relabelling consists of a mask of the rows that are called foreground, and of one random
    draw for each row of X and of Y. From these draws, `error_of_centre` computes by how much the
    centres of X and Y are shifted.
    """
    X, Y = (part - geometric_median(part) for part in (X, Y))
    start = (np.arange(len(X) + len(Y)) < len(X), np.zeros(len(X)), np.zeros(len(Y)))
    X_full, Y_full, basis, table = X, Y, np.eye(X.shape[1]), []
    for _ in range(k):
        totals, dim = [part.var(axis=0).sum() for part in (X, Y)], X.shape[1]
        scales = [np.sort(np.linalg.norm(part, axis=1))[(len(part) - 1) // 2] for part in (X, Y)]
        found = []
        for is_x, *draws in [start, *labels]:
            shifts = map(error_of_centre, (X_full, Y_full), draws)
            moved = zip((X, Y), shifts, scales, strict=True)
            rows = np.vstack([(part + shift @ basis) / scale for part, shift, scale in moved])
            P, Q = (np.cov(rows[chosen].T, bias=True).reshape(dim, dim) for chosen in (is_x, ~is_x))
            found.append(leading_by_hand(P, Q, totals, alpha, beta))
        table.append([statistic for statistic, _ in found])
        rest = scipy.linalg.null_space(found[0][1][None])
        X, Y, basis = X @ rest, Y @ rest, basis @ rest
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
    expected = by_hand(X, Y, labels, 3, **given)
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
UNTESTABLE: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
    (CPCA(3), FLAT, FLAT[:, ::-1], {}, "component 3 .* X does not vary after the earlier"),
    (
        CPCA(2, alpha=0.0),
        SQUARE,
        SQUARE * [1.0, 0.0],
        {},
        "component 2 .*: background does not vary after the earlier",
    ),
    (CPCA(3), WIDE[:3], WIDE[2:], {}, "component 3 cannot be tested: X does not vary"),
    (CPCA(7), FLAT, FLAT, {}, "n_components=7 is out of range"),
    (CPCA(alpha="denoise"), WIDE, WIDE, {}, "alpha='denoise' is chosen for two components tog"),
    (CPCA(1, alpha=np.inf), WIDE, SQUARE @ WIDE[:2], {}, "alpha=inf cannot be tested"),
    (CPCA(1), WIDE[:2], WIDE[4:], {}, r"6 ways to say which rows .* At least 20 are needed"),
    (
        CPCA(1),
        WIDE,
        WIDE[:5],
        {"units": [0, 0, 1, 1, 2, 2], "background_units": [0, 0, 1, 1, 1]},
        "1 units occur in X alone",
    ),
    (
        CPCA(1),
        WIDE[:5],
        WIDE,
        {"units": [0, 0, 1, 1, 1], "background_units": [0, 0, 1, 1, 2, 2]},
        "1 units occur in background alone",
    ),
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
    given = {
        "background": Y,
        "units": units,
        "background_units": np.repeat(["e", "f", "g"], [6, 30, 9]),
    }
    test = permutation_test(CPCA(1, alpha=1.0), X, **given, random_state=0)
    assert test.exact
    assert test.n_distinct == test.n_permutations == len(test.null_statistics) == 35
    assert test.smallest_p_value == 1 / 35
    # The rows are weighted so that each unit has the same total weight.
    again = np.random.default_rng(0)
    table = [
        largest_contrast(
            parts,
            list(chosen),
            [i for i in range(7) if i not in chosen],
            [again.normal(size=4), again.normal(size=3)],
        )
        for chosen in combinations(range(7), 4)
    ]
    np.testing.assert_allclose(test.null_statistics[:, 0], table, rtol=1e-5)
    np.testing.assert_allclose(test.statistics, table[0], rtol=1e-5)
    assert test.p_values[0] == np.mean(np.array(table) >= table[0] - 1e-5)
    with pytest.raises(ValueError, match=r"10 ways to say which units .* below 0\.1\. .*5 units"):
        permutation_test(
            CPCA(1),
            np.vstack(parts[:2]),
            background=Y,
            units=units[:25],
            background_units=given["background_units"],
        )


def largest_contrast(
    parts: list[FloatArray], chosen: list[int], others: list[int], draws: list[FloatArray]
) -> float:
    """Return the largest eigenvalue of the contrast of chosen units with the other units.

    The first `len(chosen)` parts are the units of the original foreground. The parts of each
    original dataset are first moved to a common centre and divided by a common scale.
    """

    def covariance(units: list[FloatArray]) -> FloatArray:
        mean = np.mean([group.mean(axis=0) for group in units], axis=0)
        spread = [(group - mean).T @ (group - mean) / len(group) for group in units]
        return np.asarray(np.mean(spread, axis=0))

    alike, totals = [], []
    for own, draw in zip((parts[: len(chosen)], parts[len(chosen) :]), draws, strict=True):
        centre = geometric_median(np.array([part.mean(axis=0) for part in own]))
        sizes = np.sort([((part - centre) ** 2).sum(axis=1).mean() for part in own])
        shift = error_of_centre(np.array([part.mean(axis=0) for part in own]) - centre, draw)
        alike += [(part - centre + shift) / np.sqrt(sizes[(len(own) - 1) // 2]) for part in own]
        totals.append(np.trace(covariance(own)))
    P, Q = (covariance([alike[i] for i in some]) for some in (chosen, others))
    return float(np.linalg.eigvalsh(P * totals[0] / np.trace(P) - Q * totals[1] / np.trace(Q))[-1])


def test_rows_of_a_donor_in_both_datasets_are_swapped_about_the_mean_of_the_donor() -> None:
    """Check that the random shifts of both datasets use the same draws.

    Each donor has rows in both datasets. After the mean of the donor is subtracted, its foreground
    rows and its background rows have opposite means. The sampling errors of the centres of both
    datasets are therefore opposite, not independent.
    """
    rng = np.random.default_rng(6)
    parts = [rows(n, rng) + 9 * rng.normal(size=6) for n in (5, 20, 4, 8, 6, 30, 9, 7, 5, 11)]
    units = np.repeat(np.arange(5), [5, 20, 4, 8, 6]), np.repeat(np.arange(5), [30, 9, 7, 5, 11])
    test = permutation_test(
        CPCA(1, alpha=1.0),
        np.vstack(parts[:5]),
        background=np.vstack(parts[5:]),
        units=units[0],
        background_units=units[1],
        random_state=0,
    )
    for i in range(5):
        middle = (parts[i].mean(axis=0) + parts[i + 5].mean(axis=0)) / 2
        parts[i], parts[i + 5] = parts[i] - middle, parts[i + 5] - middle
    again, table = np.random.default_rng(0), []
    for swaps in product([False, True], repeat=5):
        draws = again.normal(size=5), again.normal(size=5)
        places = [(i + 5, i) if swap else (i, i + 5) for i, swap in enumerate(swaps)]
        chosen, others = map(list, zip(*places, strict=True))
        table.append(largest_contrast(parts, chosen, others, [draws[0], draws[0]]))
    np.testing.assert_allclose(test.null_statistics[:, 0], table, rtol=1e-5)


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
