"""The trace ratio of directions, measured on data that did not choose them."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import eigsh

from contrast_core._validation import FloatArray
from contrast_core.contrast._automatic import background_ridge
from contrast_core.linalg import contrastive_eigenpairs, variances_along
from contrast_core.moments import SecondMoments

_MAX_ITERATIONS = 100
_ROUGH = 1e-3  # of the ratio: far less than what one half of the data differs from the other
_SMALL = 64  # features up to which LAPACK is as fast


def held_out_ratio(
    fitted: tuple[SecondMoments, SecondMoments],
    measured: tuple[SecondMoments, SecondMoments],
    k: int,
    *,
    rough: bool = False,
) -> float:
    r"""Trace ratio with directions from some rows and variances from others.

    The iteration of `trace_ratio_alpha`, with V the top-k eigenvectors of
    :math:`C_X - \alpha C_Y` of the data `fitted` and the variances of the data `measured`.

    Parameters
    ----------
    fitted, measured : (SecondMoments, SecondMoments)
        Foreground and background, of two disjoint halves of the rows.
    k : int
        Number of directions.
    rough : bool, default=False
        To three digits, many times faster with hundreds of features: each eigenproblem is begun
        where the one before ended.

    Returns
    -------
    float
        Near ``tr(C_X) / tr(C_Y)`` or less where both are samples of one distribution.

    Raises
    ------
    ValueError
        If one of the two measured datasets is constant.
    """
    ridge = background_ridge(*measured)
    start: FloatArray | None = None
    if rough and fitted[0].n_features > _SMALL and fitted[0].total_variance > 0:
        start = np.ones(fitted[0].n_features)
    enough = 1 + (_ROUGH if rough else 1e-12)
    alpha = 0.0
    for _ in range(_MAX_ITERATIONS):
        x, y = (moments.covariance for moments in fitted)
        if start is None:
            directions = contrastive_eigenpairs(x, y, alpha, k).components
        else:
            vectors = eigsh(x - alpha * y, k, which="LA", tol=_ROUGH, v0=start)[1]
            directions, start = vectors.T, vectors.sum(axis=1)
        foreground, background = (
            float(variances_along(directions, moments.covariance).sum()) for moments in measured
        )
        risen = foreground / (background + k * ridge)
        if risen <= alpha * enough:
            break
        alpha = risen
    return alpha
