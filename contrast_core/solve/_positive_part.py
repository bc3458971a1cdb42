"""The positive part of a contrast: all of its positive eigenpairs.

Problem: sparse PCA works with a square root of its matrix. A contrast ``C_X - alpha C_Y``
also has negative eigenvalues, so only its positive part has a real square root. LAPACK's
divide-and-conquer algorithm computes the whole spectrum. An eigenvalue counts as positive if it
exceeds the rounding error, ``4 D eps (v_X + alpha v_Y)``, where D is the size of the matrices, and
v_X and v_Y are the largest diagonal entries of C_X and C_Y.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg import Eigenpairs
from contrast_core.moments import Moments
from contrast_core.solve._contrast import check_range_at

_EPS = float(np.finfo(np.float64).eps)


def positive_part(x: Moments, y: Moments, alpha: float) -> Eigenpairs:
    """Return the positive eigenvalues of ``C_X - alpha C_Y`` and their eigenvectors as rows.

    The eigenvectors are in feature space. alpha must be finite. The moments must hold their
    covariance as a matrix, so their form must be "dense" or "span" (see `Moments`).
    """
    check_range_at(alpha, x, y)
    values, vectors = scipy.linalg.eigh(_contrast(x, y, alpha), driver="evd", check_finite=False)
    positive = np.flatnonzero(values > _rounding(x, y, alpha))[::-1]
    return Eigenpairs(values[positive], x.lift(np.ascontiguousarray(vectors[:, positive].T)))


def n_positive(x: Moments, y: Moments, alpha: float) -> int:
    """Count the positive eigenvalues of ``C_X - alpha C_Y``."""
    values = scipy.linalg.eigvalsh(_contrast(x, y, alpha), check_finite=False)
    return int((values > _rounding(x, y, alpha)).sum())


def _contrast(x: Moments, y: Moments, alpha: float) -> FloatArray:
    return np.asarray(x.matrix() - alpha * y.matrix())


def _rounding(x: Moments, y: Moments, alpha: float) -> float:
    largest = [float(part.matrix().diagonal().max(initial=0.0)) for part in (x, y)]
    return 4 * x.size * _EPS * (largest[0] + alpha * largest[1])
