"""Leading generalised eigenpairs of a foreground against a regularised background.

Problem: find the directions with the largest ratio of variances, ``C_X v = lambda B v`` with the
regularised background ``B = b_1 I + b_2 C_Y``. LAPACK reduces the problem by a Cholesky factor of B
to an ordinary eigenproblem (Golub and Van Loan, Matrix Computations, 4th ed., section 8.7). An
error is raised if B is not positive definite to working precision. The directions are B-orthonormal
up to rounding errors times the condition number of B.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg._bases import fix_signs
from contrast_core.linalg._proof import Eigenpairs


class RidgeWeights(NamedTuple):
    """The two weights of ``B = identity * I + background * C_Y``, both at least 0."""

    identity: float
    background: float


def leading_ratios(
    foreground: FloatArray, background: FloatArray, weight: RidgeWeights, k: int
) -> Eigenpairs:
    """Return the top-k generalised eigenpairs ``C_X v = lambda B v``.

    The values are descending and the components B-orthonormal. Raises ValueError if B has no
    Cholesky factor.
    """
    ridged = ridged_background(background, weight)
    size = len(ridged)
    try:
        values, vectors = scipy.linalg.eigh(
            foreground, ridged, subset_by_index=(size - k, size - 1), check_finite=False
        )
    except np.linalg.LinAlgError as error:
        raise _singular(weight, "some directions") from error
    return Eigenpairs(values[::-1].copy(), fix_signs(vectors.T[::-1]))


def check_definite(background: FloatArray, weight: RidgeWeights) -> None:
    """Raise ValueError if B is singular to working precision: condition above ``1 / (D eps)``."""
    rounding = len(background) * np.finfo(np.float64).eps
    # The trace bounds the largest eigenvalue, and most ridges are far above its rounding error.
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
