"""Tests of PCPCA: its closed form, the valid values of gamma, and the fit with missing values.

Equations and theorems are those of Li et al. 2020.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import approx_fprime, brentq
from sklearn.decomposition import PCA

from contrast_core import CPCA, PCPCA
from contrast_core.linalg import subspace_error
from contrast_core.probabilistic._incomplete import fit_incomplete, incomplete_rows
from contrast_core.rows import rows_of
from tests.core.samples import holes, log_densities
from tests.core.test_contract import planted


def fit(X: Any, Y: Any, d: int = 2, gamma: Any = "auto", **options: Any) -> PCPCA:
    """Fit PCPCA with d components."""
    return PCPCA(d, gamma=gamma).fit(X, background=Y, **options)


def eigenvalue_tail(X: Any, Y: Any, gamma: float, d: int) -> float:
    """Return the sum of all but the d largest eigenvalues of the contrast."""
    contrast = np.cov(X.T, bias=True) - gamma * np.cov(Y.T, bias=True)
    return float(scipy.linalg.eigvalsh(contrast)[:-d].sum())


def test_the_fit_agrees_with_theorem_3_of_the_paper() -> None:
    X, Y = planted(150, 110, 9)
    n, m, d, gamma = 150, 110, 2, 0.3
    # The paper contrasts sums over rows instead of means, so its gamma is n / m times as large.
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
    covariance = model.loadings_ @ model.loadings_.T + model.noise_variance_ * np.eye(12)
    np.testing.assert_allclose(covariance, pca.get_covariance() * (n - 1) / n, atol=1e-10)
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
def test_the_end_of_the_valid_range_of_gamma_is_exact(d: int, background: float) -> None:
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


# The ignored warnings say that the features have different scales.
@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
def test_the_automatic_gamma_is_nine_tenths_of_the_largest_valid_gamma() -> None:
    rng = np.random.default_rng(0)
    for trial in range(40):
        features = int(rng.integers(3, 15))
        X = rng.normal(size=(int(rng.integers(5, 60)), features)) * rng.gamma(1.0, size=features)
        Y = rng.normal(size=(int(rng.integers(2, 60)), features)) * rng.gamma(1.0, size=features)
        model = fit(X, 10 ** (trial / 40) * Y, 2)
        assert model.gamma_ == pytest.approx(0.9 * model.gamma_max_)
        assert model.noise_variance_ > 0
        assert (model.contrastive_eigenvalues_ > 0).all()


def test_every_gamma_is_refused_if_no_gamma_is_valid() -> None:
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


def test_the_default_path_ends_below_the_largest_valid_gamma() -> None:
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


# Missing values


def gappy(share: float = 0.2, n: int = 160, m: int = 120) -> tuple[Any, Any]:
    """Return the matrices of `planted`, with a fraction `share` of the values missing."""
    X, Y = planted(n, m)
    return holes(X, share, 1), holes(Y, share, 2)


fit_gappy = partial(fit, gamma=0.1)


def prepared(X: Any, Y: Any, d: int = 2) -> Any:
    """Return the centred and scaled rows with which `fit_incomplete` starts."""
    parts = [rows_of(X, "X", missing=True), rows_of(Y, "background", missing=True)]
    return incomplete_rows(parts, None, d)


def objective(X: Any, Y: Any, gamma: float, W: Any, noise: float) -> float:
    """Compute the objective of PCPCA for the observed values: the logarithm of eq. 10, per row."""
    covariance = W @ W.T + noise * np.eye(len(W))
    x, y = (log_densities(rows, np.nanmean(rows, axis=0), covariance).mean() for rows in (X, Y))
    return float(x - gamma * y)


def assert_same(one: PCPCA, other: PCPCA) -> None:
    assert subspace_error(one.components_, other.components_) < 1e-6
    assert one.noise_variance_ == pytest.approx(other.noise_variance_, rel=1e-6)
    assert one.gamma_max_ == pytest.approx(other.gamma_max_, rel=1e-4)
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-9)


def test_likelihood_and_gradients_agree_with_dense_matrices() -> None:
    X, Y = gappy(0.4)
    # In these rows, the same features are missing.
    X[:40] = np.where(np.arange(12) % 3, X[:40], np.nan)
    X[:40, 1] = 1.0
    data, rng = prepared(X, Y, 3), np.random.default_rng(0)
    scaled = [(rows - np.nanmean(rows, axis=0)) / data.scale for rows in (X, Y)]
    loadings = rng.normal(size=(12, 3))
    found, ratio = data.rows.likelihood(loadings, 0.3, 0.7), data.rows.residual_ratio(loadings, 0.1)
    covariance = loadings @ loadings.T + np.exp(0.3) * np.eye(12)
    x, y = (log_densities(rows, np.zeros(12), covariance).mean() for rows in scaled)
    assert found.value == pytest.approx(x - 0.7 * y, rel=1e-12)
    assert len(data.rows.masks) < len(X) + len(Y)

    def value(point: Any) -> float:
        found = data.rows.likelihood(point[1:].reshape(12, 3), point[0], 0.7)
        return float(found.value)

    def residual_ratio(point: Any) -> float:
        return float(data.rows.residual_ratio(point.reshape(12, 3), 0.1).value)

    point = np.append(0.3, loadings.ravel())
    gradient = -np.append(found.by_log_noise, found.by_loadings.ravel())
    np.testing.assert_allclose(gradient, -approx_fprime(point, value), rtol=1e-4, atol=1e-6)
    slope = approx_fprime(point[1:], residual_ratio)
    np.testing.assert_allclose(ratio.by_loadings.ravel(), slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_the_iterative_fit_to_complete_data_agrees_with_the_closed_form(share: float) -> None:
    X, Y = planted(150, 110, 9)
    closed = PCPCA().fit(X, background=Y)
    closed = closed.at(share * closed.gamma_max_)
    found = fit_incomplete(prepared(X, Y), closed.gamma_, 2, 1000)
    assert found["objective_"] == pytest.approx(closed.objective_, abs=1e-8)
    assert found["gamma_max_"] == pytest.approx(closed.gamma_max_, rel=1e-5)
    assert subspace_error(found["components_"], closed.components_) < 1e-5
    assert found["noise_variance_"] == pytest.approx(closed.noise_variance_, rel=1e-6)
    for name in ("foreground_variance_", "background_variance_"):
        np.testing.assert_allclose(found[name], getattr(closed, name), rtol=1e-5)
    np.testing.assert_allclose(found["start_objectives_"], closed.objective_, atol=1e-8)
    expected = objective(X, Y, closed.gamma_, closed.loadings_, closed.noise_variance_)
    assert closed.objective_ == pytest.approx(expected)
    assert closed.n_iter_ == 1
    assert closed.converged_


def test_the_fit_is_a_maximum_that_every_start_finds() -> None:
    X, Y = gappy(0.3)
    model = fit_gappy(X, Y)
    W, noise = model.loadings_, model.noise_variance_
    assert model.converged_
    assert 0 < model.n_iter_ < 200
    assert model.objective_ == pytest.approx(objective(X, Y, 0.1, W, noise), rel=1e-10)
    np.testing.assert_allclose(model.start_objectives_, model.objective_, rtol=1e-9)
    assert model.start_objectives_.shape == (6,)
    rng = np.random.default_rng(0)
    for _ in range(10):
        near = W + 0.01 * rng.normal(size=(12, 2))
        assert objective(X, Y, 0.1, near, noise * (1 + 0.02 * rng.normal())) < model.objective_
    # By Fisher's identity the expected variances satisfy the same equation as for complete data.
    np.testing.assert_allclose(
        model.foreground_variance_ - model.gamma_ * model.background_variance_,
        (1 - model.gamma_) * ((W**2).sum(axis=0) + noise),
        rtol=1e-5,
    )


def test_integer_weights_act_like_repeated_rows_and_backgrounds_are_mixed() -> None:
    X, Y = gappy(0.3)
    times_x, times_y = np.arange(160) % 3, np.arange(120) % 2 + 1
    repeated = fit_gappy(np.repeat(X, times_x, axis=0), np.repeat(Y, times_y, axis=0))
    assert_same(fit_gappy(X, Y, sample_weight=times_x, background_weight=times_y), repeated)
    # Repeating the whole background changes nothing, because the objective takes means over rows.
    assert_same(fit_gappy(X, np.vstack([Y, Y, Y])), fit_gappy(X, Y))
    both = fit_gappy(X, [Y[:50], Y[50:]], background_mix=[50, 70])
    means = [np.nanmean(part, axis=0) for part in (Y[:50], Y[50:])]
    assert_same(both, fit_gappy(X, np.vstack([Y[:50] - means[0], Y[50:] - means[1]])))
    np.testing.assert_allclose(both.background_mean_, (50 * means[0] + 70 * means[1]) / 120)
    np.testing.assert_allclose(both.mean_, np.nanmean(X, axis=0))


GAPPY = gappy()
LABELS = {"within": np.arange(160) % 4, "background_within": np.arange(120) % 4}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (GAPPY, LABELS, "X has missing values, with which within="),
        (GAPPY, {"gamma": -0.1}, "is out of range"),
        (GAPPY, {"gamma": np.nan}, "is out of range"),
        ((np.where(np.isnan(GAPPY[0]), np.nan, 1.0), GAPPY[1]), {}, "no more than n_components=2"),
        (GAPPY, {"d": 12}, "leaves no direction for the noise"),
    ],
)
def test_invalid_fits_are_refused(data: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_gappy(*data, **options)


def test_errors_name_the_end_of_the_range_of_gamma() -> None:
    X, Y = GAPPY
    end = fit_gappy(X, 3 * Y).gamma_max_
    with pytest.raises(ValueError, match=rf"below {end:.9g} .*where the noise variance is pos"):
        fit_gappy(X, 3 * Y, gamma=1.001 * end)
    X, Y = planted()
    X[16:, 5] = np.nan  # feature 5 is observed in a tenth of the foreground rows
    assert PCPCA().fit(X, background=Y).gamma_max_ == pytest.approx(0.1)
    with pytest.raises(ValueError, match=r"below 0\.1 .*feature 5 is observed in 10% of the fore"):
        fit_gappy(X, Y, gamma=0.11)
    assert fit_gappy(X, Y, gamma=0.09).converged_
    X, Y = planted()
    Y[16:, 5] = np.nan  # a feature that is rare in the background does not limit the range
    with pytest.raises(ValueError, match=r"below 1 \(gamma_max_\), where the weights .* cancel"):
        fit_gappy(10 * X, Y, gamma=1.1)


def test_a_likelihood_without_a_maximum_is_refused() -> None:
    # Each of the first two features is observed in half of the rows of both datasets, so the check
    # of single features accepts them. However, half of the foreground rows have neither feature,
    # whereas every background row has one of the two.
    rng = np.random.default_rng(0)
    X, Y = 3 * rng.normal(size=(60, 8)), rng.normal(size=(60, 8))
    X[30:, :2] = np.nan
    Y[30:, 0] = np.nan
    Y[:30, 1] = np.nan
    assert fit_gappy(X, Y, gamma=0.4).converged_
    with pytest.raises(ValueError, match="no maximum, because the loadings grow without limit"):
        fit_gappy(X, Y, gamma=0.9)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_with_missing_values_the_automatic_gamma_is_the_documented_share_of_the_range(
    share: float,
) -> None:
    X, Y = gappy(share, n=300, m=300)
    model = PCPCA().fit(X, background=Y)
    seen = [~np.isnan(rows) for rows in (X, Y)]
    observed = np.mean([each[each.any(axis=1)].mean() for each in seen])
    assert model.gamma_ == pytest.approx(0.9 * observed * model.gamma_max_)
    assert model.converged_


def test_starts_differ_enough_to_find_the_better_of_two_maxima() -> None:
    """Fit data whose likelihood has two maxima.

    The two starts from the closed form reach only the lower maximum. About a third of the random
    starts reach the higher one.
    """
    rng = np.random.default_rng(17)
    X, Y = rng.normal(size=(15, 3)) @ rng.normal(size=(3, 3)), rng.normal(size=(15, 3))
    for rows in (X, Y):
        rows[rng.random(rows.shape) < 0.4] = np.nan
    model = PCPCA().fit(X, background=Y)
    assert model.objective_ > np.median(model.start_objectives_) + 0.4
    # Few rows often give several maxima, so the fit then uses more than the usual six starts.
    assert model.start_objectives_.shape == (34,)
