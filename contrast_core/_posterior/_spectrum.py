"""All eigenpairs of a contrast, which are the coordinates for sampling its posterior."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg import fix_signs
from contrast_core.moments import Moments


class ContrastSpectrum(NamedTuple):
    """All eigenvalues, descending, (D,), and the eigenvectors in feature space as rows (D, D)."""

    values: FloatArray
    directions: FloatArray


def contrast_spectrum(x: Moments, y: Moments, strength: float) -> ContrastSpectrum:
    """Return all eigenpairs of ``C_X - strength * C_Y``.

    Directions outside the span of the rows have the eigenvalue zero.
    """
    contrast = x.matrix() - strength * y.matrix()
    values, vectors = scipy.linalg.eigh(contrast, driver="evd", check_finite=False)
    directions = x.lift(np.ascontiguousarray(vectors.T))
    outside = x.n_features - len(values)
    if outside:
        values = np.append(values, np.zeros(outside))
        directions = np.vstack([directions, x.complement(outside)])
    order = np.argsort(-values, kind="stable")
    return ContrastSpectrum(values[order], fix_signs(directions[order]))
