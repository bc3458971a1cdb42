"""Simulated rows of latent variable models with missing values, and their explicit densities."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import multivariate_normal, multivariate_t


def holes(rows: Any, share: float = 0.2, seed: int = 0) -> Any:
    """Return a copy in which a given share of the values is NaN."""
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)


def generated(
    n: int, m: int, d: int, seed: int = 0, noise: float = 1.0
) -> tuple[Any, Any, Any, Any]:
    """Return rows drawn from a cLVM with two shared and two salient variables, and its loadings."""
    rng = np.random.default_rng(seed)
    S, W = 2 * rng.normal(size=(d, 2)), rng.normal(size=(d, 2)) * [1.5, 1.0]
    X = rng.normal(size=(n, 2)) @ S.T + rng.normal(size=(n, 2)) @ W.T + rng.normal(size=d)
    Y = rng.normal(size=(m, 2)) @ S.T + rng.normal(size=d)
    X, Y = (rows + noise * rng.normal(size=rows.shape) for rows in (X, Y))
    return X, Y, S, W


def gappy(n: int = 60, m: int = 50, d: int = 8) -> tuple[Any, Any]:
    """Return rows drawn from a cLVM; a fifth of their values is missing."""
    X, Y, _, _ = generated(n, m, d)
    return holes(X), holes(Y, seed=1)


def log_densities(rows: Any, mean: Any, covariance: Any, degrees: float = np.inf) -> Any:
    """Return the log-density of the observed values of each row, normal or Student's t."""
    found, observed = np.zeros(len(rows)), ~np.isnan(rows)
    for o in np.unique(observed, axis=0):
        if o.any():
            alike = (observed == o).all(axis=1)
            law: Any = multivariate_normal(mean[o], covariance[np.ix_(o, o)])
            if np.isfinite(degrees):
                law = multivariate_t(mean[o], covariance[np.ix_(o, o)], df=degrees)
            found[alike] = law.logpdf(rows[np.ix_(alike, o)])
    return found


def clvm_log_likelihood(
    X: Any, Y: Any, S: Any, W: Any, noise: float, means: Any = None, degrees: float = np.inf
) -> float:
    """Compute Severson et al. 2019, eq. 4, directly from its definition."""
    background = S @ S.T + noise * np.eye(len(S))
    means = [rows.mean(axis=0) for rows in (X, Y)] if means is None else means
    parts = zip((X, Y), means, (background + W @ W.T, background), strict=True)
    return float(sum(log_densities(*part, degrees).sum() for part in parts))
