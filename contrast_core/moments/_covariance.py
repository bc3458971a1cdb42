"""What can be done with second moments, whatever their form."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray

# A matrix of features x features; a matrix in the span of the rows; products with the rows only.
Form: TypeAlias = Literal["dense", "span", "products"]
# Threads that share a product, and their number.
Threads: TypeAlias = tuple[Executor | None, int]

ALONE: Threads = (None, 1)
_CACHED_ELEMENTS = 2**16  # 512 KB of float64


class Covariance(abc.ABC):
    """A symmetric matrix of features x features, in coordinates of its own.

    Attributes
    ----------
    form : {"dense", "span", "products"}
        Whether the coordinates are the features and there is a matrix; whether they belong to an
        orthonormal basis of the rows' span; whether there are products only.
    """

    form: ClassVar[Form]
    feature_names: tuple[str, ...] | None

    @property
    @abc.abstractmethod
    def n_features(self) -> int:
        """Number of features, D."""

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.n_features

    @property
    def shares_out(self) -> bool:
        """Whether products make use of threads."""
        return False

    @abc.abstractmethod
    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Product with columns (size, b)."""

    def matrix(self) -> FloatArray:
        """The matrix in its coordinates, (size, size), not to be changed."""
        raise TypeError(f"{type(self).__name__} gives products only, no matrix.")

    def add_to(self, matrix: FloatArray, weight: float) -> None:
        """Add the matrix, so weighted, to another one; at least to its upper triangle."""
        added = self.matrix()
        for rows in in_cache(added):
            matrix[rows] += weight * added[rows]

    def along(self, components: FloatArray) -> FloatArray:
        """``v^T C v`` for each row v of `components` (k, size), shape (k,)."""
        return np.asarray(np.einsum("dk,kd->k", self.apply(components.T), components))

    def lift(self, components: FloatArray) -> FloatArray:
        """Map rows, (..., k, size), to feature space, (..., k, n_features); here the identity."""
        return components

    def coordinates_of(self, components: FloatArray) -> FloatArray:
        """Rows in feature space, (k, n_features), as far as they lie in these coordinates."""
        return components

    def complement(self, count: int) -> FloatArray:
        """So many orthonormal directions of the features, (count, D), that no row has a part in.

        Only where the coordinates are not the features.
        """
        raise TypeError(f"the coordinates of {type(self).__name__} are the features.")

    def shares_coordinates(self, other: Covariance) -> bool:
        """Whether a component of one is a component of the other."""
        return self.form == other.form and self.size == other.size


class Formed(Covariance):
    """A matrix that has been formed: `covariance`."""

    form: ClassVar[Form] = "dense"

    if TYPE_CHECKING:  # a field of some, a property of others

        @property
        def covariance(self) -> FloatArray: ...

    def apply(self, columns: FloatArray, threads: Threads = ALONE) -> FloatArray:
        """Product with columns (size, b)."""
        return np.asarray(self.covariance @ columns)

    def matrix(self) -> FloatArray:
        """The matrix, not to be changed."""
        return self.covariance

    @property
    def variances(self) -> FloatArray:
        """Variance of each feature, shape (n_features,)."""
        return self.covariance.diagonal()


@dataclass(frozen=True, eq=False)
class DenseCovariance(Formed):
    """A matrix in coordinates of which nothing is asked but their number.

    Parameters
    ----------
    covariance : ndarray of shape (size, size)
        Symmetric.
    feature_names : tuple of str, optional
        Names of the coordinates, where they are features that have names.
    """

    covariance: FloatArray
    feature_names: tuple[str, ...] | None = None

    @property
    def n_features(self) -> int:
        """Number of coordinates."""
        return len(self.covariance)


class Centres(NamedTuple):
    """Labels of groups of rows, (G,), and their means, (G, n_features)."""

    groups: NDArray[Any]
    means: FloatArray


class Moments(Covariance):
    """Mean and covariance of a dataset, divided by its number of rows or their total weight.

    Attributes
    ----------
    centres : Centres or None
        The groups about whose means the covariance is taken, where rows have groups.
    """

    centres: Centres | None = None

    if TYPE_CHECKING:  # fields of some, properties of others

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
    def total_variance(self) -> float:
        """Trace of the covariance."""
        return float(self.variances.sum())

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Which features have a spread that exceeds the rounding of their mean, (n_features,)."""
        return varies(self.mean, self.variances)


def varies(mean: FloatArray, variances: FloatArray) -> NDArray[np.bool_]:
    """Where a spread exceeds the rounding of its mean."""
    rounding = 32 * np.finfo(np.float64).eps * np.abs(mean)
    return np.asarray(np.sqrt(variances) > rounding)


def in_cache(matrix: FloatArray) -> Iterator[slice]:
    """Rows at a time, few enough that what is done to them one after the other is one pass."""
    step = max(1, _CACHED_ELEMENTS // max(1, matrix.shape[1]))
    return (slice(start, start + step) for start in range(0, len(matrix), step))


def is_moments(data: object) -> bool:
    """Whether data have been reduced to moments already."""
    return isinstance(data, Moments)
