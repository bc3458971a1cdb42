"""Coordinates of points from the matrix of their inner products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf

from contrast_core._validation import FloatArray


def pivoted_cholesky(
    gram: FloatArray, tolerance: float = -1.0, *, overwrite: bool = False
) -> tuple[FloatArray, NDArray[np.intp]]:
    r"""Coordinates L of rows in an orthonormal basis of their span, :math:`G = L L^\top`.

    Each next row taken is the one farthest from the span of those before it, to which its
    direction is added: the pivot rows of L are lower triangular.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Symmetric, positive semidefinite to rounding. The upper triangle is read.
    tolerance : float, default=-1
        Rows whose squared distance to the span is at most this add none; if negative, n / 2 times
        the machine epsilon of the largest squared length.
    overwrite : bool, default=False
        Whether a Fortran-ordered `gram` may be destroyed.

    Returns
    -------
    coordinates : ndarray of shape (n, rank)
        L.
    pivots : ndarray of shape (rank,)
        The rows taken, in their order; ``coordinates[pivots]`` is lower triangular.
    """
    # The flag that is not taken says that the rank is below the number of rows.
    factor, order, rank, _ = dpstrf(gram, tol=tolerance, overwrite_a=overwrite)
    order = order.astype(np.intp) - 1
    coordinates = np.empty((len(gram), rank))
    coordinates[order] = np.triu(factor[:rank]).T
    return coordinates, order[:rank]
