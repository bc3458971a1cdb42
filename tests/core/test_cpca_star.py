"""Tests of cPCA*: the generalised eigenproblem, its limits, and the automatic strength."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from sklearn.metrics import silhouette_score

from contrast_core import CPCA, CPCAStar, SecondMoments
from contrast_core.contrast import background_ridge, trace_ratio_alpha
from contrast_core.datasets import load_mouse_protein
from contrast_core.linalg import subspace_error


def normal_pair(n: int = 200, m: int = 150, d: int = 15, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d))
    scales = np.linspace(3, 1, d)
    return (rng.normal(size=(n, d)) * scales) @ mixing, rng.normal(size=(m, d)) @ mixing


def covariances(X: Any, Y: Any) -> tuple[Any, Any]:
    return np.cov(X.T, bias=True), np.cov(Y.T, bias=True)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.9, 1.0])
def test_directions_solve_the_generalised_problem(beta: float) -> None:
    X, Y = normal_pair()
    c_x, c_y = covariances(X, Y)
    b = (1 - beta) * np.eye(15) + beta * c_y
    star = CPCAStar(4, beta=beta).fit(X, background=Y)
    v, values = star.directions_, star.generalized_eigenvalues_
    np.testing.assert_allclose(c_x @ v.T, b @ v.T * values, atol=1e-10 * np.abs(c_x).max())
    np.testing.assert_allclose(v @ b @ v.T, np.eye(4), atol=1e-10)
    reference = scipy.linalg.eigh(c_x, b, eigvals_only=True, subset_by_index=[11, 14])[::-1]
    np.testing.assert_allclose(values, reference, rtol=1e-10)
    for j in range(1, 5):  # the first j components and the first j directions have the same span
        assert subspace_error(star.components_[:j], v[:j]) < 1e-12
    for C, variance in ((c_x, star.foreground_variance_), (c_y, star.background_variance_)):
        np.testing.assert_allclose(np.diag(star.components_ @ C @ star.components_.T), variance)
    scaled = CPCAStar(4, beta=beta).fit(5 * X, background=Y)
    assert subspace_error(scaled.components_, star.components_) < 1e-10
    np.testing.assert_allclose(scaled.generalized_eigenvalues_, 25 * values)


def test_beta_one_is_the_largest_ratio_of_variances_and_knows_no_units() -> None:
    X, Y = normal_pair()
    star = CPCAStar(1, beta=1).fit(X, background=Y)
    best = star.foreground_variance_[0] / star.background_variance_[0]
    np.testing.assert_allclose(best, star.generalized_eigenvalues_[0])
    # An invertible linear map of both datasets does not change the generalised eigenvalues.
    mixing = np.random.default_rng(2).normal(size=(15, 15))
    mapped = CPCAStar(1, beta=1).fit(X @ mixing, background=Y @ mixing)
    np.testing.assert_allclose(mapped.generalized_eigenvalues_, best)


@pytest.mark.parametrize(("n_rows", "n_singular"), [(10, 6), (15, 1)])
def test_beta_one_needs_a_positive_definite_background(n_rows: int, n_singular: int) -> None:
    X, Y = normal_pair(m=n_rows)
    message = rf"singular to working precision.*in {n_singular} of 15 directions.*beta < 1"
    with pytest.raises(ValueError, match=message):
        CPCAStar(beta=1.0).fit(X, background=Y)
    fitted = CPCAStar(beta=0.99).fit(X, background=Y)
    with pytest.raises(ValueError, match=message):
        fitted.at(1.0)


@pytest.mark.parametrize("scale", [0.1, 7.0])
def test_beta_has_the_units_that_its_docstring_says(scale: float) -> None:
    X, Y = normal_pair()
    beta = 0.6
    plain = CPCAStar(2, beta=beta).fit(X, background=Y)
    converted = beta / (beta + (1 - beta) * scale**2)
    scaled = CPCAStar(2, beta=converted).fit(scale * X, background=scale * Y)
    assert subspace_error(scaled.components_, plain.components_) < 1e-10


def test_automatic_beta_shares_the_ridge_of_automatic_alpha() -> None:
    X, Y = normal_pair()
    x, y = SecondMoments.from_data(X), SecondMoments.from_data(Y)
    tau = background_ridge(x, y)
    np.testing.assert_allclose(tau, y.total_variance / 15 / 4)
    assert CPCAStar().fit(x, background=y).beta_ == pytest.approx(1 / (1 + tau))
    # The automatic alpha of cPCA equals the ratio of variances with the same ridge.
    alpha = trace_ratio_alpha(x, y, 2)
    cpca = CPCA(2, alpha=alpha).fit(x, background=y)
    assert alpha == pytest.approx(
        cpca.foreground_variance_.sum() / (cpca.background_variance_.sum() + 2 * tau)
    )


def test_a_planted_subspace_is_recovered() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    shared, extra = basis[:3], basis[3:5]
    Y = rng.normal(size=(4000, 3)) * 10 @ shared + rng.normal(size=(4000, 30))
    X = rng.normal(size=(4000, 3)) * 10 @ shared + rng.normal(size=(4000, 30))
    X += rng.normal(size=(4000, 2)) * 3 @ extra
    star = CPCAStar().fit(X, background=Y)
    assert subspace_error(star.components_, extra) < 0.1
    assert subspace_error(star.at(0.0).components_, extra) > 0.9


@pytest.mark.filterwarnings("ignore:[12] of 2 components have negative contrast")
@pytest.mark.parametrize("scaled", [True, False])
def test_automatic_contrast_is_within_a_tenth_of_the_best_on_mice(scaled: bool) -> None:
    """Compare the automatic strengths of cPCA and cPCA* with the best ones of a grid.

    This test uses the mouse data. validation/automatic_contrast.py uses other datasets.
    """
    mice = load_mouse_protein()

    def silhouette(estimator: Any) -> float:
        scores = estimator.transform(mice.foreground)
        scores = scores / scores.std(axis=0) if scaled else scores
        return float(silhouette_score(scores, mice.labels))

    cpca = CPCA().fit(mice.foreground, background=mice.background)
    best = max(silhouette(cpca.at(alpha)) for alpha in [0, *np.logspace(-1, 3, 20)])
    assert silhouette(cpca) >= 0.9 * best > 0.36
    star = CPCAStar().fit(mice.foreground, background=mice.background)
    ridges = star.background_moments_.total_variance / 77 * np.logspace(-3, 3, 20)
    best = max(silhouette(other) for other in star.path([0, *1 / (1 + ridges)]))
    assert silhouette(star) >= 0.9 * best > 0.36
