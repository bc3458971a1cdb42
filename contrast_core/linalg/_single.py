"""Leading eigenpairs of one large matrix, faster than LAPACK's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg._davidson import EXTRA, Pencil, neighbouring_pairs
from contrast_core.linalg._krylov import BlockKrylov, squares_fit
from contrast_core.linalg._krylov import RitzPairs as AllRitzPairs
from contrast_core.linalg._proof import RitzPairs, allowed_sine, bound_by_inertia, is_proved

_MANY_FEATURES = 700  # below them there is little to gain from a start in single precision
_FEWEST_FEATURES = 1000  # below them LAPACK is as fast from scratch in double precision
_FEATURES_PER_COMPONENT = 200  # with more components the gaps are too small for an iteration
_SINE = 1e-11  # aimed at: a few products more than what is asked for
_PATIENCE = 16  # products after which a residual above the gap means that there is none
LARGEST_SHARE = 8  # of the features in the basis: about half of LAPACK's time
_REFINED_FEATURES = 2000  # below them LAPACK is as fast as a factor and what follows from it
_REFINED_PER_COMPONENT = 400
_EPS = float(np.finfo(np.float64).eps)


def single_precision_pays(n_features: int) -> bool:
    """Whether leading up to a result in single precision is faster than LAPACK in double."""
    return n_features >= _MANY_FEATURES


def iteration_pays(n_features: int, k: int, fewest: int | None = None) -> bool:
    """Whether an iteration is faster than LAPACK for k of n_features components."""
    fewest = _MANY_FEATURES if fewest is None else fewest
    return n_features >= fewest and _FEATURES_PER_COMPONENT * k <= n_features


def proved_pays(n_features: int, k: int) -> bool:
    """Whether `proved_eigenpairs` is worth a try before LAPACK."""
    return n_features >= _FEWEST_FEATURES and iteration_pays(n_features, k)


def proved_eigenpairs(form: Callable[[float], FloatArray], k: int) -> RitzPairs | None:
    """The k algebraically largest eigenpairs of a symmetric matrix, proved by inertia, or None.

    By a block Krylov space of a random block with a fixed seed, which takes a gap; without one, in
    a large matrix, from there by a preconditioned iteration. None where neither converges in a
    fraction of the time that LAPACK takes, the proof fails, or squares would leave the range of
    float64.

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

    krylov = BlockKrylov(matrix, k + 2, len(matrix) // LARGEST_SHARE, random_state=0)
    (values, vectors, _), norm, converged = search(krylov, k)
    if converged:
        found = krylov.vectors(vectors[:, :k])
        rest = np.linalg.norm(matrix @ found - found * values[:k])
        pairs = RitzPairs(values[: k + 1].copy(), found, float(rest))
    elif len(matrix) >= max(_REFINED_FEATURES, _REFINED_PER_COMPONENT * k) and norm > 0:
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


def search(krylov: BlockKrylov, k: int) -> tuple[AllRitzPairs, float, bool]:
    """Grow a Krylov space: its Ritz pairs, the norm, and whether the k leading ones converged.

    It ends early where the residual shows that there is no gap.
    """
    while not krylov.full:
        for _ in range(max(4, krylov.steps // 4)):
            if not krylov.full:
                krylov.grow()
        ritz = krylov.ritz_pairs()
        values = ritz.values
        if len(values) <= k:
            continue
        norm = float(np.abs(values[[0, -1]]).max())
        gap = float(values[k - 1] - values[k])
        residual = float(np.linalg.norm(ritz.residuals[:k]))
        if residual <= max(_SINE * gap, 10 * _EPS * norm):
            return ritz, norm, True
        if krylov.steps >= _PATIENCE and residual > gap:
            break
    return ritz, norm, False
