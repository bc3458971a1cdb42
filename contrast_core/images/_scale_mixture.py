"""Posterior mean of the signal in rows with unknown strengths of signal and background."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from contrast_core._validation import FloatArray

# This multiple of the background's mean variance is added to all variances of the background. It
# accounts for noise in directions in which the background area hardly varies.
NOISE_RIDGE = 0.03
# Values of the strengths s and g (see `ScaleMixture`) over which the estimate is averaged.
_SIGNAL_STRENGTHS = (0.0, *np.geomspace(0.0003, 30.0, 16).tolist())
BACKGROUND_STRENGTHS = (0.02, *np.geomspace(0.1, 4.0, 6).tolist())


class ScaleMixture(NamedTuple):
    r"""Two Gaussian scale mixtures in the coordinates that diagonalise both covariances.

    A row x is the sum of the background's mean, a signal z and a background b. The strength s of
    the signal and the strength g of the background differ from row to row:

    .. math:: x = \bar y + \sqrt s\, z + \sqrt g\, b, \qquad z \sim N(0, S), \quad b \sim N(0, N)

    Parameters
    ----------
    mean : ndarray of shape (D,)
        Mean of the background.
    whitening : ndarray of shape (D, D)
        ``(row - mean) @ whitening`` are coordinates in which N is the identity and S is diagonal,
        and the r coordinates with signal come first.
    coloring : ndarray of shape (r, D)
        ``coordinates[:r] @ coloring`` maps coordinates back to a row.
    variances : ndarray of shape (r,)
        Variances of the signal in the first r coordinates, in descending order. The background has
        variance 1 in every coordinate.
    """

    mean: FloatArray
    whitening: FloatArray
    coloring: FloatArray
    variances: FloatArray


class Posterior(NamedTuple):
    """Posterior means of the signal's coordinates and of the two strengths, for n rows.

    Parameters
    ----------
    coordinates : ndarray of shape (n, r)
        ``coordinates @ mixture.coloring`` is the signal.
    signal_strength, background_strength : ndarray of shape (n,)
        Posterior means of s and g.
    """

    coordinates: FloatArray
    signal_strength: FloatArray
    background_strength: FloatArray


def scale_mixture(
    mean: FloatArray,
    covariance: FloatArray,
    background_mean: FloatArray,
    background_covariance: FloatArray,
) -> ScaleMixture:
    r"""Return the mixture with covariances S and N that are computed from two datasets' moments.

    .. math:: N = C_Y + 0.03\, \mu I, \quad \mu = \operatorname{tr}(C_Y) / D, \qquad
        S = (C_X - C_Y)_+ + \delta\delta^\top,

    where :math:`C_X` and :math:`C_Y` are the covariances of foreground and background, D is the
    number of features, and :math:`(\cdot)_+` is the positive part. The difference of the means,
    :math:`\delta = \bar x - \bar y`, is signal too. Each row contains it with an unknown strength,
    so it is a part of S instead of a fixed mean of z.

    Parameters
    ----------
    mean, covariance : ndarray of shape (D,) and (D, D)
        Mean and covariance of signal with background.
    background_mean, background_covariance : ndarray of shape (D,) and (D, D)
        Mean and covariance of the background alone; the background must not be constant.
    """
    n_features = len(mean)
    # Dividing first avoids an overflow of the sum.
    unit = float(np.trace(background_covariance / n_features))
    noise = background_covariance / unit + NOISE_RIDGE * np.eye(n_features)
    lower = np.linalg.cholesky(noise)
    # S = F F^T is whitened as G G^T, where G is the whitened factor F. Such a product has no
    # negative eigenvalues, except by rounding.
    values, vectors = np.linalg.eigh((covariance - background_covariance) / unit)
    shift = (mean - background_mean) / np.sqrt(unit)
    factor = np.column_stack([vectors * np.sqrt(np.maximum(values, 0.0)), shift])
    whitened = solve_triangular(lower, factor, lower=True)
    variances, rotation = np.linalg.eigh(whitened @ whitened.T)
    variances, rotation = variances[::-1], rotation[:, ::-1]
    rank = int((variances > n_features * np.finfo(float).eps * variances[0]).sum())
    return ScaleMixture(
        background_mean,
        solve_triangular(lower, rotation, lower=True, trans="T") / np.sqrt(unit),
        ((lower @ rotation[:, :rank]) * np.sqrt(unit)).T,
        variances[:rank],
    )


def posterior(
    mixture: ScaleMixture, rows: NDArray[np.floating], background_strengths: tuple[float, ...]
) -> Posterior:
    r"""Return the posterior means of the signal and of both strengths in each row.

    For one pair of strengths s and g, the posterior mean of the signal in coordinate i is the
    coordinate times :math:`s\lambda_i / (s\lambda_i + g)`, a Wiener filter. Here
    :math:`\lambda_i` is the signal's variance in `mixture.variances`. The estimate is the average
    over all pairs, weighted by the likelihood of the row. All pairs have the same prior
    probability. The values of s are 0 and sixteen values from 0.0003 to 30.
    """
    r = len(mixture.variances)
    pairs = np.meshgrid(_SIGNAL_STRENGTHS, background_strengths, indexing="ij")
    s, g = (strengths.ravel() for strengths in pairs)  # (J,) for J pairs of strengths
    coordinates = (rows - mixture.mean) @ mixture.whitening
    power = coordinates**2
    total = np.multiply.outer(s, mixture.variances) + g[:, None]  # (J, r)
    n_silent = coordinates.shape[1] - r  # number of coordinates without signal; only g affects them
    # `surprise` is minus twice the log-likelihood of each row and pair, up to a constant.
    surprise = power[:, :r] @ (1 / total).T + np.multiply.outer(power[:, r:].sum(axis=1), 1 / g)
    surprise += np.log(total).sum(axis=1) + n_silent * np.log(g)
    surprise -= surprise.min(axis=1, keepdims=True)
    weights = np.exp(-0.5 * surprise)
    weights /= weights.sum(axis=1, keepdims=True)
    shrinkage = weights @ (1 - g[:, None] / total)
    return Posterior(coordinates[:, :r] * shrinkage, weights @ s, weights @ g)
