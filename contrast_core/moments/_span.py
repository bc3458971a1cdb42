"""Moments of datasets with more features than rows, in a basis of the span of their rows.

Problem: with more features than rows, a covariance is larger than it needs to be. All eigenvectors
with a nonzero eigenvalue are linear combinations of the n centred rows Z of all datasets, so the
eigenproblem has at most n dimensions. The pivoted Cholesky factor of the Gram matrix Z Z^T gives
the coordinates of the rows in an orthonormal basis of their span. The basis itself is not formed
(this is the "kernel trick" for the linear kernel; on pivoting and rank, see Higham, Accuracy and
Stability of Numerical Algorithms, 2nd ed.). Up to rounding, the results are the same
as from the covariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.linalg import PivotedFactor, fix_signs, pivoted_cholesky
from contrast_core.moments._moments import Form, Moments
from contrast_core.moments._row_products import StackedRows
from contrast_core.moments._second_moments import SecondMoments
from contrast_core.rows import Rows, load_into_memory


@dataclass(frozen=True, eq=False)
class RowSpace:
    r"""An orthonormal basis of the span of the centred rows Z of one dataset or more.

    The pivoted Cholesky factorisation of the Gram matrix selects linearly independent rows
    :math:`Z_p`, as many as the rank, and gives :math:`Z_p Z_p^\top = L L^\top`. Then the rows of
    :math:`L^{-1} Z_p` are an orthonormal basis. This basis is never formed. A vector in its
    coordinates is mapped to feature space by a product with the rows.

    Parameters
    ----------
    rows : StackedRows
        The rows of the datasets.
    means : ndarray of shape (number of centres, n_features)
        Means by which the rows were centred: the mean of each dataset, or of each of its groups.
    variances : ndarray of shape (number of datasets, n_features)
        Variances of each dataset's features about these means.
    factor : PivotedFactor
        Pivoted Cholesky factor of the stacked rows' Gram matrix.
    """

    rows: StackedRows
    means: FloatArray
    variances: FloatArray
    factor: PivotedFactor

    def lift(self, coordinates: FloatArray) -> FloatArray:
        """Map vectors (..., k, rank) to feature space, (..., k, n_features), in one pass.

        The inner products among the k vectors of each set do not change.
        """
        k, rank = coordinates.shape[-2:]
        if not coordinates.size:
            return np.zeros((*coordinates.shape[:-1], self.rows.n_features))
        flat = coordinates.reshape(-1, rank)
        lifted = self.rows.combine(self.means, self.factor.weights(flat))
        for start in range(0, len(flat), k):
            some = flat[start : start + k]
            _restore_products(lifted[start : start + k], some @ some.T)
        return lifted.reshape(*coordinates.shape[:-1], self.rows.n_features)

    def coordinates_of(self, directions: FloatArray) -> FloatArray:
        """Return the coordinates (k, rank) of directions (k, n_features) projected on the span."""
        return self.factor.along_basis(self.rows.scores(self.means, directions.T).T)

    def complement(self, count: int) -> FloatArray:
        """Return orthonormal directions outside the span of the rows, (count, n_features)."""
        if count > self.rows.n_features - self.factor.rank:
            raise ValueError(
                f"{count} directions outside the span of the rows are needed, but the span has "
                f"{self.factor.rank} of {self.rows.n_features} dimensions."
            )
        directions = np.random.default_rng(0).standard_normal((count, self.rows.n_features))
        for _ in range(2):  # the second pass removes rounding errors of the first
            along = self.coordinates_of(directions)
            directions -= self.rows.combine(self.means, self.factor.weights(along))
            directions = np.linalg.qr(directions.T)[0].T
        return directions


@dataclass(frozen=True, eq=False)
class SpanMoments(Moments):
    """Mean, variances and covariance of a wide dataset, in a basis of the span of its rows.

    These moments are used if there are more features than rows, because the size of their
    covariance is at most the number of rows. The moments of a foreground and a background share one
    basis, so both are computed together. The rows are not copied, so they must not be changed while
    the moments are in use. Unlike `SecondMoments`, these moments cannot be merged and are as large
    as the data.

    Parameters
    ----------
    n_samples : int or float
        Number of rows, n, or their total weight.
    mean, variances : ndarray of shape (n_features,)
        Mean and variance of each feature.
    covariance : ndarray of shape (size, size)
        Second moments about the mean, divided by n, in the coordinates of `space`.
    space : RowSpace
        The basis.
    feature_names : tuple of str, optional
        Names of the features, if the data had names.
    groups, group_weights, group_means : ndarrays of shape (G,), (G,), (G, n_features), optional
        If rows have groups: the labels of the groups, their numbers of rows (or total weights), and
        their means, about which the covariance is taken.
    parts : tuple of SpanMoments
        If these moments are a weighted sum, the moments that were summed; otherwise empty.
    """

    n_samples: float
    mean: FloatArray
    variances: FloatArray
    covariance: FloatArray
    space: RowSpace
    feature_names: tuple[str, ...] | None = None
    groups: NDArray[Any] | None = None
    group_weights: FloatArray | None = None
    group_means: FloatArray | None = None
    parts: tuple[Any, ...] = ()

    form: ClassVar[Form] = "span"

    @property
    def size(self) -> int:
        """Dimension of the span of the centred rows of all datasets of `space`."""
        return self.space.factor.rank

    def matrix(self) -> FloatArray:
        """Return the covariance in the coordinates of `space`; it must not be modified."""
        return self.covariance

    def in_features(self) -> SecondMoments:
        """Return the same moments as a matrix of features x features."""
        basis = self.lift(np.eye(self.size))
        covariance = basis.T @ self.covariance @ basis
        return SecondMoments._unchecked(
            *(self.n_samples, self.mean, (covariance + covariance.T) / 2, self.feature_names),
            groups=self.groups,
            group_weights=self.group_weights,
            group_means=self.group_means,
            parts=tuple(part.in_features() for part in self.parts),
        )

    def lift(self, components: FloatArray) -> FloatArray:
        """Map rows in the coordinates of `space` to feature space."""
        return self.space.lift(components)

    def coordinates_of(self, components: FloatArray) -> FloatArray:
        """Return the coordinates of vectors (k, n_features), projected on the span of the rows."""
        return self.space.coordinates_of(components)

    def complement(self, count: int) -> FloatArray:
        """Return orthonormal directions in feature space along which nothing varies, (count, D)."""
        return fix_signs(self.space.complement(count))

    def shares_coordinates(self, other: Moments) -> bool:
        """Return whether both moments were made together, so that they share a basis."""
        return self.form == other.form and getattr(other, "space", None) is self.space


def span_moments(rows: Sequence[Rows]) -> tuple[SpanMoments, ...]:
    """Return the moments of datasets with more features than rows, in the same coordinates.

    Each covariance is taken about the mean of its dataset or, if rows have groups, about the means
    of the groups. A ValueError is raised if a value is NaN or infinite.
    """
    space = span_of_rows(rows)
    stacked = space.rows
    first = stacked.first_centres[1:]
    centres = np.split(stacked.centre_weights, first), np.split(space.means, first)
    parts = stacked.split(space.factor.coordinates())
    moments = []
    for i, (part, coordinates, weights, means) in enumerate(
        zip(rows, parts, *centres, strict=True)
    ):
        n = weights.sum().item()
        mean = means[0] if len(means) == 1 else weights @ means / n
        labels: dict[str, Any] = {}
        if part.groups is not None:
            labels = {"groups": part.groups, "group_weights": weights, "group_means": means}
        covariance = coordinates.T @ coordinates / n
        moments.append(
            SpanMoments(n, mean, space.variances[i], covariance, space, part.names, **labels)
        )
    return tuple(moments)


def span_of_rows(rows: Sequence[Rows]) -> RowSpace:
    """Return a basis of the span of centred rows, from their Gram matrix.

    The Gram matrix is summed over blocks of columns that are centred before they are multiplied.
    Therefore a mean far from zero costs no accuracy, and sparse data are never dense as a whole.
    During the sum, CSR data are also held in CSC form. A row adds no dimension to the span if its
    squared distance to the span of the rows taken before is at most ``n eps / 2`` times the squared
    length of the longest row. Tensors, and sparse rows that are not in memory, are loaded. All
    other rows are read in blocks.

    Parameters
    ----------
    rows : sequence of Rows
        The datasets.

    Raises
    ------
    ValueError
        If a value is NaN or infinite.
    """
    loaded = tuple(
        load_into_memory(part)
        if part.place == "device" or (part.is_sparse and not part.in_memory)
        else part
        for part in rows
    )
    stacked = StackedRows.from_parts(loaded)
    gram, means, variances = stacked.products()
    # The (weighted) sum of the rows centred by one mean is zero, so each mean reduces the rank by
    # one.
    largest = len(gram) - int(np.count_nonzero(stacked.centre_weights))
    factor = pivoted_cholesky(gram, largest_rank=largest, overwrite=True)
    return RowSpace(stacked, means, variances, factor)


def _restore_products(lifted: FloatArray, wanted: FloatArray) -> None:
    """Change `lifted` slightly, in place, so that the inner products of its rows are `wanted`.

    `wanted` has the shape (k, k). The present inner products differ from it by rounding errors.
    """
    lengths = np.sqrt(wanted.diagonal())
    products = wanted / np.outer(lengths, lengths)
    rounded = lifted @ lifted.T / np.outer(lengths, lengths)
    if np.linalg.eigvalsh(products)[0] < 0.1 or np.linalg.eigvalsh(rounded)[0] < 0.1:
        return  # nearly dependent rows: the correction would magnify rounding errors
    correction = scipy.linalg.solve_triangular(
        np.linalg.cholesky(rounded), np.eye(len(rounded)), lower=True
    )
    correction = np.linalg.cholesky(products) @ correction
    lifted[:] = (correction * lengths[:, None] / lengths) @ lifted
