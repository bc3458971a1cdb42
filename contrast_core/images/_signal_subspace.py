"""Directions in which frames vary more than a background of known covariance.

Frames are first whitened by the covariance of the background, so that the background has variance 1
in every direction. A direction holds signal if the foreground's variance exceeds the edge of the
Marchenko-Pastur distribution. Noise alone hardly exceeds this edge in a sample of this size.
Variances estimated from few frames are too large by a known amount, which is subtracted (Donoho,
Gavish and Johnstone, Annals of Statistics 46:1742, 2018).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.contrast._noise_bulk import debiased, marchenko_pastur_edge

_WEAKEST = 0.5  # least background strength of a frame
_ROUNDS = 5  # largest number of rounds, each of which estimates strengths and directions
_SETTLED = 0.01  # the rounds end when the mean relative change of the strengths is smaller
_MARGIN = 1.02  # an eigenvalue must exceed this multiple of the edge
_FRAMES_PER_COMPONENT = 5  # least number of frames per component
# The prior variance of the signal along directions in which no signal is detected, divided by the
# square root of the aspect ratio (the number of features divided by the effective number of
# frames).
_UNDETECTED = 0.1


class SignalSubspace(NamedTuple):
    r"""Signal in coordinates in which the background has variance 1 and the signal is uncorrelated.

    Parameters
    ----------
    mean : ndarray of shape (D,)
        Mean of the signal in whitened rows.
    basis : ndarray of shape (D, D)
        ``(row - mean) @ basis`` are the coordinates of a whitened row; the k components come first.
        The column of a component has a norm below 1 if the background varies more along this
        direction than its covariance model predicts.
    inverse : ndarray of shape (D, D)
        Inverse of the basis.
    variances : ndarray of shape (D,)
        Variances of the signal along the coordinates; they are equal where no signal is detected.
    n_components : int
        Number of directions in which signal is detected, k.
    background_variance : float
        Mean square of the background frames along the directions without signal. A frame with this
        mean square has strength 1.
    """

    mean: FloatArray
    basis: FloatArray
    inverse: FloatArray
    variances: FloatArray
    n_components: int
    background_variance: float


class _Directions(NamedTuple):
    """Directions of the signal, with the variances of signal and background along them.

    `directions` is (D, k), and `variances` (k,) belong to the signal. `excess` (k,) holds the
    background's variances, or 1 where they are smaller. `aspect_ratio` is the number of features
    divided by the effective number of frames.
    """

    directions: FloatArray
    variances: FloatArray
    excess: FloatArray
    aspect_ratio: float


def signal_subspace(foreground: FloatArray, background: FloatArray) -> SignalSubspace:
    r"""Return the principal directions of the signal from whitened frames and background frames.

    The directions are eigenvectors of the foreground's weighted covariance whose eigenvalues exceed
    the Marchenko-Pastur edge. The bias of these eigenvalues is removed and the variance of the
    noise is subtracted, which gives the variances of the signal.

    - The noise is measured on the background frames. The bulk of the foreground's own eigenvalues
      would be a worse measure, because faint signal would be counted as noise, and some noise would
      be counted as components.
    - A frame has the weight w = 1 / g, where g is the strength of its background. This strength is
      the frame's mean square outside of the signal's directions, divided by the background frames'
      mean square outside of these directions. It is at least 0.5. Directions and strengths are
      estimated alternately, in at most five rounds.
    - The aspect ratio is the number of features D divided by the effective number of frames,
      :math:`\gamma = D \sum w^2 / (\sum w)^2`.
    - The background may vary more along a direction than its covariance model predicts. The
      foreground's variance must exceed this larger variance too.
    - In all other directions, the signal has the prior variance :math:`0.1 \sqrt\gamma`.

    Parameters
    ----------
    foreground, background : ndarray of shape (n, D) and (m, D)
        Whitened frames, minus the background's mean.
    """
    n_features = foreground.shape[1]
    strengths, background_strengths = np.ones(len(foreground)), np.ones(len(background))
    background_variance = 1.0
    for step in range(_ROUNDS + 1):
        weights = 1 / strengths
        mean = weights @ foreground / weights.sum()
        centred = foreground - mean
        found = _directions(centred, strengths, background, background_strengths)
        if step == _ROUNDS:
            break
        before = strengths
        strengths, background_strengths = (
            _residual(frames, found.directions) for frames in (centred, background)
        )
        background_variance = float(background_strengths.mean())
        strengths, background_strengths = (
            np.maximum(each / background_variance, _WEAKEST)
            for each in (strengths, background_strengths)
        )
        if np.abs(np.log(strengths / before)).mean() < _SETTLED:
            break
    k = len(found.variances)
    undetected = _UNDETECTED * np.sqrt(found.aspect_ratio)
    scale = np.append(np.sqrt(found.excess), np.ones(n_features - k))
    basis = np.linalg.qr(found.directions, mode="complete")[0] if k else np.eye(n_features)
    basis[:, :k] = found.directions  # QR may change their signs
    variances = np.full(n_features, undetected)
    variances[:k] = (found.variances + undetected) / found.excess
    return SignalSubspace(mean, basis / scale, (basis * scale).T, variances, k, background_variance)


def shrunk(
    coordinates: FloatArray, variances: FloatArray, n_components: int, background_variance: float
) -> tuple[FloatArray, FloatArray]:
    """Return the posterior mean of the signal in each row, and the row's background strength.

    Parameters
    ----------
    coordinates : ndarray of shape (b, D)
        Coordinates of centred rows in the basis of a `SignalSubspace`.
    variances, n_components, background_variance
        Attributes of that `SignalSubspace`.
    """
    rest = coordinates[:, n_components:]
    strengths = np.maximum((rest**2).mean(axis=1) / background_variance, _WEAKEST)
    return coordinates * (variances / (variances + strengths[:, None])), strengths


def _directions(
    centred: FloatArray,
    strengths: FloatArray,
    background: FloatArray,
    background_strengths: FloatArray,
) -> _Directions:
    """Return the directions in which the foreground varies more than noise and background."""
    n, n_features = centred.shape
    weights = 1 / strengths
    total = weights.sum()
    aspect_ratio = float(n_features * (weights**2).sum() / total**2)
    noise = n / total  # the background's variance in the weighted covariance
    weighted = centred * np.sqrt(weights / total)[:, None]
    edge = _MARGIN * marchenko_pastur_edge(aspect_ratio) * noise
    most = min(n // _FRAMES_PER_COMPONENT, n_features // 2)
    values, vectors = scipy.linalg.eigh(
        weighted.T @ weighted, subset_by_value=(edge, np.inf), overwrite_a=True, check_finite=False
    )
    values, vectors = values[: -most - 1 : -1], vectors[:, : -most - 1 : -1]
    power = (1 / background_strengths) @ (background @ vectors) ** 2 / len(background)
    excess = np.maximum(power, 1.0)
    kept = values > edge * excess
    values, vectors, excess = values[kept], vectors[:, kept], excess[kept]
    scale = noise * excess
    variances = (debiased(values / scale, aspect_ratio) - 1) * scale
    return _Directions(vectors, np.maximum(variances, 1e-3), excess, aspect_ratio)


def _residual(frames: FloatArray, directions: FloatArray) -> FloatArray:
    """Return the mean square of each frame outside of the given directions."""
    inside = ((frames @ directions) ** 2).sum(axis=1)
    return np.asarray(((frames**2).sum(axis=1) - inside) / (frames.shape[1] - directions.shape[1]))


def white_mean(mean: FloatArray, frames: FloatArray) -> FloatArray:
    """Return the mean of a background after James-Stein shrinkage.

    A mean that is no larger than its standard error becomes zero.

    Parameters
    ----------
    mean : ndarray of shape (D,)
        Mean frame after its average brightness was subtracted, whitened.
    frames : ndarray of shape (m, D)
        Whitened frames, minus their mean.
    """
    noise = float((frames**2).sum(axis=1).mean() / len(frames))
    power = float(mean @ mean)
    return mean * max(0.0, 1 - noise / power) if power > 0 else mean


def lower_root(covariance: FloatArray) -> FloatArray:
    """Return the Cholesky factor L of a covariance, which whitens rows by ``rows @ inv(L).T``."""
    return np.asarray(scipy.linalg.cholesky(covariance, lower=True, check_finite=False))
