"""Symmetric matrices: leading eigenpairs by LAPACK, and a lower triangle copied from the upper one.

Problem: find a few leading eigenpairs of a symmetric matrix directly, without iteration. LAPACK's
MRRR driver ("multiple relatively robust representations"; Dhillon and Parlett, Linear Algebra and
its Applications 387:1, 2004) computes only the wanted vectors, with a backward error of a few
machine epsilons times the norm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray


def mirror_upper(matrix: NDArray[Any]) -> None:
    """Copy the upper triangle of a square matrix to the lower one, in place."""
    step = 256  # block size that fits into the cache
    for start in range(0, len(matrix), step):
        rows = slice(start, start + step)
        corner = np.triu(matrix[rows, rows])
        matrix[rows, rows] = corner + np.triu(corner, 1).T
        matrix[start + step :, rows] = matrix[rows, start + step :].T


def largest_eigenpairs(
    matrix: NDArray[Any], k: int, *, overwrite: bool = True
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the k largest eigenvalues, ascending (k,), and their vectors as columns (n, k).

    If `overwrite`, a symmetric matrix (n, n) in Fortran order is overwritten. Otherwise it is
    copied.
    """
    n = len(matrix)
    diagonal = matrix.diagonal().copy()
    options = {"subset_by_index": (n - k, n - 1), "check_finite": False}
    values, vectors = scipy.linalg.eigh(matrix, driver="evr", overwrite_a=overwrite, **options)
    if len(values) < k:  # MRRR may find none of many eigenvalues that are equal up to rounding
        if overwrite:
            np.fill_diagonal(matrix, diagonal)  # the entries above it are not overwritten
        # Bisection (the driver "evx") may find none either, so all eigenpairs are computed.
        values, vectors = np.linalg.eigh(matrix, UPLO="U")
    return values[-k:], vectors[:, -k:]
