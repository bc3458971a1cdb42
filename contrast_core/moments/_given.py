"""Checks of means and covariances that users give instead of data.

Problem: a matrix that is not a covariance leads to meaningless components. A covariance must be
finite, symmetric and positive semidefinite, up to rounding errors of single precision. To check
that it is positive semidefinite, the matrix plus a small multiple of the identity is factorised by
Cholesky's method (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.). A matrix that
passes has no eigenvalue below -1e-6 times its trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from contrast_core._validation import (
    FloatArray,
    check_count,
    check_same_features,
    real_array,
    shown,
)

T = TypeVar("T")

_ROUNDING = 1e-6  # error of a covariance in single precision, relative to its largest entry


def check_mean(mean: ArrayLike, name: str) -> FloatArray:
    """Return the mean as a vector; raise ValueError if it is empty or not finite."""
    vector = real_array(mean, name)
    if vector.ndim != 1 or not len(vector):
        raise ValueError(f"{name} has shape {vector.shape}; expected (n_features,).")
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} holds NaN or infinity; it must be finite.")
    return vector


def check_total(n: object, name: str) -> float:
    """Return n, a number of rows or their total weight; raise an error unless it is positive."""
    if isinstance(n, float):
        if not 0 < n < np.inf:
            raise ValueError(f"{name}={n} must be a positive, finite number.")
        return n
    return check_count(n, name)


def check_means(means: ArrayLike, name: str) -> FloatArray:
    """Return the groups' means as a matrix; raise ValueError if it is empty or not finite."""
    rows = real_array(means, name)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"{name} has shape {rows.shape}; expected (n_groups, n_features).")
    check_mean(rows.ravel(), name)
    return rows


def check_covariance(covariance: ArrayLike, name: str, n_features: int) -> FloatArray:
    """Return the covariance; raise ValueError unless it is finite, symmetric and semidefinite."""
    matrix = real_array(covariance, name)
    if matrix.shape != (n_features, n_features):
        raise ValueError(
            f"{name} has shape {matrix.shape}, but the mean has {n_features} features; expected "
            f"({n_features}, {n_features})."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(matrix.sum())
    if not np.isfinite(total):
        holds = "numbers near the largest of float64" if np.isfinite(matrix).all() else "NaN or inf"
        raise ValueError(f"{name} holds {holds}; its entries and their sums must be finite.")
    variances = matrix.diagonal()
    largest = float(np.abs(variances).max())
    # The difference is antisymmetric, so its largest entry is also the largest absolute entry.
    if (matrix - matrix.T).max() > _ROUNDING * largest:
        raise ValueError(
            f"{name} is not symmetric, but a covariance must be. If rounding made it asymmetric, "
            "give (C + C.T) / 2; otherwise check how the matrix was computed."
        )
    if variances.min() < -_ROUNDING * largest:
        feature = int(variances.argmin())
        raise ValueError(
            f"{name} has the negative variance {variances[feature]:.3g} for feature {feature}; "
            "variances cannot be negative."
        )
    _check_semidefinite(matrix, name)
    return matrix


def _check_semidefinite(matrix: FloatArray, name: str) -> None:
    """Raise ValueError if a covariance has an eigenvalue that is negative beyond rounding."""
    shift = max(_ROUNDING * float(matrix.trace()), np.finfo(np.float64).tiny)
    shifted = matrix.copy()
    shifted.flat[:: len(matrix) + 1] += shift
    try:
        scipy.linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise ValueError(
            f"{name} is indefinite: it has an eigenvalue below {-shift:.2g}, but no direction can "
            "have a negative variance. This happens if entries are computed from different rows, "
            "as by pandas' DataFrame.cov with missing values. PCPCA and CLVM accept missing values."
        ) from None


def names_of_both(ours: Any, other: Any, advice: str) -> tuple[str, ...] | None:
    """Return the names of the features of two moments that are to be merged.

    Raises
    ------
    TypeError
        If the moments are of different classes; the message ends with `advice`.
    ValueError
        If the features differ in number, name or order.
    """
    kind = type(ours)
    if not isinstance(other, kind):
        raise TypeError(
            f"{kind.__name__} can only be merged with {kind.__name__}, got "
            f"{type(other).__name__}; {advice}."
        )
    check_same_features(
        *(ours.n_features, ours.feature_names, other.n_features, other.feature_names),
        background_name="the other dataset",
    )
    names: tuple[str, ...] | None = ours.feature_names or other.feature_names
    return names


def check_chunks(chunks: Iterable[T], expected: str) -> Iterable[T]:
    """Return the chunks; raise TypeError if they cannot be iterated over."""
    if not np.iterable(chunks):
        raise TypeError(
            f"chunks={shown(chunks)} is {type(chunks).__name__}; expected an iterable of "
            f"{expected}."
        )
    return chunks
