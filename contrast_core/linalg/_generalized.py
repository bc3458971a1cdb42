"""Leading generalised eigenpairs of a foreground against a regularised background.

Problem: find the directions with the largest ratio of variances, ``C_X v = lambda B v`` with the
regularised background ``B = b_1 I + b_2 C_Y``. Every such B has the same eigenvectors as the
background, so the background is decomposed only once. In the basis of its eigenvectors, B is
diagonal, and whitening turns each problem into an ordinary eigenproblem (Golub and Van Loan, Matrix
Computations, 4th ed., section 8.7). An error is raised if B is not positive definite to working
precision. The directions are B-orthonormal up to rounding errors times the condition number of B.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg._bases import fix_signs
from contrast_core.linalg._eigen import leading_eigenpairs
from contrast_core.linalg._proof import Eigenpairs
from contrast_core.linalg._proved import proved_eigenpairs


class RidgeWeights(NamedTuple):
    """The two weights of ``B = identity * I + background * C_Y``, both at least 0."""

    identity: float
    background: float


def regularised_path(
    foreground: FloatArray,
    background: FloatArray,
    weights: Sequence[RidgeWeights],
    k: int,
    *,
    budget: float | None = None,
) -> list[Eigenpairs]:
    """Return the top-k generalised eigenpairs ``C_X v = lambda B v`` for each of several B.

    The values are descending and the components B-orthonormal. If `budget` is given, an iteration
    solves the problems one after the other. For each B it may take this many products of a matrix
    and a vector, and its result is proved to be right (`_proved`). If the iteration or the proof
    fails for one B, LAPACK solves this problem and all later ones.

    Raises ValueError if B is singular to working precision (condition number above
    ``1 / (D eps)``).
    """
    spectrum, basis = scipy.linalg.eigh(background, driver="evd", check_finite=False)
    spectrum = np.maximum(spectrum, 0.0)
    rotated = basis.T @ foreground @ basis
    rounding = len(spectrum) * np.finfo(np.float64).eps
    near: FloatArray | None = None  # sum of the last directions, from which the next search starts
    pairs = []
    for weight in weights:
        diagonal = weight.identity + weight.background * spectrum
        singular = int((diagonal <= rounding * diagonal.max()).sum())
        if singular:
            raise _singular(weight, f"{singular} of {len(spectrum)} directions")
        whitening = 1 / np.sqrt(diagonal)
        whitened = rotated * whitening * whitening[:, None]
        proved = None
        if budget is not None:
            start = None if near is None else near / whitening
            proved = proved_eigenpairs(whitened, k, budget, start)
        if proved is None:
            budget = None
            values, inner = leading_eigenpairs(whitened, k)
        else:
            values, inner = proved.values[:k], proved.vectors.T
            near = inner.sum(axis=0) * whitening
        pairs.append(Eigenpairs(values, fix_signs((inner * whitening) @ basis.T)))
    return pairs


def leading_ratio(
    foreground: FloatArray, background: FloatArray, weight: RidgeWeights
) -> Eigenpairs:
    """Return the leading generalised eigenpair for one B.

    For small matrices, this is several times faster than `regularised_path`. Raises ValueError if B
    is singular to working precision.
    """
    ridged = ridged_background(background, weight)
    last = len(ridged) - 1
    try:
        values, vectors = scipy.linalg.eigh(
            foreground, ridged, subset_by_index=(last, last), check_finite=False
        )
    except np.linalg.LinAlgError as error:
        raise _singular(weight, "some directions") from error
    return Eigenpairs(values, vectors.T)


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
