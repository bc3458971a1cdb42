"""The rotation that brings one basis of a subspace nearest to another."""

from __future__ import annotations

import numpy as np

from contrast_core._validation import FloatArray


def aligned(rows: FloatArray, target: FloatArray) -> FloatArray:
    r"""Rows turned among themselves to lie as near to the target as they can.

    The orthogonal R that minimises :math:`\|R A - T\|_F` is the polar factor of
    :math:`T A^\top` (the orthogonal Procrustes problem). The result does not depend on how A was
    turned before.

    Parameters
    ----------
    rows : ndarray of shape (..., k, D)
        A, any number of them.
    target : ndarray of shape (k, D)
        T.

    Returns
    -------
    ndarray of shape (..., k, D)
    """
    left, _, right = np.linalg.svd(target @ np.swapaxes(rows, -1, -2))
    return np.asarray(left @ right @ rows)
