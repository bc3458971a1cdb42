"""Tests of PCA+ and PCA++, which find components that positive pairs share."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from sklearn.decomposition import PCA

from contrast_core import ContrastWarning, PCAPlus, PCAPlusPlus
from contrast_core.contrast import effective_n_pairs, expected_subspace_error
from contrast_core.linalg import subspace_error
from contrast_core.moments import PairMoments

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
@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.5])
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
    np.testing.assert_allclose(
        v @ plus, fitted.generalized_eigenvalues_[:, None] * v @ S, atol=1e-8
    )


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
