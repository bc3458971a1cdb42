"""Coordinates of rows from the matrix of their inner products.

Problem: find an orthonormal basis of the span of n rows if only their Gram matrix is known. The
rows may be linearly dependent. At each step, the Cholesky factorisation with diagonal pivoting
takes the row that is farthest from the span of the rows taken before. It ends once all remaining
distances are rounding errors (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.;
LAPACK's dpstrf). The product of the factors differs from the Gram matrix by at most the tolerance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from contrast_core._validation import FloatArray


class PivotedFactor(NamedTuple):
    r"""Triangular coordinates of rows in an orthonormal basis of their span.

    If the rows are sorted by `order`, their Gram matrix is :math:`G = U^\top U`, where U consists
    of the first `rank` rows of `upper`.

    upper : ndarray of shape (n, n)
        Upper triangular factor. The rows after the first `rank` are rows of the identity matrix, so
        that linear systems can be solved with the whole matrix. Entries below the diagonal have no
        meaning.
    order : ndarray of shape (n,)
        Indices of the rows, beginning with the rows that make the basis.
    rank : int
        Dimension of the span.
    """

    upper: FloatArray
    order: NDArray[np.intp]
    rank: int

    @property
    def pivots(self) -> NDArray[np.intp]:
        """Indices of the rows that make the basis, in the order they were taken, (rank,)."""
        return self.order[: self.rank]

    def coordinates(self) -> FloatArray:
        """Return the coordinates of all rows in the basis, (n, rank).

        The coordinates of the rows at `pivots` form a lower triangular matrix.
        """
        coordinates = np.zeros((len(self.order), self.rank))
        coordinates[self.order] = self.upper[: self.rank].T
        for i, row in enumerate(self.pivots):
            coordinates[row, i + 1 :] = 0
        return coordinates

    def weights(self, vectors: FloatArray) -> FloatArray:
        """Return weights (n, k) with which linear combinations of the rows equal the given vectors.

        The vectors, (k, rank), are given by their coordinates in the basis.
        """
        right = np.zeros((len(self.order), len(vectors)))
        right[: self.rank] = vectors.T
        weights = np.empty_like(right)
        weights[self.order] = solve_triangular(self.upper, right, check_finite=False)
        return weights

    def along_basis(self, products: FloatArray) -> FloatArray:
        """Return the coordinates (k, rank) of vectors, from their products with the rows (k, n).

        A vector outside the span of the rows is projected on it.
        """
        right = products[:, self.order].T
        solved = solve_triangular(self.upper, right, trans="T", check_finite=False)
        return np.asarray(solved[: self.rank].T)


def pivoted_cholesky(
    gram: FloatArray,
    tolerance: float = -1.0,
    *,
    largest_rank: int | None = None,
    overwrite: bool = False,
) -> PivotedFactor:
    r"""Return the coordinates of rows in an orthonormal basis of their span.

    At each step, the row that is farthest from the span of the rows taken before is added to the
    basis.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Symmetric, positive semidefinite to rounding. The upper triangle is read.
    tolerance : float, default=-1
        A row is not added if its squared distance to the span of the rows taken before is at most
        this. A negative value stands for n / 2 times the machine epsilon times the largest squared
        length of a row.
    largest_rank : int, optional
        Upper limit of the rank, if one is known. Directions beyond it are taken for rounding
        errors and left out.
    overwrite : bool, default=False
        Whether a Fortran-ordered `gram` may be destroyed.

    Returns
    -------
    PivotedFactor
    """
    # The ignored flag only says that the rank is below the number of rows.
    upper, order, rank, _ = dpstrf(gram, tol=tolerance, overwrite_a=overwrite)
    rank = rank if largest_rank is None else min(rank, max(largest_rank, 0))
    upper[rank:, rank:] = np.eye(len(gram) - rank)
    return PivotedFactor(upper, order.astype(np.intp) - 1, rank)
