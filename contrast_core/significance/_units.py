"""Units of resampling, which are single rows or sets of rows reduced to their moments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from contrast_core._validation import FloatArray, MatrixLike, check_both_labels, check_labels
from contrast_core.moments import FeatureMoments, SecondMoments
from contrast_core.solve import Design, check_variances, loaded_rows

_SMALLEST, _LARGEST = 1e-150, 1e150  # variances whose ratios float64 can hold
_MAX_ITERATIONS = 200


class Weights(TypedDict, total=False):
    """Weights of rows and of several backgrounds, as for `CPCA.fit`."""

    sample_weight: ArrayLike | None
    background_weight: ArrayLike | Sequence[ArrayLike | None] | None
    background_mix: ArrayLike | None


@dataclass(frozen=True, eq=False)
class Units:
    """Moments of the U units of a dataset with D features.

    Units are single rows or sets of rows such as donors.

    Parameters
    ----------
    counts : ndarray of shape (U,)
        Number of rows in each unit, or their total weight.
    means : ndarray of shape (U, D)
        Means of the units.
    covariances : ndarray of shape (U, D, D) or None
        Covariances of the units; None if every unit is one row.
    """

    counts: FloatArray
    means: FloatArray
    covariances: FloatArray | None

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def weights(self) -> FloatArray:
        """Return the weight of each unit, (U,), which is 1 for a donor and the count for a row."""
        return self.counts if self.covariances is None else np.ones(len(self))

    def centred(self) -> Self:
        """Subtract the geometric median of the units' means, by Weiszfeld's iteration.

        The geometric median is the point with the least sum of distances to the means. It is about
        as precise as their average, but a few units that are far away hardly move it.
        """
        centre = np.asarray(np.average(self.means, axis=0, weights=self.weights))
        for _ in range(_MAX_ITERATIONS):
            distances = np.linalg.norm(self.means - centre, axis=1)
            typical = distances.mean()
            if not typical > 0:
                break
            pull = self.weights / np.maximum(distances, 1e-9 * typical)
            moved = pull @ self.means / pull.sum()
            step, centre = np.linalg.norm(moved - centre), moved
            if not step > 1e-12 * typical:
                break
        return replace(self, means=self.means - centre)

    def error_of_centre(self, draw: FloatArray) -> FloatArray:
        """Return a draw of the error of the geometric median, from standard normal numbers (U,).

        Let u be the vectors from the centre to the units. To first order, the error is the mean of
        ``u / norm(u)``, divided by the mean of ``1 / norm(u)``. A unit that is far away therefore
        counts no more than the other units.
        """
        lengths = np.linalg.norm(self.means, axis=1)
        pull = self.weights / np.maximum(lengths, 1e-9 * lengths.mean() + _SMALLEST)
        return np.asarray((draw * pull) @ self.means / pull.sum())

    def scale(self, j: int) -> float:
        """Return the median size of the centred units in the coordinates from j on.

        The size of a unit is the root mean square length of its rows. If the median size is zero,
        because most rows are equal, the root mean square of the sizes is returned instead.
        """
        squares = (self.means[:, j:] ** 2).sum(axis=1)
        if self.covariances is not None:
            squares += np.trace(self.covariances[:, j:, j:], axis1=1, axis2=2)
        order = np.argsort(squares)
        below = np.cumsum(self.weights[order])
        median = float(squares[order[np.searchsorted(below, below[-1] / 2)]])
        mean = float(np.average(squares, weights=self.weights))
        return math.sqrt(median if median > 0 else mean)

    @property
    def rounding(self) -> float:
        """Return the variance that rounding may produce, as a share of the total variance."""
        share = float(4 * self.means.shape[1] * np.finfo(np.float64).eps)
        return share**2 if self.covariances is None else share

    @classmethod
    def stacked(cls, parts: Sequence[Self]) -> Self:
        """Stack the units of several datasets."""
        covariances = [part.covariances for part in parts if part.covariances is not None]
        return cls(
            np.concatenate([part.counts for part in parts]),
            np.vstack([part.means for part in parts]),
            np.concatenate(covariances) if covariances else None,
        )

    def covariance(self, share: FloatArray) -> FloatArray:
        """Return the covariance of a mixture of units with these shares (U,), which sum to 1."""
        used = np.flatnonzero(share)
        away = (self.means[used] - share @ self.means) * np.sqrt(share[used])[:, None]
        covariance = away.T @ away
        if self.covariances is not None:
            covariance += np.tensordot(share, self.covariances, axes=1)
        return np.asarray(covariance)

    def moments(self, mass: FloatArray, n_rows: float | None = None) -> SecondMoments:
        """Return the moments of a mixture of units with weights `mass` (U,).

        `n_rows` is the number of rows that the moments report; by default it is the total weight.
        """
        share = mass / mass.sum()
        return SecondMoments._unchecked(
            round(mass.sum() if n_rows is None else n_rows),
            share @ self.means,
            self.covariance(share),
        )

    def sums(
        self, chosen: NDArray[np.bool_], shift: FloatArray | float = 0.0
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the weight of the chosen units, and the sums of their first and second moments.

        The vector `shift` (D,) is first added to all units. Second moments are taken about 0, not
        about the mean.
        """
        weights, means = self.weights[chosen], self.means[chosen] + shift
        first = weights @ means
        means *= np.sqrt(weights)[:, None]
        second = means.T @ means
        if self.covariances is not None:
            second += np.tensordot(chosen.astype(np.float64), self.covariances, axes=1)
        return float(weights.sum()), first, second

    def mirrored(self, normal: FloatArray) -> Self:
        """Reflect the units across the hyperplane through 0 with the unit normal vector (D,)."""
        means = self.means - 2 * np.outer(self.means @ normal, normal)
        if self.covariances is None:
            return replace(self, means=means)
        covariances = self.covariances.copy()
        for matrix in covariances:
            product = matrix @ normal
            product -= (normal @ product) * normal
            matrix -= np.outer(2 * product, normal) + np.outer(normal, 2 * product)
        return replace(self, means=means, covariances=covariances)


class Sample(NamedTuple):
    """Rows in memory, with the index of the unit to which each row belongs.

    If `grouped` is False, every row is a unit of its own. The mean of the weights is 1. If there
    are several backgrounds, `strata` is the index of the background of each row.
    """

    rows: Any
    codes: NDArray[np.intp]
    grouped: bool
    weights: FloatArray | None = None
    strata: NDArray[np.intp] | None = None

    @property
    def n_units(self) -> int:
        """Return the number of units."""
        return int(self.codes.max()) + 1

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Return the number of rows of each unit, (U,)."""
        return np.bincount(self.codes)

    def moments(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> SecondMoments:
        """Return the moments of some rows, given by a mask or by their indices."""
        weights = None if self.weights is None else self.weights[chosen]
        return SecondMoments.from_data(self.rows[chosen], sample_weight=weights)

    def units(self) -> Units:
        """Compute the units of this dataset, in one pass over its rows."""
        if self.grouped:
            return self.merged(np.arange(self.n_units))
        dense = self.rows.toarray() if issparse(self.rows) else self.rows
        counts = np.ones(len(dense)) if self.weights is None else self.weights
        return Units(counts, np.asarray(dense, dtype=np.float64), None)

    def thinned(self, most: NDArray[np.integer], rng: np.random.Generator) -> Sample:
        """Draw at most `most` (U,) rows of each unit, without replacement."""
        if (self.sizes <= most).all():
            return self
        shuffled = rng.permutation(len(self.codes))
        order = shuffled[np.argsort(self.codes[shuffled], kind="stable")]
        first = np.cumsum(self.sizes) - self.sizes
        place = np.arange(len(order)) - first[self.codes[order]]  # rank of each row within its unit
        kept = np.sort(order[place < most[self.codes[order]]])
        return self._replace(rows=self.rows[kept], codes=self.codes[kept])

    def merged(self, of_unit: NDArray[np.intp]) -> Units:
        """Join the units with the same index in `of_unit` (U,) into one larger unit each."""
        codes = of_unit[self.codes]
        order = np.argsort(codes, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
        covariances = np.empty((len(parts), *2 * [self.rows.shape[1]]))
        counts, means = [], []
        for part, covariance in zip(parts, covariances, strict=True):
            moments = self.moments(part)
            counts.append(float(moments.n_samples))
            means.append(moments.mean)
            covariance[:] = moments.covariance
        return Units(np.array(counts), np.stack(means), covariances)


class TwoSamples(NamedTuple):
    """Foreground and background with their units.

    `shared` (S, 2) holds the indices, in each dataset, of the units whose label occurs in both.
    `n_varying` is the number of features that vary in at least one dataset. If there are more
    features than rows, `basis` (r, D) is an orthonormal basis of the span of all rows, and the rows
    are stored in its coordinates. Otherwise `basis` is None. `design` holds the weights that were
    given.
    """

    foreground: Sample
    background: Sample
    shared: NDArray[np.intp]
    n_varying: int
    basis: FloatArray | None

    design: Design

    @property
    def n_units(self) -> int:
        """Return the number of units in both datasets together."""
        return self.foreground.n_units + self.background.n_units

    @property
    def pairs(self) -> NDArray[np.intp]:
        """Return the indices of the shared units among the units of both datasets, (S, 2)."""
        return self.shared + np.array([0, self.foreground.n_units], dtype=np.intp)

    def units(self) -> tuple[Units, Units]:
        """Compute the units of foreground and background."""
        return self.foreground.units(), self.background.units()

    def unshared(self, side: int) -> NDArray[np.intp]:
        """Return the indices of the units that occur in one dataset only (0 is the foreground)."""
        sample = (self.foreground, self.background)[side]
        return np.setdiff1d(np.arange(sample.n_units), self.shared[:, side])

    def assign_to_parts(self, n_parts: int, rng: np.random.Generator) -> list[NDArray[np.intp]]:
        """Assign the units of each dataset to parts at random, and return the part of each unit.

        The parts differ by at most one in their number of units. A unit that occurs in both
        datasets is assigned to the same part in both.
        """
        shared = rng.permutation(len(self.shared)) % n_parts
        parts = []
        for side, sample in enumerate((self.foreground, self.background)):
            part = np.empty(sample.n_units, dtype=np.intp)
            part[self.shared[:, side]] = shared
            alone = self.unshared(side)
            part[alone] = (len(shared) + rng.permutation(len(alone))) % n_parts
            parts.append(part)
        return parts

    def repeats_background(self) -> bool:
        """Return whether every background row is also a row of the foreground.

        The answer is False if less than half of the background rows are distinct, because then
        equal rows are to be expected.
        """
        # Rows are compared by their products with a vector: equal rows have equal products, and
        # different rows have different products with near certainty.
        vector = np.random.default_rng(0).normal(size=self.foreground.rows.shape[1])
        x, y = (np.asarray(sample.rows @ vector) for sample in (self.foreground, self.background))
        x = np.sort(x)
        place = np.searchsorted(x, y)
        away = np.minimum(
            np.abs(x[np.minimum(place, len(x) - 1)] - y), np.abs(x[np.maximum(place - 1, 0)] - y)
        )
        rounding = 1e-12 * np.abs(x).max()
        return bool((away <= rounding).all()) and len(np.unique(y)) > len(y) / 2

    def numbers(self) -> tuple[int | None, int | None]:
        """Return the numbers of units of foreground and background; None without units."""
        if not self.foreground.grouped:
            return None, None
        return self.foreground.n_units, self.background.n_units


def two_samples(
    X: MatrixLike,
    background: MatrixLike | Sequence[MatrixLike],
    units: ArrayLike | None,
    background_units: ArrayLike | None,
    *,
    fewest: int = 2,
    **weights: Unpack[Weights],
) -> TwoSamples:
    """Load both datasets with their units, and leave out rows of weight zero.

    Raises
    ------
    ValueError
        If the datasets have different features, only one of them has units, or several backgrounds
        are given with units. The error is also raised if weights are negative, or if labels are
        missing or their number is wrong. In addition, it is raised if a dataset has fewer than
        `fewest` units, is constant, or has variances outside the range of float64.
    TypeError
        If labels are of different types.
    """
    design = Design(**weights)
    try:
        x, y, *of_rows, which = loaded_rows(X, background, design)
    except ValueError as error:
        if "contains NaN" not in str(error):
            raise
        raise ValueError(
            f"{str(error).split(';')[0]}. Resampling needs complete rows, even with PCPCA and "
            "CLVM. Leave out the rows or features with missing values, or fill them in first, for "
            "example by the impute method of a fitted PCPCA."
        ) from None
    if which is not None and (units is not None or background_units is not None):
        raise ValueError(
            f"units and {which[-1] + 1} backgrounds were given, but with units only one background "
            "is allowed. Stack the rows of the backgrounds, or give no units."
        )
    labels = check_both_labels((units, background_units), (x.shape[0], y.shape[0]))
    (x, weights_x, used_x), (y, weights_y, used_y) = map(_weighted, (x, y), of_rows)
    strata = None if which is None else which[used_y]
    n_varying = _n_varying(x, y)
    shared = np.empty((0, 2), dtype=np.intp)
    codes = [np.arange(part.shape[0]) for part in (x, y)]
    if labels is not None:
        names_x, codes[0] = _coded(labels[0][used_x], "units", fewest)
        names_y, codes[1] = _coded(labels[1][used_y], "background_units", fewest)
        check_labels([*names_x, *names_y], len(names_x + names_y), "units with background_units")
        place = {name: i for i, name in enumerate(names_y)}
        pairs = [(i, place[name]) for i, name in enumerate(names_x) if name in place]
        shared = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    basis = None
    if x.shape[1] > x.shape[0] + y.shape[0]:
        x, y = (part.toarray() if issparse(part) else part for part in (x, y))
        # The coordinates lose nothing, because all rows are combinations of these directions.
        directions, coordinates = np.linalg.qr(np.vstack([x, y]).astype(np.float64).T)
        basis = directions.T
        x, y = np.split(coordinates.T, [x.shape[0]])
    foreground = Sample(x, codes[0], labels is not None, weights_x)
    background = Sample(y, codes[1], labels is not None, weights_y, strata)
    return TwoSamples(foreground, background, shared, n_varying, basis, design)


def _weighted(
    rows: Any, weights: FloatArray | None
) -> tuple[Any, FloatArray | None, NDArray[np.bool_]]:
    """Return the rows of positive weight, their weights scaled to mean 1, and their mask.

    Without weights, all rows are returned.
    """
    if weights is None:
        return rows, None, np.ones(rows.shape[0], dtype=bool)
    used = weights > 0
    kept = weights[used] / weights.max()
    return rows[used], kept / kept.mean(), used


def _n_varying(x: Any, y: Any) -> int:
    """Count the features that vary in at least one dataset; raise ValueError on constant data."""
    of_each = []
    for rows, name in ((x, "X"), (y, "background")):
        features = FeatureMoments.from_data(rows)
        check_variances(features.variance, name, _SMALLEST, _LARGEST)
        if not features.varies.any():
            raise ValueError(
                f"{name} is constant: the variance of each of its {rows.shape[1]} features is no "
                "larger than rounding errors, or outside the range of float64."
            )
        of_each.append(features.varies)
    return int((of_each[0] | of_each[1]).sum())


def _coded(labels: NDArray[Any], name: str, fewest: int) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the names of the units, and the index of each row's unit."""
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) < fewest:
        raise ValueError(
            f"{name} names a single unit ({names.tolist()[0]!r}); resampling by unit needs at "
            "least two."
        )
    return names.tolist(), codes
