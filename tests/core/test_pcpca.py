"""Tests of PCPCA: Theorem 3, its limits, valid contrasts, the density, effects from the papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import brentq
from sklearn.decomposition import PCA

from contrast_core import CPCA, PCPCA
from contrast_core.linalg import subspace_error
from tests.core.test_contract import planted


def fit(X: Any, Y: Any, d: int = 2, gamma: Any = "auto") -> PCPCA:
    return PCPCA(d, gamma=gamma).fit(X, background=Y)


def model_covariance(model: PCPCA) -> Any:
    return model.loadings_ @ model.loadings_.T + model.noise_variance_ * np.eye(
        len(model.loadings_)
    )


def eigenvalue_tail(X: Any, Y: Any, gamma: float, d: int) -> float:
    """Return the sum of all but the d largest eigenvalues of the contrast."""
    contrast = np.cov(X.T, bias=True) - gamma * np.cov(Y.T, bias=True)
    return float(scipy.linalg.eigvalsh(contrast)[:-d].sum())


def test_the_fit_agrees_with_theorem_3_in_the_scale_of_the_paper() -> None:
    X, Y = planted(150, 110, 9)
    n, m, d, gamma = 150, 110, 2, 0.3
    sums_gamma = gamma * n / m
    x, y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    values, vectors = scipy.linalg.eigh(x.T @ x - sums_gamma * y.T @ y)
    weight = n - sums_gamma * m
    noise = values[:-d].sum() / (weight * (9 - d))
    W = vectors[:, -d:] * np.sqrt(values[-d:] / weight - noise)
    model = fit(X, Y, d, gamma)
    assert model.noise_variance_ == pytest.approx(noise, rel=1e-12)
    np.testing.assert_allclose(model.loadings_ @ model.loadings_.T, W @ W.T, atol=1e-10)


def test_gamma_zero_is_probabilistic_pca() -> None:
    X, Y = planted()
    model, pca = fit(X, Y, 3, 0.0), PCA(3).fit(X)
    n = len(X)
    assert subspace_error(model.components_, pca.components_) < 1e-10
    # scikit-learn divides by n - 1, the paper by n.
    assert model.noise_variance_ == pytest.approx(pca.noise_variance_ * (n - 1) / n, rel=1e-12)
    np.testing.assert_allclose(
        model_covariance(model), pca.get_covariance() * (n - 1) / n, atol=1e-10
    )
    np.testing.assert_allclose(fit(X, Y[::3], 3, 0.0).loadings_, model.loadings_, atol=1e-10)
    assert model.score(X) == pytest.approx(pca.score(X), abs=12 / n)
    assert model.score(X) > fit(X, Y, 3).score(X)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.4])
def test_the_components_are_those_of_cpca_at_the_same_strength(gamma: float) -> None:
    X, Y = planted()
    model, cpca = fit(X, Y, 2, gamma), CPCA(alpha=gamma).fit(X, background=Y)
    np.testing.assert_allclose(model.components_, cpca.components_, atol=1e-10)
    for name in ("contrastive_eigenvalues_", "foreground_variance_", "background_variance_"):
        np.testing.assert_allclose(getattr(model, name), getattr(cpca, name))


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("background", [0.5, 1.0, 3.0])
def test_the_end_of_the_valid_range_is_exact(d: int, background: float) -> None:
    X, Y = planted()
    Y = background * Y
    end = fit(X, Y, d).gamma_max_
    if eigenvalue_tail(X, Y, 1.0, d) > 0:
        assert end == 1.0
    else:
        expected = brentq(lambda gamma: eigenvalue_tail(X, Y, gamma, d), 0, 1, xtol=1e-15)
        assert end == pytest.approx(expected, rel=1e-9)
    assert fit(X, Y, d, end * (1 - 1e-6)).noise_variance_ > 0
    message = rf"n_components={d} it must be from 0 to below {end:.9g} \(gamma_max_\)"
    for gamma in (end, end * (1 + 1e-9), 2.0, -0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match=message):
            fit(X, Y, d, gamma)


# These warnings concern the scales of the features.
@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
def test_the_automatic_gamma_is_a_fraction_of_the_valid_range() -> None:
    rng = np.random.default_rng(0)
    for trial in range(40):
        features = int(rng.integers(3, 15))
        X = rng.normal(size=(int(rng.integers(5, 60)), features)) * rng.gamma(1.0, size=features)
        Y = rng.normal(size=(int(rng.integers(2, 60)), features)) * rng.gamma(1.0, size=features)
        model = fit(X, 10 ** (trial / 40) * Y, 2)
        assert model.gamma_ == pytest.approx(0.9 * model.gamma_max_)
        assert model.noise_variance_ > 0
        assert (model.contrastive_eigenvalues_ > 0).all()


def test_an_empty_range_is_refused_for_every_gamma() -> None:
    X, Y = planted()
    for gamma in ("auto", 0.0, 0.2):
        with pytest.raises(ValueError, match=r"no more than n_components=2 directions.*fewer comp"):
            fit(X[:3], Y, 2, gamma)
        with pytest.raises(ValueError, match="no more than n_components=2 directions"):
            fit(np.ones_like(X), Y, 2, gamma)


def test_a_direction_must_be_left_for_the_noise() -> None:
    X, Y = planted()
    with pytest.raises(ValueError, match=r"n_components=12 with 12 feature\(s\) leaves no dir"):
        fit(X, Y, 12)
    with pytest.raises(ValueError, match=r"n_components=1 with 1 feature\(s\) leaves no direction"):
        fit(X[:, :1], Y[:, :1], 1)
    assert fit(X, Y, 11, 0.0).noise_variance_ > 0


def test_the_default_path_ends_within_the_range() -> None:
    model = fit(*planted())
    default = model.path()
    assert len(default) == 20
    assert default[-1].gamma_ == pytest.approx(0.95 * model.gamma_max_)
    with pytest.raises(ValueError, match="gammas is empty"):
        model.path([])
    with pytest.raises(ValueError, match="gamma=3 is out of range"):
        model.path([0.1, 3.0])


@pytest.mark.parametrize("gamma", ["auto", 0.5])
@pytest.mark.parametrize("missing", [False, True])
def test_a_background_without_variance_is_refused(gamma: Any, missing: bool) -> None:
    X = np.random.default_rng(0).normal(size=(40, 6))
    if missing:
        X[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"background is constant .* or leave it out"):
        PCPCA(gamma=gamma).fit(X, background=np.ones((30, 6)))
