"""Pure functions on matrices: eigenpairs, signs and angles between subspaces."""

from contrast_core.linalg._angles import principal_angles, subspace_error
from contrast_core.linalg._eigen import (
    Eigenpairs,
    contrastive_eigenpairs,
    leading_eigenpairs,
    null_space_eigenpairs,
    variances_along,
)
from contrast_core.linalg._generalized import (
    GeneralizedEigenpairs,
    RidgeWeights,
    regularised_path,
)
from contrast_core.linalg._path import PathSolution, PathSolver, contrastive_path
from contrast_core.linalg._generalized import (
    GeneralizedEigenpairs,
    RidgeWeights,
    regularised_path,
)
from contrast_core.linalg._signs import fix_signs
from contrast_core.linalg._spectrum import Spectrum

__all__ = [
    "Eigenpairs",
    "GeneralizedEigenpairs",
    "RidgeWeights",
    "GeneralizedEigenpairs",
    "PathSolution",
    "PathSolver",
    "RidgeWeights",
    "Spectrum",
    "contrastive_eigenpairs",
    "contrastive_path",
    "fix_signs",
    "leading_eigenpairs",
    "null_space_eigenpairs",
    "principal_angles",
    "regularised_path",
    "regularised_path",
    "subspace_error",
    "variances_along",
]
