"""Sampling of Gibbs posteriors by the No-U-Turn sampler, with ArviZ inference data as result."""

from contrast_core._posterior._nuts import Draws, Target, draw_matrices
from contrast_core._posterior._sampling import posterior_moments, sample_posterior
from contrast_core._posterior._spectrum import contrast_spectrum

__all__ = [
    "Draws",
    "Target",
    "contrast_spectrum",
    "draw_matrices",
    "posterior_moments",
    "sample_posterior",
]
