"""Stationary covariances of texture, which are the same everywhere in the frame.

The covariance of two pixels depends only on their displacement. It is estimated by the average of
the sample covariance over equal displacements. Every pair of pixels contributes, so that far fewer
frames than pixels are enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray

_RIDGES = (0.1, 0.2, 0.4, 0.8)  # multiples of the mean variance; below 0.1 whitening fits noise
# Least strength of a sample. The strength is a factor of the covariance. Without this limit, a
# sample that is equal to the mean would have the strength 0 and an infinite likelihood.
_WEAKEST = 1e-9


class Eigenbasis(NamedTuple):
    """Eigenvalues (D,) in any order, and orthonormal eigenvectors as columns (D, D)."""

    values: FloatArray
    vectors: FloatArray

    def matrix(self) -> FloatArray:
        """Return the matrix that has these eigenpairs."""
        return np.asarray((self.vectors * self.values) @ self.vectors.T)


class Texture(NamedTuple):
    """Covariance (D, D) of a background, and its ridge divided by the mean variance."""

    covariance: FloatArray
    ridge: float


def texture(frames: FloatArray, shape: tuple[int, int]) -> Texture:
    r"""Return the stationary covariance of a background, plus a ridge chosen by held-out frames.

    The ridge is 0.1, 0.2, 0.4 or 0.8 times the mean variance. For each of these four ridges, the
    covariance with the ridge, G, is fitted to each half of the frames, and its log-likelihood is
    computed on the other half:

    .. math:: -\tfrac m2 \log\det G - \tfrac D2 \sum_i \log(y_i^\top G^{-1} y_i / D).

    Here :math:`y_1, \dots, y_m` are the left-out frames of D pixels, minus the mean of the other
    half. Up to a constant, this is the log-likelihood when each frame has the covariance G times
    the strength that is most likely for this frame. The ridge with the largest sum over both halves
    is chosen, and G is fitted again to all frames.

    Parameters
    ----------
    frames : ndarray of shape (m, h * w)
        At least four frames of the background; they are not all equal.
    shape : (int, int)
        Height h and width w.
    """
    score = np.zeros(len(_RIDGES))
    for fold in (0, 1):
        mean = frames[fold::2].mean(axis=0)
        train, test = frames[fold::2] - mean, frames[1 - fold :: 2] - mean
        if not train.any():  # equal frames show no covariance
            continue
        eigen = stationary_part(train.T @ train / len(train), shape)
        power, unit = (test @ eigen.vectors) ** 2, (train**2).mean()
        score += [_log_likelihood(power, eigen.values + ridge * unit) for ridge in _RIDGES]
    ridge = _RIDGES[int(score.argmax())]  # if scores are equal, the smallest ridge is chosen
    centred = frames - frames.mean(axis=0)
    covariance = stationary_part(centred.T @ centred / len(centred), shape).matrix()
    covariance[np.diag_indices_from(covariance)] += ridge * (centred**2).mean()
    return Texture(covariance, ridge)


def lag_average(covariance: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Return the nearest stationary matrix, in which each entry is a mean over equal displacements.

    Parameters
    ----------
    covariance : ndarray of shape (h * w, h * w)
        Symmetric matrix with the pixels in C order.
    shape : (int, int)
        Height h and width w of a frame.

    Returns
    -------
    ndarray of shape (h * w, h * w)
        Symmetric matrix, which does not change if the frame is rotated by 180 degrees. It may have
        negative eigenvalues.
    """
    lags = _lags(shape)
    flat = lags.ravel()
    sums = np.bincount(flat, covariance.ravel())
    return np.asarray((sums / np.maximum(np.bincount(flat), 1))[lags])


def stationary_part(covariance: FloatArray, shape: tuple[int, int]) -> Eigenbasis:
    """Return the positive part of the lag average, as eigenvalues and eigenvectors."""
    values, vectors = np.linalg.eigh(lag_average(covariance, shape))
    return Eigenbasis(np.maximum(values, 0.0), vectors)


def _log_likelihood(power: FloatArray, variances: FloatArray) -> float:
    """Return the Gaussian log-likelihood of samples, each with its most likely strength.

    Parameters
    ----------
    power : ndarray of shape (n, D)
        Squares of the samples' coordinates along the eigenvectors of the covariance.
    variances : ndarray of shape (D,)
        Eigenvalues of the covariance, above 0.
    """
    n, n_features = power.shape
    strengths = np.maximum(power @ (1 / variances) / n_features, _WEAKEST)
    return float(-0.5 * (n * np.log(variances).sum() + n_features * np.log(strengths).sum()))


def _lags(shape: tuple[int, int]) -> NDArray[np.intp]:
    """Return an integer code of the displacement between each pair of pixels."""
    h, w = shape
    y, x = np.divmod(np.arange(h * w), w)
    down, across = (np.subtract.outer(axis, axis) for axis in (y, x))
    return np.asarray((down + h - 1) * (2 * w - 1) + across + w - 1)
