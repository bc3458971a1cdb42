"""The whole spectrum of a symmetric matrix and its leading eigenvectors, from one reduction.

Problem: the eigenvalues decide how many eigenvectors are wanted, so both cannot be asked for at
once. The reduction to tridiagonal form, nearly all of the work, is done once (Golub and Van Loan,
Matrix Computations, 4th ed., section 8.3); eigenvalues and then the leading vectors are those of
the tridiagonal matrix, exact to a few roundings of the norm.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from contrast_core._validation import FloatArray
from contrast_core.linalg._bases import fix_signs
from contrast_core.linalg._eigen import Eigenpairs


class Spectrum:
    """All eigenvalues of a symmetric matrix; eigenvectors of as many as turn out to be needed.

    For when the eigenvalues decide how many eigenvectors are wanted. The reduction to tridiagonal
    form, nearly all of the work, is done once; LAPACK's MRRR finds the leading vectors.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        Symmetric; only the lower triangle is read.

    Attributes
    ----------
    values : ndarray of shape (n,)
        Eigenvalues, descending.
    """

    values: FloatArray

    def __init__(self, matrix: FloatArray) -> None:
        n = len(matrix)
        if n <= 1:  # LAPACK's reduction has nothing to reflect
            self._diagonal, self._off = np.array(matrix.ravel(), dtype=np.float64), np.empty(0)
            self.values = self._diagonal.copy()
            return
        lwork = int(lapack.dsytrd_lwork(n, lower=1)[0])
        self._reflectors, self._diagonal, self._off, self._tau, _ = lapack.dsytrd(
            matrix, lower=1, lwork=lwork
        )
        values = scipy.linalg.eigvalsh_tridiagonal(
            self._diagonal, self._off, lapack_driver="sterf", check_finite=False
        )
        self.values = values[::-1].copy()

    def leading(self, k: int) -> Eigenpairs:
        """The k largest eigenvalues, descending, and their eigenvectors as rows (k, n)."""
        n = len(self._diagonal)
        if n == 1:
            return Eigenpairs(self.values.copy(), np.ones((1, 1)))
        # LAPACK squares the entries; a power of two costs no digits.
        scale = 2.0 ** int(np.frexp(np.abs(self.values).max())[1])
        values, vectors = scipy.linalg.eigh_tridiagonal(
            self._diagonal / scale,
            self._off / scale,
            select="i",
            select_range=(n - k, n - 1),
            check_finite=False,
        )
        values *= scale
        # Back from tridiagonal form: with the lower triangle the reflectors leave row 0 alone.
        vectors[1:] = lapack.dormqr(
            "L", "N", self._reflectors[1:, :-1], self._tau, vectors[1:], lwork=64 * k
        )[0]
        return Eigenpairs(values[::-1].copy(), fix_signs(np.ascontiguousarray(vectors.T[::-1])))
