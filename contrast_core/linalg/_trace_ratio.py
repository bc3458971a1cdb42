r"""The contrast at which k directions have the largest ratio of variances, in one search space.

.. math:: \alpha = \max_V \frac{\operatorname{tr} V^\top C_X V}
    {\operatorname{tr} V^\top C_Y V + k\tau}

The best V within any space is found by Newton's iteration on its small matrices and gives a lower
bound of alpha, whose error is the square of that of V: so alpha moves while the space grows, and is
exact long before the eigenvectors of the contrast are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg._precondition import Pencil, beside, by_diagonal
from contrast_core.linalg._proof import AIMS, RitzPairs, bound_by_inertia, is_proved
from contrast_core.linalg._search import (
    EXTRA,
    MultiplyEach,
    Ritz,
    SearchSpace,
    Stage,
    block_width,
    exact_enough,
    random_block,
    rounding_counts,
    search,
    squares_fit,
)

_PATIENCE = 8  # steps by the diagonal, where there is something better
_PROGRESS = 1e-3  # that these must make, else that is better
_FEATURES_PER_STEP = 250  # for more of them
# Of a search space, at least and for each column of a block: where products cost most, and where
# the space's own problems do.
_CAPACITY, _CAPACITY_OF_MATRICES = (240, 30), (160, 12)


class TraceRatio(NamedTuple):
    """A contrast, from below, and the leading eigenpairs there, None where they are not exact.

    `variances`, of the foreground and of the background along each of them, have shape (2, k).
    """

    alpha: float
    pairs: RitzPairs | None
    variances: FloatArray


def trace_ratio_by_products(
    multiply: MultiplyEach,
    diagonals: tuple[FloatArray, FloatArray],
    k: int,
    ridge: float,
    *,
    random_state: int | None,
    max_products: int,
) -> TraceRatio:
    """The trace ratio of matrices that are only multiplied.

    Accepted by the residual over the gap, as in `eigenpairs_by_products`; no proof.

    Parameters
    ----------
    multiply : callable
        Products of both matrices with columns (D, b).
    diagonals : (ndarray, ndarray) of shape (D,)
        Of both matrices.
    k : int
        Number of directions.
    ridge : float
        tau.
    random_state : int or None
        Seed of the start.
    max_products : int
        Columns that may be multiplied.
    """
    width = min(block_width(k), len(diagonals[0]) - 1)
    found, _ = _searched(
        multiply, diagonals, k, ridge, width, [], max_products, random_state, max_products
    )
    return found


def proved_trace_ratio(
    x: FloatArray, y: FloatArray, k: int, ridge: float, budget: float
) -> TraceRatio:
    """The trace ratio of matrices (D, D), with eigenpairs proved by inertia.

    The diagonal preconditions as long as that helps, as where features are on scales of their own;
    then a factor in single precision, and the diagonal beside it for what lies far above the shift.

    Parameters
    ----------
    x, y : ndarray of shape (D, D)
        Symmetric, positive semidefinite.
    k, ridge
        As in `trace_ratio_by_products`.
    budget : float
        Columns that may be multiplied.
    """
    diagonals = x.diagonal(), y.diagonal()
    if k + 1 + EXTRA >= len(x) or not all(squares_fit(float(part.max())) for part in diagonals):
        return TraceRatio(0.0, None, np.empty((2, 0)))
    pencil = Pencil(x, y)
    # The larger the matrix, the more steps cost as much as a factor.
    patience = max(_PATIENCE, len(x) // _FEATURES_PER_STEP)
    (alpha, pairs, variances), norm = _searched(
        pencil.multiply, diagonals, k, ridge, k + 2, pencil.factors(near=True), budget, 0, patience
    )
    if pairs is not None:
        beta, _ = bound_by_inertia(lambda: alpha * y - x, pairs, norm)
        if not is_proved(pairs, beta, norm):
            pairs = None
    return TraceRatio(alpha, pairs, variances)


def rough_trace_ratio(x: FloatArray, y: FloatArray, k: int, ridge: float) -> float:
    """A lower bound close to the contrast, by Newton's iteration in single precision."""
    pencil, alpha = Pencil(x, y), 0.0
    while True:
        block = pencil.starting_block(alpha, k)[:, :k]
        variances = [float(np.vdot(block, product)) for product in pencil.multiply(block)]
        risen = variances[0] / (variances[1] + k * ridge)
        if not risen > alpha * (1 + 1e-6):
            return alpha
        alpha = risen


def _searched(
    multiply: MultiplyEach,
    diagonals: tuple[FloatArray, FloatArray],
    k: int,
    ridge: float,
    width: int,
    stages: list[Stage],
    budget: float,
    random_state: int | None,
    patience: int,
) -> tuple[TraceRatio, float]:
    x, y = diagonals
    block = random_block(len(x), width, random_state)
    least, each = _CAPACITY_OF_MATRICES if stages else _CAPACITY
    space = SearchSpace(multiply, block, max(least, each * width))
    by_features = by_diagonal(x, y, k, patience, extra=width - k)._replace(progress=_PROGRESS)
    stages = [by_features, *(beside(stage, by_features) for stage in stages)]
    alpha = 0.0

    def contrasts() -> FloatArray:
        # Mostly one step, for the space grows as fast as that converges.
        nonlocal alpha
        alpha = space.trace_ratio(k, ridge, alpha, rise=1e-3)
        return np.array([alpha])

    def tolerance(ritz: Ritz, gap: float) -> float:
        # A norm is an eigenproblem: first that of all entries, which is larger.
        norm = float(np.linalg.norm(space.small(ritz.alpha)))
        if rounding_counts(norm, gap):
            norm = space.norm(ritz.alpha)
        # A proof takes its bound from within the gap.
        return (1 - AIMS[0]) * exact_enough(norm, gap)

    while True:
        (pairs,), converged = search(space, contrasts, k, stages, tolerance, budget)
        if not converged or not space.trace_ratio(k, ridge, alpha) > alpha * (1 + 1e-12):
            break
    found = TraceRatio(alpha, pairs if converged else None, space.variances(alpha, k))
    return found, space.norm(alpha)
