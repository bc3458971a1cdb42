"""Simulated data for tests of several modules, and statistics and densities computed by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from scipy.stats import multivariate_normal, multivariate_t

from contrast_core import CVAE

quiet = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
SD = np.array([2.0, 1.5, 1.0, 1.0, 0.7, 0.5])  # standard deviations of the features of `rows`


def rows(n: int, rng: np.random.Generator, spike: float = 0.0) -> Any:
    """Return n independent rows; noise of standard deviation `spike` is added to feature 4."""
    X = rng.normal(size=(n, len(SD))) * SD
    X[:, 4] += spike * rng.normal(size=n)
    return X


def leading_by_hand(P: Any, Q: Any, totals: Any, alpha: Any = None, beta: Any = None) -> Any:
    """Return the statistic of a component, and the direction to remove before the next component.

    P and Q are the covariances of foreground and background. If alpha is given, the statistic is
    that of cPCA; if beta is given, it is that of cPCA*. In both cases P and Q are scaled to the
    total variances `totals`. If both are None, alpha is chosen automatically, and the
    statistic is this alpha times trace(Q) / trace(P).
    """
    size = len(P)
    if alpha is None and beta is None:
        values, vectors = scipy.linalg.eigh(P, Q + np.trace(Q) / (4 * size) * np.eye(size))
        return values[-1] * np.trace(Q) / np.trace(P), P @ vectors[:, -1]
    P, Q = (part * total / np.trace(part) for part, total in zip((P, Q), totals, strict=True))
    if alpha is not None:
        values, vectors = scipy.linalg.eigh(P - alpha * Q)
        return values[-1], vectors[:, -1]
    values, vectors = scipy.linalg.eigh(P, (1 - (beta or 0)) * np.eye(size) + (beta or 0) * Q)
    return values[-1], P @ vectors[:, -1]


def variance_ratio(vectors: Any, x: Any, y: Any, ridge: float) -> float:
    """Return the variance of x along the columns `vectors`, divided by that of y plus a ridge."""
    of_x, of_y = (np.trace(vectors.T @ covariance @ vectors) for covariance in (x, y))
    return float(of_x / (of_y + vectors.shape[1] * ridge))


def automatic_by_hand(
    x: Any, y: Any, k: int, ridge: float, least_rise: float = 1e-14
) -> tuple[float, Any]:
    """Return the automatic contrast of the covariances x and y, and its k components as columns.

    Newton's iteration ends when the contrast rises by less than the fraction `least_rise`.
    """
    alpha = 0.0
    while True:
        vectors = scipy.linalg.eigh(x - alpha * y)[1][:, -k:]
        risen = variance_ratio(vectors, x, y, ridge)
        if risen <= alpha * (1 + least_rise):
            return alpha, vectors
        alpha = risen


def held_out_ratio(half: Any, other: Any, k: int) -> float:
    """Return the ratio of variances in one half of the data, along k components of another half.

    Each half consists of a foreground and a background covariance. The ridge is a quarter of the
    mean variance of the background.
    """
    ridge, other_ridge = (np.trace(y) / (4 * len(y)) for _, y in (half, other))
    _, vectors = automatic_by_hand(*half, k, ridge, 0.05)
    return variance_ratio(vectors, *other, other_ridge)


def geometric_median(rows: Any) -> Any:
    """Return the point with the smallest sum of distances to the rows."""

    def distance(centre: Any) -> float:
        return float(np.linalg.norm(rows - centre, axis=1).sum())

    return scipy.optimize.minimize(distance, rows.mean(axis=0), method="BFGS", tol=1e-10).x


def error_of_centre(centred: Any, draw: Any) -> Any:
    """Return the first-order error of a geometric median, from one random number for each row.

    The error is ``sum_i draw_i u_i / sum_i (1 / l_i)``, where l_i is the length of the centred row
    i, u_i is this row divided by its length, and draw_i is a standard normal number, or 0 for no
    error.
    """
    lengths = np.linalg.norm(centred, axis=1)
    return (draw / lengths) @ centred / (1 / lengths).sum()


def holes(rows: Any, share: float = 0.2, seed: int = 0) -> Any:
    """Return a copy in which a given share of the values is NaN."""
    return np.where(np.random.default_rng(seed).random(rows.shape) < share, np.nan, rows)


def generated(n: int, m: int, d: int, seed: int = 0, noise: float = 1.0) -> tuple[Any, ...]:
    """Return foreground and background rows drawn from a cLVM, and its loadings.

    There are n foreground rows, m background rows and d features. The cLVM has two shared and two
    salient variables, whose loadings are S and W. `noise` is the standard deviation of the noise.
    """
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
    """Return the log-density of the observed values of each row.

    The density is Student's t if `degrees` is finite, and normal otherwise.
    """
    found, observed = np.zeros(len(rows)), ~np.isnan(rows)
    for o in np.unique(observed, axis=0):
        if o.any():
            alike = (observed == o).all(axis=1)
            law: Any = multivariate_normal(mean[o], covariance[np.ix_(o, o)])
            if np.isfinite(degrees):
                law = multivariate_t(mean[o], covariance[np.ix_(o, o)], df=degrees)
            found[alike] = law.logpdf(rows[np.ix_(alike, o)])
    return found


def clvm_log_likelihood(X: Any, Y: Any, S: Any, W: Any, noise: float) -> float:
    """Return the log-likelihood of cLVM (Severson et al. 2019, eq. 4), from its definition.

    S and W are the shared and the salient loadings, and `noise` is the noise variance.
    """
    background = S @ S.T + noise * np.eye(len(S))
    parts = zip((X, Y), (background + W @ W.T, background), strict=True)
    return float(sum(log_densities(rows, rows.mean(axis=0), cov).sum() for rows, cov in parts))


D = 12  # number of features of `ring`


def ring(n: int = 800, m: int = 600, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Return a foreground with a circle, a background, the circle's angles and its clean rows.

    Both datasets contain a curve that is stronger than the circle; only the foreground contains the
    circle.
    """
    rng = np.random.default_rng(seed)

    def shared(size: int) -> Any:
        s = rng.normal(size=(size, 1))
        return np.hstack([4 * s, s**2, *(np.sin(s + i) for i in range(D - 2))])

    turn = rng.uniform(0, 2 * np.pi, n)
    clean = np.zeros((n, D))
    clean[:, -2:] = 3 * np.column_stack([np.cos(turn), np.sin(turn)])
    X = shared(n) + clean + 0.2 * rng.normal(size=(n, D))
    return X, shared(m) + 0.2 * rng.normal(size=(m, D)), turn, clean


def counts(seed: int = 0, n: int = 300) -> tuple[Any, Any]:
    """Return Poisson counts whose log-rates are 0.3 times the two datasets of `ring`."""
    X, Y, *_ = ring(n, n, seed)
    rng = np.random.default_rng(seed)
    return rng.poisson(np.exp(0.3 * X)), rng.poisson(np.exp(0.3 * Y))


def units_of(foreground: Any, background: Any) -> dict[str, Any]:
    """Return the arguments that name the unit of each row of the two datasets."""
    return {"units": foreground, "background_units": background}


def recording(seen: list[tuple[str, int | None]]) -> Callable[..., Iterator[Any]]:
    """Return a progress function that appends its description and total to `seen` for each item."""

    def progress(items: Iterable[Any], *, total: int | None, desc: str) -> Iterator[Any]:
        for item in items:
            seen.append((desc, total))
            yield item

    return progress


def quick(**options: Any) -> CVAE:
    """Return a CVAE that trains for three epochs, unless the options say otherwise."""
    return CVAE(**({"max_iter": 3, "random_state": 0} | options))
