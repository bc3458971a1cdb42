"""Largest ratios of two covariances, either of which may be singular.

Problem: find the largest ratios of variances if the background is singular, so that some ratios are
infinite. The problem is rewritten as ``C_X v = mu (C_X + B) v`` with ``lambda = mu / (1 - mu)``.
The matrix ``C_X + B`` is positive definite in all directions in which anything varies (Stewart and
Sun, Matrix Perturbation Theory, 1990, chapter VI). Therefore mu lies between 0 and 1 and is
accurate to rounding, even if lambda is infinite. If orthogonal directions are wanted, they are
computed one after the other, and a reflection removes each direction before the next is computed
(deflation).
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg._bases import fix_signs
from contrast_core.linalg._generalized import RidgeWeights, leading_ratios, ridged_background
from contrast_core.linalg._proof import Eigenpairs


def pooled_ratios(
    foreground: FloatArray, background: FloatArray, weight: RidgeWeights, k: int
) -> Eigenpairs:
    """Return the top-k pairs of ``C_X v = lambda B v``, for a positive definite C_X + B.

    If ``v^T B v`` is zero, lambda is infinite, and v is scaled to ``v^T C_X v = 1``. All other
    directions are scaled to ``v^T B v = 1``.
    """
    ridged = ridged_background(background, weight)
    size = len(ridged)
    _, vectors = scipy.linalg.eigh(
        foreground, foreground + ridged, subset_by_index=(size - k, size - 1), check_finite=False
    )
    rows = vectors.T[::-1]
    x, b = (np.einsum("kd,dk->k", rows, part @ rows.T) for part in (foreground, ridged))
    infinite = b <= 4 * size * np.finfo(np.float64).eps * (x + b)
    values = np.full(k, np.inf)
    np.divide(x, b, out=values, where=~infinite)
    lengths = np.sqrt(np.where(infinite, x, b))
    return Eigenpairs(values, fix_signs(rows / lengths[:, None]))


def pooled_eigenvalues(
    foreground: FloatArray, background: FloatArray, weight: RidgeWeights
) -> FloatArray:
    """Return all values mu of ``C_X v = mu (C_X + B) v``, ascending.

    The value is 0 if the direction varies only in B, and 1 if it varies only in the foreground.
    """
    pooled = foreground + ridged_background(background, weight)
    return np.asarray(scipy.linalg.eigh(foreground, pooled, eigvals_only=True, check_finite=False))


def orthogonal_ratios(
    foreground: FloatArray, background: FloatArray, weight: RidgeWeights, k: int, *, pooled: bool
) -> Eigenpairs:
    """Return k orthonormal directions with the largest ratios, found one after the other.

    Each direction has the largest ratio among all directions that are orthogonal to the previous
    ones. If `pooled` is true, `pooled_ratios` computes the ratios, and B may be singular.
    """
    x, y = foreground, background
    outwards = np.eye(len(x))  # basis of the directions that are left, as rows
    values, directions = np.empty(k), np.empty((k, len(x)))
    for i in range(k):
        pair = pooled_ratios(x, y, weight, 1) if pooled else leading_ratios(x, y, weight, 1)
        [unit] = pair.components / np.linalg.norm(pair.components)
        values[i], directions[i] = pair.values[0], unit @ outwards
        # This reflection maps the direction to the first coordinate, which is then dropped.
        unit[0] += np.copysign(1.0, unit[0])
        unit /= np.linalg.norm(unit)
        x, y = _reflected(x, unit), _reflected(y, unit)
        outwards = (outwards - 2 * np.outer(unit, unit @ outwards))[1:]
    return Eigenpairs(values, fix_signs(directions))


def _reflected(matrix: FloatArray, unit: FloatArray) -> FloatArray:
    """Return ``H M H`` without its first coordinate, for ``H = I - 2 u u^T``."""
    product = matrix @ unit
    product -= (unit @ product) * unit
    change = np.outer(unit, 2 * product)
    return np.asarray((matrix - change - change.T)[1:, 1:])
