"""Principal angles between the row spaces of two sets of components.

Problem: measure how far apart two subspaces are, whatever bases they are given in. The cosines of
the angles are the singular values of the product of two orthonormal bases. The cosine of a small
angle is so close to 1 that rounding makes this angle inaccurate. SciPy therefore computes small
angles from their sines (Björck and Golub, Mathematics of Computation 27:579, 1973; Knyazev and
Argentati, SIAM Journal on Scientific Computing 23:2008, 2002), so that every angle is exact to a
few rounding errors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import subspace_angles

from contrast_core._validation import FloatArray, real_array


def principal_angles(first: ArrayLike, second: ArrayLike) -> FloatArray:
    r"""Return the principal angles between two subspaces, largest first.

    Parameters
    ----------
    first, second : array-like of shape (k, n_features) and (l, n_features)
        Matrices whose rows span the subspaces, as in ``components_``. The rows need not be
        orthonormal.

    Returns
    -------
    ndarray of shape (min(k, l),)
        Angles in radians, from 0 to pi/2, in descending order.

    Raises
    ------
    ValueError
        If the two subspaces have different numbers of features, one of them has only zero rows, or
        a value is NaN or infinite.

    Examples
    --------
    >>> from contrast_core.linalg import principal_angles
    >>> principal_angles([[1.0, 0.0, 0.0]], [[1.0, 1.0, 0.0]]).round(4)
    array([0.7854])
    """
    a, b = _directions(first, "first"), _directions(second, "second")
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"the subspaces have shapes {a.shape} and {b.shape}; both must be "
            "(number of components, number of features) with the same number of features."
        )
    return np.asarray(subspace_angles(a.T, b.T), dtype=np.float64)


def _directions(rows: ArrayLike, name: str) -> FloatArray:
    """Return the rows, each divided by its largest absolute entry.

    The rows span the same subspace as before. Without this scaling, a row much shorter than the
    others would be taken for a rounding error.
    """
    matrix = np.atleast_2d(real_array(rows, name))
    if matrix.ndim != 2 or not np.isfinite(matrix).all() or not matrix.any():
        raise ValueError(
            f"{name} has shape {matrix.shape}; expected finite rows that span a subspace, of shape "
            "(number of components, number of features), and not all zero."
        )
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    unit: FloatArray = np.divide(matrix, largest, out=np.zeros_like(matrix), where=largest > 0)
    return unit


def subspace_error(first: ArrayLike, second: ArrayLike) -> float:
    """Return the sine of the largest principal angle between two subspaces.

    Parameters
    ----------
    first, second : array-like of shape (k, n_features)
        Matrices whose rows span the subspaces, as in ``components_``.

    Returns
    -------
    float
        The sine: 0 for equal subspaces, and 1 if one of them contains a direction that is
        orthogonal to the other.

    Raises
    ------
    ValueError
        If the two subspaces have different dimensions, or for the reasons listed in
        `principal_angles`.

    Examples
    --------
    >>> from contrast_core.linalg import subspace_error
    >>> subspace_error([[1.0, 0.0]], [[0.0, 2.0]])
    1.0
    """
    angles = principal_angles(first, second)
    ranks = [int(np.linalg.matrix_rank(_directions(rows, "rows"))) for rows in (first, second)]
    if ranks[0] != ranks[1]:
        raise ValueError(
            f"the subspaces have {ranks[0]} and {ranks[1]} dimensions, but this distance compares "
            "subspaces of the same dimension. Use principal_angles, or equally many components."
        )
    return float(np.sin(angles[0]))
