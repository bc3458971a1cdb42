"""Tests of rules for PCA++: the noise level, the truncation, and which signals are detectable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.integrate

from contrast_core import SecondMoments
from contrast_core.contrast import (
    detectable_spike,
    effective_n_pairs,
    expected_subspace_error,
    noise_bulk,
    signal_is_detectable,
    truncated_eigenpairs,
)
from contrast_core.contrast._noise_bulk import marchenko_pastur_median
from contrast_core.solve import ProblemSize, make_plan

PLAN = make_plan(ProblemSize(400, 100, 1))


def sample(n: int, d: int, spikes: Any = (), *, sd: float = 1.0, seed: int = 0) -> SecondMoments:
    """Return moments of noise and of spikes, which are random directions with additional variance.

    The additional variances, `spikes`, are in units of the noise variance.
    """
    rng = np.random.default_rng(seed)
    scale = np.ones(d)
    scale[: len(spikes)] = np.sqrt(1 + np.array(spikes))
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return SecondMoments.from_data(sd * rng.normal(size=(n, d)) * scale @ basis + 5.0)


def bulk_of(moments: SecondMoments, n: float | None = None) -> Any:
    """Return the result of `noise_bulk` for the spectrum of these moments."""
    values = np.linalg.eigvalsh(moments.covariance)[::-1]
    return noise_bulk(values, moments.n_features, n or moments.n_samples)


@pytest.mark.parametrize("c", [0.01, 0.3, 0.9, 1.0, 1.8, 20.0])
def test_the_median_halves_the_marchenko_pastur_law(c: float) -> None:
    low, high = (1 - np.sqrt(c)) ** 2, (1 + np.sqrt(c)) ** 2

    def mass(start: float, end: float) -> float:
        # The substitution x = t^2 removes the singularity of the density at 0 for c = 1.
        def density(t: float) -> float:
            return float(np.sqrt((high - t**2) * (t**2 - low)) / (np.pi * c * max(t, 1e-300)))

        return float(scipy.integrate.quad(density, np.sqrt(start), np.sqrt(end))[0])

    median = marchenko_pastur_median(c)
    assert mass(low, high) == pytest.approx(min(1.0, 1 / c), rel=1e-6)
    assert mass(low, median) == pytest.approx(mass(median, high), rel=1e-5)


@pytest.mark.parametrize("d", [50, 150, 450, 900])
@pytest.mark.parametrize("n_spikes", [0, 10])
def test_the_noise_variance_and_the_number_of_spikes_are_estimated(d: int, n_spikes: int) -> None:
    """Use spikes of up to 100 times the noise variance, and D below and above n.

    At most a fifth of the eigenvalues belong to spikes.
    """
    bulk = bulk_of(sample(500, d, np.geomspace(100, 5, n_spikes), sd=3.0))
    assert bulk.n_above == n_spikes
    # The noise variance is estimated by the median of the eigenvalues, whose standard deviation is
    # about 1% here. The tolerance is three times as large.
    assert bulk.variance == pytest.approx(9.0, rel=0.03)


def test_pure_noise_rarely_exceeds_the_edge() -> None:
    """Check the edge of the noise, which is the 99% quantile of its largest eigenvalue.

    Of 60 samples, 0.6 are expected to exceed it.
    """
    found = [bulk_of(sample(200, d, seed=i)).n_above for i in range(20) for d in (40, 150, 300)]
    assert sum(count > 0 for count in found) <= 3
    assert max(found) <= 1
    rows = np.random.default_rng(0).normal(size=(4000, 50, 20))
    rows -= rows.mean(axis=1, keepdims=True)
    largest = np.linalg.eigvalsh(rows.transpose(0, 2, 1) @ rows / 50)[:, -1]
    bulk = bulk_of(sample(50, 20))
    assert bulk.edge / bulk.variance == pytest.approx(np.quantile(largest, 0.99), rel=0.015)


def test_units_strong_spikes_and_collinear_features_do_not_change_the_noise_level() -> None:
    """Use other units of measurement, strong spikes, and 40 features that are repeated three times.

    The repeated noise has 40 dimensions and three times the variance.
    """
    small, large = (bulk_of(sample(300, 60, [20.0, 8.0], sd=sd)) for sd in (1e-4, 1e5))
    assert small.n_above == large.n_above == 2
    assert large.variance / small.variance == pytest.approx(1e18)
    levels = [bulk_of(sample(500, 100, np.full(8, s))).variance for s in (10.0, 1e3, 1e6)]
    np.testing.assert_allclose(levels, levels[0], rtol=0.01)
    once = sample(500, 40, [30.0])
    tiled = SecondMoments(once.n_samples, np.tile(once.mean, 3), np.tile(once.covariance, (3, 3)))
    bulk = bulk_of(tiled)
    assert bulk.n_above == bulk_of(once).n_above == 1
    assert bulk.variance == pytest.approx(3 * bulk_of(once).variance)


def test_small_and_unusual_spectra_have_a_positive_noise_level() -> None:
    for values in ([2.0], [3.0, 0.0], [5.0, 1.0], [1.0, 1.0, 1.0], [9.0, 1e-9, 1e-9]):
        for n in (1.5, 2.0, 3.0, 100.0):
            bulk = noise_bulk(np.array(values), len(values), n)
            assert 0 <= bulk.n_above < len(values)
            assert bulk.variance > 0
    with pytest.raises(ValueError, match="the data are constant"):
        noise_bulk(np.zeros(3), 3, 10)


def test_each_truncation_keeps_the_requested_number_or_share() -> None:
    moments = sample(400, 30, [80.0, 40.0, 10.0])
    values = np.linalg.eigvalsh(moments.covariance)[::-1]
    held = np.cumsum(values) / values.sum()

    def kept(truncation: Any, k: int = 1) -> int:
        pairs = truncated_eigenpairs(moments, truncation, k, 400, PLAN)
        np.testing.assert_allclose(pairs.values, values[: len(pairs.values)], rtol=1e-10)
        v = pairs.components
        np.testing.assert_allclose(v @ moments.covariance @ v.T, np.diag(pairs.values), atol=1e-9)
        return len(pairs.values)

    assert kept("auto") == 3
    assert kept("auto", k=5) == 5  # the rule keeps at least the requested components
    assert kept(7) == 7
    assert kept(np.int64(7)) == 7
    assert kept(None) == kept(1.0) == 30
    for fraction in (0.2, 0.7, 0.9):
        s = kept(fraction)
        assert held[s - 1] >= fraction
        assert s == 1 or held[s - 2] < fraction


def test_impossible_truncations_are_refused() -> None:
    moments, few = sample(400, 30), sample(10, 30)
    for truncation in (1, 31, 0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=rf"truncation={truncation:g} is out of range"):
            truncated_eigenpairs(moments, truncation, 2, 400, PLAN)
    with pytest.raises(ValueError, match=r"truncation=None asks for 30 .* S has only 9 among 30"):
        truncated_eigenpairs(few, None, 2, 10, PLAN)
    with pytest.raises(ValueError, match=r"n_components=12 asks for 12 directions .* S has only 9"):
        truncated_eigenpairs(few, "auto", 12, 10, PLAN)
    assert len(truncated_eigenpairs(few, 1.0, 2, 10, PLAN).values) == 9


def test_the_expected_error_agrees_with_the_paper() -> None:
    """Check the values of the PCA++ paper for n = 500 and a weakest spike of 10."""
    for ratio, error in [(0.1, 0.104), (0.5, 0.229), (1.1, 0.330), (1.8, 0.410)]:
        value = expected_subspace_error(
            [50, 25, 20, 15, 10], round(500 * ratio), 500, exchangeable=False
        )
        assert value == pytest.approx(error, abs=5e-4)
        pooled = expected_subspace_error(10, round(500 * ratio), 250)
        assert pooled == value  # two views of 250 pairs count as one view of 500
    growing = expected_subspace_error(10.0, 500, 1000, exchangeable=False, regime="growing")
    assert growing == pytest.approx(np.sqrt(0.5 / 10.5))


def test_below_the_detectable_spike_the_error_is_one_and_above_it_falls() -> None:
    threshold = detectable_spike(300, 200)
    assert threshold == pytest.approx(np.sqrt(300 / 400))
    assert detectable_spike(300, 200, exchangeable=False) == pytest.approx(np.sqrt(300 / 200))
    assert expected_subspace_error(0.9 * threshold, 300, 200) == 1.0
    assert expected_subspace_error(1.0001 * threshold, 300, 200) == pytest.approx(1.0, abs=1e-3)
    errors = [expected_subspace_error(s, 300, 200) for s in (1, 10, 100, np.inf)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] == 0.0


def test_a_signal_must_beat_both_the_noise_and_chance() -> None:
    wide, narrow = sample(50, 400), sample(50, 2)
    # With D / 2n = 4, spikes above 2 are detectable. A spike s has the generalised eigenvalue
    # s / (1 + s), so eigenvalues above 2/3 are detectable.
    found = signal_is_detectable(np.array([0.7, 0.6]), wide, 1, 50)
    np.testing.assert_array_equal(found, [True, False])
    # For two features and 50 pairs, spikes above 0.14 are detectable, but unrelated views give
    # eigenvalues up to 0.46.
    found = signal_is_detectable(np.array([0.47, 0.45]), narrow, 2, 50)
    np.testing.assert_array_equal(found, [True, False])


def test_the_effective_number_of_pairs_follows_kishs_formula() -> None:
    assert effective_n_pairs(np.arange(20), np.arange(20)) == 20
    # If all rows are repeated equally often, the number of distinct rows is returned.
    assert effective_n_pairs(np.repeat(np.arange(5), 4)) == 5
    assert effective_n_pairs(np.repeat(["a", "b"], 4), np.arange(8)) == pytest.approx(
        2 / (1 / 2 + 1 / 8)
    )
    assert 1 < effective_n_pairs([0, 0, 0, 0, 0, 0, 0, 1]) < 2


def test_the_noise_level_of_few_rows_is_corrected_for_the_estimated_mean() -> None:
    levels = [bulk_of(sample(12, 100, seed=seed)).variance for seed in range(100)]
    # Without the correction, the level would be 1/12 = 0.08 too low.
    assert np.mean(levels) == pytest.approx(1, abs=0.03)
