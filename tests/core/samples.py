"""Simulated rows for tests of significance, and statistics computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

quiet = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
SD = np.array([2.0, 1.5, 1.0, 1.0, 0.7, 0.5])


def rows(n: int, rng: np.random.Generator, spike: float = 0.0) -> Any:
    """Return n independent rows; noise of standard deviation `spike` is added to feature 4."""
    X = rng.normal(size=(n, len(SD))) * SD
    X[:, 4] += spike * rng.normal(size=n)
    return X


def leading_by_hand(
    P: Any, Q: Any, totals: Any, alpha: float | None, beta: float | None
) -> tuple[float, Any]:
    """Return the statistic of a component, and the direction to remove before the next component.

    P and Q are the covariances of foreground and background. If alpha is given, the statistic is
    that of cPCA; if beta is given, it is that of cPCA*. In both cases P and Q are scaled to the
    total variances `totals`. If both are None, the statistic is the default ratio.
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


def rejections(p_values: Any, level: float) -> int:
    return int((np.asarray(p_values) <= level).sum())


def geometric_median(rows: Any) -> Any:
    """Return the point with the smallest sum of distances to the rows."""

    def distance(centre: Any) -> float:
        return float(np.linalg.norm(rows - centre, axis=1).sum())

    return scipy.optimize.minimize(distance, rows.mean(axis=0), method="BFGS", tol=1e-10).x


def error_of_centre(centred: Any, draw: Any) -> Any:
    """Return ``sum_i draw_i u_i / sum_i (1 / l_i)`` for centred rows with unit vectors u_i.

    The lengths of the rows are l_i.
    """
    lengths = np.linalg.norm(centred, axis=1)
    return (draw / lengths) @ centred / (1 / lengths).sum()
