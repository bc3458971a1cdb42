"""The mean and the variance of every feature, and nothing of how features vary together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from contrast_core._validation import FloatArray, MatrixLike
from contrast_core.moments._moments import varies
from contrast_core.moments._sparse_products import compiled_products_pay, multipliable
from contrast_core.rows import Rows, rows_of


class FeatureMoments(NamedTuple):
    """Moments of each feature alone, in double precision.

    `mean` and `squares`, the sums of squared differences from it, have shape (n_features,). They
    are NaN or infinite where a value is.
    """

    n_samples: float
    mean: FloatArray
    squares: FloatArray

    @property
    def variance(self) -> FloatArray:
        """Variance of each feature, divided by the number of rows."""
        return self.squares / self.n_samples

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Which features have a spread that exceeds the rounding of their mean, (n_features,)."""
        return varies(self.mean, self.variance)

    @classmethod
    def from_data(cls, X: MatrixLike | Rows, *, check: bool = False) -> FeatureMoments:
        """Moments of data of any kind with at least one row; with `check`, of finite values.

        Taken in blocks: beside the data there is never a second array as large.
        """
        blocks = rows_of(X, min_rows=1).blocks(check=check)
        return reduce(FeatureMoments.merge, map(cls.at_once, blocks))

    @classmethod
    def at_once(cls, rows: Any, weights: FloatArray | None = None) -> FeatureMoments:
        """The same of few rows, dense or sparse without duplicate entries, in one block.

        With weights, `n_samples` is their sum; of sparse rows only.
        """
        n, n_features = rows.shape
        with np.errstate(invalid="ignore", over="ignore"):
            if not issparse(rows):
                mean = rows.mean(axis=0, dtype=np.float64)
                return cls(n, mean, ((rows - mean) ** 2).sum(axis=0))
            rows = rows.tocsr()
            if weights is None and compiled_products_pay(rows.nnz):
                return cls(
                    n, *_compiled()(rows.indices, multipliable(rows).data, n or 1, n_features)
                )
            columns = rows.indices.astype(np.intp)
            each = None if weights is None else np.repeat(weights, np.diff(rows.indptr))
            n = n if weights is None else weights.sum()

            def total(values: FloatArray | None) -> FloatArray:
                # Not rows.sum(): scipy adds float32 values up in float32, whatever is asked for.
                weighted = each if values is None else values if each is None else values * each
                return np.asarray(np.bincount(columns, weighted, n_features), np.float64)

            values = rows.data.astype(np.float64, copy=False)
            mean = total(values) / (n or 1)
            squares = total((values - mean[columns]) ** 2) + (n - total(None)) * mean**2
            return cls(n, mean, squares)

    def merge(self, other: FeatureMoments) -> FeatureMoments:
        """Moments of both sets of rows (Chan, Golub and LeVeque 1979)."""
        n = self.n_samples + other.n_samples
        with np.errstate(invalid="ignore", over="ignore"):
            difference = other.mean - self.mean
            return FeatureMoments(
                n,
                self.mean + difference * (other.n_samples / n),
                self.squares
                + other.squares
                + difference**2 * (self.n_samples * other.n_samples / n),
            )


@cache
def _compiled() -> Callable[..., tuple[FloatArray, FloatArray]]:
    """`_moments_of_entries` as machine code."""
    from numba import njit

    compiled: Callable[..., tuple[FloatArray, FloatArray]] = njit(cache=True, nogil=True)(
        _moments_of_entries
    )
    return compiled


def _moments_of_entries(indices, values, n_rows, n_features):  # type: ignore[no-untyped-def]
    """Means and sums of squared differences from them, (n_features,), of stored entries.

    Written so that numba can compile it: see `_sparse_products._multiply` about unsigned numbers.
    """
    mean, squares, stored = np.zeros(n_features), np.zeros(n_features), np.zeros(n_features)
    for p in range(len(indices)):
        at = np.uint64(indices[p])
        mean[at] += values[p]
        stored[at] += 1.0
    mean /= n_rows
    for p in range(len(indices)):
        at = np.uint64(indices[p])
        difference = values[p] - mean[at]
        squares[at] += difference * difference
    squares += (n_rows - stored) * mean**2
    return mean, squares
