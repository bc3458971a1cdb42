"""Positive pairs in the form that is planned, and what their views share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from contrast_core._validation import FloatArray, MatrixLike
from contrast_core.moments import (
    Cross,
    Moments,
    PairMoments,
    PairRows,
    check_pairs,
    dense_cross,
)
from contrast_core.rows import rows_of
from contrast_core.solve._contrast import check_range, solve_components
from contrast_core.solve._fallback import with_fallback
from contrast_core.solve._plan import Plan, plan_pairs

_VIEWS = "X and positive"


class SharedVariance(NamedTuple):
    """Leading eigenpairs of a cross-moment, (k,) and rows (k, D), and the mean for scores (D,)."""

    mean: FloatArray
    values: FloatArray
    components: FloatArray


@dataclass(frozen=True)
class Pairs:
    """Positive pairs, as rows or as moments, and how they are solved.

    Parameters
    ----------
    rows : PairRows or None
        None: there are moments only.
    moments : PairMoments or None
        What the pairs have been reduced to.
    plan : Plan
        The way.
    """

    rows: PairRows | None
    moments: PairMoments | None
    plan: Plan

    @property
    def n_pairs(self) -> float:
        """Number of pairs, n, or their total weight."""
        return (self.rows or self._moments).n_pairs

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return (self.rows or self._moments).n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, where the data had them."""
        return (self.rows or self._moments).feature_names

    def second_moments(self, plan: Plan, *, exchangeable: bool = True) -> Moments:
        """The covariance S that PCA++ whitens by, in the form of a plan."""
        moments: Moments
        if self.rows is None:
            moments = self._moments.second_moments(exchangeable=exchangeable)
        else:
            moments = self.rows.second_moments(plan.form, exchangeable=exchangeable)
        check_range(moments, _VIEWS)
        return moments

    def cross_moment_along(
        self, directions: FloatArray, *, exchangeable: bool = True
    ) -> FloatArray:
        """The cross-moment S+ between `directions`, rows (s, n_features): shape (s, s)."""
        source = self.rows or self._moments
        return source.cross_moment_along(directions, exchangeable=exchangeable)

    def shared_variance(self, k: int, *, exchangeable: bool = True) -> SharedVariance:
        """The k algebraically largest eigenpairs of the cross-moment, for PCA+.

        Raises NotConvergedError if the iteration fails and no matrix is affordable.
        """

        def solve(plan: Plan) -> SharedVariance:
            cross = self._cross(plan, exchangeable)
            check_range(cross.rows, _VIEWS)
            found = solve_components(cross.moment, cross.rows, k, plan)
            return SharedVariance(cross.mean, found.values[0], found.components[0])

        return with_fallback(
            self.plan,
            solve,
            task=f"PCA+ of {self.n_pairs} pairs and {self.n_features} features",
            advice="Data of this size need a gap there: use another number of components or fewer "
            "features.",
        )

    def _cross(self, plan: Plan, exchangeable: bool) -> Cross:
        if self.rows is None:
            return dense_cross(self._moments, exchangeable=exchangeable)
        return self.rows.cross(plan.form, exchangeable=exchangeable)

    @property
    def _moments(self) -> PairMoments:
        assert self.moments is not None
        return self.moments


def positive_pairs(
    X: MatrixLike | PairMoments | Pairs,
    positive: MatrixLike | None,
    sample_weight: ArrayLike | None = None,
) -> Pairs:
    """Pairs as moments, if they are, have weights or are not in memory, else as rows.

    At least two of them.

    Raises
    ------
    TypeError
        If `positive` or weights are given beside `PairMoments`.
    ValueError
        If `positive` is missing, the views differ in rows or features, or there are fewer than
        two pairs.
    """
    if sample_weight is not None:
        if isinstance(X, PairMoments | Pairs):
            raise TypeError(
                f"X is {type(X).__name__}, to which weights come too late; give "
                "PairMoments.from_data(X, positive, sample_weight=...)."
            )
        X = rows_of(X, "X", weights=sample_weight)
        n_used = np.count_nonzero(X.weights)  # type: ignore[arg-type]
        if n_used < 2:
            raise ValueError(
                f"sample_weight is positive for {n_used} pair, but a variance needs at least 2."
            )
    pairs = _as_pairs(X, positive)
    if isinstance(pairs.n_pairs, int) and pairs.n_pairs < 2:
        raise ValueError(
            f"X has n_samples={pairs.n_pairs} pair(s), but a variance needs at least 2."
        )
    return pairs


def _as_pairs(X: MatrixLike | PairMoments | Pairs, positive: MatrixLike | None) -> Pairs:
    if isinstance(X, PairMoments | Pairs):
        if positive is not None:
            raise TypeError(
                f"X is {type(X).__name__}, which hold both views already, but positive is "
                f"{type(positive).__name__}; give fit(moments) alone, or data for both."
            )
        return X if isinstance(X, Pairs) else _reduced(X)
    if positive is None:
        raise ValueError(
            "positive=None was given; a method on positive pairs needs a second view of every "
            "row of X: fit(X, positive=...), or fit(moments) with the PairMoments of both."
        )
    x, p, names = check_pairs(X, positive)
    if "stored" in (x.place, p.place) or x.weights is not None:
        return _reduced(PairMoments.from_data(x, p))
    x, p = (rows_of(part.load(check=False), part.name, names=names) for part in (x, p))
    rows = PairRows(x, p, names)
    return Pairs(rows, None, plan_pairs(2 * rows.n_pairs, rows.n_features))


def _reduced(moments: PairMoments) -> Pairs:
    return Pairs(None, moments, plan_pairs(2, 1))  # in features: the matrices are there
