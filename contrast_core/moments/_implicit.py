"""Moments of wide data whose covariance is only multiplied, never formed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from contrast_core._validation import FloatArray, iter_chunks
from contrast_core.linalg import SymmetricOperator
from contrast_core.moments._sparse import as_float64, sparse_mean_and_variances

MAX_PRODUCTS = 5_000


class RowsCovariance(SymmetricOperator):
    r"""Covariance of rows behind products: :math:`C V = (X - 1\bar x)^\top (X - 1\bar x) V / n`.

    Parameters
    ----------
    rows : ndarray or CSR or CSC matrix of shape (n, n_features)
        The data. Sparse rows are multiplied as they are, centring being a correction of rank one;
        dense ones are centred block by block.
    mean : ndarray of shape (n_features,)
        Their mean.
    random_state : int or None, default=0
        Seed of an iteration's start.
    max_products : int
        Columns that an iteration may multiply before it gives up.
    """

    def __init__(
        self,
        rows: Any,
        mean: FloatArray,
        *,
        random_state: int | None = 0,
        max_products: int = MAX_PRODUCTS,
    ) -> None:
        super().__init__(len(mean), random_state=random_state, max_products=max_products)
        self.rows, self.mean = rows, mean
        # scipy would convert the values at every product; the indices are shared.
        self._sparse = as_float64(rows) if issparse(rows) else None

    def _matmat(self, columns: FloatArray) -> FloatArray:
        if self._sparse is None:
            product = np.zeros(columns.shape)
            for chunk in iter_chunks(self.rows, "X"):
                centred = np.subtract(chunk, self.mean, dtype=np.float64)
                product += centred.T @ (centred @ columns)
        else:
            scores = self._sparse @ columns - self.mean @ columns
            product = self._sparse.T @ scores
            product -= np.outer(self.mean, scores.sum(axis=0))
        product /= self.rows.shape[0]
        return np.asarray(product)


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
        mean, variances = _mean_and_variances(rows, name)
        covariance = RowsCovariance(
            rows, mean, random_state=random_state, max_products=max_products
        )
        return cls(rows.shape[0], mean, variances, covariance, feature_names)


def _mean_and_variances(rows: Any, name: str) -> tuple[FloatArray, FloatArray]:
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
