"""Rescale rows whose squares would overflow or underflow in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_NEAR = 100  # squares of numbers from 2**-100 to 2**100 neither overflow nor underflow in float64


def to_unit_scale(*matrices: Any) -> tuple[tuple[Any, ...], float]:
    """Scale matrices by a common power of 2 so that their squares neither overflow nor underflow.

    The scaled matrices and the factor are returned. The factor is 1 if no scaling is needed.
    Distances between scaled rows must be divided by the factor.
    """
    filled = [matrix for matrix in matrices if 0 not in matrix.shape]
    largest = max((max(float(m.max()), -float(m.min())) for m in filled), default=0.0)
    exponent = math.frexp(largest)[1]
    if abs(exponent) <= _NEAR or not largest:
        return matrices, 1.0
    factor = math.ldexp(1.0, max(-1000, min(1000, -exponent)))
    return tuple(matrix * np.float64(factor) for matrix in matrices), factor
