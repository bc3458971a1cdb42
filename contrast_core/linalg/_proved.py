"""Leading eigenpairs of one large symmetric matrix, faster than LAPACK and proved to be right.

Problem: LAPACK reduces the whole matrix to tridiagonal form, at a cost of 4/3 D^3 operations, even
if only a few eigenpairs are wanted. If eigenvalues k and k + 1 are well separated, ARPACK's
implicitly restarted Lanczos iteration (Lehoucq, Sorensen and Yang, ARPACK Users' Guide, 1998) needs
some dozens of products with the matrix. It may miss an eigenvector that is orthogonal to its start,
or an eigenvector of a multiple eigenvalue. Therefore every result is proved by the inertia of a
shifted matrix (`_proof`), which takes one or two Cholesky factorisations at a cost of D^3/3 each.
If the iteration or the proof fails, None is returned, and the caller uses LAPACK.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from contrast_core._validation import FloatArray
from contrast_core.linalg._proof import RitzPairs, bound_by_inertia, is_proved, spectral_norm
from contrast_core.linalg._search import squares_fit

# Tolerance of residuals divided by eigenvalues. It is stricter than the proof needs.
_TOLERANCE = 1e-12


def proved_eigenpairs(matrix: FloatArray, k: int, budget: float) -> RitzPairs | None:
    """Return the k algebraically largest eigenpairs of a symmetric matrix, or None if not proved.

    Parameters
    ----------
    matrix : ndarray of shape (D, D)
        Symmetric matrix, which is not changed.
    k : int
        Number of eigenpairs.
    budget : float
        Number of products that the iteration may take before LAPACK is used instead.
    """
    size = len(matrix)
    basis = max(20, 2 * k + 10)
    largest = float(np.abs(matrix.diagonal()).max(initial=0.0))
    if basis >= size or not largest or not squares_fit(largest):
        return None
    # ARPACK's tolerance has an absolute part, so the matrix is scaled by a power of two. NumPy's
    # product releases Python's lock, which SciPy's BLAS does not.
    scale = 2.0 ** -int(np.frexp(largest)[1])
    operator = LinearOperator(
        (size, size), matvec=lambda vector: (matrix @ vector) * scale, dtype=np.float64
    )
    restarts = max(1, int((min(budget, 1e6) - basis) / (basis - k - 1)))
    try:
        values, vectors = eigsh(
            operator,
            *(k + 1,),
            which="LA",
            v0=np.random.default_rng(0).standard_normal(size),
            ncv=basis,
            tol=_TOLERANCE,
            maxiter=restarts,
        )
    except ArpackNoConvergence:
        return None
    order = np.argsort(values)[::-1]
    values, leading = values[order] / scale, np.linalg.qr(vectors[:, order[:k]])[0]
    residuals = np.linalg.norm(matrix @ leading - leading * values[:k], axis=0)
    pairs = RitzPairs(values, leading, residuals)
    norm = spectral_norm(matrix)
    beta = bound_by_inertia(lambda: -matrix, pairs, norm)
    return pairs if is_proved(pairs, beta, norm) else None
