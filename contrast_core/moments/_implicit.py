"""Moments of wide data whose covariance is only multiplied, never formed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy.sparse import issparse

from contrast_core._validation import FloatArray, iter_chunks, rows_per_chunk
from contrast_core.linalg import SymmetricOperator
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.moments._sparse import as_float64, sparse_mean_and_variances
from contrast_core.moments._sparse_products import gram_products, sharing_pays

MAX_PRODUCTS = 5_000


class RowsCovariance(SymmetricOperator):
    r"""Covariance of rows behind products: :math:`C V = (X - 1\bar x)^\top (X - 1\bar x) V / n`.

    Parameters
    ----------
    parts : tuple of ndarrays or CSR or CSC matrices of shape (any, n_features)
        The data, as one dataset or more whose rows are pooled. Sparse rows are multiplied as they
        are, centring being a correction of rank one; dense ones are centred block by block.
    mean : ndarray of shape (n_features,)
        The mean of all rows.
    random_state : int or None, default=0
        Seed of an iteration's start.
    max_products : int
        Columns that an iteration may multiply before it gives up.
    """

    def __init__(
        self,
        parts: tuple[Any, ...],
        mean: FloatArray,
        *,
        random_state: int | None = 0,
        max_products: int = MAX_PRODUCTS,
    ) -> None:
        super().__init__(len(mean), random_state=random_state, max_products=max_products)
        self.parts, self.mean = parts, mean
        # scipy would convert the values at every product.
        self._ready = [as_float64(rows) if issparse(rows) else rows for rows in parts]

    @property
    def shares_out(self) -> bool:
        """Whether `multiply` makes use of threads: all rows are CSR, and that pays."""
        return all(_is_csr(rows) and sharing_pays(rows.nnz) for rows in self.parts)

    def _matmat(self, columns: FloatArray) -> FloatArray:
        return self.multiply(columns, None, 1)

    def multiply(self, columns: FloatArray, pool: Executor | None, n_threads: int) -> FloatArray:
        """The product with columns (D, b); of CSR rows on threads of the pool."""
        product = np.zeros(columns.shape)
        for rows in self._ready:
            if _is_csr(rows):
                product += gram_products(rows, self.mean, columns, pool, n_threads)
            elif issparse(rows):
                product += products(rows, self.mean, scores(rows, self.mean, columns))
            else:  # in one pass
                for centred in _centred(rows, self.mean):
                    product += centred.T @ (centred @ columns)
        product /= sum(rows.shape[0] for rows in self.parts)
        return product


def _is_csr(rows: Any) -> bool:
    return bool(issparse(rows) and rows.format == "csr")


def scores(rows: Any, mean: FloatArray, columns: FloatArray) -> FloatArray:
    """Centred rows (n, D) times columns (D, b)."""
    if issparse(rows):
        return np.asarray(rows @ columns - mean @ columns)
    return np.concatenate([centred @ columns for centred in _centred(rows, mean)])


def products(rows: Any, mean: FloatArray, columns: FloatArray) -> FloatArray:
    """The transpose of centred rows (n, D) times columns (n, b)."""
    if issparse(rows):
        return np.asarray(rows.T @ columns - np.outer(mean, columns.sum(axis=0)))
    product, start = np.zeros((len(mean), columns.shape[1])), 0
    for centred in _centred(rows, mean):
        product += centred.T @ columns[start : start + len(centred)]
        start += len(centred)
    return product


def _centred(rows: Any, mean: FloatArray) -> Iterator[FloatArray]:
    """Blocks of dense rows less their mean; each is overwritten by the next."""
    buffer = np.empty((min(rows_per_chunk(len(mean)), len(rows)), len(mean)))
    for chunk in iter_chunks(rows, "X", check=False):
        yield np.subtract(chunk, mean, out=buffer[: len(chunk)])


@dataclass(frozen=True, eq=False)
class ImplicitMoments:
    """Count, mean and variances of a dataset, and its covariance as an operator on the rows.

    For a contrast or two of data with too many rows and features for either covariance or Gram
    matrix, and of sparse wide data. It holds the rows (no copy of dense ones; leave them
    unchanged), so unlike `SecondMoments` it neither merges nor is small.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    mean, variances : ndarray of shape (n_features,)
        Mean and variance of each feature.
    covariance : RowsCovariance
        Second moments about the mean, divided by n, as an operator.
    feature_names : tuple of str, optional
        Names of the features, where the data had them.
    """

    n_samples: int
    mean: FloatArray
    variances: FloatArray
    covariance: RowsCovariance
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
        """Rows in the coordinates of `covariance` as rows in feature space: here the same."""
        return components

    @classmethod
    def from_rows(
        cls,
        rows: Any,
        name: str,
        feature_names: tuple[str, ...] | None,
        *,
        random_state: int | None = 0,
        max_products: int = MAX_PRODUCTS,
    ) -> ImplicitMoments:
        """Moments of checked rows; ValueError on NaN or infinity."""
        mean, variances = mean_and_variances(rows, name)
        covariance = RowsCovariance(
            (rows,), mean, random_state=random_state, max_products=max_products
        )
        return cls(rows.shape[0], mean, variances, covariance, feature_names)

    @classmethod
    def pooled(
        cls,
        parts: tuple[Any, ...],
        names: tuple[str, ...],
        feature_names: tuple[str, ...] | None,
        *,
        max_products: int = MAX_PRODUCTS,
    ) -> ImplicitMoments:
        """Moments of the rows of several datasets about their common mean."""
        each = (
            FeatureMoments(rows.shape[0], mean, rows.shape[0] * variances)
            for rows, (mean, variances) in (
                (rows, mean_and_variances(rows, name))
                for rows, name in zip(parts, names, strict=True)
            )
        )
        n_rows, mean, squares = reduce(FeatureMoments.merge, each)
        covariance = RowsCovariance(parts, mean, max_products=max_products)
        return cls(n_rows, mean, squares / n_rows, covariance, feature_names)


def mean_and_variances(rows: Any, name: str) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each feature; ValueError on NaN or infinity."""
    if issparse(rows):
        return sparse_mean_and_variances(rows, name)
    n, n_features = rows.shape
    mean, variances = np.zeros(n_features), np.zeros(n_features)
    for chunk in iter_chunks(rows, name):
        mean += chunk.sum(axis=0, dtype=np.float64)
    mean /= n
    for chunk in iter_chunks(rows, name):
        variances += (np.subtract(chunk, mean, dtype=np.float64) ** 2).sum(axis=0)
    return mean, variances / n
