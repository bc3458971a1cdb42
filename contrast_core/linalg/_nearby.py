"""The leading eigenpair of a matrix near one that is known: many of them, one after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg._precondition import Pencil, by_diagonal
from contrast_core.linalg._search import EXTRA, SearchSpace, random_block, search

_PATIENCE = 100  # steps: nothing else is tried
_CAPACITY = 120


class Nearby(NamedTuple):
    """An eigenvalue, its vector (D,), and columns (D, b) to start from for a matrix nearby."""

    value: float
    vector: FloatArray
    block: FloatArray


def nearby_eigenpair(matrix: FloatArray, start: FloatArray | None, budget: float) -> Nearby | None:
    """The algebraically largest eigenpair of a symmetric matrix; None where it is not found.

    Davidson's iteration, preconditioned by the diagonal, from columns near the vector or from a
    random block with a fixed seed. No proof: for statistics that are compared, not for results. The
    error of the value is the square of the vector's: about 1e-14 of it in double, 1e-6 in single
    precision.

    Parameters
    ----------
    matrix : ndarray of shape (D, D)
        In double or single precision.
    start : ndarray of shape (D, b) or None
        Orthonormal columns.
    budget : float
        Columns that it may multiply.
    """
    return _found(matrix, None, 0.0, start, budget)


def nearby_ratio(
    x: FloatArray, y: FloatArray, ridge: float, start: FloatArray | None, budget: float
) -> Nearby | None:
    r"""The largest ratio :math:`v^\top X v / v^\top (Y + \tau I) v`, found in the same way.

    The vector has unit length.
    """
    return _found(x, y, ridge, start, budget)


def _found(
    x: FloatArray, y: FloatArray | None, ridge: float, start: FloatArray | None, budget: float
) -> Nearby | None:
    size = len(x)
    if size <= _CAPACITY:
        return None
    pencil = Pencil(x, y)
    dtype = x.dtype

    def multiply(columns: FloatArray) -> list[FloatArray]:
        return [part.astype(np.float64) for part in pencil.multiply(columns.astype(dtype))]

    space = SearchSpace(
        multiply, random_block(size, 1 + EXTRA) if start is None else start, _CAPACITY
    )
    contrast = 0.0

    def contrasts() -> FloatArray:
        nonlocal contrast
        if y is not None:
            contrast = space.trace_ratio(1, ridge, contrast)
        return np.array([contrast])

    of_x = x.diagonal().astype(np.float64)
    of_y = np.zeros(size) if y is None else y.diagonal().astype(np.float64)
    # Of one residual alone: the next eigenpair need not settle.
    stage = by_diagonal(of_x, of_y, 1, _PATIENCE)._replace(extra=0)
    sine = 1e-7 if dtype == np.float64 else 1e-3
    (pairs,), converged = search(space, contrasts, 1, [stage], lambda *_: sine, budget)
    if not converged:
        return None
    value = float(pairs.values[0]) if y is None else contrast
    return Nearby(value, pairs.vectors[:, 0].copy(), space.leading(contrast, 1 + EXTRA))
