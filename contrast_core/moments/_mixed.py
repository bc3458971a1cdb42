"""Several backgrounds as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from contrast_core._validation import FloatArray, check_weights, shown
from contrast_core.moments._covariance import ALONE, Covariance, Form, Moments, Threads


@dataclass(frozen=True, eq=False)
class MixedMoments(Moments):
    r"""The weighted mean of several datasets' covariances, each about its own mean.

    .. math:: C = \sum_j w_j C_j, \qquad \sum_j w_j = 1

    Parameters
    ----------
    parts : tuple of moments
        Of the datasets, all in the same coordinates.
    shares : ndarray of shape (number of datasets,)
        The weights, positive; they need not sum to one.

    Raises
    ------
    ValueError, TypeError
        If there are not as many shares as parts, or one is not positive.
    """

    parts: tuple[Any, ...]
    shares: FloatArray

    def __post_init__(self) -> None:
        vars(self).update(parts=tuple(self.parts), shares=check_mix(self.shares, len(self.parts)))

    @property
    def form(self) -> Form:  # type: ignore[override]
        """Of all parts."""
        return self._first.form

    @property
    def feature_names(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """Names of the features, where the data had them."""
        return next((part.feature_names for part in self.parts if part.feature_names), None)

    @property
    def n_samples(self) -> float:
        """Rows of all datasets together, or their total weight."""
        return float(sum(part.n_samples for part in self.parts))

    @property
    def mean(self) -> FloatArray:
        """The weighted mean of the datasets' means, (n_features,)."""
        return self._sum(lambda part: part.mean)

    @property
    def variances(self) -> FloatArray:
        """Variance of each feature, shape (n_features,)."""
        return self._sum(lambda part: part.variances)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self._first.size

    @cached_property
    def _matrix(self) -> FloatArray:
        return self._sum(lambda part: part.matrix())

    def matrix(self) -> FloatArray:
        """The matrix in its coordinates, formed once."""
        return self._matrix

    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Product with columns (size, b)."""
        return self._sum(lambda part: part.apply(columns, threads))

    def along(self, components: FloatArray) -> FloatArray:
        """``v^T C v`` for each row v of `components` (k, size), shape (k,)."""
        return self._sum(lambda part: part.along(components))

    def lift(self, components: FloatArray) -> FloatArray:
        """Rows in these coordinates in feature space."""
        return self._first.lift(components)

    def coordinates_of(self, components: FloatArray) -> FloatArray:
        """Rows in feature space in these coordinates."""
        return self._first.coordinates_of(components)

    def complement(self, count: int) -> FloatArray:
        """So many orthonormal directions of the features that no row has a part in."""
        return self._first.complement(count)

    @property
    def space(self) -> Any:
        """What the parts' coordinates belong to, where these are not the features."""
        return getattr(self._first, "space", None)

    @property
    def _first(self) -> Moments:
        first: Moments = self.parts[0]
        return first

    def _sum(self, of: Callable[[Moments], FloatArray]) -> FloatArray:
        total = self.shares[0] * of(self._first)
        for share, part in zip(self.shares[1:], self.parts[1:], strict=True):
            total += share * of(part)
        return np.asarray(total)


def mixed(parts: Sequence[Moments], mix: ArrayLike | None) -> Moments:
    """The moments of one background or several; `mix` as in `CPCA.fit`."""
    if len(parts) == 1 and mix is None:
        return parts[0]
    shares = np.ones(len(parts)) if mix is None else np.asarray(mix)
    return MixedMoments(tuple(parts), shares)


def check_mix(mix: object, n: int) -> FloatArray:
    """Positive shares of so many backgrounds, made to sum to one."""
    given: Any = mix
    if np.shape(given) != (n,):
        raise ValueError(
            f"background_mix={shown(mix)} is given for {n} background(s); expected a positive "
            "number for each of them."
        )
    shares = check_weights(np.asarray(given), n, "the shares of background_mix")
    if shares.min() == 0:
        raise ValueError(f"background_mix={shown(mix)} holds 0; leave that background out.")
    return np.asarray(shares / shares.sum())


def parts_along(moments: Covariance, components: FloatArray) -> FloatArray:
    """Variances of each part of mixed moments, or of all, along rows in feature space, (J, k)."""
    inside = moments.coordinates_of(components)
    parts: Sequence[Covariance] = getattr(moments, "parts", (moments,))
    return np.stack([part.along(inside) for part in parts])
