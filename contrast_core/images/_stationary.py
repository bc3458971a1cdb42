"""Stationary covariances of texture, which are the same everywhere in the frame."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray

_WEAKEST = 1e-9  # least strength; without it, a sample equal to the mean is infinitely likely


class Eigenbasis(NamedTuple):
    """Eigenvalues (D,) in any order, and orthonormal eigenvectors as columns (D, D)."""

    values: FloatArray
    vectors: FloatArray

    def matrix(self) -> FloatArray:
        """Return the matrix that has these eigenpairs."""
        return np.asarray((self.vectors * self.values) @ self.vectors.T)


def lag_average(covariance: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Return the nearest stationary matrix, an average over pixel pairs of equal displacement.

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


def log_likelihood(power: FloatArray, variances: FloatArray) -> float:
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
