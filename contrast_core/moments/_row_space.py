"""Moments of wide datasets in the few dimensions that their rows span."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg import (
    Eigenpairs,
    PivotedFactor,
    add_products,
    fix_signs,
    formed_eigenpairs,
    mirror_upper,
    pivoted_cholesky,
)
from contrast_core.moments._row_products import combine_rows, row_ends, row_products


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
    factor : PivotedFactor
        Of the stacked rows.
    n_spare : int
        Coordinates beyond the rank: directions orthogonal to every row, where no dataset
        varies. Their eigenvalue 0 is among the leading ones where others are negative.
    """

    rows: tuple[Any, ...]
    means: FloatArray
    factor: PivotedFactor
    n_spare: int

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.means[0])

    @property
    def rank(self) -> int:
        """Dimensions that the centred rows span."""
        return self.factor.rank

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
        return combine_rows(self.rows, self.means, self.factor.weights(coordinates))

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
            directions -= self._from_span(self.factor.along_basis(products))
            directions = np.linalg.qr(directions.T)[0].T
        return directions


@dataclass(frozen=True, eq=False)
class RowSpaceMoments:
    """Mean, variances and covariance of a wide dataset, in a basis of the span of its rows.

    For far more features than rows: the covariance has as many rows as the data, not as the
    features, and is only formed when it is asked for. Those of a foreground and a background are
    made together by `row_space_moments`, for both share the basis. They hold the rows (no copy;
    leave them unchanged), so unlike `SecondMoments` they neither merge nor are small.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    mean, variances : ndarray of shape (n_features,)
        Mean and variance of each feature.
    coordinates : ndarray of shape (n_samples, r)
        The centred rows, in the coordinates of `space`.
    space : RowSpace
        The basis.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.
    """

    n_samples: int
    mean: FloatArray
    variances: FloatArray
    coordinates: FloatArray
    space: RowSpace
    feature_names: tuple[str, ...] | None = None

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.mean)

    @property
    def is_formed(self) -> bool:
        """Whether the covariance has been asked for."""
        return "covariance" in vars(self)

    @cached_property
    def covariance(self) -> FloatArray:
        """Second moments about the mean, divided by n, (r, r)."""
        covariance = np.zeros((self.coordinates.shape[1],) * 2)
        add_products(self.coordinates, covariance, weight=1 / self.n_samples)
        mirror_upper(covariance)
        return covariance

    @property
    def total_variance(self) -> float:
        """Trace of the covariance."""
        return float(self.variances.sum())

    def variances_along(self, components: FloatArray) -> FloatArray:
        """Of each row of `components`, (k, r), without the covariance: (k,)."""
        scores = self.coordinates @ components.T
        return np.asarray(np.einsum("nk,nk->k", scores, scores) / self.n_samples)

    def lift(self, components: FloatArray) -> FloatArray:
        """Rows in the coordinates of `space` as rows in feature space, signs fixed."""
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
        RowSpaceMoments(len(part), mean, variance, part, span.space, names)
        for part, mean, variance, names in zip(
            span.coordinates, span.space.means, span.variances, feature_names, strict=True
        )
    )
    return x, y


def row_space_eigenpairs(
    x: RowSpaceMoments, y: RowSpaceMoments, alpha: float, k: int
) -> Eigenpairs:
    """Top-k eigenpairs of one contrast at a finite alpha, without either covariance."""
    size = x.coordinates.shape[1]
    contrast = np.zeros((size, size))

    def form(sign: float) -> FloatArray:
        add_products(x.coordinates, contrast, weight=sign / x.n_samples, keep=False)
        add_products(y.coordinates, contrast, weight=-sign * alpha / y.n_samples)
        mirror_upper(contrast)
        return contrast

    return formed_eigenpairs(form, size, k)


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
    gram, means, variances = row_products(rows, names, common_mean)
    factor = pivoted_cholesky(gram, overwrite=True)
    n_spare = _n_spare(n_components, means.shape[1] - factor.rank)
    coordinates = np.split(factor.coordinates(n_spare), row_ends(rows)[:-1])
    return Span(RowSpace(rows, means, factor, n_spare), coordinates, variances)


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
    wider = ((0, 0), (0, missing))
    x, y = (replace(m, coordinates=np.pad(m.coordinates, wider), space=space) for m in (x, y))
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
