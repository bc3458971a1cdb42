"""What resampling draws: rows, or groups of rows, reduced to moments once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from contrast_core._validation import FloatArray, MatrixLike
from contrast_core.moments import SecondMoments
from contrast_core.solve import loaded_rows


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

    def mapped(self, basis: FloatArray) -> Self:
        """The same units in other coordinates: rows x become ``basis @ x``."""
        covariances = self.covariances
        if covariances is not None:
            covariances = np.stack([basis @ matrix @ basis.T for matrix in covariances])
        return replace(self, means=self.means @ basis.T, covariances=covariances)

    def standardised(self, whole: SecondMoments) -> Self:
        """Centred by the mean and divided by the root total variance of `whole`."""
        variance = whole.total_variance
        covariances = None if self.covariances is None else self.covariances / variance
        means = (self.means - whole.mean) / np.sqrt(variance)
        return replace(self, means=means, covariances=covariances)

    def joined(self, other: Units) -> Units:
        """Units of both."""
        covariances = None
        if self.covariances is not None and other.covariances is not None:
            covariances = np.concatenate([self.covariances, other.covariances])
        return Units(
            np.concatenate([self.counts, other.counts]),
            np.concatenate([self.means, other.means]),
            covariances,
        )


class TwoSamples(NamedTuple):
    """Units of foreground and background.

    `shared` (S, 2) holds the indices of the units that carry the same group label in both.
    `basis` (r, D) is an orthonormal basis of all rows' span where that is what the units'
    coordinates refer to (more features than rows), else None.
    """

    foreground: Units
    background: Units
    shared: NDArray[np.intp]
    grouped: bool
    basis: FloatArray | None

    def only(self, side: int) -> NDArray[np.intp]:
        """Units of one dataset (0 foreground, 1 background) without a counterpart."""
        units = (self.foreground, self.background)[side]
        return np.setdiff1d(np.arange(len(units)), self.shared[:, side])

    def n_groups(self) -> tuple[int | None, int | None]:
        """Number of groups of foreground and background; None for rows."""
        if not self.grouped:
            return None, None
        return len(self.foreground), len(self.background)


def two_samples(
    X: MatrixLike,
    background: MatrixLike,
    groups: ArrayLike | None,
    background_groups: ArrayLike | None,
) -> TwoSamples:
    """Read both datasets into units.

    Raises
    ------
    ValueError
        If the datasets do not fit together, only one of them has groups, labels are missing or of
        the wrong number, a dataset has fewer than two units, or one is constant.
    """
    x, y = loaded_rows(X, background)
    if (groups is None) != (background_groups is None):
        given, missing = ("groups", "background_groups")[:: 1 if background_groups is None else -1]
        raise ValueError(
            f"{given} was given without {missing}; give the group (donor, animal) of every row of "
            "both datasets, or of neither."
        )
    basis = None
    n_features = x.shape[1]
    if n_features > x.shape[0] + y.shape[0]:
        x, y = (part.toarray() if issparse(part) else part for part in (x, y))
        # Exact: every covariance of these rows lives in the rows' span.
        directions, coordinates = np.linalg.qr(np.vstack([x, y]).astype(np.float64).T)
        basis = directions.T
        x, y = np.split(coordinates.T, [x.shape[0]])
    shared = np.empty((0, 2), dtype=np.intp)
    if groups is None or background_groups is None:
        units = (Units.of_rows(x), Units.of_rows(y))
    else:
        names_x, codes_x = _labels(groups, x.shape[0], "groups")
        names_y, codes_y = _labels(background_groups, y.shape[0], "background_groups")
        units = (Units.of_groups(x, codes_x, "X"), Units.of_groups(y, codes_y, "background"))
        place = {name: i for i, name in enumerate(names_y)}
        pairs = [(i, place[name]) for i, name in enumerate(names_x) if name in place]
        shared = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    for part, name in zip(units, ("X", "background"), strict=True):
        if part.moments().total_variance <= 0:
            raise ValueError(f"{name} is constant: none of its {n_features} features varies.")
    return TwoSamples(*units, shared, groups is not None, basis)


def _labels(groups: ArrayLike, n: int, name: str) -> tuple[list[Any], NDArray[np.intp]]:
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(
            f"{name} has shape {labels.shape}; expected one label for each of the {n} rows."
        )
    if any(label is None or label != label for label in labels.tolist()):
        raise ValueError(f"{name} has missing labels; drop those rows or name their group.")
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            f"{name} names a single group ({names[0]!r}); resampling by group needs at least two."
        )
    return names.tolist(), codes
