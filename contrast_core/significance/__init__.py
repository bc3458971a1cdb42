"""Tests of whether a contrast is real, by resampling rows or units such as donors."""

from contrast_core.significance._advice import ContrastAdvice, contrast_advice
from contrast_core.significance._bootstrap import BootstrapStability, bootstrap_stability
from contrast_core.significance._condition import condition_test
from contrast_core.significance._condition_shift import ConditionShift, condition_shift
from contrast_core.significance._cross_fit import CrossFittedRatio, cross_fitted_ratio
from contrast_core.significance._dimension import ContrastDimension, contrast_dimension
from contrast_core.significance._permutation import PermutationTest, permutation_test
from contrast_core.significance._report import ContrastReport, contrast_report
from contrast_core.significance._responders import Responders, responders

__all__ = [
    "BootstrapStability",
    "ConditionShift",
    "ContrastAdvice",
    "ContrastDimension",
    "ContrastReport",
    "CrossFittedRatio",
    "PermutationTest",
    "Responders",
    "bootstrap_stability",
    "condition_shift",
    "condition_test",
    "contrast_advice",
    "contrast_dimension",
    "contrast_report",
    "cross_fitted_ratio",
    "permutation_test",
    "responders",
]
