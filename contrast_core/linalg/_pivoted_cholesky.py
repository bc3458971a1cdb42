"""Coordinates of points from the matrix of their inner products.

Problem: an orthonormal basis of the span of n points of which only the Gram matrix is known, and
which may be dependent. The Cholesky factor with diagonal pivoting takes the point farthest from the
span of those before it at each step and ends where the rest is rounding (Higham, Accuracy and
Stability of Numerical Algorithms, 2nd ed., section 10.3; LAPACK's dpstrf). The factor's product
differs from the Gram matrix by the tolerance at most.
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

    With the rows in `order`, :math:`G = U^\top U`, U being the leading `rank` rows of `upper`.

    upper : ndarray of shape (n, n)
        Its upper triangle, ended by an identity, so that it can be solved with as it is. What lies
        below the diagonal has no meaning.
    order : ndarray of shape (n,)
        Indices of the rows.
    rank : int
        Dimensions of the span.
    """

    upper: FloatArray
    order: NDArray[np.intp]
    rank: int

    @property
    def pivots(self) -> NDArray[np.intp]:
        """The rows whose directions make the basis, in their order, (rank,)."""
        return self.order[: self.rank]

    def coordinates(self) -> FloatArray:
        """Return the coordinates of all rows, (n, rank), lower triangular at `pivots`."""
        coordinates = np.zeros((len(self.order), self.rank))
        coordinates[self.order] = self.upper[: self.rank].T
        for i, row in enumerate(self.pivots):
            coordinates[row, i + 1 :] = 0
        return coordinates

    def weights(self, vectors: FloatArray) -> FloatArray:
        """Return weights of rows (n, k) that sum up to vectors of these coordinates (k, rank)."""
        right = np.zeros((len(self.order), len(vectors)))
        right[: self.rank] = vectors.T
        weights = np.empty_like(right)
        weights[self.order] = solve_triangular(self.upper, right, check_finite=False)
        return weights

    def along_basis(self, products: FloatArray) -> FloatArray:
        """Return coordinates (k, rank) of vectors in the span, from products with rows (k, n)."""
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

    Each next row taken is the one farthest from the span of those before it, to which its
    direction is added.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Symmetric, positive semidefinite to rounding. The upper triangle is read.
    tolerance : float, default=-1
        Rows whose squared distance to the span is at most this add none; if negative, n / 2 times
        the machine epsilon of the largest squared length.
    largest_rank : int, optional
        Of which more is known to be rounding.
    overwrite : bool, default=False
        Whether a Fortran-ordered `gram` may be destroyed.

    Returns
    -------
    PivotedFactor
    """
    # The flag that is not taken says that the rank is below the number of rows.
    upper, order, rank, _ = dpstrf(gram, tol=tolerance, overwrite_a=overwrite)
    rank = rank if largest_rank is None else min(rank, max(largest_rank, 0))
    upper[rank:, rank:] = np.eye(len(gram) - rank)
    return PivotedFactor(upper, order.astype(np.intp) - 1, rank)
