"""Moments of wide datasets in the few dimensions that their rows span."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk
from scipy.sparse import issparse, vstack

from contrast_core._validation import FloatArray, check_finite
from contrast_core.linalg import add_products, fix_signs, mirror_upper, pivoted_cholesky
from contrast_core.moments._accumulator import worker_threads
from contrast_core.moments._sparse import (
    filled_features,
    sparse_gram,
    sparse_mean_and_variances,
)

_BLOCK_ELEMENTS = 2**22  # 32 MB of centred columns at a time


@dataclass(frozen=True, eq=False)
class RowSpace:
    r"""An orthonormal basis of the span of the centred rows Z of one dataset or more.

    With the pivoted Cholesky factor of the Gram matrix, :math:`Z_p Z_p^\top = L L^\top`, the rows
    of :math:`L^{-1} Z_p` are orthonormal, p being as many pivot rows as the rank. The basis is
    never formed: vectors in its coordinates are lifted by a product with the rows.

    Parameters
    ----------
    rows : tuple of ndarrays or sparse matrices of shape (any, n_features)
        The data, held as they were given.
    means : ndarray of shape (number of datasets, n_features)
        What each was centred by.
    pivots : ndarray of shape (rank,)
        Indices into the stacked rows.
    factor : ndarray of shape (rank, rank)
        :math:`L^\top`, upper triangular.
    n_spare : int
        Coordinates beyond the rank: directions orthogonal to every row, where no dataset
        varies. Their eigenvalue 0 is among the leading ones where others are negative.
    """

    rows: tuple[Any, ...]
    means: FloatArray
    pivots: NDArray[np.intp]
    factor: FloatArray
    n_spare: int

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.means[0])

    @property
    def rank(self) -> int:
        """Dimensions that the centred rows span."""
        return len(self.pivots)

    def lift(self, coordinates: FloatArray) -> FloatArray:
        """Vectors (..., k, rank + n_spare) in feature space, (..., k, n_features).

        All with one pass over the rows. Each k of them keep their inner products.
        """
        flat = coordinates.reshape(-1, coordinates.shape[-1])
        lifted = self._from_span(flat[:, : self.rank])
        spare = flat[:, self.rank :]
        if (np.abs(spare) > 1e-12).any():  # less is rounding
            lifted += spare @ self._complement()
        k = coordinates.shape[-2]
        for start in range(0, len(flat), k):
            _restore_products(lifted[start : start + k], flat[start : start + k])
        return lifted.reshape(*coordinates.shape[:-1], self.n_features)

    def _from_span(self, coordinates: FloatArray) -> FloatArray:
        ends = _ends(self.rows)
        weights = np.zeros((ends[-1], len(coordinates)))
        weights[self.pivots] = scipy.linalg.solve_triangular(
            self.factor, coordinates.T, check_finite=False
        )
        lifted = np.zeros((len(coordinates), self.n_features))
        if any(issparse(rows) for rows in self.rows):
            parts = np.split(weights, ends[:-1])
            for rows, mean, w in zip(self.rows, self.means, parts, strict=True):
                lifted += (rows.T @ w).T - np.outer(w.sum(axis=0), mean)
        else:
            for columns, block in _columns(self.rows):
                for part, mean in zip(np.split(block, ends[:-1]), self.means, strict=True):
                    part -= mean[columns]
                lifted[:, columns] = weights.T @ block
        return lifted

    def _complement(self) -> FloatArray:
        """Orthonormal directions that no row has a part in, (n_spare, n_features)."""
        directions = np.random.default_rng(0).standard_normal((self.n_spare, self.n_features))
        for _ in range(2):
            products = np.hstack(
                [
                    (rows @ directions.T - mean @ directions.T).T
                    for rows, mean in zip(self.rows, self.means, strict=True)
                ]
            )
            inside = scipy.linalg.solve_triangular(
                self.factor, products[:, self.pivots].T, trans="T", check_finite=False
            )
            directions -= self._from_span(inside.T)
            directions = np.linalg.qr(directions.T)[0].T
        return directions


@dataclass(frozen=True, eq=False)
class RowSpaceMoments:
    """Mean, variances and covariance of a wide dataset, in a basis of the span of its rows.

    For far more features than rows: the covariance has as many rows as the data, not as the
    features. Those of a foreground and a background are made together by `row_space_moments`, for
    both share the basis. They hold the rows (no copy; leave them unchanged), so unlike
    `SecondMoments` they neither merge nor are small.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    mean, variances : ndarray of shape (n_features,)
        Mean and variance of each feature.
    covariance : ndarray of shape (r, r)
        Second moments about the mean, divided by n, in the coordinates of `space`.
    space : RowSpace
        The basis.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.
    """

    n_samples: int
    mean: FloatArray
    variances: FloatArray
    covariance: FloatArray
    space: RowSpace
    feature_names: tuple[str, ...] | None = None

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.mean)

    @property
    def total_variance(self) -> float:
        """Trace of the covariance."""
        return float(self.variances.sum())

    def lift(self, components: FloatArray) -> FloatArray:
        """Rows in the coordinates of `covariance` as rows in feature space, signs fixed."""
        lifted = self.space.lift(components)
        return fix_signs(lifted.reshape(-1, self.n_features)).reshape(lifted.shape)


def row_space_moments(
    rows: tuple[Any, Any],
    feature_names: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None),
    *,
    n_components: object = 1,
) -> tuple[RowSpaceMoments, RowSpaceMoments]:
    """Moments of two datasets with more features than rows, from the Gram matrix of their rows.

    The Gram matrix is summed over blocks of columns, centred exactly, so data far from zero lose
    nothing and sparse data are never dense as a whole. (CSR data are held in CSC form too while
    it is summed.) Directions of less than ``n eps`` of the largest row's squared length count as
    none.

    Parameters
    ----------
    rows : pair of ndarrays or CSR or CSC matrices of shape (n or m, n_features)
        Foreground and background.
    feature_names : pair of tuples of str, optional
        Names of the features.
    n_components : int, default=1
        Number of components that will be asked for.

    Returns
    -------
    pair of RowSpaceMoments

    Raises
    ------
    ValueError
        On NaN or infinity.
    """
    span = span_of_rows(rows, ("X", "background"), n_components=n_components)
    x, y = (
        RowSpaceMoments(len(part), mean, variance, _covariance(part), span.space, names)
        for part, mean, variance, names in zip(
            span.coordinates, span.space.means, span.variances, feature_names, strict=True
        )
    )
    return x, y


def _covariance(centred: FloatArray) -> FloatArray:
    products = np.zeros((centred.shape[1],) * 2)
    add_products(centred, products)
    products /= len(centred)
    mirror_upper(products)
    return products


class Span(NamedTuple):
    """Basis of some rows' span; each dataset's coordinates (n, r) and variances (n_features,)."""

    space: RowSpace
    coordinates: list[FloatArray]
    variances: FloatArray


def span_of_rows(
    rows: tuple[Any, ...],
    names: tuple[str, ...],
    *,
    n_components: object = 1,
    common_mean: bool = False,
) -> Span:
    """Coordinates of centred rows in their own span, from their Gram matrix.

    Parameters
    ----------
    rows : tuple of ndarrays or CSR or CSC matrices of shape (any, n_features)
        The datasets.
    names : tuple of str
        What errors call them.
    n_components : int, default=1
        Number of components that will be asked for.
    common_mean : bool, default=False
        Centre all by the mean of all rows, and take variances about it; else each by its own.

    Returns
    -------
    Span

    Raises
    ------
    ValueError
        On NaN or infinity.
    """
    products = _sparse_products if all(issparse(part) for part in rows) else _dense_products
    gram, means, variances = products(rows, names, common_mean)
    coordinates, pivots = pivoted_cholesky(gram, overwrite=True)
    del gram
    n_spare = _n_spare(n_components, means.shape[1] - len(pivots))
    space = RowSpace(rows, means, pivots, coordinates[pivots].T, n_spare)
    if n_spare:
        coordinates = np.pad(coordinates, ((0, 0), (0, n_spare)))
    return Span(space, np.split(coordinates, _ends(rows)[:-1]), variances)


class _Products(NamedTuple):
    """Gram matrix of the centred rows, its upper triangle; what each dataset was centred by."""

    gram: FloatArray  # (number of rows, number of rows)
    means: FloatArray  # (number of datasets, n_features)
    variances: FloatArray  # about these means, the same shape


def _dense_products(
    rows: tuple[Any, ...],
    names: tuple[str, ...],
    common_mean: bool,
    gram: FloatArray | None = None,
) -> _Products:
    """By blocks of columns, added to `gram`."""
    ends, shape = _ends(rows), (len(rows), rows[0].shape[1])
    if gram is None:
        gram = np.zeros((ends[-1], ends[-1]), order="F")
    means, variances = np.empty(shape), np.empty(shape)
    for columns, block in _columns(tuple(_by_column(part) for part in rows)):
        parts = np.split(block, ends[:-1])
        for i, (part, name) in enumerate(zip(parts, names, strict=True)):
            with np.errstate(invalid="ignore", over="ignore"):
                means[i, columns] = part.mean(axis=0)
            if not np.isfinite(means[i, columns]).all():
                check_finite(part, name)
        if common_mean:
            means[:, columns] = block.mean(axis=0)
        for i, part in enumerate(parts):
            part -= means[i, columns]
            variances[i, columns] = np.einsum("ij,ij->j", part, part) / len(part)
        gram = dsyrk(1.0, block.T, beta=1.0, c=gram, trans=1, overwrite_c=True)
    return _Products(gram, means, variances)


def _sparse_products(rows: tuple[Any, ...], names: tuple[str, ...], common_mean: bool) -> _Products:
    """Well filled features as dense ones, the others entry by entry and centred afterwards."""
    ends, n_features = _ends(rows), rows[0].shape[1]
    found = [sparse_mean_and_variances(part, name) for part, name in zip(rows, names, strict=True)]
    means, variances = (np.stack(part) for part in zip(*found, strict=True))
    if common_mean:
        common = np.average(means, axis=0, weights=np.diff(ends, prepend=0))
        variances += (means - common) ** 2
        means[:] = common
    stacked = vstack(rows, format="csr", dtype=np.float64)
    stacked.sum_duplicates()
    counts = np.bincount(stacked.indices, minlength=n_features)
    filled = filled_features(counts, stacked.shape[0])
    with worker_threads() as (pool, n_threads):
        gram = sparse_gram(stacked, filled, pool, n_threads)
    thin_means = np.where(filled, 0.0, means)
    along, between = stacked @ thin_means.T, thin_means @ thin_means.T
    datasets = [slice(end - part.shape[0], end) for end, part in zip(ends, rows, strict=True)]
    for (i, a), (j, b) in product(enumerate(datasets), repeat=2):
        gram[a, b] -= along[a, j, None] + along[b, i] - between[i, j]
    if not filled.any():
        return _Products(gram, means, variances)
    well = tuple(part[:, filled] for part in rows)
    return _Products(_dense_products(well, names, common_mean, gram).gram, means, variances)


def with_room_for(
    x: RowSpaceMoments, y: RowSpaceMoments, n_components: object
) -> tuple[RowSpaceMoments, RowSpaceMoments]:
    """The same moments, with as many spare coordinates as that many components can need."""
    if x.space is not y.space:
        raise ValueError(
            "X and background are RowSpaceMoments that were not made together, so their "
            "coordinates differ; take both from one fit, or give the data."
        )
    missing = _n_spare(n_components, x.n_features - x.space.rank) - x.space.n_spare
    if missing <= 0:
        return x, y
    space = replace(x.space, n_spare=x.space.n_spare + missing)
    x, y = (replace(m, covariance=np.pad(m.covariance, (0, missing)), space=space) for m in (x, y))
    return x, y


def _restore_products(lifted: FloatArray, wanted: FloatArray) -> None:
    """Give `lifted` rows the inner products of `wanted`, of which rounding has cost a little."""
    lengths = np.linalg.norm(wanted, axis=1)
    products = wanted @ wanted.T / np.outer(lengths, lengths)
    found = lifted @ lifted.T / np.outer(lengths, lengths)
    if np.linalg.eigvalsh(products)[0] < 0.1 or np.linalg.eigvalsh(found)[0] < 0.1:
        return  # nearly dependent: dividing by their factor would do harm
    correction = scipy.linalg.solve_triangular(
        np.linalg.cholesky(found), np.eye(len(found)), lower=True
    )
    correction = np.linalg.cholesky(products) @ correction
    lifted[:] = (correction * lengths[:, None] / lengths) @ lifted


def _n_spare(n_components: object, available: int) -> int:
    # Anything but a number is refused later, where the features are known.
    wanted = int(n_components) if isinstance(n_components, Integral) else 1
    return max(min(wanted, available), 0)


def _by_column(rows: Any) -> Any:
    return rows.tocsc() if issparse(rows) else rows


def _ends(rows: tuple[Any, ...]) -> NDArray[np.intp]:
    """Where each dataset ends among the stacked rows."""
    return np.cumsum([part.shape[0] for part in rows], dtype=np.intp)


def _columns(rows: tuple[Any, ...]) -> Iterator[tuple[slice, FloatArray]]:
    """Blocks of columns of the stacked rows, dense; each is overwritten by the next."""
    ends, n_features = _ends(rows), rows[0].shape[1]
    n_rows = int(ends[-1])
    step = max(64, _BLOCK_ELEMENTS // n_rows)
    buffer = np.empty(n_rows * min(step, n_features))
    for start in range(0, n_features, step):
        columns = slice(start, min(start + step, n_features))
        block = buffer[: n_rows * (columns.stop - start)].reshape(n_rows, -1)
        for data, part in zip(rows, np.split(block, ends[:-1]), strict=True):
            part[:] = data[:, columns].toarray() if issparse(data) else data[:, columns]
        yield columns, block
