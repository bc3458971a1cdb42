"""Covariance of background frames, estimated from far fewer frames than pixels."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.contrast._noise_bulk import debiased, marchenko_pastur_edge
from contrast_core.images._stationary import Eigenbasis, log_likelihood, stationary_part

TextureForm: TypeAlias = Literal["stationary", "with spikes"]

_RIDGES = (0.1, 0.2, 0.4, 0.8)  # multiples of the mean variance; below 0.1 whitening fits noise
_SPIKE = 2.0  # multiple of the edge; noise alone exceeds the edge if strengths differ by frame
_FRAMES_PER_SPIKE = 5  # least number of frames per spike
_FORMS: tuple[TextureForm, ...] = ("stationary", "with spikes")


class Texture(NamedTuple):
    """Covariance (D, D) of a background, its form, and its ridge divided by the mean variance."""

    covariance: FloatArray
    form: TextureForm
    ridge: float


def texture(frames: FloatArray, shape: tuple[int, int]) -> Texture:
    r"""Return the covariance of a background, in the form that held-out frames favour.

    There are two forms.

    - "stationary": the covariance of two pixels depends only on their displacement. The sample
      covariance is averaged over equal displacements, and negative eigenvalues of the average are
      set to zero. Every pair of pixels contributes, so that few frames are enough.
    - "with spikes": patterns that stand still in the frame are added. To find them, the sample
      covariance is whitened by the stationary covariance. The patterns are the eigenvectors whose
      eigenvalues exceed twice the Marchenko-Pastur edge. The bias of these eigenvalues is removed.

    A ridge of 0.1, 0.2, 0.4 or 0.8 times the mean variance is added to either form. The most likely
    of these eight candidates is returned. Each candidate G is fitted to each half of the frames,
    and its log-likelihood is computed on the other half:

    .. math:: -\tfrac m2 \log\det G - \tfrac D2 \sum_i \log(y_i^\top G^{-1} y_i / D).

    This is the log-likelihood, up to a constant, if every frame has its most likely strength.

    Parameters
    ----------
    frames : ndarray of shape (m, h * w)
        At least four frames of the background; they are not all equal.
    shape : (int, int)
        Height h and width w.

    References
    ----------
    Debiasing of spikes: Donoho, Gavish and Johnstone, Annals of Statistics 46:1742, 2018.
    """
    score = np.zeros((len(_FORMS), len(_RIDGES)))
    for fold in (0, 1):
        mean = frames[fold::2].mean(axis=0)
        train, test = frames[fold::2] - mean, frames[1 - fold :: 2] - mean
        if not train.any():  # equal frames show no covariance
            continue
        for i, eigen in enumerate(_candidates(train, shape)):
            power = (test @ eigen.vectors) ** 2
            for j, ridge in enumerate(_RIDGES):
                score[i, j] += log_likelihood(power, eigen.values + ridge * _unit(train))
    form, step = divmod(int(score.argmax()), len(_RIDGES))  # the first of equal scores
    centred = frames - frames.mean(axis=0)
    covariance = _candidates(centred, shape)[form].matrix()
    covariance[np.diag_indices_from(covariance)] += _RIDGES[step] * _unit(centred)
    return Texture(covariance, _FORMS[form], _RIDGES[step])


def eigenpairs_above(matrix: FloatArray, edge: float, most: int) -> tuple[FloatArray, FloatArray]:
    """Return at most `most` eigenvalues above an edge, in descending order, and eigenvectors."""
    values, vectors = scipy.linalg.eigh(
        matrix, subset_by_value=(edge, np.inf), overwrite_a=True, check_finite=False
    )
    kept = slice(None, -most - 1, -1) if most else slice(0)
    return values[kept], vectors[:, kept]


def _candidates(centred: FloatArray, shape: tuple[int, int]) -> tuple[Eigenbasis, Eigenbasis]:
    """Return the stationary covariance without and with spikes, both without a ridge."""
    n, n_features = centred.shape
    covariance = centred.T @ centred / n
    alone = stationary_part(covariance, shape)
    roots = np.sqrt(alone.values + _RIDGES[0] * _unit(centred))
    whitened = (alone.vectors.T @ covariance @ alone.vectors) / np.multiply.outer(roots, roots)
    aspect_ratio = n_features / n
    values, vectors = eigenpairs_above(
        whitened, _SPIKE * marchenko_pastur_edge(aspect_ratio), n // _FRAMES_PER_SPIKE
    )
    if not len(values):
        return alone, alone
    patterns = alone.vectors @ (roots[:, None] * vectors)
    spikes = (patterns * (debiased(values, aspect_ratio) - 1)) @ patterns.T
    around = stationary_part(covariance - spikes, shape)
    return alone, Eigenbasis(*np.linalg.eigh(spikes + around.matrix()))


def _unit(centred: FloatArray) -> float:
    """Return the mean variance of a pixel."""
    return float((centred**2).mean())
