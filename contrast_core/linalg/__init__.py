"""Linear algebra: eigenpairs, bases of subspaces, angles between subspaces, and BLAS threads."""

from contrast_core.linalg._angles import principal_angles, subspace_error
from contrast_core.linalg._bases import aligned, fix_signs, orthonormal_rows
from contrast_core.linalg._components import (
    Components,
    proved_components,
    search_components,
)
from contrast_core.linalg._eigen import (
    leading_eigenpairs,
    solve_contrast,
    variances_along,
)
from contrast_core.linalg._generalized import (
    RidgeWeights,
    check_definite,
    leading_ratios,
    orthogonal_ratios,
    pooled_eigenvalues,
)
from contrast_core.linalg._lapack import mirror_upper
from contrast_core.linalg._path import contrastive_path
from contrast_core.linalg._pivoted_cholesky import PivotedFactor, pivoted_cholesky
from contrast_core.linalg._proof import Eigenpairs
from contrast_core.linalg._search import NotConvergedError, SearchSpace, squares_fit
from contrast_core.linalg._sparse_components import sparse_components
from contrast_core.linalg._threads import blas_threads, worker_threads

__all__ = [
    "Components",
    "Eigenpairs",
    "NotConvergedError",
    "PivotedFactor",
    "RidgeWeights",
    "SearchSpace",
    "aligned",
    "blas_threads",
    "check_definite",
    "contrastive_path",
    "fix_signs",
    "leading_eigenpairs",
    "leading_ratios",
    "mirror_upper",
    "orthogonal_ratios",
    "orthonormal_rows",
    "pivoted_cholesky",
    "pooled_eigenvalues",
    "principal_angles",
    "proved_components",
    "search_components",
    "solve_contrast",
    "sparse_components",
    "squares_fit",
    "subspace_error",
    "variances_along",
    "worker_threads",
]
