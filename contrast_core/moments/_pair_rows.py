"""Positive pairs in memory, with many features too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from contrast_core._validation import FloatArray, iter_chunks
from contrast_core.linalg import (
    NotConvergedError,
    contrastive_eigenpairs,
    fix_signs,
    leading_eigenpairs,
)
from contrast_core.moments._cross_moment import CrossMoment
from contrast_core.moments._pair_moments import PairMoments, SharedVariance
from contrast_core.moments._paired import Moments
from contrast_core.moments._pooled import affordable, form_of, pooled_moments
from contrast_core.moments._row_space import span_of_rows

_CACHED_ELEMENTS = 2**18  # 2 MB of float64


@dataclass(frozen=True, eq=False)
class PairRows:
    """Positive pairs in memory, behind what PCA+ and PCA++ take of `PairMoments`.

    Matrices of features x features are formed where they are small only.

    Parameters
    ----------
    X, positive : ndarray or CSR matrix of shape (n_pairs, n_features)
        The two views, as `check_pairs` returns them.
    feature_names : tuple of str, optional
        Names of the features.
    """

    X: Any
    positive: Any
    feature_names: tuple[str, ...] | None = None

    @property
    def n_pairs(self) -> int:
        """Number of pairs, n."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return int(self.X.shape[1])

    def second_moments(self, *, exchangeable: bool = True) -> Moments:
        """As `PairMoments.second_moments`, in the form that fits the shape (`pooled_moments`)."""
        views = (self.X, self.positive) if exchangeable else (self.X,)
        return pooled_moments(views, ("X", "positive")[: len(views)], self.feature_names)

    def shared_variance(self, k: int, *, exchangeable: bool = True) -> SharedVariance:
        """As `PairMoments.shared_variance`; the cross-moment is formed where it is small only.

        Raises NotConvergedError if the iteration fails and neither it nor the Gram matrix is
        affordable.
        """
        match form_of(2 * self.n_pairs, self.n_features):
            case "gram":
                return self._from_span(k, exchangeable)
            case "products":
                try:
                    return self._from_products(k, exchangeable)
                except NotConvergedError as error:
                    if not affordable(2 * self.n_pairs, self.n_features):
                        raise NotConvergedError(
                            f"PCA+ of {self.n_pairs} pairs and {self.n_features} features: {error} "
                            "Data of this size need a gap there: use another number of components "
                            "or fewer features."
                        ) from error
                    if self.n_features > 2 * self.n_pairs:
                        return self._from_span(k, exchangeable)
        moments = PairMoments.from_data(self.X, self.positive)
        return moments.shared_variance(k, exchangeable=exchangeable)

    def _from_span(self, k: int, exchangeable: bool) -> SharedVariance:
        space, _ = span_of_rows(
            (self.X, self.positive), ("X", "positive"), n_components=k, common_mean=exchangeable
        )
        x, p = np.split(space.coordinates, 2)
        cross = x.T @ p / (2 * self.n_pairs)
        values, components = leading_eigenpairs(cross + cross.T, k)
        return SharedVariance(space.means[0], values, fix_signs(space.lift(components)))

    def _from_products(self, k: int, exchangeable: bool) -> SharedVariance:
        cross = CrossMoment(self.X, self.positive, common_mean=exchangeable)
        values, components = contrastive_eigenpairs(cross, cross, 0.0, k)
        return SharedVariance(cross.means[0], values, components)

    def cross_moment_along(
        self, directions: FloatArray, *, exchangeable: bool = True
    ) -> FloatArray:
        """As `PairMoments.cross_moment_along`."""
        size = len(directions)
        total, other_total, cross = np.zeros(size), np.zeros(size), np.zeros((size, size))
        shift = None
        for x, p in zip(
            iter_chunks(self.X, "X"), iter_chunks(self.positive, "positive"), strict=True
        ):
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
