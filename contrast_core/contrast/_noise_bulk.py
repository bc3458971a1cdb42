"""Random matrix theory of noise in a sample covariance: noise level, edge, and bias of spikes."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from contrast_core._validation import FloatArray

_CHANCE_QUANTILE = 2.02  # 99% point of the Tracy-Widom law (beta = 1)


class NoiseBulk(NamedTuple):
    """Noise variance, edge of the noise (see `noise_bulk`), and number of eigenvalues above it."""

    variance: float
    edge: float
    n_above: int


def noise_bulk(eigenvalues: FloatArray, n_features: int, n_samples: float) -> NoiseBulk:
    r"""Return the level and the edge of the noise in the spectrum of a sample covariance.

    If the noise is isotropic with variance :math:`\sigma^2`, all eigenvalues except those of
    signals follow the Marchenko-Pastur law. A signal is any structure that is not noise. The upper
    edge of the law is

    .. math:: \sigma^2 (1 + \sqrt{D/n})^2 .

    In a sample, the largest noise eigenvalue varies around this edge. Here "edge" therefore means
    its 99% quantile.

    The noise variance is estimated as the median eigenvalue divided by the median of the law. The
    size of a signal has no influence on the median. Eigenvalues above the edge are then removed,
    and the variance is estimated again from the others. For this, the number of features D and the
    degrees of freedom n - 1 are reduced by the number of removed eigenvalues. This is repeated
    until no further eigenvalue exceeds the edge. If D > n, both medians are taken over nonzero
    eigenvalues.

    Parameters
    ----------
    eigenvalues : ndarray of shape (n_features,) or (rank,)
        Eigenvalues of the covariance (divisor n), descending; zeros may be left out.
    n_features : int
        Number of features that vary, D.
    n_samples : float
        Effective number of independent rows, n, greater than 1. The covariance was taken about
        their mean.

    Returns
    -------
    NoiseBulk
        The edge is the 99% quantile of the largest noise eigenvalue by the Tracy-Widom law.

    Raises
    ------
    ValueError
        If no eigenvalue is positive.

    References
    ----------
    Gavish and Donoho, IEEE Transactions on Information Theory 60:5040, 2014 (ratio of the medians);
    Johnstone, Annals of Statistics 29:295, 2001 (centre and scale of the largest eigenvalue).
    """
    rank = numerical_rank(eigenvalues)
    if not rank:
        raise ValueError("the data are constant: no eigenvalue of their covariance is positive.")
    degrees = n_samples - 1
    # If the rank is below both the number of features and the degrees of freedom, some features are
    # exactly collinear, and the rank replaces the number of features.
    dimension = rank if rank < min(n_features, degrees) else n_features
    # Number of eigenvalues that follow the Marchenko-Pastur law. The others are exactly zero.
    in_law = max(1, min(rank, int(degrees)))
    above = 0
    while True:
        p, n = dimension - above, max(degrees - above, 1.0)
        # The covariance was divided by n_samples, but the law assumes division by the degrees of
        # freedom.
        scale = n / n_samples
        median = float(np.median(eigenvalues[above:in_law]))
        variance = median / (scale * marchenko_pastur_median(p / n))
        edge = scale * variance * _largest_eigenvalue(p, n)
        n_above = min(int((eigenvalues > edge).sum()), in_law - 1)
        if n_above <= above:
            return NoiseBulk(variance, edge, above)
        above = n_above


def noise_above(leading: FloatArray, trace: float, n_features: int, n_samples: float) -> int:
    """Return how many of the leading eigenvalues exceed the noise, if the others are unknown.

    `trace` is the sum of all eigenvalues. The noise variance is the mean of the eigenvalues that do
    not exceed the noise. (`noise_bulk` uses the median instead, which needs all eigenvalues.)
    Signals that are too weak to exceed the noise raise this mean by their share of the trace.
    """
    above, rest = 0, trace
    while above < len(leading):
        p, n = n_features - above, max(n_samples - 1 - above, 1.0)
        scale = n / n_samples
        # The mean of the p eigenvalues of noise is expected to be `scale` times the noise variance.
        variance = max(rest, 0.0) / (scale * p)
        n_above = int((leading > scale * variance * _largest_eigenvalue(p, n)).sum())
        if n_above <= above:
            break
        above, rest = n_above, trace - float(leading[:n_above].sum())
    return above


@lru_cache(maxsize=256)
def marchenko_pastur_median(aspect_ratio: float) -> float:
    """Return the median of the nonzero part of the Marchenko-Pastur law, for variance 1.

    `aspect_ratio` is c = D/n.
    """
    root = math.sqrt(aspect_ratio)
    angle = np.linspace(0.0, math.pi, 4001)
    # x = 1 + c - 2 sqrt(c) cos(angle) runs over the support. In the angle, the density is smooth at
    # both ends of the support.
    x = (1 - root) ** 2 + 4 * root * np.sin(angle / 2) ** 2
    density = np.sin(angle) ** 2 / np.maximum(x, np.finfo(np.float64).tiny)
    if x[0] < 1e-12:  # c = 1: sin^2 / x has the limit 1 at 0
        density[0] = 1.0
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return float(np.interp(mass[-1] / 2, mass, x).item())


def marchenko_pastur_edge(aspect_ratio: float) -> float:
    """Return the limit of the largest eigenvalue of a sample covariance of white noise.

    `aspect_ratio` is D/n.
    """
    return (1 + math.sqrt(aspect_ratio)) ** 2


def debiased(values: FloatArray, aspect_ratio: float) -> FloatArray:
    r"""Return the population eigenvalues of signals, given their sample eigenvalues `values`.

    The noise has the variance 1.

    The function solves :math:`l (1 + \gamma / (l - 1)) = \text{value}` for l, where
    :math:`\gamma = D/n` (Baik and Silverstein, Journal of Multivariate Analysis 97:1382, 2006). For
    values below the edge, it returns the real part of the complex solution.
    """
    middle = values + 1 - aspect_ratio
    return np.asarray((middle + np.sqrt(np.maximum(middle**2 - 4 * values, 0.0))) / 2)


def _largest_eigenvalue(n_features: float, degrees: float) -> float:
    """Return the 99% quantile of the largest eigenvalue of a noise covariance."""
    a, b = math.sqrt(max(degrees - 0.5, 0.5)), math.sqrt(max(n_features - 0.5, 0.5))
    spread = (a + b) * (1 / a + 1 / b) ** (1 / 3)
    return float(((a + b) ** 2 + _CHANCE_QUANTILE * spread) / degrees)


def numerical_rank(eigenvalues: FloatArray) -> int:
    """Return how many eigenvalues exceed the rounding error of the largest one."""
    rounding = len(eigenvalues) * np.finfo(np.float64).eps * float(eigenvalues.max(initial=0.0))
    return int((eigenvalues > rounding).sum())
