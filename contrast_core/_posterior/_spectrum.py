"""All eigenpairs of a contrast. Posteriors are sampled in the coordinates of its eigenvectors."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from contrast_core.linalg import Eigenpairs, fix_signs
from contrast_core.moments import Moments


def contrast_spectrum(x: Moments, y: Moments, strength: float) -> Eigenpairs:
    """Return all D eigenpairs of ``C_X - strength * C_Y``, with eigenvectors in feature space.

    C_X and C_Y are the covariances of `x` and `y`. Directions that are orthogonal to all centred
    rows have the eigenvalue zero.
    """
    contrast = x.matrix() - strength * y.matrix()
    values, vectors = scipy.linalg.eigh(contrast, driver="evd", check_finite=False)
    directions = x.lift(np.ascontiguousarray(vectors.T))
    outside = x.n_features - len(values)
    if outside:
        values = np.append(values, np.zeros(outside))
        directions = np.vstack([directions, x.complement(outside)])
    order = np.argsort(-values, kind="stable")
    return Eigenpairs(values[order], fix_signs(directions[order]))
