"""Rules that choose contrast strengths, representative contrasts and truncations from moments."""

from contrast_core.contrast._affinity import representatives, subspace_affinity
from contrast_core.contrast._automatic import (
    automatic_contrast,
    background_ridge,
    denoising_alpha,
    trace_ratio_alpha,
)
from contrast_core.contrast._detectability import (
    detectable_spike,
    expected_subspace_error,
    signal_is_detectable,
)
from contrast_core.contrast._effective_pairs import effective_n_pairs
from contrast_core.contrast._held_out import held_out_ratio
from contrast_core.contrast._noise_bulk import NoiseBulk, noise_bulk
from contrast_core.contrast._truncation import Truncation, truncated_eigenpairs

__all__ = [
    "NoiseBulk",
    "Truncation",
    "automatic_contrast",
    "background_ridge",
    "denoising_alpha",
    "detectable_spike",
    "effective_n_pairs",
    "expected_subspace_error",
    "held_out_ratio",
    "noise_bulk",
    "representatives",
    "signal_is_detectable",
    "subspace_affinity",
    "trace_ratio_alpha",
    "truncated_eigenpairs",
]
