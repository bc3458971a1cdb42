"""Tests of PCPCA and CLVM against explicit formulas for normal and Student's t distributions.

The tests cover scores, densities, imputed values and samples.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import t as student
from sklearn.base import clone

from contrast_core import CLVM, PCPCA
from contrast_core.probabilistic._row_posterior import Model, run_e_step
from tests.core.samples import holes, log_densities
from tests.core.test_contract import planted

KINDS = {"pcpca": PCPCA(gamma=0.1), "clvm": CLVM(), "clvm, robust rows": CLVM(robust="rows")}
NORMAL = ["pcpca", "clvm"]
DATASETS = ["foreground", "background"]


class Dense(NamedTuple):
    """Explicit distribution of the rows of a dataset; its first `k` latent variables are shared."""

    mean: Any
    loadings: Any
    noise: float
    k: int

    @property
    def covariance(self) -> Any:
        return self.loadings @ self.loadings.T + self.noise * np.eye(len(self.loadings))


@cache
def fitted(kind: str, share: float = 0.3) -> tuple[Any, dict[str, Any]]:
    """Return a fitted model and its rows, in which a given share of the values is missing."""
    X, Y = planted()
    rows = {"foreground": holes(X, share, 0), "background": holes(Y, share, 1)}
    if share:
        rows["foreground"][0] = rows["foreground"][1, 1:] = np.nan
    return clone(KINDS[kind]).fit(rows["foreground"], background=rows["background"]), rows


def dense(model: Any, dataset: str) -> Dense:
    mean = model.mean_ if dataset == "foreground" else model.background_mean_
    if isinstance(model, PCPCA):
        return Dense(mean, model.loadings_, model.noise_variance_, 0)
    S, W = model.shared_loadings_, model.salient_loadings_
    loadings = np.hstack([S, W]) if dataset == "foreground" else S
    return Dense(mean, loadings, model.noise_variance_, S.shape[1])


def conditional(law: Dense, row: Any) -> tuple[Any, Any]:
    """Return the mean and the covariance of all values of a row, given its observed values."""
    o = ~np.isnan(row)
    gain = np.linalg.solve(law.covariance[np.ix_(o, o)], law.covariance[o])
    return law.mean + (row - law.mean)[o] @ gain, law.covariance - law.covariance[:, o] @ gain


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_densities_agree_with_numpy(kind: str, dataset: Any, share: float) -> None:
    model, rows = fitted(kind, share)
    law, X = dense(model, dataset), rows[dataset]
    densities = model.score_samples(X, dataset=dataset)
    degrees = np.inf if kind in NORMAL else 4
    expected = log_densities(X, law.mean, law.covariance, degrees)
    np.testing.assert_allclose(densities, expected, rtol=1e-9, atol=1e-12)
    assert model.score(X, dataset=dataset) == pytest.approx(densities.mean())
    salient = model.transform(X) if dataset == "foreground" else None
    shared = model.transform_shared(X, dataset=dataset) if law.k else None
    for i, row in enumerate(X):
        o = ~np.isnan(row)
        covariance = law.covariance[np.ix_(o, o)]
        latent = law.loadings[o].T @ np.linalg.solve(covariance, (row - law.mean)[o])
        if salient is not None:
            np.testing.assert_allclose(salient[i], latent[law.k :], atol=1e-9)
        if shared is not None:
            np.testing.assert_allclose(shared[i], latent[: law.k], atol=1e-9)


def test_without_loadings_the_bound_of_heavy_tails_is_the_log_density() -> None:
    values, ones = np.random.default_rng(0).normal(size=(5, 3)), np.ones((5, 3))
    found = run_e_step(values, ones, ones, Model(np.zeros((3, 2)), 2.0), "entries", degrees=5)
    expected = student.logpdf(values, 5, scale=np.sqrt(2)).sum(axis=1)
    np.testing.assert_allclose(found.log_density, expected)
    rows = run_e_step(values, ones, ones, Model(np.zeros((3, 2)), 2.0), "rows", degrees=5)
    expected = log_densities(values, np.zeros(3), 2 * np.eye(3), 5)
    np.testing.assert_allclose(rows.log_density, expected)


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("kind", NORMAL)
def test_imputed_values_agree_with_the_conditional_distribution(kind: str, dataset: Any) -> None:
    model, rows = fitted(kind)
    law, X = dense(model, dataset), rows[dataset]
    filled, std = model.impute(X, dataset=dataset, return_std=True)
    for row, x, spread in zip(X, filled, std, strict=True):
        mean, covariance = conditional(law, row)
        np.testing.assert_allclose(x, mean, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(spread**2, covariance.diagonal(), atol=1e-9)
    np.testing.assert_array_equal(model.impute(planted()[0]), planted()[0])


@pytest.mark.parametrize("kind", NORMAL)
def test_draws_have_the_conditional_mean_and_covariance(kind: str) -> None:
    model, rows = fitted(kind)
    law, X, n = dense(model, "foreground"), rows["foreground"][2:5], 10_000
    drawn = model.impute(X, n_draws=n, random_state=0)
    np.testing.assert_array_equal(drawn, model.impute(X, n_draws=n, random_state=0))
    for i, row in enumerate(X):
        o, u = ~np.isnan(row), np.isnan(row)
        np.testing.assert_array_equal(drawn[:, i, o], np.tile(row[o], (n, 1)))
        expected = conditional(law, row)[1][np.ix_(u, u)]
        scale = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
        found = np.cov(drawn[:, i, u].T) / scale
        np.testing.assert_allclose(found, expected / scale, atol=6 / np.sqrt(n))
        error = drawn[:, i, u].mean(axis=0) - model.impute(X)[i, u]
        assert np.abs(error / np.sqrt(expected.diagonal())).max() < 5 / np.sqrt(n)


@pytest.mark.parametrize("kind", KINDS)
def test_complete_rows_have_equal_scores_in_dense_sparse_and_incomplete_data(kind: str) -> None:
    model, rows = fitted(kind, 0.0)
    X, law = rows["foreground"], dense(model, "foreground")
    W = law.loadings[:, law.k :]
    scores = model.transform(X)
    np.testing.assert_allclose(model.transform(sp.csr_array(X)), scores, atol=1e-9)
    densities = model.score_samples(X)
    np.testing.assert_allclose(model.score_samples(sp.csr_array(X)), densities, rtol=1e-9)
    np.testing.assert_allclose(model.inverse_transform(scores), model.denoise(X), atol=1e-8)
    np.testing.assert_allclose(model.transform(model.inverse_transform(scores)), scores, atol=1e-8)
    gain = W.T @ np.linalg.inv(law.covariance)
    np.testing.assert_allclose(model.latent_covariance_, np.eye(2) - gain @ W, atol=1e-10)
    gaps = np.where(np.arange(12) == np.arange(160)[:, None] % 40, np.nan, X)
    complete = ~np.isnan(gaps).any(axis=1)
    np.testing.assert_allclose(model.transform(gaps)[complete], scores[complete], atol=1e-9)
    with pytest.raises(ValueError, match="inf first met in feature 0"):
        model.score_samples(np.full((2, 12), np.inf))


@pytest.mark.parametrize("kind", NORMAL)
def test_the_density_is_precise_for_a_mean_far_from_zero(kind: str) -> None:
    model, rows = fitted(kind, 0.0)
    X, Y = rows.values()
    far = clone(model).fit(X + 1e6, background=Y + 1e6)
    np.testing.assert_allclose(far.score_samples(X + 1e6), model.score_samples(X), rtol=1e-6)


@pytest.mark.parametrize("model", [PCPCA(gamma=0.5), CLVM()])
def test_scores_of_isotropic_data_are_near_zero(model: Any) -> None:
    X = np.vstack([np.eye(6), -np.eye(6)])  # the variance is the same in all directions
    model.fit(X, background=0.5 * X if isinstance(model, PCPCA) else X)
    assert np.abs(model.transform(X)).max() < 0.05
    assert np.isfinite(model.inverse_transform(np.ones((1, 2)))).all()


@pytest.mark.parametrize(
    ("kind", "dataset"), [*((k, "foreground") for k in KINDS), ("clvm", "background")]
)
def test_samples_have_the_models_mean_and_covariance(kind: str, dataset: str) -> None:
    model, _ = fitted(kind, 0.0)
    law, n = dense(model, dataset), 40_000
    sample = getattr(model, f"sample_{dataset}")
    rows = sample(n, add_noise=True, random_state=0)
    clean = sample(50, random_state=0)
    if kind in NORMAL:
        scale = np.sqrt(law.covariance.diagonal().max())
        np.testing.assert_allclose(rows.mean(axis=0), law.mean, atol=5 * scale / np.sqrt(n))
        np.testing.assert_allclose(np.cov(rows.T), law.covariance, atol=8 * scale**2 / np.sqrt(n))
    # A quarter of the values of Student's t with 4 degrees of freedom exceed 0.741.
    else:
        quartiles = np.quantile((rows - law.mean) / np.sqrt(np.diag(law.covariance)), 0.75, axis=0)
        np.testing.assert_allclose(quartiles, 0.741, atol=0.03)
    assert np.linalg.matrix_rank(clean - law.mean) == law.loadings.shape[1]
    np.testing.assert_array_equal(clean, sample(50, random_state=0))
    assert not np.array_equal(clean, sample(50, random_state=1))
    assert sample().shape == (1, 12)


def test_unsupported_requests_are_refused() -> None:
    robust, rows = fitted("clvm, robust rows", 0.0)
    with pytest.raises(ValueError, match=r"impute needs a fit with normal noise.*robust='rows'"):
        robust.impute(rows["foreground"])
    alone = PCPCA().fit(rows["foreground"])
    for call in (alone.score_samples, alone.impute):
        with pytest.raises(ValueError, match="was fitted without a background"):
            call(rows["background"], dataset="background")
