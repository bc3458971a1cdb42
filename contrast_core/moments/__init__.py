"""Data read once, into counts, means and second moments."""

from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.moments._implicit import ImplicitMoments
from contrast_core.moments._pair_moments import PairMoments, check_pairs
from contrast_core.moments._pair_rows import PairRows
from contrast_core.moments._paired import (
    SOLVERS,
    Moments,
    Solver,
    check_moments_pair,
    direct_moments,
    is_moments,
    solve_one,
    solve_path,
    solver_of,
    wide_moments,
)
from contrast_core.moments._pooled import affordable, exact_moments
from contrast_core.moments._row_space import OneContrast, RowSpaceMoments
from contrast_core.moments._second_moments import SecondMoments

__all__ = [
    "SOLVERS",
    "FeatureMoments",
    "ImplicitMoments",
    "Moments",
    "OneContrast",
    "PairMoments",
    "PairRows",
    "RowSpaceMoments",
    "SecondMoments",
    "Solver",
    "affordable",
    "check_moments_pair",
    "check_pairs",
    "direct_moments",
    "exact_moments",
    "is_moments",
    "solve_one",
    "solve_path",
    "solver_of",
    "wide_moments",
]
