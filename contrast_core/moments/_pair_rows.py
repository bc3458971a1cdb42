"""Positive pairs in memory with the interface of `PairMoments`, for many features too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.moments._covariance import Covariance, DenseCovariance, Form, Moments
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.moments._pair_moments import PairMoments
from contrast_core.moments._products import CrossProducts, product_moments
from contrast_core.moments._second_moments import SecondMoments
from contrast_core.moments._span import SpanCross, pooled_span_moments, span_of_rows
from contrast_core.rows import Rows

_CACHED_ELEMENTS = 2**18  # 2 MB of float64


class Cross(NamedTuple):
    """The cross-moment S+ of positive pairs, moments of all their rows, the mean for scores."""

    moment: Covariance
    rows: Moments
    mean: FloatArray


@dataclass(frozen=True, eq=False)
class PairRows:
    """Positive pairs as rows, behind what PCA+ and PCA++ take of `PairMoments`.

    Matrices of features x features are formed where that form is asked for only.

    Parameters
    ----------
    X, positive : Rows of shape (n_pairs, n_features)
        The two views.
    feature_names : tuple of str, optional
        Names of the features.
    """

    X: Rows
    positive: Rows
    feature_names: tuple[str, ...] | None = None

    @property
    def n_pairs(self) -> int:
        """Number of pairs, n."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return int(self.X.shape[1])

    def second_moments(self, form: Form, *, exchangeable: bool = True) -> Moments:
        """As `PairMoments.second_moments`, in this form."""
        views = (self.X, self.positive) if exchangeable else (self.X,)
        match form:
            case "span":
                return pooled_span_moments(
                    span_of_rows(views, common_mean=True), self.feature_names
                )
            case "products":
                return product_moments([views], self.feature_names)[0]
        # The cross-moment, as of `moments`, would cost as much again and is not needed.
        return reduce(SecondMoments.merge, map(SecondMoments.from_data, views))

    def cross(self, form: Form, *, exchangeable: bool = True) -> Cross:
        """The cross-moment in this form, about the views' common mean or about each view's own."""
        views = (self.X, self.positive)
        match form:
            case "span":
                space = span_of_rows(views, common_mean=exchangeable)
                rows = pooled_span_moments(space, self.feature_names)
                return Cross(SpanCross(space, self.feature_names), rows, space.means[0])
            case "products":
                [both] = product_moments([views], self.feature_names)
                means = (both.mean, both.mean)
                if not exchangeable:
                    first, second = map(FeatureMoments.from_data, views)
                    means = first.mean, second.mean
                return Cross(CrossProducts(views, means, self.feature_names), both, means[0])
        return dense_cross(self.moments(), exchangeable=exchangeable)

    def moments(self) -> PairMoments:
        """The pairs reduced to matrices of features x features."""
        return PairMoments.from_data(self.X, self.positive)

    def cross_moment_along(
        self, directions: FloatArray, *, exchangeable: bool = True
    ) -> FloatArray:
        """As `PairMoments.cross_moment_along`."""
        size = len(directions)
        total, other_total, cross = np.zeros(size), np.zeros(size), np.zeros((size, size))
        shift = None
        for x, p in zip(self.X.blocks(dense=True), self.positive.blocks(dense=True), strict=True):
            if shift is None:  # data far from zero would lose digits
                shift = x.mean(axis=0, dtype=np.float64)
            a, b = (_scores(rows, shift, directions) for rows in (x, p))
            total += a.sum(axis=0)
            other_total += b.sum(axis=0)
            cross += a.T @ b
        mean, other_mean = total / self.n_pairs, other_total / self.n_pairs
        cross = cross / self.n_pairs - np.outer(mean, other_mean)
        cross = (cross + cross.T) / 2
        if exchangeable:
            half = (mean - other_mean) / 2
            cross -= np.outer(half, half)
        return np.asarray(cross)


def dense_cross(pairs: PairMoments, *, exchangeable: bool = True) -> Cross:
    """`PairRows.cross` of pairs that have been reduced to moments."""
    rows = pairs.second_moments()
    mean = rows.mean
    if not exchangeable:  # the difference of the views' means is no variation
        mean = pairs.mean
        within = (pairs.covariance + pairs.positive_covariance) / 2
        rows = SecondMoments._unchecked(2 * pairs.n_pairs, rows.mean, within, pairs.feature_names)
    moment = DenseCovariance(pairs.cross_moment(exchangeable=exchangeable), pairs.feature_names)
    return Cross(moment, rows, mean)


def _scores(rows: Any, shift: FloatArray, directions: FloatArray) -> FloatArray:
    """Shifted rows (n, D) times the transpose of directions (k, D), in memory that stays cached."""
    scores = np.empty((len(rows), len(directions)))
    step = max(16, _CACHED_ELEMENTS // len(shift))
    shifted = np.empty((min(step, len(rows)), len(shift)))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        np.subtract(block, shift, out=shifted[: len(block)])
        scores[start : start + step] = shifted[: len(block)] @ directions.T
    return scores
