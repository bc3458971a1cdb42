"""Tests of CLVM: likelihood, EM steps, special cases, scores, missing values and robust noise."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import approx_fprime, minimize
from sklearn.decomposition import PCA

from contrast_core import CLVM, ContrastWarning, SecondMoments
from contrast_core.datasets import load_mouse_protein
from contrast_core.linalg import principal_angles, subspace_error
from contrast_core.moments import SpanMoments
from contrast_core.probabilistic._clvm_likelihood import Fit, Search
from contrast_core.probabilistic._clvm_moments import MomentLikelihood
from contrast_core.probabilistic._row_posterior import Model, principal_axes
from tests.core.samples import clvm_log_likelihood, gappy, generated, holes
from tests.core.test_contract import planted


def fit(X: Any, Y: Any, k: int = 2, t: int = 2, **options: Any) -> CLVM:
    """Fit a CLVM with k shared and t salient variables."""
    return CLVM(n_shared=k, n_salient=t, **options).fit(X, background=Y)


# Special cases with a solution in closed form


def test_without_shared_variables_the_subspace_is_that_of_probabilistic_pca() -> None:
    X, Y = planted()
    (n, d), m = X.shape, len(Y)
    values = np.linalg.eigvalsh(np.cov(X.T, bias=True))[::-1]
    model = fit(X, Y, 0, 2, tol=1e-9)
    assert subspace_error(model.components_, PCA(2).fit(X).components_) < 1e-8
    noise = (n * values[2:].sum() + m * np.trace(np.cov(Y.T, bias=True))) / (n * (d - 2) + m * d)
    assert model.noise_variance_ == pytest.approx(noise, rel=1e-8)
    lengths = (model.salient_loadings_**2).sum(axis=0)
    np.testing.assert_allclose(lengths, values[:2] - noise, rtol=1e-7)
    assert model.shared_loadings_.shape == (12, 0)
    assert model.transform_shared(X).shape == (160, 0)


def test_without_salient_variables_clvm_is_probabilistic_pca_of_both_datasets() -> None:
    X, Y = planted()
    pooled = np.vstack([X - X.mean(axis=0), Y - Y.mean(axis=0)])
    values = np.linalg.eigvalsh(pooled.T @ pooled / len(pooled))[::-1]
    model = fit(X, Y, 3, 0, tol=1e-9)
    assert model.noise_variance_ == pytest.approx(values[3:].mean(), rel=1e-8)
    lengths = (model.shared_loadings_**2).sum(axis=0)
    np.testing.assert_allclose(lengths, values[:3] - values[3:].mean(), rtol=1e-7)
    assert subspace_error(model.shared_loadings_.T, PCA(3).fit(pooled).components_) < 1e-8
    assert model.components_.shape == (0, 12)
    assert model.transform(X).shape == (160, 0)
    np.testing.assert_allclose(model.denoise(X), np.tile(model.mean_, (160, 1)))


# Rotation of the loadings to their principal axes


def test_loadings_are_rotated_to_their_principal_axes() -> None:
    model = fit(*planted())
    for loadings in (model.shared_loadings_, model.salient_loadings_):
        products = loadings.T @ loadings
        np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-10)
        assert (np.diff(np.diag(products)) < 0).all()
    lengths = np.linalg.norm(model.salient_loadings_, axis=0)
    np.testing.assert_allclose(model.salient_loadings_, model.components_.T * lengths)


def test_the_covariance_of_uncertain_loadings_is_added_to_their_inner_products() -> None:
    rng = np.random.default_rng(0)
    loadings, root = rng.normal(size=(6, 3)), rng.normal(size=(2, 2))
    products = loadings.T @ loadings
    products[1:, 1:] += root @ root.T
    axes, squares, precisions = principal_axes(Model(loadings, 0.5), root @ root.T)
    np.testing.assert_allclose(axes.T @ products @ axes, np.diag(squares), atol=1e-10)
    np.testing.assert_allclose(precisions, 1 + squares / 0.5)


# Formats of the data


@pytest.mark.parametrize("sparse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_wide_data_are_fitted_without_a_covariance_matrix_of_the_features(sparse: bool) -> None:
    X, Y, _, _ = generated(40, 35, 1700, noise=2.0)
    if sparse:
        X, Y = (sp.csr_array(np.nan_to_num(holes(rows, 0.75))) for rows in (X, Y))
    wide = fit(X, Y)
    assert isinstance(wide.foreground_moments_, SpanMoments)
    dense = fit(SecondMoments.from_data(X), SecondMoments.from_data(Y))
    assert subspace_error(wide.components_, dense.components_) < 1e-6
    for name in ("salient_loadings_", "shared_loadings_", "noise_variance_"):
        np.testing.assert_allclose(getattr(wide, name), getattr(dense, name), atol=1e-5)
    np.testing.assert_allclose(wide.log_likelihoods_[-1], dense.log_likelihoods_[-1], rtol=1e-12)
    np.testing.assert_allclose(wide.transform(X), dense.transform(X), atol=1e-6)


@pytest.mark.parametrize("d", [8, 1600])
def test_groups_weights_and_backgrounds_agree_with_centred_and_repeated_rows(d: int) -> None:
    rng = np.random.default_rng(0)
    X, Y, Z = (rng.normal(size=(n, d)) for n in (50, 40, 30))
    X[:, :3] += 3 * rng.normal(size=(50, 1))
    groups, weights = np.arange(50) % 3, rng.integers(0, 3, 50)

    def fitted(X: Any, Y: Any, **options: Any) -> CLVM:
        return CLVM(n_shared=1, n_salient=1, tol=1e-9).fit(X, background=Y, **options)

    shifted = X + 50 * groups[:, None]
    left = shifted - np.stack([shifted[groups == g].mean(axis=0) for g in range(3)])[groups]
    centred = np.vstack([Y - Y.mean(axis=0), Z - Z.mean(axis=0)])
    within, by_hand = fitted(shifted, Y, within=groups), fitted(left, Y)
    for one, other in [
        (fitted(X, Y, sample_weight=weights), fitted(np.repeat(X, weights, axis=0), Y)),
        (fitted(X, [Y, Z], background_mix=[4, 3]), fitted(X, centred)),
        (within, by_hand),
    ]:
        np.testing.assert_allclose(one.salient_loadings_, other.salient_loadings_, atol=1e-6)
        assert one.log_likelihoods_[-1] == pytest.approx(other.log_likelihoods_[-1])
    scores = within.transform(shifted, within=groups)
    np.testing.assert_allclose(scores, by_hand.transform(left), atol=1e-5)
    for dataset in ("foreground", "background"):
        shared = within.transform_shared(shifted, dataset=dataset, within=groups)
        expected = by_hand.transform_shared(left, dataset=dataset)
        np.testing.assert_allclose(shared, expected - expected.mean(axis=0), atol=1e-5)


# Errors and warnings


@pytest.mark.parametrize(
    ("n", "m", "k", "t", "message"),
    [
        (4, 3, 2, 3, "2 shared and 3 salient .* explain all.*Use fewer"),
        (3, 3, 4, 1, "4 shared and 1 salient .* explain all"),
        (5, 2, 1, 4, "1 shared and 4 salient .* explain all"),
        (160, 120, 12, 2, "n_shared=12 is out .*: with 12 features that vary it .* from 0 to 11"),
        (160, 120, 2, 10, "n_salient=10 .* with 12 .* n_shared=2, .* noise, .* from 0 to 9"),
        (160, 120, 0, 0, "n_salient=0 .* n_shared=0, .* it must be from 1 to 11"),
    ],
)
def test_numbers_of_latent_variables_out_of_range_are_refused(
    n: int, m: int, k: int, t: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fit(*planted(n, m), k, t)


def test_constant_data_are_refused_and_a_fit_that_has_not_converged_warns() -> None:
    constant = np.ones((5, 4))
    for rows in (constant, constant * np.arange(5)[:, None] * [0, 0, 0, 1]):
        with pytest.raises(ValueError, match=r"[01] feature\(s\) vary in X or the background"):
            fit(rows, constant)
    assert fit(*planted(), 2, 9).noise_variance_ > 0
    with pytest.warns(ContrastWarning, match="still rises after max_iter=5 evaluations"):
        model = fit(*planted(), max_iter=5)
    assert not model.converged_


def test_the_most_likely_of_several_starts_is_kept() -> None:
    data = load_mouse_protein()
    one = fit(data.foreground, data.background, 4, 2)
    five = fit(data.foreground, data.background, 4, 2, n_init=5, random_state=0)
    again = fit(data.foreground, data.background, 4, 2, n_init=5, random_state=0)
    assert five.log_likelihoods_[-1] >= one.log_likelihoods_[-1]
    np.testing.assert_array_equal(five.components_, again.components_)
    assert principal_angles(five.components_, one.components_).max() < 0.01


# The likelihood, its gradient and the steps of EM


def likelihood_of(X: Any, Y: Any, k: int, t: int = 2) -> MomentLikelihood:
    """Return the likelihood of a CLVM with k shared and t salient variables."""
    search = Search(t, 1, np.random.default_rng(0), 1e-6, 3000)
    x, y = SecondMoments.from_data(X), SecondMoments.from_data(Y)
    return MomentLikelihood.from_moments(x, y, k, search)


def values_of_em_steps(likelihood: MomentLikelihood, at: Fit, number: int, *prior: Any) -> Any:
    """Return the objective at each of the given number of EM steps."""
    values = []
    for _ in range(number):
        value, _, at = likelihood.evaluate(at, *prior)
        values.append(value)
    return np.array(values)


@pytest.mark.parametrize(("k", "t"), [(2, 2), (0, 3), (3, 0), (5, 4)])
def test_likelihood_and_gradient_agree_with_the_density_and_em_raises_it(k: int, t: int) -> None:
    X, Y = planted(40, 30, 12)
    likelihood, rng = likelihood_of(X, Y, k), np.random.default_rng(1)
    loadings, noise = rng.normal(size=(12, k + t)), 0.3

    def direct(point: Any) -> float:
        L, unit = likelihood.unit * point[:-1].reshape(12, k + t), likelihood.unit
        return clvm_log_likelihood(X, Y, L[:, :k], L[:, k:], unit**2 * np.exp(point[-1]))

    value, slope, at = likelihood.evaluate(Fit(Model(loadings, noise)))
    assert slope is not None
    point = np.append(loadings.ravel(), np.log(noise))
    assert likelihood.log_likelihoods(np.array(value)) == pytest.approx(direct(point), rel=1e-12)
    gradient = np.append(slope.loadings.ravel(), slope.noise) * likelihood.n_rows
    np.testing.assert_allclose(gradient, approx_fprime(point, direct, 1e-6), rtol=1e-4, atol=1e-2)
    values = values_of_em_steps(likelihood, at, 50)
    assert np.diff([value, *values]).min() > -1e-13 * abs(values[-1])
    assert values[-1] > value + 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2))])
def test_a_numerical_search_finds_no_parameters_with_a_larger_likelihood(seed: int) -> None:
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


@pytest.mark.parametrize(
    ("k", "t"), [(2, 2), (8, 2), (12, 12), pytest.param(20, 2, marks=pytest.mark.slow)]
)
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


def test_long_and_nearly_parallel_loadings_lose_no_digits() -> None:
    """Check that rotated loadings have the same likelihood, and that EM steps do not lower it.

    The variances of the features differ by many orders of magnitude, and the largest one is about
    10**5 times the noise variance.
    """
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
    values = values_of_em_steps(likelihood, at, 100)
    assert np.diff(values).min() > -1e-10 * np.abs(values).max()


# Missing values and robust noise

ROBUST = [None, "rows", "entries"]


fit_rows = partial(fit, tol=1e-6)


@pytest.mark.parametrize("robust", ROBUST)
@pytest.mark.parametrize(("k", "t"), [(2, 2), (0, 2), (2, 0)])
def test_the_likelihood_is_the_sum_over_rows_and_never_falls(robust: Any, k: int, t: int) -> None:
    X, Y = gappy()
    model = fit_rows(X, Y, k, t, robust=robust)
    values = model.log_likelihoods_
    assert model.converged_
    assert model.n_iter_ == len(values) - 1 > 5
    assert np.diff(values).min() > -1e-12 * abs(values[-1])
    of_rows = model.score_samples(X).sum() + model.score_samples(Y, dataset="background").sum()
    assert of_rows == pytest.approx(values[-1], rel=1e-6)
    assert (model.contrast_index_ > 0).all()
    assert model.transform(X).shape == (60, t)
    assert model.transform_shared(Y, dataset="background").shape == (50, k)


def test_a_fit_to_complete_rows_agrees_with_a_fit_to_moments() -> None:
    X, Y, _, _ = generated(80, 60, 8)
    by_moments = fit_rows(X, Y, tol=1e-9)
    # Here one row is entirely missing. Moments cannot hold missing values, so CLVM uses the rows.
    by_rows = fit_rows(np.vstack([X, np.full(8, np.nan)]), Y, tol=1e-9)
    assert subspace_error(by_rows.components_, by_moments.components_) < 1e-5
    expected = by_moments.log_likelihoods_[-1]
    assert by_rows.log_likelihoods_[-1] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(by_rows.mean_, X.mean(axis=0), atol=1e-8)


def test_scores_with_robust_entries_are_a_fixed_point_of_weights_and_means() -> None:
    X, Y = gappy(80, 60, 12)
    X[:5, 3] += 30
    model = fit_rows(X, Y, robust="entries")
    loadings = np.hstack([model.shared_loadings_, model.salient_loadings_])
    noise = model.noise_variance_
    latent = np.hstack([model.transform_shared(X), model.transform(X)])
    for row, z in zip(X, latent, strict=True):
        o = ~np.isnan(row)
        L, left = loadings[o], (row - model.mean_)[o]
        weights = np.ones(o.sum())
        for _ in range(500):
            covariance = np.linalg.inv(np.eye(4) + (L.T * weights) @ L / noise)
            mean = covariance @ (L.T * weights) @ left / noise
            around = (left - L @ mean) ** 2 + np.einsum("dk,kl,dl->d", L, covariance, L)
            weights = 5 / (4 + around / noise)  # Student's t has 4 degrees of freedom by default
        np.testing.assert_allclose(z, mean, atol=1e-6)
    np.testing.assert_allclose(model.transform(X[7:9]), latent[7:9, 2:], atol=1e-7)
    np.testing.assert_allclose(model.transform(np.full((1, 12), np.nan)), 0)
    dense = np.nan_to_num(X)
    np.testing.assert_allclose(model.transform(sp.csr_array(dense)), model.transform(dense))
    for call in (
        lambda: model.denoise(dense),
        lambda: model.inverse_transform(latent[:, 2:]),
        lambda: model.linear_map_,
        lambda: model.projection_,
    ):
        with pytest.raises(AttributeError, match="weighs every value of a row"):
            call()
    with pytest.raises(ValueError, match="within is given"):
        model.transform(dense, within=np.arange(80) % 2)


@pytest.mark.parametrize("tails", ["entries", "rows"])
def test_outliers_hardly_change_the_subspace_of_a_robust_fit(tails: Any) -> None:
    (X, Y, _, _), rng = generated(400, 400, 40), np.random.default_rng(0)
    clean = CLVM().fit(X, background=Y).components_
    if tails == "rows":
        X[:20] += 15 * rng.normal(size=(20, 40))
    else:
        for rows in (X, Y):
            bad = rng.random(rows.shape) < 0.05
            rows[bad] += 20 * rng.normal(size=bad.sum())
    robust = CLVM(robust=tails).fit(X, background=Y)
    assert subspace_error(robust.components_, clean) <= 0.08
    assert subspace_error(CLVM().fit(X, background=Y).components_, clean) >= 0.25


@pytest.mark.parametrize(("robust", "what"), [(None, "missing values"), ("rows", "robust='rows'")])
def test_incompatible_options_are_refused_by_name(robust: Any, what: str) -> None:
    X, Y = gappy()
    if robust:
        X, Y = np.nan_to_num(X), np.nan_to_num(Y)
    labels: Any = {"within": np.arange(60) % 2, "background_within": np.arange(50) % 2}
    for fitted, name in [
        (labels, "within"),
        ({"sample_weight": np.ones(60)}, "sample_weight"),
        ({"background_weight": np.ones(50)}, "background_weight"),
    ]:
        with pytest.raises(ValueError, match=f"does not combine {what}.* with {name}: "):
            CLVM(robust=robust).fit(X, background=Y, **fitted)
    with pytest.raises(ValueError, match=r"horseshoe.* needs inference='vi'"):
        CLVM(robust=robust, sparsity="horseshoe").fit(X, background=Y)
    if robust:
        with pytest.raises(TypeError, match="weighs rows, but moments were given"):
            CLVM(robust=robust).fit(SecondMoments.from_data(X), background=Y)


@pytest.mark.parametrize("robust", ROBUST)
def test_rows_that_loadings_explain_exactly_are_refused(robust: Any) -> None:
    exact = np.random.default_rng(0).normal(size=(60, 2)) @ np.ones((2, 8)).cumsum(axis=1)
    exact[0, 0] = np.nan
    with pytest.raises(ValueError, match="nothing is left to estimate the noise"):
        fit_rows(exact, exact[::-1][:50], robust=robust)


def test_a_likelihood_without_a_maximum_is_refused_and_slow_convergence_warns() -> None:
    rng = np.random.default_rng(0)
    counts = np.log1p(rng.poisson(0.15, size=(270, 30)))  # most entries of most features are equal
    with pytest.raises(ValueError, match="or another `robust`"):
        fit_rows(counts[:150], counts[150:], robust="entries")
    X, Y = gappy()
    X[0, 0] = 1e12
    for robust in ("entries", "rows"):
        found = fit_rows(X, Y, robust=robust)
        assert found.converged_
        assert found.noise_variance_ < 10
    X[0, 0] = 1e8  # an extrapolated step would overflow
    with pytest.warns(ContrastWarning, match="still rises"):
        assert fit_rows(X, Y, max_iter=300).noise_variance_ < 10
