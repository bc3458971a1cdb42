"""Leading eigenpairs of symmetric matrices that are only multiplied."""

from __future__ import annotations

import math

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg._eigen import Eigenpairs, leading_eigenpairs
from contrast_core.linalg._krylov import BlockKrylov
from contrast_core.linalg._search import (
    Multiply,
    NotConvergedError,
    exact_enough,
    squares_fit,
)
from contrast_core.linalg._signs import fix_signs

_SMALL = 320  # columns of a matrix that is formed
_BASIS = 480  # vectors held
_SPARED = 4  # blocks, at least, between one look at the eigenpairs and the next, but at the end
_BLOCK_ELEMENTS = 2**20  # of the identity, where a small matrix is formed from its products


def eigenpairs_by_products(
    multiply: Multiply, size: int, k: int, *, random_state: int | None, max_products: int
) -> Eigenpairs:
    """The k algebraically largest eigenpairs of a symmetric matrix, from its products.

    Thick-restarted block Lanczos iteration with full reorthogonalisation, from a random block wider
    than k: eigenvalues of a multiplicity up to its width are found, where a single vector sees one
    of each. Accepted are vectors whose residual over the gap bounds the sine to
    ``max(1e-8, 50 * eps * |C| / gap)``. Unlike an inertia check that is no proof: an eigenvector to
    which the whole random block is orthogonal, to the accuracy reached, would be missed. A matrix
    no larger than the basis is formed from its products instead and left to LAPACK.

    Parameters
    ----------
    multiply : callable
        Product with a block of columns, (size, b) to (size, b).
    size : int
        Number of rows and columns.
    k : int
        Number of eigenpairs.
    random_state : int or None
        Seed of the start.
    max_products : int
        Columns that may be multiplied before it gives up; at a third of them it does so unless it
        has begun to converge.

    Raises
    ------
    NotConvergedError
        If the products run out first, as when eigenvalues k and k + 1 tie.
    """
    # Beyond two more than wanted, what costs little: of sparse rows, fours of at least eight.
    width = min(max(8, -(-(k + 2) // 4) * 4), size)
    # Less than there are dimensions: the next block needs as many that are new.
    held = min(max(_BASIS, 4 * width), size - 2 * width)
    if size <= max(_SMALL, 4 * width):
        return _by_matrix(multiply, size, k)

    def checked(columns: FloatArray) -> FloatArray:
        product = multiply(columns)
        largest = float(np.abs(product).max())
        if not squares_fit(largest):
            raise NotConvergedError(
                f"the contrast of these data is of the size of {largest:.1g}, squares of which "
                "leave the range of float64; bring the data to a scale near 1."
            )
        return product

    krylov = BlockKrylov(checked, size, width, held + width, random_state)
    steps = _SPARED
    before: tuple[int, float] | None = None
    while True:
        # Solving the projected problem at every block would cost more than the products.
        for _ in range(steps):
            krylov.grow()
            n_products = krylov.steps * width
            spent = n_products >= max_products
            if krylov.full or spent:
                break
        steps = max(_SPARED, krylov.used // (2 * width))
        ritz = krylov.ritz_pairs(None if krylov.full else k + 1)
        if len(ritz.values) > k:
            gap = float(ritz.values[k - 1] - ritz.values[k])
            residual = float(np.linalg.norm(ritz.residuals[:k]))
            enough = exact_enough(krylov.norm, gap) * gap
            # The next pair, from which the gap is taken, must have settled too.
            settled = ritz.residuals[k] <= 0.1 * gap
            if settled and residual <= enough:
                vectors = krylov.vectors(ritz.vectors[:, :k])
                components = fix_signs(np.ascontiguousarray(vectors.T))
                return Eigenpairs(ritz.values[:k].copy(), components)
            if spent or (3 * n_products >= max_products and residual > gap):
                raise NotConvergedError(
                    f"the iteration used {n_products} products without reaching the accuracy "
                    f"(residual over gap {residual / (gap or 1.0):.1e}): eigenvalues {k} and "
                    f"{k + 1} are close."
                )
            if enough:
                after = krylov.steps, residual / enough
                steps = min(steps, _steps_to_go(before, after) or steps)
                before = after
        if krylov.full:
            krylov.restart(ritz, max(held // 3, 2 * width))


def _steps_to_go(before: tuple[int, float] | None, after: tuple[int, float]) -> int | None:
    """After how many steps more an error that falls evenly, of two (step, error), is below 1."""
    if after[1] <= 1:
        return 1
    if before is None or after[1] >= before[1]:
        return None
    fall = math.log(before[1] / after[1]) / (after[0] - before[0])
    return math.ceil(math.log(after[1]) / fall)


def _by_matrix(multiply: Multiply, size: int, k: int) -> Eigenpairs:
    matrix: FloatArray = np.empty((size, size), order="F")
    step = max(1, _BLOCK_ELEMENTS // size)
    for start in range(0, size, step):
        columns = np.eye(size, min(step, size - start), -start)
        matrix[:, start : start + step] = multiply(columns)
    return leading_eigenpairs((matrix + matrix.T) / 2, k, overwrite=True)
