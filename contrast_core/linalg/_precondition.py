"""Preconditioners of the Davidson iteration: a diagonal, or a Cholesky factor.

Problem: an iteration for eigenvectors of C has approximate eigenvalues theta and vectors v (Ritz
values and vectors). The residual ``C v - theta v`` points towards the solution only after it is
multiplied by an approximate inverse of ``theta I - C``, the preconditioner. Davidson (Journal of
Computational Physics 17:87, 1975) replaces C by its diagonal, which costs nothing. A Cholesky
factor of the whole matrix is much better, but it costs as much as dozens to hundreds of products
with a column. A preconditioner need not be exact: it changes how fast the iteration converges, but
not the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs

from contrast_core._validation import FloatArray
from contrast_core.linalg._search import Precondition, Ritz, Stage

_TINY = float(np.finfo(np.float64).tiny)
_FLOOR = 1e-5  # smallest divisor of a residual, as a share of the largest Ritz value
_SAFETY = 64  # a shift is above its Ritz value by this multiple of the predicted rise


class Pencil(NamedTuple):
    """Contrast ``C(alpha) = foreground - alpha * background`` for any alpha, or a single matrix.

    `matrices` holds the foreground and the background, or the single matrix. All are symmetric,
    (D, D).
    """

    matrices: tuple[FloatArray, ...]

    @property
    def size(self) -> int:
        """Number of rows of each matrix, D."""
        return len(self.matrices[0])

    @property
    def diagonals(self) -> list[FloatArray]:
        """Diagonal of each matrix."""
        return [matrix.diagonal() for matrix in self.matrices]

    def multiply(self, columns: FloatArray) -> list[FloatArray]:
        """Return the products of each matrix with columns (D, b)."""
        return [(columns.T @ matrix).T for matrix in self.matrices]

    def negated(self, alpha: float) -> FloatArray:
        """Return ``alpha * background - foreground`` as a new matrix."""
        x, *y = self.matrices
        if not y:
            return -x
        negated = alpha * y[0]
        negated -= x
        return negated

    def factored(self, ritz: Ritz) -> Precondition:
        """Return a solver for ``sigma I - C(alpha)``, made definite along the wanted Ritz vectors.

        The matrix is made definite by adding a multiple of the outer product of each wanted Ritz
        vector. While the space grows, Ritz values rise towards the eigenvalues. sigma starts above
        the last wanted Ritz value, by a multiple of the largest rise that the diagonal predicts
        (but at least by half of the gap to the next Ritz value, and by 1e-6 of the largest one).
        It is raised until the Cholesky factorisation succeeds.
        """
        values, k = ritz.values, ritz.vectors.shape[1]
        scale = max(float(np.abs(values).max()), _TINY)
        gap = float(values[k - 1] - values[k])
        margins = _margins(values[:k], _diagonal(self.diagonals, ritz.alpha), gap)
        rises = (ritz.residual**2 / margins).sum(axis=0)
        step = max(_SAFETY * float(rises.max()), 0.5 * gap, 1e-6 * scale)
        shift = values[k - 1] + step
        while True:
            matrix = self.negated(ritz.alpha).T
            matrix.flat[:: len(matrix) + 1] += shift
            raised = ritz.vectors * np.sqrt(np.abs(values[:k] - shift) + step)
            matrix = dsyrk(1.0, raised, beta=1.0, c=matrix, overwrite_c=1, lower=1)
            factor, failed = dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
            if not failed:
                break
            step *= 4
            shift += step

        def solve(columns: FloatArray, *_: object) -> FloatArray:
            return np.asarray(dpotrs(factor, columns, lower=1)[0])

        return solve

    def factors(self) -> list[Stage]:
        """Return eight stages; each makes a new Cholesky factor when the one before has stalled."""
        return [Stage(self.factored, patience=5, cost=self.size // 100)] * 8


def by_diagonal(diagonals: Sequence[FloatArray], patience: int, extra: int = 2) -> Stage:
    """Return a stage that divides each residual by its Ritz value minus the diagonal of C(alpha).

    `diagonals` holds the diagonals (D,) of the foreground and, if there is one, of the background.
    `patience` and `extra` are fields of `Stage`: `extra` is the number of Ritz vectors after the
    wanted ones.
    """

    def solve(columns: FloatArray, values: FloatArray, ritz: Ritz) -> FloatArray:
        k = ritz.vectors.shape[1] - extra
        gap = float(ritz.values[k - 1] - ritz.values[k])
        return columns / _margins(values, _diagonal(diagonals, ritz.alpha), gap)

    return Stage(lambda _: solve, patience, extra)


def join_preconditioners(stage: Stage, other: Stage) -> Stage:
    """Return `stage` with a preconditioner that returns the columns of both preconditioners."""

    def make(ritz: Ritz) -> Precondition:
        solve, also = stage.make(ritz), other.make(ritz)
        return lambda *given: np.hstack([solve(*given), also(*given)])

    return stage._replace(make=make)


def _diagonal(diagonals: Sequence[FloatArray], alpha: float) -> FloatArray:
    """Return the diagonal of ``C(alpha)``, (D,), from the diagonals of its matrices."""
    x, *y = diagonals
    return x - alpha * y[0] if y else x


def _margins(values: FloatArray, diagonal: FloatArray, gap: float) -> FloatArray:
    """Return Ritz values (b,) minus a diagonal (D,), with a positive lower bound, (D, b)."""
    least = max(_FLOOR * float(np.abs(values).max()), gap / 2, _TINY)
    return np.maximum(values - diagonal[:, None], least)
