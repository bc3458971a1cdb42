"""The weighted EM of CLVM: missing values, and noise with heavy tails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, multivariate_t

from contrast_core import CLVM
from contrast_core.linalg import subspace_error
from contrast_core.probabilistic._clvm_em import Fit, Means
from contrast_core.probabilistic._clvm_rows import fit_rows
from contrast_core.probabilistic._row_posterior import Model
from tests.core.test_clvm import generated

TAILS: Any = ["normal", "entries", "rows"]


def start_of(x: Any, y: Any, k: int = 2, t: int = 2) -> tuple[Model, Means]:
    """The fit to clipped rows with medians for what is missing."""
    means = Means(np.nanmedian(x, axis=0), np.nanmedian(y, axis=0))
    filled = []
    for rows, mean in zip((x, y), means, strict=True):
        spread = 1.5 * np.nanmedian(np.abs(rows - mean), axis=0)
        part = np.clip(np.where(np.isnan(rows), 0.0, rows - mean), -3 * spread, 3 * spread)
        lengths = np.sqrt((part**2).mean(axis=1))
        filled.append(part / np.maximum(1.0, lengths / np.median(lengths))[:, None])
    model = CLVM(n_shared=k, n_salient=t, tol=1e-3).fit(filled[0], background=filled[1])
    loadings = np.hstack([model.shared_loadings_, model.salient_loadings_])
    return Model(loadings, model.noise_variance_), means


def fit(x: Any, y: Any, tails: Any = "normal", **options: Any) -> Fit:
    return fit_rows(x, y, *start_of(x, y), 2, tails=tails, **options)


def salient(found: Fit) -> Any:
    return found.model.loadings[:, 2:].T


def holes(rows: Any, share: float, seed: int = 0) -> Any:
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)


def test_complete_rows_give_what_moments_do() -> None:
    X, Y, _, _ = generated(80, 60, 8)
    by_moments = CLVM(tol=1e-9).fit(X, background=Y)
    found = fit(X, Y, tol=1e-8)
    assert subspace_error(salient(found), by_moments.components_) < 1e-5
    assert found.log_likelihoods[-1] == pytest.approx(by_moments.log_likelihoods_[-1], rel=1e-9)
    np.testing.assert_allclose(found.means.x, X.mean(axis=0), atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("tails", ["normal", "rows"])
def test_no_parameters_are_more_likely_where_values_are_missing(tails: Any) -> None:
    X, Y, _, _ = generated(50, 40, 5)
    X, Y = holes(X, 0.2), holes(Y, 0.2, 1)
    found = fit_rows(X, Y, *start_of(X, Y, 1, 1), 1, tails=tails, tol=1e-7, max_iter=20_000)

    def log_likelihood(S: Any, W: Any, noise: float, means: Any) -> float:
        total = 0.0
        back = S @ S.T + noise * np.eye(5)
        for rows, mean, covariance in zip((X, Y), means, (back + W @ W.T, back), strict=True):
            for row in rows:
                o = ~np.isnan(row)
                if o.any():
                    sub = covariance[np.ix_(o, o)]
                    if tails == "normal":
                        total += multivariate_normal(mean[o], sub).logpdf(row[o])
                    else:
                        total += multivariate_t(mean[o], sub, df=4).logpdf(row[o])
        return total

    def loss(point: Any) -> float:
        S, W = point[:5, None], point[5:10, None]
        return -log_likelihood(S, W, np.exp(point[10]), np.split(point[11:], 2))

    start = np.concatenate(
        [found.model.loadings.T.ravel(), [np.log(found.model.noise)], *found.means]
    )
    assert -loss(start) == pytest.approx(found.log_likelihoods[-1], rel=1e-9)
    better = minimize(loss, start, method="L-BFGS-B", options={"maxiter": 15})
    assert -better.fun <= found.log_likelihoods[-1] + 1e-4
