"""Leading directions of ratios of two covariances, in any form that has a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.feedback import warn
from contrast_core.linalg import (
    GeneralizedEigenpairs,
    RidgeWeights,
    fix_signs,
    orthogonal_ratios,
    orthonormal_rows,
    pooled_eigenvalues,
    pooled_ratios,
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
    x: Moments,
    y: Moments,
    weights: Sequence[RidgeWeights],
    k: int,
    plan: Plan,
    *,
    orthogonal: bool = False,
    condition_limit: float | None = None,
) -> list[RatioSolution]:
    """Top-k generalised eigenpairs ``C_X v = lambda B v`` for each of several B.

    Raises ValueError where B is singular to working precision in what varies, unless a
    `condition_limit` is given; then where fewer than k directions are within it, or where each
    direction varies in one of the datasets only.
    """
    frame = Frame.of(x, y)
    if orthogonal or condition_limit is not None:
        return _orthogonal_or_limited(x, y, weights, k, frame, orthogonal, condition_limit)
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


def _orthogonal_or_limited(
    x: Moments,
    y: Moments,
    weights: Sequence[RidgeWeights],
    k: int,
    frame: Frame,
    orthogonal: bool,
    condition_limit: float | None,
) -> list[RatioSolution]:
    pooled = condition_limit is not None
    if condition_limit is None:
        frame = frame.without_null_directions()
    else:
        frame = frame.well_conditioned(condition_limit)
        if k > frame.size:
            raise ValueError(
                f"n_components={k}, but {frame.size} directions are left within "
                f"condition_limit={condition_limit:g}; ask for fewer, or raise the limit."
            )
    n_null = max(k - frame.size, 0)
    if n_null:
        warn_of_null_directions(n_null, k)
    size = k - n_null
    a, b = frame.x, frame.y
    found = []
    for weight in weights:
        if pooled:
            _check_ties(a, b, weight, size)
        found.append(
            orthogonal_ratios(a, b, weight, size, pooled=pooled)
            if orthogonal
            else pooled_ratios(a, b, weight, size)
        )
    return _lifted(x, y, frame, found, weights, frame.null_directions(n_null))


def _check_ties(x: FloatArray, y: FloatArray, weight: RidgeWeights, k: int) -> None:
    """Whether the data decide between the directions in which B does not vary."""
    if weight.identity > 0:
        return
    mu = pooled_eigenvalues(x, y, weight)
    rounding = 4 * len(mu) * np.finfo(np.float64).eps
    foreground_only = int((mu >= 1 - rounding).sum())
    if foreground_only and foreground_only + int((mu <= rounding).sum()) == len(mu):
        raise ValueError(
            f"each of the {len(mu)} directions that are left varies in one of the datasets only, "
            f"{foreground_only} in the foreground, so all ratios are zero or infinite (there are "
            "too few rows for so many features). Lower condition_limit, use a beta < 1, more rows, "
            "or fewer features."
        )
    if foreground_only > k:
        warn(
            f"{foreground_only} directions vary in the foreground only, so their ratios are all "
            f"infinite; which {k} of them are returned is arbitrary. Lower condition_limit, use a "
            "beta < 1, or more background rows."
        )


def _in_frame(
    frame: Frame, weights: Sequence[RidgeWeights], k: int, plan: Plan
) -> list[GeneralizedEigenpairs]:
    k = min(k, frame.size)
    if not k:
        return [GeneralizedEigenpairs(np.empty(0), np.empty((0, frame.size))) for _ in weights]
    budget = plan.single_budget(frame.size, k)
    return regularised_path(frame.x, frame.y, weights, k, budget=budget)


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
    directions = [frame.to_outer(pairs.directions) for pairs in found]
    components = [frame.to_outer(orthonormal_rows(pairs.directions)) for pairs in found]
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
