"""The interface that second moments of all forms have in common.

Problem: every linear method here depends on the data only through a mean and a covariance, but a
matrix of features x features is not always the cheapest form of a covariance. There are three
forms, and `contrast_core.solve` chooses among them by their cost.

- "dense": a matrix of features x features. It is the smaller matrix if there are no more features
  than rows.
- "span": a matrix in an orthonormal basis of the rows' span. Its size is at most the number of
  rows, and it has the same nonzero eigenvalues as the covariance. It is the smaller matrix if there
  are more features than rows.
- "products": the rows themselves. The covariance is never formed, but only multiplied with a few
  columns. This is enough for an iteration that finds leading eigenvectors. It is used if either
  matrix would cost more than the iteration.

The coordinates of moments are the features or, in the form "span", the coordinates in the basis. A
solver works in these coordinates, and `Moments.lift` maps its result back to the features.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray

Form: TypeAlias = Literal["dense", "span", "products"]
# A pool of threads that compute a product together, and the number of threads.
Threads: TypeAlias = tuple[Executor | None, int]

ALONE: Threads = (None, 1)  # no pool: the calling thread computes the product
_CACHED_ELEMENTS = 2**16  # 512 KB of float64


class Moments(abc.ABC):
    """Mean and covariance of a dataset.

    Both are averages: sums over rows, divided by the number of rows or by their total weight.

    Attributes
    ----------
    form : {"dense", "span", "products"}
        Form in which the covariance is held.
    n_samples : int or float
        Number of rows, n, or their total weight.
    mean, variances : ndarray of shape (n_features,)
        Mean and variance of each feature.
    feature_names : tuple of str or None
        Names of the features, if the data had names.
    groups, group_means : ndarray of shape (G,) and (G, n_features), or None
        Labels and means of the groups of rows, if rows belong to groups.
    parts : tuple of moments
        If these moments are a weighted sum, the moments that were summed; otherwise empty.
    """

    form: ClassVar[Form]
    feature_names: tuple[str, ...] | None
    groups: NDArray[Any] | None = None
    group_means: FloatArray | None = None
    parts: tuple[Any, ...] = ()

    if TYPE_CHECKING:  # some subclasses define these as fields, others as properties

        @property
        def n_samples(self) -> float: ...

        @property
        def mean(self) -> FloatArray: ...

        @property
        def variances(self) -> FloatArray: ...

    @property
    def n_features(self) -> int:
        """Number of features, D."""
        return len(self.mean)

    @property
    def size(self) -> int:
        """Number of coordinates, which is D, or the dimension of the span in the form "span"."""
        return self.n_features

    @property
    def total_variance(self) -> float:
        """Trace of the covariance."""
        return float(self.variances.sum())

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Whether each feature's standard deviation exceeds rounding error, (n_features,)."""
        return varies(self.mean, self.variances)

    @property
    def centres(self) -> tuple[NDArray[Any], FloatArray] | None:
        """Labels and means of the groups about whose means the covariance is taken.

        None if the covariance is taken about the overall mean.
        """
        if self.groups is None or self.group_means is None:
            return None
        return self.groups, self.group_means

    def matrix(self) -> FloatArray:
        """Return the covariance in these moments' coordinates, (size, size); do not change it."""
        raise TypeError(f"{type(self).__name__} can only compute products, and has no matrix.")

    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Return the product of the covariance with columns (size, b)."""
        return np.asarray(self.matrix() @ columns)

    def variances_along(self, components: FloatArray) -> FloatArray:
        """Return ``v^T C v`` for each row v of `components` (k, size), shape (k,)."""
        return np.asarray(np.einsum("dk,kd->k", self.apply(components.T), components))

    def lift(self, components: FloatArray) -> FloatArray:
        """Map components, (..., k, size), to feature space, (..., k, n_features)."""
        return components

    def coordinates_of(self, components: FloatArray) -> FloatArray:
        """Map components in feature space, (k, n_features), to these coordinates, (k, size)."""
        return components

    def complement(self, count: int) -> FloatArray:
        """Return orthonormal directions in feature space along which nothing varies, (count, D)."""
        raise TypeError(
            f"{type(self).__name__} has no complement, because its coordinates are all features."
        )

    def shares_coordinates(self, other: Moments) -> bool:
        """Return whether these and the other moments use the same coordinates."""
        return self.form == other.form and self.size == other.size


def varies(mean: FloatArray, variances: FloatArray) -> NDArray[np.bool_]:
    """Return whether each standard deviation exceeds the rounding error of the mean."""
    rounding = 32 * np.finfo(np.float64).eps * np.abs(mean)
    return np.asarray(np.sqrt(variances) > rounding)


def in_cache(matrix: FloatArray) -> Iterator[slice]:
    """Yield slices of rows that fit into the cache, so that they are read from memory only once."""
    step = max(1, _CACHED_ELEMENTS // max(1, matrix.shape[1]))
    return (slice(start, start + step) for start in range(0, len(matrix), step))


def is_moments(data: object) -> bool:
    """Return whether `data` are moments already."""
    return isinstance(data, Moments)
