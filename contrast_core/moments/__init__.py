"""Data read once, into counts, means and second moments."""

from contrast_core.moments._second_moments import SecondMoments

__all__ = ["SecondMoments"]
