"""Tests of PCPCA: Theorem 3, its limits, valid contrasts, the density, effects from the papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import brentq, minimize
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import StandardScaler

from contrast_core import CPCA, PCPCA
from contrast_core.datasets import load_mouse_protein, make_toy
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


def objective(X: Any, Y: Any, gamma: float, W: Any, noise: float) -> float:
    """Compute the logarithm of Li et al. 2020, eq. 10, per foreground row, by its definition."""
    covariance = W @ W.T + noise * np.eye(len(W))
    x, y = (
        multivariate_normal(rows.mean(axis=0), covariance).logpdf(rows).mean() for rows in (X, Y)
    )
    return float(x - gamma * y)


def scaled_silhouette(scores: Any, labels: Any) -> float:
    return float(silhouette_score(scores / scores.std(axis=0), labels))


def test_theorem_3_in_the_papers_own_scale_of_sums() -> None:
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


@pytest.mark.parametrize("gamma", [0.0, 0.2, 0.5])
def test_no_parameters_have_a_larger_relative_likelihood(gamma: float) -> None:
    X, Y = planted(60, 50, 5)
    model = fit(X, Y, 2, gamma)
    best = objective(X, Y, gamma, model.loadings_, model.noise_variance_)

    def loss(parameters: Any) -> float:
        return -objective(X, Y, gamma, parameters[:-1].reshape(5, 2), np.exp(parameters[-1]))

    start = np.append(model.loadings_.ravel(), np.log(model.noise_variance_))
    rng = np.random.default_rng(0)
    for scale in (0.01, 0.3):
        found = minimize(loss, start + scale * rng.normal(size=start.shape), method="L-BFGS-B")
        assert -found.fun <= best + 1e-9
        assert -found.fun == pytest.approx(best, abs=1e-4)


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


def test_without_noise_the_latent_variables_are_cpcas_scores() -> None:
    X, Y = planted()
    Y = 2 * Y  # the range ends where the noise variance is 0, below gamma = 1
    limit = fit(X, Y).gamma_max_ * (1 - 1e-9)
    model, cpca = fit(X, Y, 2, limit), CPCA(alpha=limit).fit(X, background=Y)
    assert 0 < model.noise_variance_ < 1e-7
    assert np.abs(model.latent_covariance_).max() < 1e-7
    lengths = np.linalg.norm(model.loadings_, axis=0)
    np.testing.assert_allclose(model.transform(X) * lengths, cpca.transform(X), atol=1e-6)


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
def test_auto_is_a_fraction_of_the_range_and_never_out_of_it() -> None:
    rng = np.random.default_rng(0)
    for trial in range(40):
        features = int(rng.integers(3, 15))
        X = rng.normal(size=(int(rng.integers(5, 60)), features)) * rng.gamma(1.0, size=features)
        Y = rng.normal(size=(int(rng.integers(2, 60)), features)) * rng.gamma(1.0, size=features)
        model = fit(X, 10 ** (trial / 40) * Y, 2)
        assert model.gamma_ == pytest.approx(0.9 * model.gamma_max_)
        assert model.noise_variance_ > 0
        assert (model.contrastive_eigenvalues_ > 0).all()


def test_an_empty_range_is_refused_whatever_gamma() -> None:
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


def test_at_and_path_are_fits_from_the_same_moments() -> None:
    X, Y = planted()
    model = fit(X, Y)
    path = model.path([0.3, 0.0, 0.1])
    assert [other.gamma_ for other in path] == [0.0, 0.1, 0.3]
    for other in path:
        refitted = fit(X, Y, 2, other.gamma_)
        for found in (other, model.at(other.gamma_)):
            np.testing.assert_allclose(found.loadings_, refitted.loadings_, atol=1e-10)
            assert found.noise_variance_ == pytest.approx(refitted.noise_variance_, rel=1e-10)
            assert found.gamma_max_ == refitted.gamma_max_
    assert model.gamma_ == pytest.approx(model.at("auto").gamma_)
    default = model.path()
    assert len(default) == 20
    assert default[0].gamma_ == 0.0
    assert default[-1].gamma_ == pytest.approx(0.95 * model.gamma_max_)
    with pytest.raises(ValueError, match="gammas is empty"):
        model.path([])
    with pytest.raises(ValueError, match="gamma=3 is out of range"):
        model.path([0.1, 3.0])


def test_the_objective_rises_as_the_paper_says() -> None:
    # According to Li et al. 2020, the noise variance and the background's variance along the first
    # two components fall as gamma rises.
    data = load_mouse_protein()
    path = fit(data.foreground, data.background).path()
    noise = [model.noise_variance_ for model in path]
    assert (np.diff(noise) < 0).all()
    background = [model.background_variance_.sum() for model in path]
    assert (np.diff(background) <= 1e-12).all()


def test_mouse_silhouette_rises_with_gamma_and_is_high_at_auto() -> None:
    # Li et al. 2020, Sec. 6.2.1, report 0.404 at the best contrast. There each dataset is
    # standardised separately.
    data = load_mouse_protein()
    X, Y = (StandardScaler().fit_transform(rows) for rows in (data.foreground, data.background))
    auto = fit(X, Y)
    silhouettes = [scaled_silhouette(model.transform(X), data.labels) for model in auto.path()]
    assert (np.diff(silhouettes) > 0).all()
    assert silhouettes[0] < 0.1
    assert scaled_silhouette(auto.transform(X), data.labels) >= 0.42
    assert scaled_silhouette(auto.transform(X), data.labels) >= 0.9 * max(silhouettes)


def test_toy_axis_turns_by_nearly_ninety_degrees() -> None:
    # In Fig. 2 of Li et al. 2020 (Sec. 6.1) the axis follows the shared direction at gamma' = 0,
    # and is perpendicular to it at gamma' = 0.9.
    data = make_toy()
    model = fit(data.foreground, data.background, 1)
    assert subspace_error(model.at(0.0).components_, [[1.0, 1.0]]) < 0.2
    assert subspace_error(model.at(0.9).components_, [[1.0, -1.0]]) < 0.2
    silhouettes = [
        scaled_silhouette(other.transform(data.foreground), data.labels) for other in model.path()
    ]
    assert scaled_silhouette(model.transform(data.foreground), data.labels) >= 0.9 * max(
        silhouettes
    )


@pytest.mark.parametrize("gamma", ["auto", 0.5])
@pytest.mark.parametrize("missing", [False, True])
def test_a_background_without_variance_is_refused(gamma: Any, missing: bool) -> None:
    X = np.random.default_rng(0).normal(size=(40, 6))
    if missing:
        X[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"background is constant .* leave the background out"):
        PCPCA(gamma=gamma).fit(X, background=np.ones((30, 6)))
