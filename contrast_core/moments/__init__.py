"""Counts, means and second moments of data, from which the linear methods are fitted."""

from contrast_core.moments._feature_moments import FeatureMoments, split_feature_moments
from contrast_core.moments._moments import ALONE, Form, Moments, Threads, is_moments
from contrast_core.moments._pairs import PairMoments, check_pairs, pair_moments
from contrast_core.moments._products import ProductMoments, product_moments
from contrast_core.moments._second_moments import SecondMoments, grouped_moments
from contrast_core.moments._span import SpanMoments, span_moments
from contrast_core.moments._units import warn_of_units
from contrast_core.moments._weighted_sum import check_mix, mixed, parts_along, weighted_sum

__all__ = [
    "ALONE",
    "FeatureMoments",
    "Form",
    "Moments",
    "PairMoments",
    "ProductMoments",
    "SecondMoments",
    "SpanMoments",
    "Threads",
    "check_mix",
    "check_pairs",
    "grouped_moments",
    "is_moments",
    "mixed",
    "pair_moments",
    "parts_along",
    "product_moments",
    "span_moments",
    "split_feature_moments",
    "warn_of_units",
    "weighted_sum",
]
