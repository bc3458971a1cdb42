"""Tests of CLVM with missing values and with robust noise: weighted EM steps and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core import CLVM, ContrastWarning, SecondMoments
from contrast_core.linalg import subspace_error
from tests.core.latent_samples import gappy, generated

ROBUST = [None, "rows", "entries"]


def fit(X: Any, Y: Any, k: int = 2, t: int = 2, **options: Any) -> CLVM:
    model = CLVM(**({"n_shared": k, "n_salient": t, "tol": 1e-6} | options))
    return model.fit(X, background=Y)


@pytest.mark.parametrize("robust", ROBUST)
@pytest.mark.parametrize(("k", "t"), [(2, 2), (0, 2), (2, 0)])
def test_the_likelihood_is_the_sum_over_rows_and_never_falls(robust: Any, k: int, t: int) -> None:
    X, Y = gappy()
    model = fit(X, Y, k, t, robust=robust)
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
    by_moments = fit(X, Y, tol=1e-9)
    # Moments cannot hold missing values. With an empty row, CLVM is therefore fitted to rows.
    by_rows = fit(np.vstack([X, np.full(8, np.nan)]), Y, tol=1e-9)
    assert subspace_error(by_rows.components_, by_moments.components_) < 1e-5
    expected = by_moments.log_likelihoods_[-1]
    assert by_rows.log_likelihoods_[-1] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(by_rows.mean_, X.mean(axis=0), atol=1e-8)


def test_scores_with_robust_entries_are_a_fixed_point_of_weights_and_means() -> None:
    X, Y = gappy(80, 60, 12)
    X[:5, 3] += 30
    model = fit(X, Y, robust="entries")
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
            weights = 5 / (4 + around / noise)
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
    rng = np.random.default_rng(0)
    S, W = 1.5 * rng.normal(size=(2, 40)), rng.normal(size=(2, 40))
    X = rng.normal(size=(400, 2)) @ S + rng.normal(size=(400, 2)) @ W + rng.normal(size=(400, 40))
    Y = rng.normal(size=(400, 2)) @ S + rng.normal(size=(400, 40))
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
    with pytest.raises(ValueError, match="needs background"):
        CLVM(robust=robust).fit(X, background=None)  # type: ignore[arg-type]
    if robust:
        with pytest.raises(TypeError, match="weighs rows, but moments were given"):
            CLVM(robust=robust).fit(SecondMoments.from_data(X), background=Y)


@pytest.mark.parametrize("robust", ROBUST)
def test_rows_that_loadings_explain_exactly_are_refused(robust: Any) -> None:
    exact = np.random.default_rng(0).normal(size=(60, 2)) @ np.ones((2, 8)).cumsum(axis=1)
    exact[0, 0] = np.nan
    with pytest.raises(ValueError, match="nothing is left to estimate the noise"):
        fit(exact, exact[::-1][:50], robust=robust)


def test_a_likelihood_without_a_maximum_is_refused_and_slow_convergence_warns() -> None:
    rng = np.random.default_rng(0)
    counts = np.log1p(rng.poisson(0.15, size=(270, 30)))  # most entries of most features are equal
    with pytest.raises(ValueError, match="or another `robust`"):
        fit(counts[:150], counts[150:], robust="entries")
    X, Y = gappy()
    X[0, 0] = 1e12
    for robust in ("entries", "rows"):
        found = fit(X, Y, robust=robust)
        assert found.converged_
        assert found.noise_variance_ < 10
    X[0, 0] = 1e8  # an extrapolated step would overflow
    with pytest.warns(ContrastWarning, match="still rises"):
        assert fit(X, Y, max_iter=300).noise_variance_ < 10
