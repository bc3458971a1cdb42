"""Tests of the likelihood of CLVM: its value, its gradient, its EM steps and its maximum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from contrast_core import SecondMoments
from contrast_core.datasets import load_mouse_protein
from contrast_core.linalg import subspace_error
from contrast_core.probabilistic._ascent import Evaluation, ascend
from contrast_core.probabilistic._clvm_likelihood import Fit, Search
from contrast_core.probabilistic._clvm_moments import MomentLikelihood
from contrast_core.probabilistic._row_posterior import Model
from tests.core.latent_samples import clvm_log_likelihood
from tests.core.test_clvm import fit
from tests.core.test_contract import planted


def likelihood_of(X: Any, Y: Any, k: int, t: int = 2) -> MomentLikelihood:
    search = Search(t, 1, np.random.default_rng(0), 1e-6, 3000)
    x, y = SecondMoments.from_data(X), SecondMoments.from_data(Y)
    return MomentLikelihood.of(x, y, k, search)


@pytest.mark.parametrize(("k", "t"), [(2, 2), (0, 2), (2, 0), (3, 1)])
def test_likelihood_and_gradient_are_those_of_the_density(k: int, t: int) -> None:
    X, Y = planted(40, 30, 6)
    likelihood, rng = likelihood_of(X, Y, k), np.random.default_rng(1)
    loadings, noise = rng.normal(size=(6, k + t)), 0.3

    def direct(point: Any) -> float:
        L, unit = likelihood.unit * point[:-1].reshape(6, k + t), likelihood.unit
        return clvm_log_likelihood(X, Y, L[:, :k], L[:, k:], unit**2 * np.exp(point[-1]))

    value, slope, _ = likelihood.evaluate(Fit(Model(loadings, noise)))
    assert slope is not None
    point = np.append(loadings.ravel(), np.log(noise))
    assert likelihood.log_likelihoods(np.array(value)) == pytest.approx(direct(point), rel=1e-12)
    gradient = np.append(slope.loadings.ravel(), slope.noise) * likelihood.n_rows
    np.testing.assert_allclose(gradient, approx_fprime(point, direct, 1e-6), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("k", "t"), [(2, 2), (0, 3), (3, 0), (5, 4)])
def test_no_step_of_em_lowers_the_likelihood(k: int, t: int) -> None:
    X, Y = planted(40, 30, 12)
    likelihood = likelihood_of(X, Y, k)
    for seed in range(5):
        at = Fit(Model(np.random.default_rng(seed).standard_normal((12, k + t)), 0.1))
        values = []
        for _ in range(50):
            value, _, at = likelihood.evaluate(at)
            values.append(value)
        assert np.diff(values).min() > -1e-13 * abs(values[-1])
        assert values[-1] > values[0] + 1


@pytest.mark.parametrize("seed", range(3))
def test_no_parameters_are_more_likely(seed: int) -> None:
    X, Y = planted(60, 50, 6, seed)
    model = fit(X, Y, 1, 2)
    best = model.log_likelihoods_[-1]
    loadings = model.shared_loadings_, model.salient_loadings_
    expected = clvm_log_likelihood(X, Y, *loadings, model.noise_variance_)
    assert best == pytest.approx(expected, rel=1e-12)

    def loss(point: Any) -> float:
        S, W = np.split(point[:-1].reshape(6, 3), [1], axis=1)
        return -clvm_log_likelihood(X, Y, S, W, np.exp(point[-1]))

    start = np.append(np.hstack(loadings).ravel(), np.log(model.noise_variance_))
    rng = np.random.default_rng(0)
    for scale in (0.01, 0.3):
        found = minimize(loss, start + scale * rng.normal(size=start.shape), method="L-BFGS-B")
        assert -found.fun <= best + 1e-6
        assert -found.fun == pytest.approx(best, abs=0.05)


@pytest.mark.parametrize(("k", "t"), [(2, 2), (8, 2), (20, 2), (12, 12)])
def test_the_likelihood_never_falls_and_ends_at_its_maximum(k: int, t: int) -> None:
    data = load_mouse_protein()
    model = fit(data.foreground, data.background, k, t)
    values = model.log_likelihoods_
    assert model.converged_
    assert len(values) == model.n_iter_ + 1
    assert np.diff(values).min() > -1e-12 * abs(values[-1])
    longer = fit(data.foreground, data.background, k, t, tol=1e-8)
    assert subspace_error(model.components_, longer.components_) < 1e-3
    assert longer.log_likelihoods_[-1] == pytest.approx(values[-1], abs=1e-4)


def test_loadings_that_are_nearly_parallel_and_long_lose_no_digits() -> None:
    """Use features of different scales, with variances up to 10**5 times the noise variance."""
    rng = np.random.default_rng(0)
    scales = 10.0 ** np.linspace(-6, 3, 10)
    X, Y = rng.normal(size=(100, 10)) * scales, rng.normal(size=(80, 10)) * scales
    likelihood = likelihood_of(X, Y, 2)
    loadings, noise = np.zeros((10, 4)), 5e-5
    loadings[9], loadings[8, 2:] = [1.5, 2.0, 1.0, 0.7], [0.01, 0.02]
    at = Fit(Model(loadings, noise))
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    turned = np.hstack([loadings[:, :2] @ turn, loadings[:, 2:] @ turn])
    first, second = (likelihood.evaluate(fit) for fit in (at, Fit(Model(turned, noise))))
    assert first[0] == pytest.approx(second[0], rel=1e-11)
    assert first.update.model.noise == pytest.approx(second.update.model.noise, rel=1e-9)
    values = []
    for _ in range(100):
        value, _, at = likelihood.evaluate(at)
        values.append(value)
    assert np.diff(values).min() > -1e-10 * np.abs(values).max()


def test_an_ascent_survives_flat_stretches() -> None:
    """Maximise minus Rosenbrock's function, where each iteration is a step of gradient ascent."""

    def evaluate(point: Any) -> Evaluation:
        a, b = point
        value = -((1 - a) ** 2) - 100 * (b - a * a) ** 2
        gradient = np.array([2 * (1 - a) + 400 * a * (b - a * a), -200 * (b - a * a)])
        return Evaluation(value, gradient, point + 2e-4 * gradient)

    found = ascend(evaluate, np.array([-1.2, 1.0]), tol=1e-6, max_iter=2000)
    assert found.converged
    np.testing.assert_allclose(found.point, 1, atol=1e-5)
    assert np.diff(found.values).min() >= -1e-12
    short = ascend(evaluate, np.array([-1.2, 1.0]), tol=1e-6, max_iter=7)
    assert not short.converged
    assert len(short.values) <= 7
