"""Directions with the largest ratios of two variances, from two covariance matrices.

Problem: solve the generalised eigenproblem ``C_X v = lambda B v`` with
``B = (1 - beta) I + beta C_Y``; `contrast_core.linalg` does this. A direction in which nothing
varies has the ratio zero, but so has every direction in which only the background varies. To keep
them apart, directions in which nothing varies are left out of the eigenproblem and returned after
all others. A `Frame` holds both covariances in coordinates of the remaining directions. If B is
singular in these directions, an error is raised. If a condition limit is given, directions in which
both datasets together vary too little are left out too, and B may be singular: ratios are then
infinite where only the foreground varies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.feedback import warn
from contrast_core.linalg import (
    Eigenpairs,
    RidgeWeights,
    check_definite,
    fix_signs,
    leading_ratios,
    orthogonal_ratios,
    orthonormal_rows,
    pooled_eigenvalues,
)
from contrast_core.moments import Moments
from contrast_core.solve._contrast import may_be_null, warn_of_null_directions
from contrast_core.solve._frame import Frame


class RatioSolution(NamedTuple):
    """Generalised eigenpairs for one B, and orthonormal components with the same span.

    values : ndarray of shape (k,)
        Generalised eigenvalues, descending.
    directions, components : ndarray of shape (k, n_features)
        The directions are B-orthonormal, and the components are orthonormal. Rows along which
        nothing varies come last.
    foreground_variance, background_variance : ndarray of shape (k,)
        Variances along each component.
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
    """Return ``(v_X - v_Y) / (v_X + v_Y)``, from -1 to 1; NaN where both variances are zero."""
    total = foreground + background
    index = np.full(total.shape, np.nan)
    return np.asarray(np.divide(foreground - background, total, out=index, where=total > 0))


def solve_ratios(
    x: Moments,
    y: Moments,
    weights: Sequence[RidgeWeights],
    k: int,
    *,
    orthogonal: bool = False,
    condition_limit: float | None = None,
) -> list[RatioSolution]:
    """Return the top-k generalised eigenpairs ``C_X v = lambda B v`` for each of several B.

    Raises ValueError if B is singular to working precision in the directions that vary. With a
    `condition_limit`, raises ValueError if fewer than k directions are within the limit, or if each
    direction varies in only one of the datasets.
    """
    frame = Frame.from_moments(x, y)
    if orthogonal or condition_limit is not None:
        frame, solved = _orthogonal_or_limited(weights, k, frame, orthogonal, condition_limit)
    else:
        solved = _in_frame(frame, weights, k)
        # No eigenvalue is negative, so all eigenvalues beyond the foreground's rank are zero, and
        # so are the eigenvalues of directions in which nothing varies. If one of the k eigenvalues
        # is zero, its direction may be one in which nothing varies. All directions in which nothing
        # varies are then left out, and the problem is solved again.
        if k > frame.size or any(
            may_be_null(pairs.values, float(pairs.values.max(initial=0.0)), frame.size)
            for pairs in solved
        ):
            exact = frame.without_null_directions()
            if exact.size < frame.size:
                frame, solved = exact, _in_frame(exact, weights, k)
    n_null = max(k - frame.size, 0)
    if n_null:
        warn_of_null_directions(n_null, k)
    return _lifted(x, y, frame, solved, weights, frame.null_directions(n_null))


def _orthogonal_or_limited(
    weights: Sequence[RidgeWeights],
    k: int,
    frame: Frame,
    orthogonal: bool,
    condition_limit: float | None,
) -> tuple[Frame, list[Eigenpairs]]:
    """Return a frame without directions of too little variance, and eigenpairs in its coordinates.

    If there is no condition limit, only directions without any variance are left out.
    """
    pooled = condition_limit is not None
    if condition_limit is None:
        frame = frame.without_null_directions()
    else:
        frame = frame.well_conditioned(condition_limit)
        if k > frame.size:
            raise ValueError(
                f"n_components={k}, but {frame.size} directions are left within "
                f"condition_limit={condition_limit:g}. Use fewer components, or raise the limit."
            )
    k, x, y = min(k, frame.size), frame.x, frame.y
    solved = []
    for weight in weights:
        if pooled:
            _check_ties(x, y, weight, k)
        solved.append(
            orthogonal_ratios(x, y, weight, k, pooled=pooled)
            if orthogonal
            else leading_ratios(x, y, weight, k, pooled=True)
        )
    return frame, solved


def _check_ties(x: FloatArray, y: FloatArray, weight: RidgeWeights, k: int) -> None:
    """Raise ValueError if all ratios are zero or infinite; warn if more than k are infinite."""
    if weight.identity > 0:
        return
    mu = pooled_eigenvalues(x, y, weight)
    rounding = 4 * len(mu) * np.finfo(np.float64).eps
    foreground_only = int((mu >= 1 - rounding).sum())
    if foreground_only and foreground_only + int((mu <= rounding).sum()) == len(mu):
        raise ValueError(
            f"each of the {len(mu)} directions that are left varies in one of the datasets only "
            f"({foreground_only} in the foreground), so all ratios are zero or infinite. There are "
            "too few rows for so many features. Lower condition_limit, or use a beta < 1, more "
            "rows, or fewer features."
        )
    if foreground_only > k:
        warn(
            f"{foreground_only} directions vary in the foreground only, so their ratios are all "
            f"infinite, and which {k} of them are returned is arbitrary. Lower condition_limit, or "
            "use a beta < 1 or more background rows."
        )


def _in_frame(frame: Frame, weights: Sequence[RidgeWeights], k: int) -> list[Eigenpairs]:
    k = min(k, frame.size)
    if not k:
        return [Eigenpairs(np.empty(0), np.empty((0, frame.size))) for _ in weights]
    for weight in weights:
        check_definite(frame.y, weight)
    return [leading_ratios(frame.x, frame.y, weight, k) for weight in weights]


def _lifted(
    x: Moments,
    y: Moments,
    frame: Frame,
    solved: list[Eigenpairs],
    weights: Sequence[RidgeWeights],
    nulls: FloatArray,
) -> list[RatioSolution]:
    """Map all directions to feature space, in one pass over the rows."""
    directions = [frame.to_outer(pairs.components) for pairs in solved]
    components = [frame.to_outer(orthonormal_rows(pairs.components)) for pairs in solved]
    lifted = x.lift(np.stack([*directions, *components]))
    solutions = []
    for i, (pairs, weight) in enumerate(zip(solved, weights, strict=True)):
        # v^T B v is `identity` for a unit vector v along which the background does not vary.
        length = weight.identity**-0.5 if weight.identity > 0 else 1.0
        x_along, y_along, x_raw, y_raw = (
            np.pad(part.variances_along(rows[i]), (0, len(nulls)))
            for rows in (components, directions)
            for part in (x, y)
        )
        solutions.append(
            RatioSolution(
                np.pad(pairs.values, (0, len(nulls))),
                np.vstack([fix_signs(lifted[i]), length * nulls]),
                np.vstack([fix_signs(lifted[len(solved) + i]), nulls]),
                x_along,
                y_along,
                contrast_index(x_raw, y_raw),
            )
        )
    return solutions
