"""Moments of wide datasets in the few dimensions that their rows span."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg import (
    PivotedFactor,
    add_products,
    dual_eigenpairs,
    fix_signs,
    formed_eigenpairs,
    mirror_upper,
    pivoted_cholesky,
    proved_pays,
)
from contrast_core.moments._row_products import combine_rows, row_ends, row_products

_factoring = threading.Lock()


class Gram:
    """Inner products of rows, until their factor is asked for, which takes their memory.

    Parameters
    ----------
    products : ndarray of shape (n, n)
        Fortran-ordered, symmetric.
    """

    def __init__(self, products: FloatArray) -> None:
        self._products: FloatArray | None = products
        self._factor: PivotedFactor | None = None

    @property
    def products(self) -> FloatArray | None:
        """None once there is a factor."""
        return self._products

    @property
    def factor(self) -> PivotedFactor:
        """Coordinates of the rows in a basis of their span."""
        with _factoring:  # in place: of two threads that ask, one must wait
            if self._products is not None:
                products, self._products = self._products, None
                self._factor = pivoted_cholesky(products, overwrite=True)
        assert self._factor is not None
        return self._factor


@dataclass(frozen=True, eq=False)
class RowSpace:
    r"""An orthonormal basis of the span of the centred rows Z of one dataset or more.

    With the pivoted Cholesky factor of the Gram matrix, :math:`Z_p Z_p^\top = L L^\top`, the rows
    of :math:`L^{-1} Z_p` are orthonormal, p being as many pivot rows as the rank. The basis is
    never formed: vectors in its coordinates are lifted by a product with the rows. It is chosen
    when it is first asked for.

    Parameters
    ----------
    rows : tuple of ndarrays or sparse matrices of shape (any, n_features)
        The data, held as they were given.
    means : ndarray of shape (number of datasets, n_features)
        What each was centred by.
    gram : Gram
        Of the stacked rows.
    n_components : int
        Number of components that will be asked for.
    """

    rows: tuple[Any, ...]
    means: FloatArray
    gram: Gram
    n_components: int

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.means[0])

    @property
    def rank(self) -> int:
        """Dimensions that the centred rows span."""
        return self.gram.factor.rank

    @property
    def n_spare(self) -> int:
        """Coordinates beyond the rank: directions orthogonal to every row, where none varies.

        Their eigenvalue 0 is among the leading ones where others are negative.
        """
        return max(min(self.n_components, self.n_features - self.rank), 0)

    @cached_property
    def coordinates(self) -> FloatArray:
        """Of the stacked centred rows, (number of rows, rank + n_spare)."""
        return self.gram.factor.coordinates(self.n_spare)

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
            some = flat[start : start + k]
            _restore_products(lifted[start : start + k], some @ some.T)
        return lifted.reshape(*coordinates.shape[:-1], self.n_features)

    def combined(self, combinations: FloatArray) -> FloatArray:
        """Orthonormal vectors (k, n_features), combinations of the rows by columns (n, k)."""
        combined = combine_rows(self.rows, self.means, combinations)
        _restore_products(combined, np.eye(len(combined)))
        return combined

    def _from_span(self, coordinates: FloatArray) -> FloatArray:
        return combine_rows(self.rows, self.means, self.gram.factor.weights(coordinates))

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
            directions -= self._from_span(self.gram.factor.along_basis(products))
            directions = np.linalg.qr(directions.T)[0].T
        return directions


@dataclass(frozen=True, eq=False)
class RowSpaceMoments:
    """Mean, variances and covariance of a wide dataset, in a basis of the span of its rows.

    For far more features than rows: the covariance has as many rows as the data, not as the
    features, and both it and the basis are only made when they are asked for. Those of a foreground
    and a background are made together by `row_space_moments`, for both share the basis. They hold
    the rows (no copy; leave them unchanged), so unlike `SecondMoments` they neither merge nor are
    small.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    mean, variances : ndarray of shape (n_features,)
        Mean and variance of each feature.
    space : RowSpace
        The basis.
    rows : slice
        Which of the rows of `space` these are.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.
    """

    n_samples: int
    mean: FloatArray
    variances: FloatArray
    space: RowSpace
    rows: slice
    feature_names: tuple[str, ...] | None = None

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.mean)

    @property
    def is_formed(self) -> bool:
        """Whether the covariance has been asked for."""
        return "covariance" in vars(self)

    @property
    def coordinates(self) -> FloatArray:
        """The centred rows, in the coordinates of `space`, (n_samples, r)."""
        return self.space.coordinates[self.rows]

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
    space, variances = span_of_rows(rows, ("X", "background"), n_components=n_components)
    n, size = row_ends(rows).tolist()
    x, y = (
        RowSpaceMoments(part.stop - part.start, mean, variance, space, part, names)
        for mean, variance, part, names in zip(
            space.means, variances, (slice(0, n), slice(n, size)), feature_names, strict=True
        )
    )
    return x, y


class OneContrast(NamedTuple):
    """Top-k eigenpairs of a contrast."""

    values: FloatArray  # (k,), descending
    components: FloatArray  # orthonormal rows in feature space, signs fixed, (k, n_features)
    foreground_variance: FloatArray  # along the components, (k,)
    background_variance: FloatArray


def row_space_contrast(x: RowSpaceMoments, y: RowSpaceMoments, alpha: float, k: int) -> OneContrast:
    """One contrast at a finite alpha: without either covariance, and without a basis if it can."""
    products, n = x.space.gram.products, x.n_samples
    if products is not None and x.rows.stop == y.rows.start and proved_pays(len(products), k):
        weights = np.repeat([1 / n, -alpha / y.n_samples], [n, y.n_samples])
        dual = dual_eigenpairs(products, weights, k)
        # Another thread may have asked for the factor meanwhile, which takes the products' memory.
        if dual is not None and x.space.gram.products is not None:
            squares = dual.scores**2
            return OneContrast(
                dual.values,
                fix_signs(x.space.combined(dual.combinations)),
                squares[:n].mean(axis=0),
                squares[n:].mean(axis=0),
            )
    size = x.coordinates.shape[1]
    contrast = np.zeros((size, size))

    def form(sign: float) -> FloatArray:
        add_products(x.coordinates, contrast, weight=sign / n, keep=False)
        add_products(y.coordinates, contrast, weight=-sign * alpha / y.n_samples)
        mirror_upper(contrast)
        return contrast

    values, components = formed_eigenpairs(form, size, k)
    along = (moments.variances_along(components) for moments in (x, y))
    return OneContrast(values, x.lift(components), *along)


def span_of_rows(
    rows: tuple[Any, ...],
    names: tuple[str, ...],
    *,
    n_components: object = 1,
    common_mean: bool = False,
) -> tuple[RowSpace, FloatArray]:
    """The span of centred rows, from their Gram matrix.

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
    RowSpace, ndarray of shape (number of datasets, n_features)
        And the variances of each dataset's features.

    Raises
    ------
    ValueError
        On NaN or infinity.
    """
    gram, means, variances = row_products(rows, names, common_mean)
    mirror_upper(gram)
    return RowSpace(rows, means, Gram(gram), _wanted(n_components)), variances


def with_room_for(
    x: RowSpaceMoments, y: RowSpaceMoments, n_components: object
) -> tuple[RowSpaceMoments, RowSpaceMoments]:
    """The same moments, with as many spare coordinates as that many components can need."""
    if x.space is not y.space:
        raise ValueError(
            "X and background are RowSpaceMoments that were not made together, so their "
            "coordinates differ; take both from one fit, or give the data."
        )
    wanted = _wanted(n_components)
    if wanted <= x.space.n_components:
        return x, y
    space = replace(x.space, n_components=wanted)
    return replace(x, space=space), replace(y, space=space)


def _restore_products(lifted: FloatArray, wanted: FloatArray) -> None:
    """Give `lifted` rows their inner products, (k, k), of which rounding has cost a little."""
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


def _wanted(n_components: object) -> int:
    # Anything but a number is refused later, where the features are known.
    return int(n_components) if isinstance(n_components, Integral) else 1
