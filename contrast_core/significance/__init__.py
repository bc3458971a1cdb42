"""Is there anything to find, and which components are real: what needs rows and their groups."""

from contrast_core.significance._bootstrap import BootstrapStability, bootstrap_stability
from contrast_core.significance._condition import condition_test
from contrast_core.significance._cross_fit import CrossFittedRatio, cross_fitted_ratio
from contrast_core.significance._dimension import ContrastDimension, contrast_dimension
from contrast_core.significance._permutation import PermutationTest, permutation_test
from contrast_core.significance._report import ContrastReport, contrast_report

__all__ = [
    "BootstrapStability",
    "ContrastDimension",
    "ContrastReport",
    "CrossFittedRatio",
    "PermutationTest",
    "bootstrap_stability",
    "condition_test",
    "contrast_dimension",
    "contrast_report",
    "cross_fitted_ratio",
    "permutation_test",
]
