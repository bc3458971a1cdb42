"""Bases of subspaces: signs, orthonormal rows, and the rotation nearest to another basis.

Problem: eigenvectors are determined only up to their signs, and bases of a subspace only up to a
rotation, so results of two runs cannot be compared directly. One rule fixes the signs. The QR
factorisation makes rows orthonormal. The polar factor rotates one basis as near to another as
possible (the orthogonal Procrustes problem; Schönemann, Psychometrika 31:1, 1966). All results are
exact to a few rounding errors.
"""

from __future__ import annotations

import numpy as np

from contrast_core._validation import FloatArray


def fix_signs(components: FloatArray) -> FloatArray:
    """Return the rows, with signs that make the entry of largest magnitude positive.

    If several entries have the largest magnitude up to rounding, the first one decides, so that the
    sign does not depend on rounding errors.
    """
    if not components.size:
        return components
    magnitude = np.abs(components)
    largest = magnitude.max(axis=1, keepdims=True)
    decisive = np.argmax(magnitude >= (1 - 1e-8) * largest, axis=1)
    negative = components[np.arange(len(components)), decisive] < 0
    return np.where(negative[:, None], -components, components)


def orthonormal_rows(directions: FloatArray) -> FloatArray:
    """Return orthonormal rows; the first j rows span the same space as the first j directions."""
    return fix_signs(np.linalg.qr(directions.T)[0].T)


def aligned(rows: FloatArray, target: FloatArray) -> FloatArray:
    r"""Rotate the rows within their span to lie as near to the target as possible.

    The orthogonal R that minimises :math:`\|R A - T\|_F` is the polar factor :math:`U V^\top` of
    :math:`T A^\top = U S V^\top` (singular value decomposition). The result R A does not depend on
    how A was rotated before.

    Parameters
    ----------
    rows : ndarray of shape (..., k, D)
        One or more matrices A.
    target : ndarray of shape (k, D)
        The target matrix T.

    Returns
    -------
    ndarray of shape (..., k, D)
    """
    left, _, right = np.linalg.svd(target @ np.swapaxes(rows, -1, -2))
    return np.asarray(left @ right @ rows)
