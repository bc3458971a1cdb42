"""What resampling draws: rows, or groups of rows, reduced to moments once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from contrast_core._validation import FloatArray, MatrixLike, check_labels
from contrast_core.moments import FeatureMoments, SecondMoments
from contrast_core.solve import check_variances, loaded_rows

_SMALLEST, _LARGEST = 1e-150, 1e150  # of variances, so that their ratios are numbers too


@dataclass(frozen=True, eq=False)
class Units:
    """The exchangeable parts of a dataset: groups of rows, or rows as groups of one.

    Parameters
    ----------
    counts : ndarray of shape (U,)
        Rows in each unit.
    means : ndarray of shape (U, D)
        Their means.
    covariances : ndarray of shape (U, D, D) or None
        Their covariances; None where every unit is one row.
    """

    counts: FloatArray
    means: FloatArray
    covariances: FloatArray | None

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def of_groups(cls, rows: Any, codes: NDArray[np.intp], name: str) -> Self:
        """Each group's moments, read once."""
        order = np.argsort(codes, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
        moments = [SecondMoments.from_data(rows[part], name=name) for part in parts]
        return cls(
            np.array([float(part.n_samples) for part in moments]),
            np.stack([part.mean for part in moments]),
            np.stack([part.covariance for part in moments]),
        )

    @classmethod
    def of_rows(cls, rows: Any) -> Self:
        """Every row a unit, held dense."""
        dense = rows.toarray() if issparse(rows) else rows
        return cls(np.ones(rows.shape[0]), np.asarray(dense, dtype=np.float64), None)

    def moments(self, weights: ArrayLike | None = None) -> SecondMoments:
        """Moments of all units together, each as often as its weight says (once by default)."""
        times = np.ones(len(self)) if weights is None else np.asarray(weights, dtype=np.float64)
        mass = times * self.counts
        share = mass / mass.sum()
        mean = share @ self.means
        used = np.flatnonzero(share)
        spread = (self.means[used] - mean) * np.sqrt(share[used])[:, None]
        covariance = spread.T @ spread
        if self.covariances is not None:
            covariance += np.tensordot(share, self.covariances, axes=1)
        return SecondMoments._unchecked(round(mass.sum()), mean, covariance)

    def sums(
        self, chosen: NDArray[np.bool_], shift: FloatArray | float = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """Sums of the means and of the second moments about 0 of some units, all counting alike.

        All rows are moved by `shift` (D,) first.
        """
        means = self.means[chosen] + shift
        second = means.T @ means
        if self.covariances is not None:
            second += np.tensordot(chosen.astype(np.float64), self.covariances, axes=1)
        return means.sum(axis=0), second

    def mirrored(self, normal: FloatArray) -> Self:
        """The same units, reflected at the plane of this unit normal (D,)."""
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
    """Rows in memory, and the unit that each belongs to: None where it is one by itself."""

    rows: Any
    name: str
    codes: NDArray[np.intp] | None

    @property
    def n_units(self) -> int:
        """Number of units."""
        return self.rows.shape[0] if self.codes is None else int(self.codes.max()) + 1

    def units(self) -> Units:
        """The units, read once."""
        if self.codes is None:
            return Units.of_rows(self.rows)
        return Units.of_groups(self.rows, self.codes, self.name)

    def merged(self, of_unit: NDArray[np.intp]) -> Units:
        """Larger units, each made of those that have its number."""
        codes = of_unit if self.codes is None else of_unit[self.codes]
        return Units.of_groups(self.rows, codes, self.name)


class TwoSamples(NamedTuple):
    """Foreground and background.

    `shared` (S, 2) holds the numbers of the units that carry the same group label in both.
    `n_varying` counts the features that vary in either. `basis` (r, D) is an orthonormal basis of
    all rows' span where the rows are in its coordinates (more features than rows), else None.
    """

    foreground: Sample
    background: Sample
    shared: NDArray[np.intp]
    n_varying: int
    basis: FloatArray | None

    @property
    def n_units(self) -> int:
        """Number of units in both."""
        return self.foreground.n_units + self.background.n_units

    def only(self, side: int) -> NDArray[np.intp]:
        """Units of one dataset (0 foreground, 1 background) without a counterpart."""
        sample = (self.foreground, self.background)[side]
        return np.setdiff1d(np.arange(sample.n_units), self.shared[:, side])

    def n_groups(self) -> tuple[int | None, int | None]:
        """Number of groups of foreground and background; None for rows."""
        if self.foreground.codes is None:
            return None, None
        return self.foreground.n_units, self.background.n_units


def two_samples(
    X: MatrixLike,
    background: MatrixLike,
    groups: ArrayLike | None,
    background_groups: ArrayLike | None,
) -> TwoSamples:
    """Read both datasets.

    Raises
    ------
    ValueError
        If the datasets do not fit together, only one of them has groups, labels are missing or of
        the wrong number, a dataset has fewer than two units, is constant, or has variances that
        leave the range of float64.
    TypeError
        If labels are of different types.
    """
    x, y = loaded_rows(X, background)
    if (groups is None) != (background_groups is None):
        given, missing = ("groups", "background_groups")[:: 1 if background_groups is None else -1]
        raise ValueError(
            f"{given} was given without {missing}; give the group (donor, animal) of every row of "
            "both datasets, or of neither."
        )
    n_varying = _n_varying(x, y)
    shared = np.empty((0, 2), dtype=np.intp)
    codes: list[Any] = [None, None]
    if groups is not None and background_groups is not None:
        names_x, codes[0] = _labels(groups, x.shape[0], "groups")
        names_y, codes[1] = _labels(background_groups, y.shape[0], "background_groups")
        check_labels([*names_x, *names_y], len(names_x + names_y), "groups with background_groups")
        place = {name: i for i, name in enumerate(names_y)}
        pairs = [(i, place[name]) for i, name in enumerate(names_x) if name in place]
        shared = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    basis = None
    if x.shape[1] > x.shape[0] + y.shape[0]:
        x, y = (part.toarray() if issparse(part) else part for part in (x, y))
        # Exact: every covariance of these rows lives in the rows' span.
        directions, coordinates = np.linalg.qr(np.vstack([x, y]).astype(np.float64).T)
        basis = directions.T
        x, y = np.split(coordinates.T, [x.shape[0]])
    samples = Sample(x, "X", codes[0]), Sample(y, "background", codes[1])
    return TwoSamples(*samples, shared, n_varying, basis)


def _n_varying(x: Any, y: Any) -> int:
    """Number of features that vary in either dataset, neither of which is constant."""
    of_each = []
    for rows, name in ((x, "X"), (y, "background")):
        features = FeatureMoments.from_data(rows)
        check_variances(features.variance, name, _SMALLEST, _LARGEST)
        if not features.varies.any():
            raise ValueError(
                f"{name} is constant: none of its {rows.shape[1]} features varies (by more than "
                "rounding, and by an amount that float64 can square)."
            )
        of_each.append(features.varies)
    return int((of_each[0] | of_each[1]).sum())


def _labels(groups: ArrayLike, n: int, name: str) -> tuple[list[Any], NDArray[np.intp]]:
    names, codes = np.unique(check_labels(groups, n, name), return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            f"{name} names a single group ({names.tolist()[0]!r}); resampling by group needs at "
            "least two."
        )
    return names.tolist(), codes
