"""Tests of `cross_fitted_ratio`, which holds out rows or whole units."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from contrast_core import cross_fitted_ratio
from contrast_core.datasets import make_four_groups
from tests.core.samples import repeated


def test_known_groups_have_a_large_ratio_on_held_out_rows() -> None:
    data = make_four_groups()
    result = cross_fitted_ratio(data.foreground, background=data.background, random_state=0)
    assert result.ratio > 3.7
    assert result.ratios.shape == (20,)
    total = data.foreground.var(axis=0).sum() / data.background.var(axis=0).sum()
    assert result.baseline == pytest.approx(total)
    assert result.relative == result.ratio / result.baseline


@pytest.mark.parametrize("seed", range(3))
def test_two_samples_of_one_distribution_have_a_ratio_near_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(2, 400, 30))
    result = cross_fitted_ratio(X, background=Y, random_state=0)
    # The ridge is a quarter of the variance, so the relative ratio is 1 / (1 + 1/4).
    assert result.relative == pytest.approx(1 / 1.25, rel=0.1)
    scaled = cross_fitted_ratio(3 * X, background=Y, random_state=0)
    assert scaled.relative == pytest.approx(result.relative)


def test_repeated_rows_do_not_raise_the_ratio_if_units_are_given() -> None:
    rng = np.random.default_rng(13)
    X, units = repeated(8, rng, repeats=20)
    Y, background_units = repeated(8, rng, repeats=20)
    naive = cross_fitted_ratio(X, background=Y, random_state=0)
    grouped = cross_fitted_ratio(
        X, background=Y, units=units, background_units=background_units + 8, random_state=0
    )
    assert naive.relative > 1.5 > grouped.relative
    assert (grouped.n_units, grouped.n_background_units) == (8, 8)


@pytest.mark.parametrize("k", [1, 2])
def test_the_ratio_of_a_split_agrees_with_plain_numpy(k: int) -> None:
    rng = np.random.default_rng(15)
    X, Y = (rng.normal(size=(n, 4)) * [3, 1, 1, 1] for n in (8, 8))
    X[:, 1] *= 4
    units = np.arange(8)
    result = cross_fitted_ratio(
        X, background=Y, n_components=k, units=units, background_units=units, n_splits=35
    )
    by_hand = []
    for half in combinations(range(8), 4):
        others = [i for i in range(8) if i not in half]
        (P, Q), (A, B) = (
            [np.cov(part[chosen].T, bias=True) for part in (X, Y)]
            for chosen in (list(half), others)
        )
        alpha = 0.0
        while True:
            v = np.linalg.eigh(P - alpha * Q)[1][:, -k:]
            own, other = (
                np.trace(v.T @ x @ v) / (np.trace(v.T @ y @ v) + k * np.trace(y) / 16)
                for x, y in ((P, Q), (A, B))
            )
            if own <= 1.05 * alpha:
                break
            alpha = own
        by_hand.append(other)
    np.testing.assert_allclose(np.sort(result.ratios), np.sort(by_hand), rtol=1e-9)
    assert result.ratio == np.median(result.ratios)


def test_a_background_that_is_constant_in_one_half_is_refused() -> None:
    rng = np.random.default_rng(17)
    Y = np.zeros((16, 3))
    Y[0] = 1.0
    with pytest.raises(ValueError, match=r"background is constant .* over 8 rows"):
        cross_fitted_ratio(rng.normal(size=(16, 3)), background=Y)
