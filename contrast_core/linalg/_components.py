r"""Leading components of a contrast at a given or automatic alpha, found by an iterative search.

Problem: find the leading eigenvectors of ``C_X - alpha C_Y`` without a decomposition of the whole
matrix. The block Davidson method (Davidson, Journal of Computational Physics 17:87, 1975;
`_search`) needs only products of the covariances with a few columns. These products can be computed
from the matrices, or from the rows of the data if no matrix is formed. The automatic alpha is the
largest trace ratio of k orthonormal directions (the columns of V) with a ridge tau,

.. math:: \alpha = \max_V \frac{\operatorname{tr} V^\top C_X V}
    {\operatorname{tr} V^\top C_Y V + k\tau},

and the leading eigenvectors of the contrast at this alpha attain the maximum (Ngo, Bellalij and
Saad, SIAM Review 54:545, 2012). The Davidson method projects the covariances on a small, growing
search space. Newton's iteration on the projected matrices finds the V within this space that has
the largest ratio. This ratio is a lower bound of alpha, and its error is of the order of the
squared error of V. Therefore alpha is updated while the space grows, and it is accurate long before
the eigenvectors are.

`proved_components` has the matrices. It proves its result with a Cholesky factorisation that
counts the eigenvalues above a bound (`_proof`). `search_components` has only products, so it cannot
prove that it found the leading eigenvectors: the search would miss an eigenvector that is
orthogonal to all columns of its random start. A result is accepted if the ratio of the residual to
the eigenvalue gap is at most 1e-8, or at most the effect of rounding if that is larger. If no
eigenvector was missed, this ratio bounds the sine of the largest angle to the exact subspace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg._precondition import Pencil, by_diagonal, join_preconditioners
from contrast_core.linalg._proof import AIMS, RitzPairs, bound_by_inertia, is_proved
from contrast_core.linalg._search import (
    EXTRA,
    MultiplyEach,
    NotConvergedError,
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

_SINE = 1e-8  # largest accepted sine of the angle to the exact subspace
_SINE_OF_MATRIX = 1e-10  # stricter for a single matrix, where this costs only one more step
# `proved_components` begins with the diagonal preconditioner. A better one follows if the error
# does not fall by the factor _PROGRESS within a number of steps. This number is the larger of
# _PATIENCE and the number of features divided by _FEATURES_PER_STEP.
_PROGRESS = 1e-3
_PATIENCE = 8
_FEATURES_PER_STEP = 250
# Capacity of a search space in columns: the first number of a pair or, if this is more, the second
# number times the number of columns that are multiplied at a time. `search_components` uses the
# larger capacity, because its products take most of the time. `proved_components` uses the smaller
# capacity, because the eigenproblems within its search space take most of the time.
_CAPACITY, _CAPACITY_OF_MATRICES = (240, 30), (160, 12)


class Components(NamedTuple):
    """Leading eigenpairs of ``C_X - alpha C_Y``, and the contrast strength alpha.

    alpha : float
        The contrast strength. If it was searched for, this is a lower bound of the exact value.
    pairs : RitzPairs or None
        The eigenpairs; None if they have not converged or are not proved.
    """

    alpha: float
    pairs: RitzPairs | None


def search_components(
    multiply: MultiplyEach,
    diagonals: Sequence[FloatArray],
    k: int | Callable[[SearchSpace], int],
    budget: float,
    *,
    ridge: float | None = None,
    random_state: int | None = 0,
    least: int = 1,
) -> Components:
    """Return the leading eigenpairs of a matrix or a contrast, from products with columns only.

    Parameters
    ----------
    multiply : callable
        Function that takes columns (D, b) and returns their products with one matrix or, if a ridge
        is given, with the foreground's and the background's matrix.
    diagonals : sequence of ndarray of shape (D,)
        The diagonal of each of these matrices.
    k : int or callable
        Number of eigenpairs, or a function that computes this number from the search space at each
        step.
    budget : float
        Largest number of columns that may be multiplied.
    ridge : float, optional
        The ridge tau. If it is given, alpha is chosen automatically; otherwise alpha is 0.
    random_state : int or None
        Seed of the random start.
    least : int, default=1
        Smallest number of eigenpairs, if `k` is a function.
    """
    size = len(diagonals[0])
    width = min(block_width(k if isinstance(k, int) else least + 2 * EXTRA), size - 1)
    block = random_block(size, width, random_state)
    space = SearchSpace(_checked(multiply), block, max(_CAPACITY[0], _CAPACITY[1] * width))
    extra = width - k if isinstance(k, int) else EXTRA
    stage = by_diagonal(diagonals, int(budget), extra)._replace(progress=_PROGRESS)
    return _searched(space, k, [stage], budget, ridge)


def proved_components(
    matrices: tuple[FloatArray, ...], k: int, budget: float, *, ridge: float | None = None
) -> Components:
    """Return the leading eigenpairs of a matrix or a contrast, with a proof.

    LAPACK reduces the whole matrix to tridiagonal form, at a cost of 4/3 D^3 operations, even if
    only a few eigenpairs are wanted. If eigenvalues k and k + 1 are well separated, this search
    takes less time. It may miss an eigenvector that is orthogonal to its random start, or an
    eigenvector of a multiple eigenvalue, so every result is proved. The proof counts the
    eigenvalues above a bound. It takes one or two Cholesky factorisations at a cost of D^3/3 each.

    The search starts with the diagonal as its preconditioner, which helps if the features have
    different scales. Once the diagonal no longer helps, a Cholesky factor of ``sigma I - C`` is
    used too, where C is the matrix or the contrast, and the shift sigma is near its k-th
    eigenvalue. The diagonal is still needed for eigenvectors whose eigenvalues lie far above this
    shift.

    Parameters
    ----------
    matrices : one or two ndarrays of shape (D, D)
        A symmetric matrix, or the covariances of foreground and background.
    k : int
        Number of eigenpairs.
    budget : float
        Largest number of columns that may be multiplied.
    ridge : float, optional
        The ridge tau. If it is given, alpha is chosen automatically; otherwise alpha is 0.
    """
    pencil = Pencil(matrices)
    size, diagonals = pencil.size, pencil.diagonals
    largest = [float(np.abs(part).max(initial=0.0)) for part in diagonals]
    if k + 1 + EXTRA >= size or not largest[0] or not all(map(squares_fit, largest)):
        return Components(0.0, None)
    # One Cholesky factor costs as much as some number of steps with the diagonal. This number grows
    # with the matrix, so more of these steps are tried before a larger matrix is factorised.
    patience = max(_PATIENCE, size // _FEATURES_PER_STEP)
    least, each = _CAPACITY_OF_MATRICES
    width = k + 2
    space = SearchSpace(pencil.multiply, random_block(size, width), max(least, each * width))
    stage = by_diagonal(diagonals, patience, extra=2)._replace(progress=_PROGRESS)
    diagonal = by_diagonal(diagonals, patience, extra=0)
    stages = [stage, *(join_preconditioners(other, diagonal) for other in pencil.factors())]
    sine = _SINE_OF_MATRIX if ridge is None else _SINE
    result = _searched(space, k, stages, budget, ridge, sine)
    if result.pairs is not None:
        norm = space.norm(result.alpha)
        beta = bound_by_inertia(partial(pencil.negated, result.alpha), result.pairs)
        if not is_proved(result.pairs, beta, norm):
            result = result._replace(pairs=None)
    return result


def _searched(
    space: SearchSpace,
    k: int | Callable[[SearchSpace], int],
    stages: list[Stage],
    budget: float,
    ridge: float | None,
    sine: float = _SINE,
) -> Components:
    """Search at alpha = 0 or, if a ridge is given, at the automatic alpha."""
    alpha = 0.0

    def count() -> int:
        return k if isinstance(k, int) else k(space)

    def contrasts() -> FloatArray:
        # The space changes at every step of the search, so a rough alpha suffices (usually one step
        # of Newton's iteration).
        nonlocal alpha
        if ridge is not None:
            alpha = space.trace_ratio(count(), ridge, alpha, rise=1e-3)
        return np.array([alpha])

    def tolerance(ritz: Ritz, gap: float) -> float:
        # The spectral norm needs an eigenproblem, so the larger Frobenius norm is tried first.
        norm = float(np.linalg.norm(space.small(ritz.alpha)))
        if rounding_counts(norm, gap, sine):
            norm = space.norm(ritz.alpha)
        # The proof first tries to bound the (k+1)-th eigenvalue by the (k+1)-th Ritz value plus the
        # share AIMS[0] of the gap. It then divides the residuals by the rest of the gap, so they
        # must be smaller by the factor 1 - AIMS[0].
        return (1 - AIMS[0]) * exact_enough(norm, gap, sine)

    while True:
        (pairs,), converged = search(space, contrasts, count, stages, tolerance, budget)
        if not converged or ridge is None:
            break
        # The last steps may have raised the trace ratio. If so, search again at the higher alpha.
        if not space.trace_ratio(count(), ridge, alpha) > alpha * (1 + 1e-12):
            break
    return Components(alpha, pairs if converged else None)


def _checked(multiply: MultiplyEach) -> MultiplyEach:
    """Return `multiply` with a check that squares of the products are in the range of float64."""

    def checked(columns: FloatArray) -> Sequence[FloatArray]:
        products = multiply(columns)
        largest = max(float(np.abs(product).max(initial=0.0)) for product in products)
        if not squares_fit(largest):
            raise NotConvergedError(
                f"the contrast of these data has entries of about {largest:.1g}, whose squares "
                "are outside the range of float64. Multiply the data by a constant that brings "
                "them near 1."
            )
        return products

    return checked
