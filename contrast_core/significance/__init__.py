"""Is there anything to find, and which components are real: what needs rows and their groups."""

from contrast_core.significance._bootstrap import BootstrapStability, bootstrap_stability
from contrast_core.significance._cross_fit import CrossFittedRatio, cross_fitted_ratio
from contrast_core.significance._permutation import PermutationTest, permutation_test

__all__ = [
    "BootstrapStability",
    "CrossFittedRatio",
    "PermutationTest",
    "bootstrap_stability",
    "cross_fitted_ratio",
    "permutation_test",
]
