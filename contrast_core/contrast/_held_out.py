"""Measure a contrast on rows that were not used to choose its directions (cross-fitting).

Directions that maximise a ratio of variances have a large ratio on the rows for which they were
optimised, even if the data are noise. Therefore the directions are chosen from one half of the
rows, by the iteration that also finds the default contrast strength (`trace_ratio_alpha`), and
their ratio is measured on the other half (Chernozhukov et al., Econometrics Journal 21:C1, 2018).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from contrast_core._validation import FloatArray
from contrast_core.contrast._automatic import background_ridge
from contrast_core.linalg import solve_contrast, variances_along
from contrast_core.moments import SecondMoments

TwoMoments: TypeAlias = tuple[SecondMoments, SecondMoments]

# The iteration ends if a step raises the ratio by less than this factor. Smaller changes do not
# matter, because the ratios of two halves of the data differ by more.
_RISEN = 1.05
_ACCURACY = 1e-10  # relative accuracy of eigenpairs; the ratios usually have about the same
_RESTARTS = 100  # largest number of restarts of the Lanczos iteration; most need fewer than ten
_SMALL = 64  # number of features up to which LAPACK is as fast as Lanczos iterations


def held_out_ratio(
    fitted: TwoMoments, measured: TwoMoments, k: int, n_varying: int | None = None
) -> float:
    """Return the trace ratio of one half along k directions that are fitted to the other half.

    The trace ratio is the foreground variance along the directions, divided by the sum of the
    background variance along them and k times the ridge of this half (see `background_ridge`).
    Newton's iteration for `trace_ratio_alpha` chooses the directions from the half `fitted`. It
    ends when the trace ratio of this half rises by less than 5%. The half `measured` does not
    influence the directions, and the trace ratio of this half is returned.

    Parameters
    ----------
    fitted, measured : pair of SecondMoments
        For each half, the moments of its foreground rows and of its background rows.
    k : int
        Number of directions.
    n_varying : int, optional
        The number D' of features that vary, as for `background_ridge`.

    Raises
    ------
    ValueError
        If one of the datasets is constant.
    """
    ridges = [k * background_ridge(*half, n_varying) for half in (fitted, measured)]
    x, y = (moments.covariance for moments in fitted)
    alpha, start = 0.0, np.ones(len(x))
    while True:
        directions = _leading(x, y, alpha, k, start)
        own, other = (
            _variance(directions, half[0]) / (_variance(directions, half[1]) + ridge)
            for half, ridge in zip((fitted, measured), ridges, strict=True)
        )
        if own <= alpha * _RISEN:
            return other
        alpha, start = own, directions.sum(axis=0)


def _variance(directions: FloatArray, moments: SecondMoments) -> float:
    return float(variances_along(directions, moments.covariance).sum())


def _leading(x: FloatArray, y: FloatArray, alpha: float, k: int, start: FloatArray) -> FloatArray:
    """Return the k leading eigenvectors of ``x - alpha * y`` as rows."""
    if len(x) > max(_SMALL, 4 * k):
        try:
            options = {"which": "LA", "tol": _ACCURACY, "maxiter": _RESTARTS}
            return np.asarray(eigsh(x - alpha * y, k, v0=start, **options)[1].T)
        except ArpackNoConvergence:  # the wanted eigenvalues lie too close to the others
            pass
    return solve_contrast(x, y, alpha, k)[0].components
