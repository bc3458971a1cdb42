"""The model that PCPCA fits, whether or not values are missing."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.solve import contrast_index


class ContrastiveModel(NamedTuple):
    """Parameters of a fitted model, in the units of the data.

    gamma, gamma_max : float
        Contrast strength, and the end of the valid range.
    components : ndarray of shape (d, n_features)
    model_variances : ndarray of shape (d,)
        Variances of the model along the components.
    noise_variance : float
    variances : tuple of two ndarrays
        Variances of foreground and background along the components.
    """

    gamma: float
    gamma_max: float
    components: FloatArray
    model_variances: FloatArray
    noise_variance: float
    variances: tuple[FloatArray, FloatArray]

    def described(self) -> dict[str, Any]:
        """Return the fitted attributes."""
        lengths = np.sqrt(np.maximum(self.model_variances - self.noise_variance, 0.0))
        return {
            "components_": self.components,
            "loadings_": self.components.T * lengths,
            "noise_variance_": self.noise_variance,
            "gamma_": self.gamma,
            "gamma_max_": self.gamma_max,
            "contrastive_eigenvalues_": (1 - self.gamma) * self.model_variances,
            "foreground_variance_": self.variances[0],
            "background_variance_": self.variances[1],
            "contrast_index_": contrast_index(*self.variances),
        }
