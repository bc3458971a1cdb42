"""Gibbs posteriors: draws by the No-U-Turn sampler, returned as ArviZ inference data."""

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
