"""Leading eigenpairs of one large matrix, faster than LAPACK's."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg._precondition import Pencil, unconditioned
from contrast_core.linalg._proof import RitzPairs, bound_by_inertia, is_proved
from contrast_core.linalg._search import EXTRA, SearchSpace, random_block, search, squares_fit

_SINE = 1e-11  # aimed at: a few products more than what is asked for
_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)


class Iteration(NamedTuple):
    """How long an iteration for a single matrix goes on before it leaves that to LAPACK.

    budget : float
        Columns that it may multiply.
    refine : bool
        Whether to go on without a gap, with a preconditioner.
    """

    budget: float
    refine: bool


def proved_eigenpairs(
    form: Callable[[float], FloatArray],
    k: int,
    limits: Iteration,
    start: FloatArray | None = None,
) -> tuple[RitzPairs | None, FloatArray | None]:
    """The k algebraically largest eigenpairs of a symmetric matrix, proved by inertia, or None.

    From orthonormal columns near them, or from a random block with a fixed seed; without a
    spectral gap, if that is allowed, with a preconditioner. None where that does not converge
    within its limits, the proof fails, or squares would leave the range of float64. Also columns
    to start from for a matrix nearby.

    `form` makes the matrix times its argument, 1 or -1, anew each time, and may do so in the same
    memory: what it made before is overwritten.
    """
    matrix, intact = form(1.0), True
    width = k + EXTRA
    largest = float(np.abs(matrix.diagonal()).max())
    if width >= len(matrix) or not squares_fit(largest):
        return None, None

    def negated() -> FloatArray:
        nonlocal intact
        if not intact:
            return form(-1.0)
        intact = False
        return np.negative(matrix, out=matrix)

    pencil = Pencil(matrix, None)
    block = random_block(len(matrix), width) if start is None else start
    space = SearchSpace(pencil.multiply, block, max(120, 15 * k))
    stages = [unconditioned(8)] if start is None else []
    (pairs,), converged = search(
        space,
        lambda: np.zeros(1),
        k,
        [*stages, *(pencil.factors() if limits.refine else [])],
        lambda _, gap: max(_SINE, 50 * _EPS * largest / max(gap, _TINY)),
        limits.budget,
    )
    if not converged:
        return None, None
    norm, block = space.norm(0.0), space.leading(0.0, width)
    del pencil, space
    beta, _ = bound_by_inertia(negated, pairs, norm)
    return (pairs if is_proved(pairs, beta, norm) else None), block
