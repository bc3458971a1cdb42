"""Leading generalised eigenpairs of a foreground against a regularised background.

Problem: find the directions with the largest ratio of variances, ``C_X v = lambda B v`` with the
regularised background ``B = b_1 I + b_2 C_Y``, whose weights b_1 and b_2 are given
(`RidgeWeights`). LAPACK reduces the problem by a Cholesky factor of B to an ordinary eigenproblem
(Golub and Van Loan, Matrix Computations, 4th ed.). An error is raised if B is not positive definite
to working precision. The directions are B-orthonormal, ``v_i^T B v_j = 0`` and ``v_i^T B v_i = 1``,
up to rounding errors times the condition number of B.

If B is singular, some ratios are infinite. The problem is then rewritten ("pooled") as
``C_X v = mu (C_X + B) v`` with ``lambda = mu / (1 - mu)``. The matrix ``C_X + B`` is positive
definite in all directions in which anything varies (Stewart and Sun, Matrix Perturbation Theory,
1990). Therefore mu lies between 0 and 1 and is accurate to rounding, even if lambda is
infinite.

If orthogonal directions are wanted, they are computed one after the other, and a reflection removes
each direction before the next is computed (deflation).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg._bases import fix_signs
from contrast_core.linalg._proof import Eigenpairs


class RidgeWeights(NamedTuple):
    """The two weights in ``B = identity * I + background * C_Y``, both at least 0."""

    identity: float
    background: float


def leading_ratios(
    foreground: FloatArray,
    background: FloatArray,
    weight: RidgeWeights,
    k: int,
    *,
    pooled: bool = False,
) -> Eigenpairs:
    """Return the top-k generalised eigenpairs ``C_X v = lambda B v``.

    The values are descending and the components B-orthonormal. Raises ValueError if B has no
    Cholesky factor. If `pooled` is true, B may be singular, and only C_X + B needs a Cholesky
    factor. Where ``v^T B v`` is zero, lambda is infinite, and v is scaled to ``v^T C_X v = 1``.
    """
    ridged = ridged_background(background, weight)
    size = len(ridged)
    against = foreground + ridged if pooled else ridged
    find = partial(scipy.linalg.eigh, foreground, against, check_finite=False)
    try:
        values, vectors = find(subset_by_index=(size - k, size - 1))
        if len(values) < k:  # bisection may find none of many ratios that are equal up to rounding
            values, vectors = (part[..., -k:] for part in find())
    except np.linalg.LinAlgError as error:
        raise _singular(weight, "some directions") from error
    values, rows = values[::-1].copy(), vectors.T[::-1]
    if pooled:
        x, b = (np.einsum("kd,dk->k", rows, part @ rows.T) for part in (foreground, ridged))
        infinite = b <= 4 * size * np.finfo(np.float64).eps * (x + b)
        values = np.divide(x, b, out=np.full(k, np.inf), where=~infinite)
        rows = rows / np.sqrt(np.where(infinite, x, b))[:, None]
    return Eigenpairs(values, fix_signs(rows))


def check_definite(background: FloatArray, weight: RidgeWeights) -> None:
    """Raise ValueError if the condition number of B is above ``1 / (D eps)``."""
    rounding = len(background) * np.finfo(np.float64).eps
    # The trace of C_Y is an upper bound of its largest eigenvalue. With most ridges, this bound
    # shows that the condition number is small enough, and no eigenvalues need to be computed.
    if weight.identity > rounding * (weight.identity + weight.background * background.trace()):
        return
    spectrum = np.maximum(scipy.linalg.eigvalsh(background, check_finite=False), 0.0)
    spectrum = weight.identity + weight.background * spectrum
    singular = int((spectrum <= rounding * spectrum.max()).sum())
    if singular:
        raise _singular(weight, f"{singular} of {len(spectrum)} directions")


def ridged_background(background: FloatArray, weight: RidgeWeights) -> FloatArray:
    """Return ``B = identity * I + background * C_Y`` as a new matrix."""
    ridged = weight.background * background
    ridged.flat[:: len(ridged) + 1] += weight.identity
    return ridged


def _singular(weight: RidgeWeights, directions: str) -> ValueError:
    return ValueError(
        f"(1 - beta) I + beta C_Y is singular to working precision at beta = "
        f"{weight.background:.17g}: the background does not vary in {directions}, so it is not "
        "positive definite. Use a beta < 1 (beta='auto' chooses one), a condition_limit, more "
        "background rows, or fewer features."
    )


def pooled_eigenvalues(
    foreground: FloatArray, background: FloatArray, weight: RidgeWeights
) -> FloatArray:
    """Return all eigenvalues mu of ``C_X v = mu (C_X + B) v``, ascending.

    mu is 0 if ``v^T C_X v`` is zero, and 1 if ``v^T B v`` is zero.
    """
    pooled = foreground + ridged_background(background, weight)
    return np.asarray(scipy.linalg.eigh(foreground, pooled, eigvals_only=True, check_finite=False))


def orthogonal_ratios(
    foreground: FloatArray, background: FloatArray, weight: RidgeWeights, k: int, *, pooled: bool
) -> Eigenpairs:
    """Return k orthonormal directions with the largest ratios, found one after the other.

    Each direction has the largest ratio among all directions that are orthogonal to the previous
    ones. If `pooled` is true, B may be singular.
    """
    x, y = foreground, background
    outwards = np.eye(len(x))  # basis of the directions that are left, as rows
    values, directions = np.empty(k), np.empty((k, len(x)))
    for i in range(k):
        pair = leading_ratios(x, y, weight, 1, pooled=pooled)
        [unit] = pair.components / np.linalg.norm(pair.components)
        values[i], directions[i] = pair.values[0], unit @ outwards
        # This reflection maps the direction to the first coordinate, which is then dropped.
        unit[0] += np.copysign(1.0, unit[0])
        unit /= np.linalg.norm(unit)
        x, y = _reflected(x, unit), _reflected(y, unit)
        outwards = (outwards - 2 * np.outer(unit, unit @ outwards))[1:]
    return Eigenpairs(values, fix_signs(directions))


def _reflected(matrix: FloatArray, unit: FloatArray) -> FloatArray:
    """Return ``H M H`` without its first row and column, for ``H = I - 2 u u^T`` and a unit u."""
    product = matrix @ unit
    product -= (unit @ product) * unit
    change = np.outer(unit, 2 * product)
    return np.asarray((matrix - change - change.T)[1:, 1:])
