"""Data read once, into counts, means and second moments."""

from contrast_core.moments._pair_moments import PairMoments, PairRows, check_pairs
from contrast_core.moments._second_moments import SecondMoments

__all__ = ["PairMoments", "PairRows", "SecondMoments", "check_pairs"]
