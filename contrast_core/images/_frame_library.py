"""Background of a large frame, fitted from a library of background frames.

The covariance of a few hundred thousand pixels is too large for memory, but the m x m matrix of the
inner products of m frames is small. The leading principal components of the frames follow from this
matrix (method of snapshots; Sirovich, Quarterly of Applied Mathematics 45:561, 1987). Each frame's
background is a combination of the mean and the components. Its coefficients are fitted with
Tukey's bisquare weights (Beaton and Tukey, Technometrics 16:147, 1974). These weights are zero for
pixels that deviate by more than 4.7 robust standard deviations. Therefore the signal does not bias
the fit as long as it covers less than about a third of the frame.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray

_MOST_COMPONENTS = 32
_FOLDS = 10
_PIXELS = 20_000  # number of random pixels on which the coefficients are fitted
_ROUNDS = 10
BISQUARE = 4.685  # cutoff in robust standard deviations: 95% efficient for normal noise
MAD = 1.4826  # standard deviation of normal noise divided by its median absolute deviation
_SLICE = 2**16  # number of pixels that are multiplied and summed at once

SingleArray = NDArray[np.float32]


class FrameLibrary(NamedTuple):
    """Mean and components of background frames, with their error on left-out frames.

    Parameters
    ----------
    mean : ndarray of shape (D,), float32
        Mean frame.
    components : ndarray of shape (k, D), float32
        Principal components, scaled to variance one over the pixels; the strongest comes first.
    variances : ndarray of shape (k,)
        Mean square of the components' coefficients in the library.
    unexplained : float
        Mean squared error when left-out frames are predicted, divided by the error of a prediction
        that uses the mean frame and a fitted brightness, but no components.
    """

    mean: SingleArray
    components: SingleArray
    variances: FloatArray
    unexplained: float


def frame_library(frames: SingleArray) -> FrameLibrary:
    """Return the mean and the principal components of background frames.

    The number of components is chosen so that left-out frames are predicted best.

    Parameters
    ----------
    frames : ndarray of shape (m, D), float32
        Background frames, at least four. They are centred in place.
    """
    m, n_pixels = frames.shape
    mean = frames.mean(axis=0, dtype=np.float64).astype(np.float32)
    frames -= mean
    products = _half_products(frames)
    errors = _left_out_errors(products, most_components(m))
    k = int(errors.argmin())
    values, vectors = np.linalg.eigh(_centred(products[0] + products[1]))
    values, vectors = values[: -k - 1 : -1], vectors[:, : -k - 1 : -1]
    # An eigenvalue is the sum over pixels of the squared deviations of ``vector @ frames`` from its
    # own mean. The division therefore gives each component a variance of one.
    components = (vectors / np.sqrt(values / n_pixels)).T.astype(np.float32) @ frames
    return FrameLibrary(mean, components, values / (m * n_pixels), float(errors[k] / errors[0]))


def most_components(m: int) -> int:
    """Return the largest number of components that is tried for a library of m frames.

    It is one less than the number of frames that remain when the largest fold is left out.
    """
    return min(_MOST_COMPONENTS, m - -(-m // min(m, _FOLDS)) - 1)


def fitted_pixels(n_pixels: int) -> NDArray[np.intp]:
    """Return the pixels on which coefficients are fitted; every call returns the same pixels."""
    if n_pixels <= _PIXELS:
        return np.arange(n_pixels)
    drawn = np.random.default_rng(0).choice(n_pixels, _PIXELS, replace=False)
    return np.sort(drawn)


def robust_coefficients(deviations: FloatArray, design: FloatArray) -> FloatArray:
    """Fit frames by least squares with Tukey's bisquare weights.

    Parameters
    ----------
    deviations : ndarray of shape (n, p)
        Pixels of frames minus the background's mean.
    design : ndarray of shape (k, p)
        A row of ones, which fits the brightness, and the components at the same pixels.

    Returns
    -------
    ndarray of shape (n, k)
    """
    return np.stack([_robust(each, design) for each in deviations])


def _robust(target: FloatArray, design: FloatArray) -> FloatArray:
    weights = np.ones(len(target))
    for _ in range(_ROUNDS):
        weighted = design * weights
        fit = np.linalg.lstsq(weighted @ design.T, weighted @ target, rcond=None)[0]
        residual = target - fit @ design
        scale = MAD * float(np.median(np.abs(residual)))
        if scale == 0:  # more than half of the pixels are fitted exactly
            break
        weights = np.maximum(1 - (residual / (BISQUARE * scale)) ** 2, 0) ** 2
    return np.asarray(fit)


def _half_products(frames: SingleArray) -> list[FloatArray]:
    """Return the inner products of centred frames, separately for even and odd pixels.

    The mean of each frame over these pixels is subtracted first, because the brightness is fitted
    separately.
    """
    halves = []
    for half in (frames[:, ::2], frames[:, 1::2]):
        total = np.zeros((len(frames), len(frames)))
        brightness = half.mean(axis=1, dtype=np.float64, keepdims=True)
        for start in range(0, half.shape[1], _SLICE):
            block = half[:, start : start + _SLICE] - brightness
            total += block @ block.T
        halves.append(total)
    return halves


def _left_out_errors(halves: list[FloatArray], most: int) -> FloatArray:
    """Return the mean squared error of left-out frames for each number of components up to `most`.

    The components come from the other frames. Their coefficients are fitted on one half of the
    pixels and the error is measured on the other half, so that components of noise raise the error.
    Only the inner products of the frames are needed, because the components are ``P @ frames`` and
    the centred left-out frames are ``q @ frames`` with small matrices P and q.
    """
    m = len(halves[0])
    errors = np.zeros((m, most + 1))
    for fold in range(min(m, _FOLDS)):
        train = np.arange(m) % min(m, _FOLDS) != fold
        centre = np.eye(m) - train / train.sum()
        values, vectors = np.linalg.eigh(centre[train] @ (halves[0] + halves[1]) @ centre[train].T)
        kept = slice(None, -most - 1, -1)
        P = (vectors[:, kept] / np.sqrt(np.maximum(values[kept], values[-1] * 1e-12))).T
        P, q = P @ centre[train], centre[~train]
        for fitted, judged in (halves, halves[::-1]):
            inner, cross = P @ fitted @ P.T, P @ fitted @ q.T
            inner_judged, cross_judged = P @ judged @ P.T, P @ judged @ q.T
            power = np.einsum("ij,jk,ik->i", q, judged, q)
            for k in range(most + 1):
                c = np.linalg.lstsq(inner[:k, :k], cross[:k], rcond=None)[0]
                explained = 2 * c * cross_judged[:k] - c * (inner_judged[:k, :k] @ c)
                errors[~train, k] += power - explained.sum(axis=0)
    return np.asarray(errors.mean(axis=0))


def _centred(products: FloatArray) -> FloatArray:
    return np.asarray(
        products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
    )
