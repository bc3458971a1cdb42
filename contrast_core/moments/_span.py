"""Moments of wide datasets in the few dimensions that their rows span."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg import (
    PivotedFactor,
    add_products,
    fix_signs,
    mirror_upper,
    pivoted_cholesky,
)
from contrast_core.moments._covariance import ALONE, Centres, Covariance, Form, Moments, Threads
from contrast_core.moments._row_products import Layout, combine_rows, row_products, row_scores
from contrast_core.rows import Rows, held


@dataclass(frozen=True, eq=False)
class RowSpace:
    r"""An orthonormal basis of the span of the centred rows Z of one dataset or more.

    With the pivoted Cholesky factor of the Gram matrix, :math:`Z_p Z_p^\top = L L^\top`, the rows
    of :math:`L^{-1} Z_p` are orthonormal, p being as many pivot rows as the rank. The basis is
    never formed: vectors in its coordinates are lifted by a product with the rows.

    Parameters
    ----------
    rows : tuple of Rows
        The datasets.
    means : ndarray of shape (number of centres, n_features)
        What the rows were centred by: the mean of each dataset, or of each of its groups.
    variances : ndarray of shape (number of datasets, n_features)
        Of each dataset's features, about that.
    factor : PivotedFactor
        Of the stacked rows' Gram matrix.
    """

    rows: tuple[Rows, ...]
    means: FloatArray
    variances: FloatArray
    factor: PivotedFactor

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.means[0])

    @cached_property
    def coordinates(self) -> FloatArray:
        """Of the stacked centred rows, (number of rows, rank)."""
        return self.factor.coordinates()

    def lift(self, coordinates: FloatArray) -> FloatArray:
        """Vectors (..., k, rank) in feature space, (..., k, n_features).

        All with one pass over the rows. Each k of them keep their inner products.
        """
        k, rank = coordinates.shape[-2:]
        if not coordinates.size:
            return np.zeros((*coordinates.shape[:-1], self.n_features))
        flat = coordinates.reshape(-1, rank)
        lifted = combine_rows(self.rows, self.means, self.factor.weights(flat))
        for start in range(0, len(flat), k):
            some = flat[start : start + k]
            _restore_products(lifted[start : start + k], some @ some.T)
        return lifted.reshape(*coordinates.shape[:-1], self.n_features)

    def coordinates_of(self, directions: FloatArray) -> FloatArray:
        """Of the parts in the span of rows in feature space, (k, n_features): (k, rank)."""
        return self.factor.along_basis(row_scores(self.rows, self.means, directions.T).T)

    def complement(self, count: int) -> FloatArray:
        """Orthonormal directions that no row has a part in, (count, n_features)."""
        if count > self.n_features - self.factor.rank:
            raise ValueError(
                f"{count} directions outside the rows' span were asked for, but of "
                f"{self.n_features} features it takes {self.factor.rank}."
            )
        directions = np.random.default_rng(0).standard_normal((count, self.n_features))
        for _ in range(2):
            along = self.coordinates_of(directions)
            directions -= combine_rows(self.rows, self.means, self.factor.weights(along))
            directions = np.linalg.qr(directions.T)[0].T
        return directions


class InSpan(Covariance):
    """Coordinates in a basis of the rows' span, `space`."""

    space: RowSpace
    form: ClassVar[Form] = "span"

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return self.space.n_features

    @property
    def size(self) -> int:
        """Dimensions that the rows of all datasets of `space` span."""
        return self.space.factor.rank

    def lift(self, components: FloatArray) -> FloatArray:
        """Rows in the coordinates of `space` as rows in feature space, signs fixed."""
        lifted = self.space.lift(components)
        return fix_signs(lifted.reshape(-1, self.n_features)).reshape(lifted.shape)

    def coordinates_of(self, components: FloatArray) -> FloatArray:
        """Rows in feature space, (k, n_features), as far as they lie in the rows' span."""
        return self.space.coordinates_of(components)

    def complement(self, count: int) -> FloatArray:
        """So many orthonormal directions of the features, (count, D), that no row has a part in."""
        return fix_signs(self.space.complement(count))

    def shares_coordinates(self, other: Covariance) -> bool:
        """Whether both were made together."""
        return self.form == other.form and getattr(other, "space", None) is self.space


@dataclass(frozen=True, eq=False)
class SpanMoments(InSpan, Moments):
    """Mean, variances and covariance of a wide dataset, in a basis of the span of its rows.

    For far more features than rows: the covariance has as many rows as the data, not as the
    features. Those of a foreground and a background are made together, for they share the basis.
    They hold the rows (no copy; leave them unchanged), so unlike `SecondMoments` they neither merge
    nor are small.

    Parameters
    ----------
    n_samples : int or float
        Number of rows, n, or their total weight.
    mean, variances : ndarray of shape (n_features,)
        Mean and variance of each feature.
    space : RowSpace
        The basis.
    rows : slice
        Which of the rows of `space` these are.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.
    centres : Centres, optional
        The groups about whose means the covariance is taken, where rows have groups.
    """

    n_samples: float
    mean: FloatArray
    variances: FloatArray
    space: RowSpace
    rows: slice
    feature_names: tuple[str, ...] | None = None
    centres: Centres | None = None

    @property
    def coordinates(self) -> FloatArray:
        """The centred rows, in the coordinates of `space`, (n_samples, size)."""
        return self.space.coordinates[self.rows]

    @cached_property
    def covariance(self) -> FloatArray:
        """Second moments about the mean, divided by n, (size, size)."""
        covariance = np.zeros((self.size, self.size))
        self.add_to(covariance, 1.0)
        mirror_upper(covariance)
        return covariance

    def matrix(self) -> FloatArray:
        """The covariance, formed once."""
        return self.covariance

    def add_to(self, matrix: FloatArray, weight: float) -> None:
        """Add the covariance, so weighted, to a matrix's upper triangle, without forming it."""
        add_products(self.coordinates, matrix, weight=weight / self.n_samples)

    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Product with columns (size, b)."""
        return np.asarray(self.coordinates.T @ (self.coordinates @ columns) / self.n_samples)

    def along(self, components: FloatArray) -> FloatArray:
        """Variances along each row of `components` (k, size), shape (k,)."""
        scores = self.coordinates @ components.T
        return np.asarray(np.einsum("nk,nk->k", scores, scores) / self.n_samples)


@dataclass(frozen=True, eq=False)
class SpanCross(InSpan):
    r"""Cross-moment :math:`S^+ = (Z^\top Z^+ + Z^{+\top} Z) / 2n` of positive pairs.

    Parameters
    ----------
    space : RowSpace
        Of the rows of both views, those of the first before those of the second.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.
    """

    space: RowSpace
    feature_names: tuple[str, ...] | None = None

    @cached_property
    def _matrix(self) -> FloatArray:
        x, p = np.split(self.space.coordinates, 2)
        cross = x.T @ p / (2 * len(x))
        return np.asarray(cross + cross.T)

    def matrix(self) -> FloatArray:
        """The cross-moment, formed once."""
        return self._matrix

    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Product with columns (size, b)."""
        return np.asarray(self._matrix @ columns)


def span_moments(rows: Sequence[Rows]) -> tuple[SpanMoments, ...]:
    """Moments of datasets with more features than rows, each about its own mean.

    Where rows have groups, about those of the groups. In the same coordinates. ValueError on NaN
    or infinity.
    """
    space = span_of_rows(rows)
    layout = Layout.of(space.rows)
    starts, ends = [0, *layout.ends[:-1].tolist()], layout.ends.tolist()
    found = []
    for i, part in enumerate(rows):
        centres = slice(layout.first_centres[i], layout.ends_of_centres[i])
        weights, means = layout.centre_weights[centres], space.means[centres]
        n = weights.sum().item()
        mean = means[0] if len(means) == 1 else weights @ means / n
        which, groups = slice(starts[i], ends[i]), part.groups
        of_groups = None if groups is None else Centres(groups, means)
        found.append(SpanMoments(n, mean, space.variances[i], space, which, part.names, of_groups))
    return tuple(found)


def pooled_span_moments(
    space: RowSpace, feature_names: tuple[str, ...] | None = None
) -> SpanMoments:
    """Moments of the rows of all datasets of `space` together."""
    counts = [part.shape[0] for part in space.rows]
    mean, variances = (
        np.average(a, axis=0, weights=counts) for a in (space.means, space.variances)
    )
    n = sum(counts)
    return SpanMoments(n, mean, variances, space, slice(0, n), feature_names)


def span_of_rows(rows: Sequence[Rows], *, common_mean: bool = False) -> RowSpace:
    """The span of centred rows, from their Gram matrix.

    It is summed over blocks of columns, centred exactly, so data far from zero lose nothing and
    sparse data are never dense as a whole. (CSR data are held in CSC form too while it is summed.)
    Directions of less than ``n eps / 2`` of the largest row's squared length count as none. Sparse
    rows that are not in memory are loaded; of others only blocks are held.

    Parameters
    ----------
    rows : sequence of Rows
        The datasets.
    common_mean : bool, default=False
        Centre all by the mean of all rows, and take variances about it; else each by its own.

    Raises
    ------
    ValueError
        On NaN or infinity.
    """
    loaded = tuple(
        held(part) if part.place == "device" or _sparse_elsewhere(part) else part for part in rows
    )
    gram, means, variances = row_products(loaded, common_mean)
    mirror_upper(gram)
    # What is centred sums to zero.
    centres = np.count_nonzero(Layout.of(loaded).centre_weights)
    largest = len(gram) - (1 if common_mean else int(centres))
    factor = pivoted_cholesky(gram, largest_rank=largest, overwrite=True)
    return RowSpace(loaded, means, variances, factor)


def _sparse_elsewhere(rows: Rows) -> bool:
    return rows.is_sparse and not rows.in_memory


def _restore_products(lifted: FloatArray, wanted: FloatArray) -> None:
    """Restore the inner products of `lifted` rows, (k, k), that rounding has changed, in place."""
    lengths = np.sqrt(wanted.diagonal())
    products = wanted / np.outer(lengths, lengths)
    found = lifted @ lifted.T / np.outer(lengths, lengths)
    if np.linalg.eigvalsh(products)[0] < 0.1 or np.linalg.eigvalsh(found)[0] < 0.1:
        return  # nearly dependent: dividing by their factor would do harm
    correction = scipy.linalg.solve_triangular(
        np.linalg.cholesky(found), np.eye(len(found)), lower=True
    )
    correction = np.linalg.cholesky(products) @ correction
    lifted[:] = (correction * lengths[:, None] / lengths) @ lifted
