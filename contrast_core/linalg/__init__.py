"""Pure functions on matrices: eigenpairs, signs and angles between subspaces."""

from contrast_core.linalg._align import aligned
from contrast_core.linalg._angles import principal_angles, subspace_error
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
    leading_ratio,
    regularised_path,
)
from contrast_core.linalg._iteration import eigenpairs_by_products
from contrast_core.linalg._lapack import add_products, mirror_upper
from contrast_core.linalg._nearby import Nearby, nearby_eigenpair, nearby_ratio
from contrast_core.linalg._orthonormal import orthonormal_rows
from contrast_core.linalg._path import PathSolution, contrastive_path
from contrast_core.linalg._pivoted_cholesky import PivotedFactor, pivoted_cholesky
from contrast_core.linalg._pooled_ratio import (
    orthogonal_ratios,
    pooled_eigenvalues,
    pooled_ratios,
)
from contrast_core.linalg._search import NotConvergedError, squares_fit
from contrast_core.linalg._signs import fix_signs
from contrast_core.linalg._single import Iteration
from contrast_core.linalg._sparse_components import sparse_components
from contrast_core.linalg._spectrum import Spectrum
from contrast_core.linalg._threads import blas_threads, worker_threads
from contrast_core.linalg._trace_ratio import (
    proved_trace_ratio,
    rough_trace_ratio,
    trace_ratio_by_products,
)

__all__ = [
    "Eigenpairs",
    "EstimatedSpectrum",
    "GeneralizedEigenpairs",
    "Iteration",
    "Nearby",
    "NotConvergedError",
    "PathSolution",
    "PivotedFactor",
    "RidgeWeights",
    "Spectrum",
    "add_products",
    "aligned",
    "blas_threads",
    "contrastive_eigenpairs",
    "contrastive_path",
    "eigenpairs_by_products",
    "fix_signs",
    "formed_eigenpairs",
    "leading_eigenpairs",
    "leading_ratio",
    "mirror_upper",
    "nearby_eigenpair",
    "nearby_ratio",
    "null_space_eigenpairs",
    "orthogonal_ratios",
    "orthonormal_rows",
    "pivoted_cholesky",
    "pooled_eigenvalues",
    "pooled_ratios",
    "principal_angles",
    "proved_trace_ratio",
    "regularised_path",
    "rough_trace_ratio",
    "sparse_components",
    "squares_fit",
    "subspace_error",
    "trace_ratio_by_products",
    "variances_along",
    "worker_threads",
]
