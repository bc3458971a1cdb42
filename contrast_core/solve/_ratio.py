"""Leading directions of ratios of two covariances, in any form that has a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg import (
    GeneralizedEigenpairs,
    RidgeWeights,
    fix_signs,
    orthonormal_rows,
    regularised_path,
)
from contrast_core.moments import Moments
from contrast_core.solve._contrast import may_be_null, warn_of_null_directions
from contrast_core.solve._frame import Frame
from contrast_core.solve._plan import Plan


class RatioSolution(NamedTuple):
    """Generalised eigenpairs of one ratio, and orthonormal rows with the span of the directions.

    values : ndarray of shape (k,)
        Descending.
    directions, components : ndarray of shape (k, n_features)
        B-orthonormal; orthonormal. Last those along which nothing varies.
    foreground_variance, background_variance : ndarray of shape (k,)
        Along each component.
    indices : ndarray of shape (k,)
        `contrast_index` of the variances along each direction.
    """

    values: FloatArray
    directions: FloatArray
    components: FloatArray
    foreground_variance: FloatArray
    background_variance: FloatArray
    indices: FloatArray


def contrast_index(foreground: FloatArray, background: FloatArray) -> FloatArray:
    """``(v_X - v_Y) / (v_X + v_Y)`` of variances, from -1 to 1; NaN where both are zero."""
    total = foreground + background
    index = np.full(total.shape, np.nan)
    return np.asarray(np.divide(foreground - background, total, out=index, where=total > 0))


def solve_ratios(
    x: Moments, y: Moments, weights: Sequence[RidgeWeights], k: int, plan: Plan
) -> list[RatioSolution]:
    """Top-k generalised eigenpairs ``C_X v = lambda B v`` for each of several B.

    Raises ValueError where B is singular to working precision in what varies.
    """
    frame = Frame.of(x, y, x.varies | y.varies)
    found = _in_frame(frame, weights, k, plan)
    # No eigenvalue is negative: beyond the foreground's rank all tie with the null directions.
    if k > frame.size or any(
        may_be_null(pairs.values, _scale(pairs), frame.size) for pairs in found
    ):
        exact = frame.without_null_directions()
        if exact.size < frame.size:
            frame, found = exact, _in_frame(exact, weights, k, plan)
    n_null = max(k - frame.size, 0)
    if n_null:
        warn_of_null_directions(n_null, k)
    return _lifted(x, y, frame, found, weights, frame.null_directions(n_null))


def _in_frame(
    frame: Frame, weights: Sequence[RidgeWeights], k: int, plan: Plan
) -> list[GeneralizedEigenpairs]:
    k = min(k, frame.size)
    if not k:
        return [GeneralizedEigenpairs(np.empty(0), np.empty((0, frame.size))) for _ in weights]
    iteration = plan.ratio_iteration(frame.size, k, len(weights))
    return regularised_path(frame.x.matrix(), frame.y.matrix(), weights, k, iteration=iteration)


def _scale(pairs: GeneralizedEigenpairs) -> float:
    return float(pairs.values.max(initial=0.0))


def _lifted(
    x: Moments,
    y: Moments,
    frame: Frame,
    found: list[GeneralizedEigenpairs],
    weights: Sequence[RidgeWeights],
    nulls: FloatArray,
) -> list[RatioSolution]:
    """In feature space, with one lift for all."""
    directions = [frame.out(pairs.directions) for pairs in found]
    components = [frame.out(orthonormal_rows(pairs.directions)) for pairs in found]
    lifted = x.lift(np.stack([*directions, *components]))
    solutions = []
    for i, (pairs, weight) in enumerate(zip(found, weights, strict=True)):
        length = weight.identity**-0.5 if weight.identity > 0 else 1.0
        x_along, y_along, x_raw, y_raw = (
            np.pad(part.along(rows[i]), (0, len(nulls)))
            for rows in (components, directions)
            for part in (x, y)
        )
        solutions.append(
            RatioSolution(
                np.pad(pairs.values, (0, len(nulls))),
                np.vstack([fix_signs(lifted[i]), length * nulls]),
                np.vstack([fix_signs(lifted[len(found) + i]), nulls]),
                x_along,
                y_along,
                contrast_index(x_raw, y_raw),
            )
        )
    return solutions
