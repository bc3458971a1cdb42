"""Weighted sums of the moments of several datasets.

Problem: if the rows of several backgrounds were pooled, the differences between their means would
count as variance. Therefore the covariance of each background is taken about the mean of this
background, and the covariances are summed. The sum has the same form as its parts ("dense", "span"
or "products"), so a solver treats it like the moments of a single dataset. For positive pairs, the
moments of the averages and of the differences of the pairs are summed in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from contrast_core._validation import FloatArray, check_weights, shown
from contrast_core.moments._moments import Moments
from contrast_core.moments._products import ProductMoments
from contrast_core.moments._second_moments import SecondMoments
from contrast_core.moments._span import SpanMoments


def weighted_sum(
    parts: Sequence[Moments],
    weights: Sequence[float],
    n_samples: float | None = None,
    mean: FloatArray | None = None,
) -> Moments:
    r"""Return moments with the covariance :math:`\sum_j w_j C_j`.

    Parameters
    ----------
    parts : sequence of moments
        Moments that all have the same form and the same coordinates.
    weights : sequence of float
        Weight of each part, w_j.
    n_samples : float, optional
        Number of rows of the result; by default, the total number of rows of the parts.
    mean : ndarray of shape (n_features,), optional
        Mean of the result; by default, the weighted sum of the means of the parts.

    Returns
    -------
    Moments
        Moments of the same form as the parts, which are kept in the attribute `parts`.
    """
    first: Any = parts[0]
    n = float(sum(part.n_samples for part in parts)) if n_samples is None else n_samples
    names = next((part.feature_names for part in parts if part.feature_names), None)
    mean = _sum([part.mean for part in parts], weights) if mean is None else mean
    variances = _sum([part.variances for part in parts], weights)
    common: dict[str, Any] = {"n_samples": n, "mean": mean, "feature_names": names}
    if isinstance(first, ProductMoments):
        terms = tuple(
            term._replace(weight=weight * term.weight)
            for part, weight in zip(parts, weights, strict=True)
            for term in part.terms  # type: ignore[attr-defined]
            if weight
        )
        return ProductMoments(variances=variances, terms=terms, parts=tuple(parts), **common)
    matrix = _sum([part.matrix() for part in parts], weights)
    if isinstance(first, SpanMoments):
        return SpanMoments(
            variances=variances,
            covariance=matrix,
            space=first.space,
            parts=tuple(parts),
            **common,
        )
    return SecondMoments._unchecked(covariance=matrix, parts=tuple(parts), **common)


def mixed(parts: Sequence[Moments], mix: ArrayLike | None) -> Moments:
    """Return the moments of a mixture of backgrounds.

    `mix` holds the shares of the backgrounds, as the parameter ``background_mix`` of `CPCA.fit`.
    """
    if len(parts) == 1 and mix is None:
        return parts[0]
    shares = check_mix(np.ones(len(parts)) if mix is None else mix, len(parts))
    return weighted_sum(parts, shares.tolist())


def check_mix(mix: object, n: int) -> FloatArray:
    """Check the shares of the n backgrounds, and return them scaled to sum to one."""
    given: Any = mix
    if np.shape(given) != (n,):
        raise ValueError(
            f"background_mix={shown(mix)} was given with {n} background(s); expected one positive "
            "number for each background."
        )
    shares = check_weights(np.asarray(given), n, "the shares of background_mix")
    if shares.min() == 0:
        raise ValueError(f"background_mix={shown(mix)} holds 0; leave that background out.")
    return np.asarray(shares / shares.sum())


def parts_along(moments: Moments, components: FloatArray) -> FloatArray:
    """Return the variance of each of the J parts of a sum along each of k components, (J, k)."""
    inside = moments.coordinates_of(components)
    return np.stack([part.variances_along(inside) for part in moments.parts or (moments,)])


def _sum(arrays: Sequence[FloatArray], weights: Sequence[float]) -> FloatArray:
    total = weights[0] * arrays[0]
    for array, weight in zip(arrays[1:], weights[1:], strict=True):
        total += weight * array
    return np.asarray(total)
