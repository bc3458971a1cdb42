"""Rows whose squares are numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_NEAR = 100  # powers of two: squares of what lies nearer to 1 are far from both ends of float64


def to_unit_scale(*matrices: Any) -> tuple[tuple[Any, ...], float]:
    """Return float64 matrices and their factor, a power of 2 if squares overflow or vanish.

    And the power, by which distances are to be divided.
    """
    filled = [matrix for matrix in matrices if 0 not in matrix.shape]
    largest = max((max(float(m.max()), -float(m.min())) for m in filled), default=0.0)
    exponent = math.frexp(largest)[1]
    if abs(exponent) <= _NEAR or not largest:
        return matrices, 1.0
    factor = math.ldexp(1.0, max(-1000, min(1000, -exponent)))
    return tuple(matrix * np.float64(factor) for matrix in matrices), factor
