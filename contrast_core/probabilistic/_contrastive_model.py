"""The fitted attributes of PCPCA, for complete and for incomplete data."""

from __future__ import annotations

from typing import Any

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.solve import contrast_index


def contrastive_model(
    gamma: float,
    gamma_max: float,
    components: FloatArray,
    model_variances: FloatArray,
    noise_variance: float,
    variances: tuple[FloatArray, FloatArray],
) -> dict[str, Any]:
    """Return the fitted attributes of `PCPCA` that describe its model.

    All numbers are in the units of the data.

    Parameters
    ----------
    gamma, gamma_max : float
        Contrast strength, and the end of the valid range.
    components : ndarray of shape (d, n_features)
    model_variances : ndarray of shape (d,)
        Variances of the model along the components.
    noise_variance : float
    variances : tuple of two ndarrays
        Variances of foreground and background along the components.
    """
    lengths = np.sqrt(np.maximum(model_variances - noise_variance, 0.0))
    return {
        "components_": components,
        "loadings_": components.T * lengths,
        "noise_variance_": noise_variance,
        "gamma_": gamma,
        "gamma_max_": gamma_max,
        "contrastive_eigenvalues_": (1 - gamma) * model_variances,
        "foreground_variance_": variances[0],
        "background_variance_": variances[1],
        "contrast_index_": contrast_index(*variances),
    }
