"""Moments of data whose covariance is only multiplied, never formed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.moments._covariance import ALONE, Covariance, Form, Moments, Threads
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.moments._sparse import as_float64
from contrast_core.moments._sparse_products import gram_products, sharing_pays
from contrast_core.rows import Rows


@dataclass(frozen=True, eq=False)
class ProductMoments(Moments):
    r"""Mean and variances of a dataset, and its covariance behind products with the rows.

    .. math:: C V = (X - 1\bar x)^\top (X - 1\bar x) V / n

    For a contrast or two of data with too many rows and features for either covariance or Gram
    matrix, and of sparse data where few components are wanted. It holds the rows (no copy of dense
    ones; leave them unchanged), so unlike `SecondMoments` it neither merges nor is small.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    mean, variances : ndarray of shape (n_features,)
        Mean and variance of each feature.
    parts : tuple of Rows
        The data, as one dataset or more whose rows are pooled. Sparse rows are multiplied as they
        are, centring being a correction of rank one; dense ones are centred block by block. Those
        that are not in memory are read for every product.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.
    """

    n_samples: float
    mean: FloatArray
    variances: FloatArray
    parts: tuple[Rows, ...]
    feature_names: tuple[str, ...] | None = None

    form: ClassVar[Form] = "products"

    @property
    def shares_out(self) -> bool:
        """Whether threads are of use: all rows are sparse and in memory, and many."""
        return all(part.in_memory and part.is_sparse for part in self.parts) and sharing_pays(
            sum(part.nnz for part in self._sparse)
        )

    @cached_property
    def _sparse(self) -> list[Any]:
        """Sparse parts in memory, of float64: scipy would convert the values at every product."""
        return [
            as_float64(part.load(check=False))
            for part in self.parts
            if part.in_memory and part.is_sparse
        ]

    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Product with columns (D, b); of sparse rows on threads of the pool."""
        product = np.zeros(columns.shape)
        for rows in self._sparse:
            product += gram_products(rows, self.mean, columns, *threads)
        for part in self.parts:
            if not (part.in_memory and part.is_sparse):
                for centred in _centred(part, self.mean):  # in one pass
                    product += centred.T @ (centred @ columns)
        product /= self.n_samples
        return product

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_sparse"}


@dataclass(frozen=True, eq=False)
class CrossProducts(Covariance):
    r"""Products with :math:`S^+ = (Z^\top Z^+ + Z^{+\top} Z) / 2n`, Z the centred views.

    Parameters
    ----------
    views : (Rows, Rows) of shape (n_pairs, n_features)
        The two views. Sparse ones are multiplied as they are, centring being a correction of rank
        one.
    means : (ndarray, ndarray) of shape (n_features,)
        What each is centred by.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.
    """

    views: tuple[Rows, Rows]
    means: tuple[FloatArray, FloatArray]
    feature_names: tuple[str, ...] | None = None

    form: ClassVar[Form] = "products"

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.means[0])

    @cached_property
    def _sparse(self) -> list[Any]:
        return [as_float64(view.load(check=False)) for view in self.views]

    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Product with columns (D, b)."""
        mean, other = self.means
        if all(view.in_memory and view.is_sparse for view in self.views):
            x, p = self._sparse
            product = _back(x, mean, p @ columns - other @ columns)
            product += _back(p, other, x @ columns - mean @ columns)
        else:
            product = np.zeros(columns.shape)
            both = zip(
                *(_centred(v, m) for v, m in zip(self.views, self.means, strict=True)), strict=True
            )
            for a, b in both:
                product += a.T @ (b @ columns) + b.T @ (a @ columns)
        product /= 2 * self.views[0].shape[0]
        return product

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_sparse"}


def product_moments(
    parts: Sequence[Rows], feature_names: tuple[str, ...] | None = None
) -> ProductMoments:
    """Moments of the rows of one dataset, or of several about their common mean.

    Raises ValueError on NaN or infinity.
    """
    each = [feature_moments(part) for part in parts]
    n_rows, mean, squares = reduce(FeatureMoments.merge, each)
    names = feature_names or parts[0].names
    return ProductMoments(n_rows, mean, squares / n_rows, tuple(parts), names)


def feature_moments(rows: Rows) -> FeatureMoments:
    """Mean and squares of each feature; ValueError on NaN or infinity."""
    return reduce(FeatureMoments.merge, map(FeatureMoments.at_once, rows.blocks()))


def _back(rows: Any, mean: FloatArray, scores: FloatArray) -> FloatArray:
    """The transpose of sparse centred rows (n, D) times scores (n, b)."""
    return np.asarray(rows.T @ scores - np.outer(mean, scores.sum(axis=0)))


def _centred(rows: Rows, mean: FloatArray) -> Iterator[FloatArray]:
    """Blocks of rows less their mean, dense; each is overwritten by the next."""
    buffer = np.empty((0, len(mean)))
    for block in rows.blocks(dense=True, check=False):
        if len(buffer) < len(block):
            buffer = np.empty((len(block), len(mean)))
        yield np.subtract(block, mean, out=buffer[: len(block)])
