"""Stationary covariances of texture, which are the same everywhere in the frame."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray

_WEAKEST = 1e-9  # least strength; without it, a sample equal to the mean is infinitely likely


class Eigenbasis(NamedTuple):
    """Eigenvalues (D,), in no order, and orthonormal eigenvectors as columns (D, D)."""

    values: FloatArray
    vectors: FloatArray

    def matrix(self) -> FloatArray:
        """Return the matrix that has these eigenpairs."""
        return np.asarray((self.vectors * self.values) @ self.vectors.T)


def lag_average(covariance: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Return the nearest stationary matrix: the average over pixels with equal displacement.

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
    values, vectors = half_turn_eigh(lag_average(covariance, shape))
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


def half_turn_eigh(matrix: FloatArray) -> Eigenbasis:
    """Return the eigenpairs of a symmetric matrix that is the same with both axes reversed.

    Each eigenvector is even or odd. Two eigenproblems of half the size give them all in a quarter
    of the time (Cantoni and Butler, Linear Algebra and its Applications 13:275, 1976).
    """
    n = len(matrix)
    half, odd = divmod(n, 2)
    first, crossed = matrix[:half, :half], matrix[:half, ::-1][:, :half]
    minus, lower = np.linalg.eigh(first - crossed)
    even = np.empty((half + odd, half + odd))
    even[:half, :half] = first + crossed
    if odd:
        even[half, half] = matrix[half, half]
        even[:half, half] = even[half, :half] = np.sqrt(2) * matrix[:half, half]
    plus, upper = np.linalg.eigh(even)
    vectors = np.zeros((n, n))
    top = upper[:half] / np.sqrt(2)
    vectors[:half, : half + odd], vectors[n - half :, : half + odd] = top, top[::-1]
    if odd:
        vectors[half, : half + odd] = upper[half]
    bottom = lower / np.sqrt(2)
    vectors[:half, half + odd :], vectors[n - half :, half + odd :] = bottom, -bottom[::-1]
    return Eigenbasis(np.concatenate([plus, minus]), vectors)


def _lags(shape: tuple[int, int]) -> NDArray[np.intp]:
    """Return an integer code of the displacement between each pair of pixels."""
    h, w = shape
    y, x = np.divmod(np.arange(h * w), w)
    down, across = (np.subtract.outer(axis, axis) for axis in (y, x))
    return np.asarray((down + h - 1) * (2 * w - 1) + across + w - 1)
