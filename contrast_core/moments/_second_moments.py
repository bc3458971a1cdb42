"""Count, mean and covariance of a dataset: all that the linear methods need to know of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_rows,
    check_same_features,
    feature_names_of,
    iter_chunks,
)


@dataclass(frozen=True, eq=False)
class SecondMoments:
    r"""Count, mean and covariance of a dataset, centred by its own mean.

    .. math:: C = \frac1n \sum_i (x_i - \bar x)(x_i - \bar x)^\top

    These are sufficient statistics for the linear contrastive methods: read the data once, then
    fit at any contrast and number of components. Moments of parts of a dataset merge into the
    moments of the whole, and pickle.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    mean : ndarray of shape (n_features,)
        Mean of the rows.
    covariance : ndarray of shape (n_features, n_features)
        Second moments about the mean, divided by n (not n - 1).
    feature_names : tuple of str, optional
        Names of the features, where the data had them.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import SecondMoments
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 4.0]])
    >>> whole = SecondMoments.from_data(X)
    >>> parts = SecondMoments.from_data(X[:2]).merge(SecondMoments.from_data(X[2:]))
    >>> parts.n_samples, bool(np.allclose(parts.covariance, whole.covariance))
    (3, True)
    """

    n_samples: int
    mean: FloatArray
    covariance: FloatArray
    feature_names: tuple[str, ...] | None = None

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.mean)

    @property
    def variances(self) -> FloatArray:
        """Variance of each feature, shape (n_features,)."""
        return self.covariance.diagonal()

    @property
    def total_variance(self) -> float:
        """Trace of the covariance."""
        return float(np.trace(self.covariance))

    def lift(self, components: FloatArray) -> FloatArray:
        """Rows in the coordinates of `covariance` as rows in feature space: here the same."""
        return components

    @classmethod
    def from_data(
        cls, X: MatrixLike, *, feature_names: Sequence[str] | None = None, name: str = "X"
    ) -> SecondMoments:
        """Moments of a matrix in memory.

        Parameters
        ----------
        X : array-like, DataFrame or scipy sparse matrix of shape (n_samples, n_features)
            Any numeric dtype; read in blocks of rows and accumulated in float64. Sparse input is
            never made dense as a whole.
        feature_names : sequence of str, optional
            Names of the features; those of a DataFrame are taken by default.
        name : str, default="X"
            What error messages call the data.

        Returns
        -------
        SecondMoments

        Raises
        ------
        ValueError
            If `X` is not two-dimensional, is empty, or holds NaN or infinity.
        """
        names = feature_names_of(X) if feature_names is None else tuple(feature_names)
        rows = check_rows(X, name, min_rows=1)
        if names is not None and len(names) != rows.shape[1]:
            raise ValueError(
                f"{len(names)} feature_names were given for the {rows.shape[1]} features of {name}."
            )
        return replace(_accumulate(iter_chunks(rows, name), name), feature_names=names)

    @classmethod
    def from_chunks(
        cls,
        chunks: Iterable[MatrixLike],
        *,
        feature_names: Sequence[str] | None = None,
        name: str = "X",
    ) -> SecondMoments:
        """Moments of a dataset that arrives in blocks of rows.

        Parameters
        ----------
        chunks : iterable of array-like or sparse matrices of shape (any, n_features)
            The blocks; each is read once and may be dropped afterwards.
        feature_names : sequence of str, optional
            Names of the features; those of the first DataFrame are taken by default.
        name : str, default="X"
            What error messages call the data.

        Returns
        -------
        SecondMoments

        Raises
        ------
        ValueError
            If there is no block, if blocks differ in their features, or on NaN or infinity.
        """
        names = None if feature_names is None else tuple(feature_names)
        first: tuple[int, tuple[str, ...] | None] | None = None

        def blocks() -> Iterable[Any]:
            nonlocal first
            for i, chunk in enumerate(chunks):
                label = f"chunk {i} of {name}"
                rows, found = check_rows(chunk, label), feature_names_of(chunk)
                first = first or (rows.shape[1], names or found)
                check_same_features(*first, rows.shape[1], found, background_name=label)
                yield from iter_chunks(rows, label)

        moments = _accumulate(blocks(), name)
        return replace(moments, feature_names=first[1] if first else None)

    def merge(self, other: SecondMoments) -> SecondMoments:
        """Moments of the two datasets together.

        Parameters
        ----------
        other : SecondMoments
            Moments of other rows with the same features.

        Returns
        -------
        SecondMoments
            The counts add; neither operand changes.

        Raises
        ------
        ValueError
            If the features differ.
        """
        check_same_features(
            self.n_features,
            self.feature_names,
            other.n_features,
            other.feature_names,
            background_name="the other dataset",
        )
        n = self.n_samples + other.n_samples
        weight = other.n_samples / n
        shift = other.mean - self.mean
        covariance = (1 - weight) * self.covariance + weight * other.covariance
        covariance += (weight * (1 - weight)) * np.outer(shift, shift)
        names = self.feature_names or other.feature_names
        return SecondMoments(n, self.mean + weight * shift, covariance, names)


class Accumulator:
    """Sums of shifted rows and their products, in float64, one block of rows after another.

    The shift by the first block's mean keeps the subtraction of the mean harmless however far
    the data lie from zero. BLAS adds each product into the same matrix, upper triangle only.
    """

    def __init__(self) -> None:
        self._count = 0
        self._shift = self._total = self._scatter = np.empty(0)

    def add(self, chunk: Any) -> None:
        """Add a dense block of rows, of any numeric dtype."""
        if not len(chunk):
            return
        if not self._count:
            self._shift = chunk.mean(axis=0, dtype=np.float64)
            self._total = np.zeros_like(self._shift)
            self._scatter = np.zeros((len(self._shift),) * 2, order="F")
        shifted = np.subtract(chunk, self._shift, dtype=np.float64, order="C")
        self._total += shifted.sum(axis=0)
        self._scatter = dsyrk(1.0, shifted.T, beta=1.0, c=self._scatter, overwrite_c=True)
        self._count += len(chunk)

    def moments(self, name: str) -> SecondMoments:
        """Moments of all rows so far; the accumulator is spent."""
        if not self._count:
            raise ValueError(f"{name} has no rows (n_samples=0); at least one is needed.")
        offset = self._total / self._count
        covariance = self._scatter.T  # C order, lower triangle
        covariance /= self._count
        covariance -= np.outer(offset, offset)
        _mirror_lower(covariance)
        # A feature without variance may come out a rounding error below zero.
        np.fill_diagonal(covariance, np.maximum(covariance.diagonal(), 0.0))
        return SecondMoments(self._count, self._shift + offset, covariance)


def _accumulate(chunks: Iterable[Any], name: str) -> SecondMoments:
    accumulator = Accumulator()
    for chunk in chunks:
        accumulator.add(chunk)
    return accumulator.moments(name)


def _mirror_lower(matrix: FloatArray) -> None:
    """Copy the lower triangle onto the upper one, in place, block by block."""
    n, step = len(matrix), 512
    for i in range(0, n, step):
        rows = slice(i, min(i + step, n))
        matrix[rows, rows] = np.tril(matrix[rows, rows]) + np.tril(matrix[rows, rows], -1).T
        matrix[rows, i + step :] = matrix[i + step :, rows].T
