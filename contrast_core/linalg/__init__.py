"""Pure functions on matrices: eigenpairs, signs and angles between subspaces."""

from contrast_core.linalg._angles import principal_angles, subspace_error
from contrast_core.linalg._davidson import Pencil, neighbouring_pairs
from contrast_core.linalg._dual import DualPairs, dual_eigenpairs
from contrast_core.linalg._eigen import (
    Eigenpairs,
    contrastive_eigenpairs,
    formed_eigenpairs,
    leading_eigenpairs,
    null_space_eigenpairs,
    variances_along,
)
from contrast_core.linalg._estimated_spectrum import EstimatedSpectrum
from contrast_core.linalg._generalized import (
    GeneralizedEigenpairs,
    RidgeWeights,
    regularised_path,
)
from contrast_core.linalg._lanczos import NotConvergedError, SymmetricOperator
from contrast_core.linalg._lapack import add_products, mirror_upper
from contrast_core.linalg._orthonormal import orthonormal_rows
from contrast_core.linalg._path import PathSolution, PathSolver, contrastive_path
from contrast_core.linalg._pivoted_cholesky import PivotedFactor, pivoted_cholesky
from contrast_core.linalg._signs import fix_signs
from contrast_core.linalg._single import iteration_pays, proved_pays, single_precision_pays
from contrast_core.linalg._spectrum import Spectrum
from contrast_core.linalg._threads import blas_threads, worker_threads

__all__ = [
    "DualPairs",
    "Eigenpairs",
    "EstimatedSpectrum",
    "GeneralizedEigenpairs",
    "NotConvergedError",
    "PathSolution",
    "PathSolver",
    "Pencil",
    "PivotedFactor",
    "RidgeWeights",
    "Spectrum",
    "SymmetricOperator",
    "add_products",
    "blas_threads",
    "contrastive_eigenpairs",
    "contrastive_path",
    "dual_eigenpairs",
    "fix_signs",
    "formed_eigenpairs",
    "iteration_pays",
    "leading_eigenpairs",
    "mirror_upper",
    "neighbouring_pairs",
    "null_space_eigenpairs",
    "orthonormal_rows",
    "pivoted_cholesky",
    "principal_angles",
    "proved_pays",
    "regularised_path",
    "single_precision_pays",
    "subspace_error",
    "variances_along",
    "worker_threads",
]
