"""The mean and the variance of every feature, and nothing of how features vary together."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from contrast_core._validation import FloatArray, rows_per_chunk


class FeatureMoments(NamedTuple):
    """Moments of each feature alone, in double precision.

    `mean` and `squares`, the sums of squared differences from it, have shape (n_features,). They
    are NaN or infinite where a value is.
    """

    n_samples: int
    mean: FloatArray
    squares: FloatArray

    @property
    def variance(self) -> FloatArray:
        """Variance of each feature, divided by the number of rows."""
        return self.squares / self.n_samples

    @classmethod
    def from_data(cls, rows: Any) -> FeatureMoments:
        """Moments of the rows of an ndarray or CSR matrix, (n, n_features), with n at least 1.

        Taken in blocks: beside the data there is never a second array as large.
        """
        step = rows_per_chunk(rows.shape[1])
        starts = range(0, rows.shape[0], step)
        return reduce(
            FeatureMoments.merge, (_of_block(rows[start : start + step]) for start in starts)
        )

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


def _of_block(rows: Any) -> FeatureMoments:
    n = rows.shape[0]
    with np.errstate(invalid="ignore", over="ignore"):
        if not issparse(rows):
            mean = rows.mean(axis=0, dtype=np.float64)
            return FeatureMoments(n, mean, ((rows - mean) ** 2).sum(axis=0))
        features, d = rows.indices, rows.shape[1]
        # Not rows.sum(): scipy adds float32 values up in float32, whatever dtype is asked for.
        mean = np.bincount(features, weights=rows.data, minlength=d) / n
        squares = np.bincount(features, weights=(rows.data - mean[features]) ** 2, minlength=d)
        stored = np.bincount(features, minlength=d)
        return FeatureMoments(n, mean, squares + (n - stored) * mean**2)
