"""Tests of PCA+ and PCA++, which find components that positive pairs share, and of their rules.

The rules set the noise level and the truncation, and say which signals are detectable.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
from sklearn.decomposition import PCA

from contrast_core import ContrastWarning, PCAPlus, PCAPlusPlus, SecondMoments
from contrast_core.contrast import (
    detectable_spike,
    effective_n_pairs,
    expected_subspace_error,
    noise_bulk,
    signal_is_detectable,
    truncated_eigenpairs,
)
from contrast_core.contrast._noise_bulk import marchenko_pastur_median
from contrast_core.linalg import subspace_error
from contrast_core.moments import PairMoments
from contrast_core.solve import ProblemSize, make_plan

# Variances of the signal, and of a strong and a mild background
SIGNAL = (50.0, 25.0, 20.0, 15.0, 10.0)
STRONG = (500.0, 400.0, 300.0, 200.0, 100.0)
MILD = (50.0, 40.0, 30.0, 20.0, 10.0)


def pairs(
    n: int = 400,
    d: int = 30,
    signal: Any = (20.0, 10.0),
    background: Any = (200.0, 100.0),
    seed: int = 0,
) -> tuple[Any, Any]:
    """Return pairs of rows with noise of variance 1.

    The first features have a signal that both views share. The last features have a background that
    is independent in the two views.
    """
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n, len(signal))) * np.sqrt(signal)

    def view() -> Any:
        rows = rng.normal(size=(n, d))
        rows[:, : len(signal)] += shared
        if len(background):
            own = rng.normal(size=(n, len(background))) * np.sqrt(background)
            rows[:, -len(background) :] += own
        return rows

    return view(), view()


def error(fitted: Any, n_signal: int = 2) -> float:
    return subspace_error(fitted.components_, np.eye(n_signal, fitted.n_features_in_))


@pytest.mark.parametrize("background", [STRONG, MILD])
@pytest.mark.parametrize("ratio", [0.5, pytest.param(0.9, marks=pytest.mark.slow), 1.5])
def test_the_mean_error_agrees_with_the_theory(background: Any, ratio: float) -> None:
    """Compare the mean subspace error of six simulated datasets with the predicted error.

    The simulation is that of the PCA++ paper. The standard deviation of the error is up to 6% of
    the predicted error for one dataset, and up to 2.5% for the mean of six datasets. The prediction
    is for infinite samples, so the mean also differs from it by up to 2%. The tolerance of 10% is
    four standard errors of the mean.

    papers/pca_pp.py repeats the simulation fifty times, as the paper does.
    """
    d = round(500 * ratio)
    literal, exchangeable = [], []
    for seed in range(6):
        X, positive = pairs(500, d, SIGNAL, background, seed)
        one_view = PCAPlusPlus(5, exchangeable=False, weighted=False).fit(X, positive=positive)
        literal.append(error(one_view, 5))
        both_views = PCAPlusPlus(5).fit(X, positive=positive)
        exchangeable.append(error(both_views, 5))
        assert 10 <= one_view.truncation_ <= 11
        assert 10 <= both_views.truncation_ <= 11
    theory = expected_subspace_error(SIGNAL, d, 500, exchangeable=False)
    assert np.mean(literal) == pytest.approx(theory, rel=0.1)
    assert np.mean(exchangeable) == pytest.approx(expected_subspace_error(SIGNAL, d, 500), rel=0.1)


@pytest.mark.parametrize("exchangeable", [True, False])
def test_without_truncation_pca_pp_solves_the_generalised_eigenproblem(exchangeable: bool) -> None:
    X, positive = pairs()
    moments = PairMoments.from_data(X, positive)
    S = moments.second_moments(exchangeable=exchangeable).covariance
    plus = moments.cross_moment(exchangeable=exchangeable)
    values, vectors = scipy.linalg.eigh(plus, S)
    fitted = PCAPlusPlus(2, truncation=None, exchangeable=exchangeable).fit(X, positive=positive)
    assert fitted.truncation_ == 30
    np.testing.assert_allclose(fitted.generalized_eigenvalues_, values[::-1][:2], rtol=1e-10)
    v = fitted.directions_
    np.testing.assert_allclose(np.abs(v @ S @ vectors[:, ::-1][:, :2]), np.eye(2), atol=1e-8)


@pytest.mark.parametrize("truncation", ["auto", 6, 0.95, None])
@pytest.mark.parametrize("exchangeable", [True, False])
def test_directions_whiten_the_data_and_components_span_the_directions(
    truncation: Any, exchangeable: bool
) -> None:
    X, positive = pairs()
    fitted = PCAPlusPlus(2, truncation=truncation, exchangeable=exchangeable)
    fitted.fit(X, positive=positive)
    S = PairMoments.from_data(X, positive).second_moments(exchangeable=exchangeable).covariance
    v = fitted.directions_
    np.testing.assert_allclose(v @ S @ v.T, np.eye(2), atol=1e-10)
    np.testing.assert_allclose(fitted.patterns_, v @ S, atol=1e-9)
    assert subspace_error(v, fitted.components_) < 1e-10
    assert subspace_error(v[:1], fitted.components_[:1]) < 1e-10


def test_scores_have_unit_variance_or_are_weighted_by_the_eigenvalue() -> None:
    X, positive = pairs()
    both = np.vstack([X, positive])
    plain = PCAPlusPlus(2, weighted=False).fit(X, positive=positive)
    np.testing.assert_allclose(plain.transform(both).std(axis=0), 1.0)
    np.testing.assert_allclose(plain.transform(both).mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.corrcoef(plain.transform(both).T), np.eye(2), atol=1e-10)
    weighted = PCAPlusPlus(2).fit(X, positive=positive)
    np.testing.assert_allclose(
        weighted.transform(both), plain.transform(both) * plain.generalized_eigenvalues_
    )
    literal = PCAPlusPlus(2, exchangeable=False, weighted=False).fit(X, positive=positive)
    np.testing.assert_allclose(literal.transform(X).std(axis=0), 1.0)
    np.testing.assert_allclose(literal.mean_, X.mean(axis=0))


def test_a_shift_between_the_views_is_removed_by_the_exchangeable_form() -> None:
    X, positive = pairs(n=2000, background=(30.0,))
    shift = np.zeros(30)
    shift[5] = 40.0
    fitted = PCAPlusPlus().fit(X + shift, positive=positive)
    gap = fitted.transform(X + shift).mean(axis=0) - fitted.transform(positive).mean(axis=0)
    assert np.abs(gap).max() < 0.1 * fitted.transform(X).std(axis=0).min()
    assert error(fitted) < 0.15


def test_repeated_rows_do_not_change_the_fit_if_n_effective_is_given() -> None:
    X, positive = pairs(n=60, d=80)
    plain = PCAPlusPlus().fit(X, positive=positive)
    index = np.repeat(np.arange(60), 5)
    n = effective_n_pairs(index, index)
    told = PCAPlusPlus().fit(X[index], positive=positive[index], n_effective=n)
    assert told.truncation_ == plain.truncation_ == 4
    assert subspace_error(told.components_, plain.components_) < 1e-9
    np.testing.assert_array_equal(told.detectable_, plain.detectable_)
    untold = PCAPlusPlus().fit(X[index], positive=positive[index])
    assert untold.truncation_ > 10


def test_a_truncation_that_leaves_only_pca_causes_a_warning() -> None:
    X, positive = pairs()
    with pytest.warns(ContrastWarning) as caught:
        fitted = PCAPlusPlus(2, truncation=2, exchangeable=False).fit(X, positive=positive)
    assert "truncated to 2 directions for 2 components" in str(caught[0].message)
    assert "leading generalised eigenvalue is 0.0" in str(caught[1].message)
    assert subspace_error(fitted.components_, PCA(2).fit(X).components_) < 1e-6
    with pytest.warns(ContrastWarning) as caught:
        PCAPlusPlus(6).fit(X, positive=positive)
    assert "truncated to 6 directions for 6 components" in str(caught[0].message)
    assert "4 of 6 components are too weak" in str(caught[1].message)


def test_components_too_weak_to_be_detected_cause_a_warning() -> None:
    X, positive = pairs(n=200, d=300, signal=(30.0, 10.0), background=(300.0, 200.0, 100.0))
    with pytest.warns(ContrastWarning, match="1 of 3 components are too weak"):
        fitted = PCAPlusPlus(3).fit(X, positive=positive)
    np.testing.assert_array_equal(fitted.detectable_, [True, True, False])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert PCAPlusPlus(2).fit(X, positive=positive).detectable_.all()


@pytest.mark.parametrize("constant", [0, 1])
def test_views_with_nothing_in_common_cause_a_warning(constant: int) -> None:
    views = list(np.random.default_rng(0).normal(size=(2, 40, 6)))
    views[constant] = np.ones((40, 6))
    with pytest.warns(ContrastWarning, match="nothing in common along 2 of 2 components"):
        PCAPlus().fit(views[0], positive=views[1])


# Rules for the noise level, the truncation and detectable signals

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
        found = truncated_eigenpairs(moments, truncation, k, 400, PLAN)
        np.testing.assert_allclose(found.values, values[: len(found.values)], rtol=1e-10)
        v = found.components
        np.testing.assert_allclose(v @ moments.covariance @ v.T, np.diag(found.values), atol=1e-9)
        return len(found.values)

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
