"""Moments of positive pairs, in the form that the plan chooses.

Problem: methods on pairs need the moments of the pairs' means and half differences, in the form
that costs least for their size. The pairs are checked here. Their moments are computed only when a
method asks for them, because a fallback may ask for another form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from contrast_core._validation import MatrixLike
from contrast_core.moments import Form, PairMoments, check_pairs, pair_moments
from contrast_core.rows import rows_of
from contrast_core.solve._contrast import check_range
from contrast_core.solve._plan import LIMITS, Limits, Plan, ProblemSize, make_plan

_IN_FEATURES = make_plan(ProblemSize(2, 1, 1))  # a plan with matrices of features x features


class PlannedPairs(NamedTuple):
    """Positive pairs whose moments have not been computed yet, and the plan for them.

    n_pairs : float
        Number of pairs, n, or their total weight.
    n_features : int
        Number of features, D.
    plan : callable
        Function that returns the `Plan` by which k components of the pairs are found.
    moments : callable
        Function that returns the `PairMoments` in a given form; it also takes ``exchangeable=``.
    """

    n_pairs: float
    n_features: int
    plan: Callable[[int], Plan]
    moments: Callable[..., PairMoments]


def positive_pairs(
    X: MatrixLike | PairMoments | PlannedPairs,
    positive: MatrixLike | None,
    sample_weight: ArrayLike | None = None,
    limits: Limits = LIMITS,
) -> PlannedPairs:
    """Check that there are at least two pairs, and return them with their plan.

    If the pairs are given as moments, have weights, or are in a file, the plan is to use
    matrices of features x features.

    Raises
    ------
    TypeError
        If `positive` or weights are given together with `PairMoments`.
    ValueError
        If `positive` is missing, the views differ in rows or features, or there are fewer than
        two pairs.
    """
    if isinstance(X, PairMoments | PlannedPairs):
        return _given(X, positive, sample_weight)
    if sample_weight is not None:
        X = rows_of(X, "X", weights=sample_weight)
        n_used = np.count_nonzero(X.weights)  # type: ignore[arg-type]
        if n_used < 2:
            raise ValueError(
                f"sample_weight is positive for {n_used} pair, but a variance needs at least 2."
            )
    if positive is None:
        raise ValueError(
            "positive=None was given; a method on positive pairs needs a second view of every "
            "row of X: fit(X, positive=...), or fit(moments) with the PairMoments of both."
        )
    x, p, names = check_pairs(X, positive)
    n, n_features = x.shape
    if n < 2:
        raise ValueError(f"X has n_samples={n} pair(s), but a variance needs at least 2.")
    in_features = "stored" in (x.place, p.place) or x.weights is not None
    if not in_features:
        x, p = (
            rows_of(part.load(check=False), part.name, names=names, elements=part.elements)
            for part in (x, p)
        )

    def moments(form: Form, *, exchangeable: bool = True) -> PairMoments:
        return _checked(pair_moments(x, p, form, exchangeable=exchangeable))

    def plan(k: int) -> Plan:
        return _IN_FEATURES if in_features else make_plan(ProblemSize(2 * n, n_features, k), limits)

    total = n if x.weights is None else float(x.weights.sum())
    return PlannedPairs(total, n_features, plan, moments)


def _given(X: PairMoments | PlannedPairs, positive: object, sample_weight: object) -> PlannedPairs:
    """Return pairs given as moments; raise an error if a second view or weights are given too."""
    if sample_weight is not None:
        raise TypeError(
            f"X is {type(X).__name__}, so weights cannot be given to fit. Give them when the "
            "moments are computed: PairMoments.from_data(X, positive, sample_weight=...)."
        )
    if positive is not None:
        raise TypeError(
            f"X is {type(X).__name__}, which already holds both views, but positive is "
            f"{type(positive).__name__}. Use fit(moments) without positive, or give data for both."
        )
    if isinstance(X, PlannedPairs):
        return X
    if isinstance(X.n_pairs, int) and X.n_pairs < 2:
        raise ValueError(f"X has n_samples={X.n_pairs} pair(s), but a variance needs at least 2.")
    return PlannedPairs(
        X.n_pairs, X.n_features, lambda _: _IN_FEATURES, lambda *_, **__: _checked(X)
    )


def _checked(pairs: PairMoments) -> PairMoments:
    """Return the pairs; raise ValueError if a variance is outside the range of float64."""
    for part in (pairs.average, pairs.difference):
        check_range(part, "X and positive")
    return pairs
