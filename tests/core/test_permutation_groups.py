"""Tests of `permutation_test` by units, which all count the same; few units keep the level."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import binom

from contrast_core import CPCA, permutation_test
from contrast_core._validation import FloatArray
from contrast_core.datasets import load_mouse_protein
from tests.core.samples import (
    assert_level_is_kept,
    error_of_centre,
    geometric_median,
    rejections,
    repeated,
    rows,
)


@pytest.mark.slow
def test_repeated_rows_do_not_fake_a_component() -> None:
    rng = np.random.default_rng(2)
    naive, grouped = [], []
    for _ in range(100):
        X, units = repeated(9, rng)
        Y, background_units = repeated(9, rng)
        given = {"units": units, "background_units": background_units + 9}
        for labels, p in ((given, grouped), ({}, naive)):
            test = permutation_test(
                CPCA(1), X, background=Y, n_permutations=59, random_state=rng, **labels
            )
            p.append(test.p_values[0])
    assert_level_is_kept(grouped, 0.05)
    assert_level_is_kept(grouped, 0.5)
    assert rejections(naive, 0.05) > 60


def test_mice_have_two_components() -> None:
    mice = load_mouse_protein()
    naive, grouped = (
        permutation_test(
            CPCA(4),
            mice.foreground,
            background=mice.background,
            n_permutations=199,
            random_state=0,
            **labels,
        )
        for labels in (
            {},
            {"units": mice.units, "background_units": mice.background_units},
        )
    )
    assert naive.n_significant(0.01) == 4
    assert grouped.n_significant(0.01) == 0  # with 18 and 9 mice
    assert (grouped.n_units, grouped.n_background_units) == (18, 9)
    assert naive.n_units is None


def test_few_groups_are_enumerated_each_counting_the_same() -> None:
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
        weighted(
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


def weighted(
    parts: list[FloatArray], chosen: list[int], others: list[int], draws: list[FloatArray]
) -> float:
    """Return the largest eigenvalue of the contrast of chosen units with the others.

    The parts of each dataset are brought to one centre and scale. The first `len(chosen)` parts are
    the first dataset.
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


@pytest.mark.slow
def test_few_groups_fake_no_component() -> None:
    rng, p = np.random.default_rng(9), []
    owner = np.repeat(np.arange(8), 20)
    given = {"units": owner[:80], "background_units": owner[80:]}
    for _ in range(100):
        rows_of_all = rng.normal(size=(8, 20))[owner] + rng.normal(size=(160, 20))
        X, Y = rows_of_all[:80] + 9.0, rows_of_all[80:]
        test = permutation_test(CPCA(1), X, background=Y, **given, random_state=rng)
        p.append(test.p_values[0])
    for level in (0.05, 0.2):
        assert rejections(p, level) <= binom.ppf(0.999, 100, level)


def test_the_parts_of_a_donor_are_swapped_about_their_mean() -> None:
    """Check that both centres move by the same draws.

    The two parts of a donor are opposite about their mean.
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
        table.append(weighted(parts, chosen, others, [draws[0], draws[0]]))
    np.testing.assert_allclose(test.null_statistics[:, 0], table, rtol=1e-5)


def test_units_with_the_same_mean_are_told_apart_by_their_covariances() -> None:
    halves = np.random.default_rng(7).integers(-9, 10, size=(2, 4, 5, 3)) * [3, 1, 1]
    X, Y = (np.concatenate([half, -half], axis=1).reshape(40, 3) for half in halves)
    units = np.arange(40) // 10
    test = permutation_test(
        CPCA(1), X * [4, 1, 1], background=Y, units=units, background_units=100 + units
    )
    assert np.isfinite(test.null_statistics).all()
    assert test.p_values[0] < 0.05
