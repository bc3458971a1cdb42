"""Image stacks: frames as rows of a matrix, weight maps, and denoising of a whole stack."""

from contrast_core.images._stacks import (
    Stack,
    denoise_stack,
    iter_rows,
    rows_to_stack,
    stack_to_rows,
    weight_maps,
)

__all__ = ["Stack", "denoise_stack", "iter_rows", "rows_to_stack", "stack_to_rows", "weight_maps"]
