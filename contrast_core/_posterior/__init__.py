"""Draws of Gibbs posteriors: how they are made, and in what they are given back."""

from contrast_core._posterior._inference_data import check_converged, inference_data
from contrast_core._posterior._nuts import Draws, Target, check_sizes, draw_matrices
from contrast_core._posterior._spectrum import ContrastSpectrum, contrast_spectrum

__all__ = [
    "ContrastSpectrum",
    "Draws",
    "Target",
    "check_converged",
    "check_sizes",
    "contrast_spectrum",
    "draw_matrices",
    "inference_data",
]
