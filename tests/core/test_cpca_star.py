"""Tests of cPCA*: the generalised eigenproblem, its limits, and the automatic strength."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

from contrast_core import CPCA, CPCAStar, SecondMoments
from contrast_core.contrast import background_ridge, trace_ratio_alpha
from contrast_core.linalg import subspace_error


def normal_pair(n: int = 200, m: int = 150, d: int = 15, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d))
    scales = np.linspace(3, 1, d)
    return (rng.normal(size=(n, d)) * scales) @ mixing, rng.normal(size=(m, d)) @ mixing


def covariances(X: Any, Y: Any) -> tuple[Any, Any]:
    return np.cov(X.T, bias=True), np.cov(Y.T, bias=True)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.9, 1.0])
def test_directions_solve_the_generalised_eigenproblem(beta: float) -> None:
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


@pytest.mark.parametrize(("n_rows", "n_singular"), [(10, 6), (15, 1)])
def test_beta_one_needs_a_positive_definite_background(n_rows: int, n_singular: int) -> None:
    X, Y = normal_pair(m=n_rows)
    message = rf"singular to working precision.*in {n_singular} of 15 directions.*beta < 1"
    with pytest.raises(ValueError, match=message):
        CPCAStar(beta=1.0).fit(X, background=Y)
    fitted = CPCAStar(beta=0.99).fit(X, background=Y)
    with pytest.raises(ValueError, match=message):
        fitted.at(1.0)


def test_the_automatic_beta_uses_the_ridge_of_the_automatic_alpha() -> None:
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
