"""Checks of means and covariances that are given, rather than taken from data.

Problem: a matrix that is not a covariance gives components that mean nothing. It must be finite,
symmetric and positive semidefinite, up to the rounding of single precision: a product with a random
vector shows the first two, a Cholesky factor of the shifted matrix the third.
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

_ROUNDING = 1e-6  # of the largest entry: what covariances taken in single precision are off by


def check_mean(mean: ArrayLike, name: str) -> FloatArray:
    """Return a finite vector."""
    vector = real_array(mean, name)
    if vector.ndim != 1 or not len(vector):
        raise ValueError(f"{name} has shape {vector.shape}; expected (n_features,).")
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} holds NaN or infinity; it must be finite.")
    return vector


def check_total(n: object, name: str) -> float:
    """Return a number of rows, or a total weight."""
    if isinstance(n, float):
        if not 0 < n < np.inf:
            raise ValueError(f"{name}={n} must be a positive, finite number.")
        return n
    return check_count(n, name)


def check_means(means: ArrayLike, name: str) -> FloatArray:
    """Return finite vectors of the same length, one at least, as rows."""
    rows = real_array(means, name)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"{name} has shape {rows.shape}; expected (n_groups, n_features).")
    check_mean(rows.ravel(), name)
    return rows


def check_covariance(covariance: ArrayLike, name: str, n_features: int) -> FloatArray:
    """Return a finite symmetric matrix without a negative eigenvalue.

    An entry that is not finite, or not that of the transpose, shows in the products of both with a
    random vector.
    """
    matrix = real_array(covariance, name)
    if matrix.shape != (n_features, n_features):
        raise ValueError(
            f"{name} has shape {matrix.shape}, but the mean has {n_features} features; expected "
            f"({n_features}, {n_features})."
        )
    # No entry of it is small, so that nothing hides.
    rng = np.random.default_rng(n_features)
    probe = rng.uniform(1, 2, n_features) * rng.choice([-1, 1], n_features)
    with np.errstate(over="ignore", invalid="ignore"):
        forth = matrix @ probe
        difference = float(np.abs(forth - probe @ matrix).max())
    if not np.isfinite(difference):
        holds = "numbers near the largest of float64" if np.isfinite(matrix).all() else "NaN or inf"
        raise ValueError(f"{name} holds {holds}; it must be finite, and so its sums.")
    variances = matrix.diagonal()
    largest = float(np.abs(variances).max())
    if difference > _ROUNDING * np.sqrt(n_features) * largest:
        raise ValueError(
            f"{name} is not symmetric, which a second moment is; give (C + C.T) / 2 if that is "
            "rounding, else check how it was made."
        )
    if variances.min() < -_ROUNDING * largest:
        feature = int(variances.argmin())
        raise ValueError(
            f"{name} has the negative variance {variances[feature]:.3g} of feature {feature}; a "
            "covariance has none."
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
            "have a negative variance. Covariances whose entries come from different rows (pandas' "
            "DataFrame.cov with missing values) are like this; PCPCA and CLVM take such rows."
        ) from None


def names_of_both(ours: Any, other: Any, advice: str) -> tuple[str, ...] | None:
    """Return the features' names of moments to be merged, which must be of one kind and order.

    Raises TypeError, which ends with the advice, or ValueError.
    """
    kind = type(ours)
    if not isinstance(other, kind):
        raise TypeError(
            f"{kind.__name__} merge with {kind.__name__}, got {type(other).__name__}; {advice}."
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
