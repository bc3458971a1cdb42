"""Data read once, into counts, means and second moments."""

from contrast_core.moments._covariance import (
    ALONE,
    Covariance,
    DenseCovariance,
    Form,
    Moments,
    Threads,
    is_moments,
)
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.moments._grouped import GroupedMoments
from contrast_core.moments._mixed import MixedMoments, check_mix, mixed, parts_along
from contrast_core.moments._pair_moments import PairMoments, check_pairs
from contrast_core.moments._pair_rows import Cross, PairRows, dense_cross
from contrast_core.moments._products import (
    ProductMoments,
    joint_products,
    product_moments,
    weighted_product,
)
from contrast_core.moments._second_moments import SecondMoments
from contrast_core.moments._span import SpanMoments, span_moments
from contrast_core.moments._sparse_products import sparse_scores
from contrast_core.moments._sparse_within import compiled_covariance_pays

__all__ = [
    "ALONE",
    "Covariance",
    "Cross",
    "DenseCovariance",
    "FeatureMoments",
    "Form",
    "GroupedMoments",
    "MixedMoments",
    "Moments",
    "PairMoments",
    "PairRows",
    "ProductMoments",
    "SecondMoments",
    "SpanMoments",
    "Threads",
    "check_mix",
    "check_pairs",
    "compiled_covariance_pays",
    "dense_cross",
    "is_moments",
    "joint_products",
    "mixed",
    "parts_along",
    "product_moments",
    "span_moments",
    "sparse_scores",
    "weighted_product",
]
