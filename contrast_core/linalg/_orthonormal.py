"""Orthonormal rows with the span of directions that are not orthogonal."""

from __future__ import annotations

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg._signs import fix_signs


def orthonormal_rows(directions: FloatArray) -> FloatArray:
    """Orthonormal rows, the first j of which span the first j directions (QR)."""
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    unit = directions / np.maximum(lengths, np.finfo(np.float64).tiny)
    return fix_signs(np.linalg.qr(unit.T)[0].T)
