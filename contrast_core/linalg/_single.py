"""Leading eigenpairs of one large matrix, faster than LAPACK's."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg._davidson import EXTRA, Pencil, neighbouring_pairs
from contrast_core.linalg._krylov import BlockKrylov, squares_fit
from contrast_core.linalg._krylov import RitzPairs as AllRitzPairs
from contrast_core.linalg._proof import RitzPairs, allowed_sine, bound_by_inertia, is_proved

_SINE = 1e-11  # aimed at: a few products more than what is asked for
_EPS = float(np.finfo(np.float64).eps)


class Iteration(NamedTuple):
    """How long an iteration for a single matrix goes on before it leaves that to LAPACK.

    basis : int
        Columns that the Krylov space may have.
    patience : int
        Products after which a residual above the gap means that there is none.
    refine : bool
        Whether to go on without a gap, with a preconditioner.
    """

    basis: int
    patience: int
    refine: bool


def proved_eigenpairs(
    form: Callable[[float], FloatArray], k: int, limits: Iteration
) -> RitzPairs | None:
    """The k algebraically largest eigenpairs of a symmetric matrix, proved by inertia, or None.

    By a block Krylov space of a random block with a fixed seed, which needs a gap; without one, if
    that is allowed, from there by a preconditioned iteration. None where neither converges within
    its limits, the proof fails, or squares would leave the range of float64.

    `form` makes the matrix times its argument, 1 or -1, anew each time, and may do so in the same
    memory: what it made before is overwritten.
    """
    matrix, intact = form(1.0), True
    if not squares_fit(float(np.abs(matrix.diagonal()).max())):
        return None

    def negated() -> FloatArray:
        nonlocal intact
        if not intact:
            return form(-1.0)
        intact = False
        return np.negative(matrix, out=matrix)

    krylov = BlockKrylov(matrix.__matmul__, len(matrix), k + 2, limits.basis, random_state=0)
    (values, vectors, _), norm, converged = _search(krylov, k, limits.patience)
    if converged:
        found = krylov.vectors(vectors[:, :k])
        rest = np.linalg.norm(matrix @ found - found * values[:k])
        pairs = RitzPairs(values[: k + 1].copy(), found, float(rest))
    elif limits.refine and norm > 0:
        start = np.linalg.qr(krylov.vectors(vectors[:, : k + 1 + EXTRA]))[0]
        del krylov
        (pairs,), _ = neighbouring_pairs(
            Pencil(matrix, None),  # let go of before the proof
            np.zeros(1),
            k,
            start,
            lambda _, gap: 0.2 * allowed_sine(norm, gap),
        )
    else:
        return None
    beta, _ = bound_by_inertia(negated, pairs, norm)
    return pairs if is_proved(pairs, beta, norm) else None


def _search(krylov: BlockKrylov, k: int, patience: int) -> tuple[AllRitzPairs, float, bool]:
    """Grow a Krylov space: its Ritz pairs, the norm, and whether the k leading ones converged.

    It ends early where the residual shows that there is no gap.
    """
    while True:
        for _ in range(max(4, krylov.steps // 4)):
            if not krylov.full:
                krylov.grow()
        ritz = krylov.ritz_pairs()
        values = ritz.values
        norm = float(np.abs(values[[0, -1]]).max())
        if len(values) > k:
            gap = float(values[k - 1] - values[k])
            residual = float(np.linalg.norm(ritz.residuals[:k]))
            if residual <= max(_SINE * gap, 10 * _EPS * norm):
                return ritz, norm, True
            if krylov.steps >= patience and residual > gap:
                return ritz, norm, False
        if krylov.full:
            return ritz, norm, False
