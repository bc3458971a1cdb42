"""Pure functions on matrices: eigenpairs, signs and angles between subspaces."""

from contrast_core.linalg._angles import principal_angles, subspace_error
from contrast_core.linalg._eigen import (
    Eigenpairs,
    contrastive_eigenpairs,
    contrastive_path,
    leading_eigenpairs,
    null_space_eigenpairs,
    variances_along,
)
from contrast_core.linalg._signs import fix_signs

__all__ = [
    "Eigenpairs",
    "contrastive_eigenpairs",
    "contrastive_path",
    "fix_signs",
    "leading_eigenpairs",
    "null_space_eigenpairs",
    "principal_angles",
    "subspace_error",
    "variances_along",
]
