"""The cross-fitted ratio: is there anything to find, by rows or by groups."""

from __future__ import annotations

import numpy as np
import pytest

from contrast_core import (
    ContrastWarning,
    cross_fitted_ratio,
)
from contrast_core.datasets import make_four_groups
from contrast_core.significance._cross_fit import _halves
from contrast_core.significance._units import two_samples
from tests.core.samples import repeated, rows


def test_known_groups_stand_out_on_held_out_rows() -> None:
    data = make_four_groups()
    result = cross_fitted_ratio(data.foreground, background=data.background, random_state=0)
    assert result.ratio > 3.7
    assert result.found
    assert result.ratios.shape == (20,)
    assert not result.few_groups
    total = data.foreground.var(axis=0).sum() / data.background.var(axis=0).sum()
    assert result.baseline == pytest.approx(total)
    assert result.threshold == 1.5 * result.baseline


@pytest.mark.parametrize("seed", range(3))
def test_two_samples_of_one_distribution_give_about_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = (rng.normal(size=(400, 30)) * np.linspace(3, 1, 30) for _ in range(2))
    with pytest.warns(ContrastWarning, match=r"ratio is .*, below 1\.5 tr\(C_X\)/tr\(C_Y\)"):
        result = cross_fitted_ratio(X, background=Y, random_state=0)
    assert 0.8 < result.ratio < 1.2
    with pytest.warns(ContrastWarning):
        scaled = cross_fitted_ratio(3 * X, background=Y, random_state=0)
    assert scaled.ratio / scaled.baseline == pytest.approx(result.ratio / result.baseline)


def test_repeated_rows_do_not_fake_a_ratio() -> None:
    rng = np.random.default_rng(13)
    X, groups = repeated(8, rng, repeats=20)
    Y, background_groups = repeated(8, rng, repeats=20)
    naive = cross_fitted_ratio(X, background=Y, random_state=0)
    with pytest.warns(ContrastWarning, match="seven to ten groups cannot certify a null"):
        grouped = cross_fitted_ratio(
            X, background=Y, groups=groups, background_groups=background_groups + 8, random_state=0
        )
    assert naive.found
    assert not grouped.found
    assert grouped.few_groups
    assert (grouped.n_groups, grouped.n_background_groups) == (8, 8)


def test_a_donor_of_both_datasets_stays_in_one_half() -> None:
    rng = np.random.default_rng(14)
    donors, others = np.repeat(np.arange(7), 4), np.repeat([0, 2, 4, 6, 8, 9], 4)
    samples = two_samples(rows(28, rng), rows(24, rng), donors, others)
    for _ in range(20):
        x, y = _halves(samples, rng)
        assert [bool(x[i]) for i in (0, 2, 4, 6)] == [bool(half) for half in y[:4]]
        assert x.sum() in (3, 4)
        assert y.sum() == 3
