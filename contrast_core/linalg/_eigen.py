"""Leading eigenpairs of symmetric matrices and of the contrast ``C_X - alpha C_Y``.

Problem: find the k algebraically largest eigenpairs of a symmetric matrix that may be indefinite.
LAPACK's MRRR driver ("multiple relatively robust representations"; Dhillon and Parlett, Linear
Algebra and its Applications 387:1, 2004) finds them with a backward error of a few machine epsilons
times the norm. For a large matrix, an iterative search whose results are proved (`_components`) is
tried first. In the limit of an infinite alpha, the solutions are the eigenpairs of the foreground
within the null space of the background.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg._bases import fix_signs
from contrast_core.linalg._components import proved_components
from contrast_core.linalg._lapack import largest_eigenpairs
from contrast_core.linalg._proof import Eigenpairs


def leading_eigenpairs(
    matrix: FloatArray, k: int, *, budget: float | None = None, overwrite: bool = False
) -> Eigenpairs:
    """Return the k algebraically largest eigenpairs of a symmetric matrix; see `solve_matrix`."""
    return solve_matrix(matrix, k, budget, overwrite=overwrite)[0]


def solve_matrix(
    matrix: FloatArray, k: int, budget: float | None = None, *, overwrite: bool = False
) -> tuple[Eigenpairs, str]:
    """Return the k algebraically largest eigenpairs of a symmetric matrix, and the solver's name.

    If `budget` is given, an iterative search ("search") is tried first. It multiplies the matrix by
    at most this number of columns, and its result is proved. If the search or the proof fails,
    LAPACK's MRRR driver ("eigh") solves the problem. The vectors of equal eigenvalues are an
    arbitrary orthonormal basis of the common eigenspace.
    """
    if budget is not None:
        pairs = proved_components((matrix,), k, budget).pairs
        if pairs is not None:
            return pairs.eigenpairs(), "search"
    # The transpose is usually Fortran-ordered, as LAPACK needs it to work in place.
    values, vectors = largest_eigenpairs(matrix.T, k, overwrite=overwrite)
    return Eigenpairs(values[::-1].copy(), fix_signs(np.ascontiguousarray(vectors.T[::-1]))), "eigh"


def solve_contrast(
    foreground: FloatArray,
    background: FloatArray,
    alpha: float,
    k: int,
    budget: float | None = None,
) -> tuple[Eigenpairs, str]:
    """Return the top-k eigenpairs of ``foreground - alpha * background``, as `solve_matrix` does.

    Both matrices are symmetric (D, D). At ``alpha = inf``, the eigenpairs of the foreground within
    the background's null space are returned.
    """
    if math.isinf(alpha):
        return null_space_eigenpairs(foreground, background, k), "eigh"
    contrast = np.multiply(background, -alpha)
    contrast += foreground
    return solve_matrix(contrast, k, budget, overwrite=True)


def null_space_eigenpairs(foreground: FloatArray, background: FloatArray, k: int) -> Eigenpairs:
    """Return the top-k eigenpairs of the foreground within the background's null space.

    Eigenvalues of the background up to ``D * eps`` times its largest eigenvalue count as zero.
    """
    values, vectors = scipy.linalg.eigh(background, driver="evd", check_finite=False)
    n_features = len(background)
    tolerance = n_features * np.finfo(np.float64).eps * max(values[-1], 0.0)
    null = vectors[:, values <= tolerance]
    if null.shape[1] < k:
        raise ValueError(
            f"alpha=inf keeps only directions without background variance. To working precision, "
            f"the {n_features} features have {null.shape[1]} such directions, but "
            f"n_components={k}. Use a large finite alpha, or fewer components."
        )
    inner = leading_eigenpairs(null.T @ foreground @ null, k)
    return Eigenpairs(inner.values, fix_signs(inner.components @ null.T))


def variances_along(components: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return the variance ``v^T C v`` along each row v of `components`, shape (k,)."""
    return np.asarray(np.einsum("kd,kd->k", components @ covariance, components))
