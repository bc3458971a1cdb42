"""The mean and the variance of every feature, without covariances.

Problem: compute means and variances in one pass over blocks of rows, without losing digits if a
mean is far from zero. Each block is centred by its own mean, and blocks are merged by the pairwise
update of Chan, Golub and LeVeque (American Statistician 37:242, 1983). The rounding error of a long
sum would make a constant feature vary. Therefore the mean of the deviations, which would be zero
without rounding errors, is added to the mean of each block before the squares are taken. Entries
that a sparse matrix does not store count as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from contrast_core._validation import FloatArray, MatrixLike
from contrast_core.moments._moments import varies
from contrast_core.rows import Rows, reduce_rows, rows_of


class FeatureMoments(NamedTuple):
    """Mean and variance of each feature, in double precision.

    `squares` holds the sums of squared differences from the mean. `mean` and `squares` have shape
    (n_features,). They are NaN or infinite for a feature that holds NaN or infinity.
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
        """Whether each feature's standard deviation exceeds rounding error, (n_features,)."""
        return varies(self.mean, self.variance)

    @classmethod
    def from_data(cls, X: MatrixLike | Rows, *, check: bool = False) -> FeatureMoments:
        """Return the moments of data of any kind, which are read in blocks.

        If `check` is true, NaN and infinity raise ValueError.
        """
        blocks = rows_of(X, min_rows=1).blocks(check=check)
        return reduce(FeatureMoments.merge, map(cls.from_block, blocks))

    @classmethod
    def from_block(cls, rows: Any, weights: FloatArray | None = None) -> FeatureMoments:
        """Return the moments of one block of rows, dense or sparse without duplicate entries.

        Only sparse rows may have weights; `n_samples` is then the sum of the weights.
        """
        n, n_features = rows.shape
        with np.errstate(invalid="ignore", over="ignore"):
            if not issparse(rows):
                mean = rows.mean(axis=0, dtype=np.float64)
                centred = rows - mean
                left = centred.mean(axis=0)
                centred -= left
                return cls(n, mean + left, np.einsum("ij,ij->j", centred, centred))
            rows = rows.tocsr()
            columns = rows.indices.astype(np.intp)
            each = None if weights is None else np.repeat(weights, np.diff(rows.indptr))
            # `cumsum` adds the weights in the order in which `bincount` adds them below. Therefore
            # `absent`, the difference of the two sums, is exactly 0 if a column is fully stored.
            n = n if weights is None else weights.cumsum()[-1]

            def total(values: FloatArray | None) -> FloatArray:
                # `rows.sum()` would be inexact, because SciPy adds up float32 values in float32.
                weighted = each if values is None else values if each is None else values * each
                return np.asarray(np.bincount(columns, weighted, n_features), np.float64)

            values = rows.data.astype(np.float64, copy=False)
            absent = n - total(None)  # number or weight of the zeros that are not stored
            mean = total(values) / (n or 1)
            mean += (total(values - mean[columns]) - absent * mean) / (n or 1)
            squares = total((values - mean[columns]) ** 2) + absent * mean * mean
            return cls(n, mean, squares)

    def merge(self, other: FeatureMoments) -> FeatureMoments:
        """Return the moments of both sets of rows (Chan, Golub and LeVeque 1983)."""
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


def split_feature_moments(
    whole: Rows, sets: Sequence[NDArray[np.bool_]]
) -> list[FeatureMoments | None]:
    """Return the moments of each feature over disjoint sets of rows, from one pass over all rows.

    Each set is a mask of the rows of `whole`. The data are read by rows or by columns, whichever is
    cheaper. The moments of a feature with NaN or infinity are not finite. The result for a set
    without rows is None.
    """
    if whole.reads_rows:
        return reduce_rows([whole.take(mask) for mask in sets], _FeatureSum, check=False)
    blocks = [
        [FeatureMoments.from_block(block[mask]) for mask in sets if mask.any()]
        for _, block in whole.column_blocks()
    ]
    of_sets = iter([_side_by_side(parts) for parts in zip(*blocks, strict=True)])
    return [next(of_sets) if mask.any() else None for mask in sets]


class _FeatureSum:
    """Moments of each feature, merged from the moments of blocks of rows."""

    def __init__(self) -> None:
        self._total: FeatureMoments | None = None

    def add(self, block: Any, *_: object) -> None:
        if block.shape[0]:
            moments = FeatureMoments.from_block(block)
            self._total = moments if self._total is None else self._total.merge(moments)

    def result(self) -> FeatureMoments | None:
        return self._total


def _side_by_side(blocks: Sequence[FeatureMoments]) -> FeatureMoments:
    """Join the moments of blocks of features into the moments of all features."""
    means, squares = ([getattr(each, name) for each in blocks] for name in ("mean", "squares"))
    return FeatureMoments(blocks[0].n_samples, np.concatenate(means), np.concatenate(squares))
