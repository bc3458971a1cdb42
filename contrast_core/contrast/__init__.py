"""Pure rules on moments: which contrast, and which contrasts represent the rest."""

from contrast_core.contrast._affinity import representatives, subspace_affinity
from contrast_core.contrast._automatic import (
    background_ridge,
    denoising_alpha,
    trace_ratio_alpha,
)

__all__ = [
    "background_ridge",
    "denoising_alpha",
    "representatives",
    "subspace_affinity",
    "trace_ratio_alpha",
]
