"""Checks of data that are read as rows, with their error messages."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from contrast_core._validation import check_unmasked, shown, without_mask

_LARGEST_WHOLE = 2**53  # float64 represents all whole numbers up to this one


def as_matrix(X: Any, name: str, missing: bool = False) -> Any:
    """Return `X` as a numeric ndarray, or a CSR or CSC matrix without duplicate entries.

    The data are copied only if necessary. This function does not look for NaN and infinity, since
    each block is checked when it is read. If `missing` is true, masked entries become NaN.
    """
    from sklearn.utils.validation import check_array

    if missing:
        X = without_mask(X)
    check_unmasked(X, name)
    try:
        matrix = check_array(
            X,
            accept_sparse=["csr", "csc"],
            accept_large_sparse=True,
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=0,
            input_name=name,
        )
        if matrix.dtype == object:  # check_array gives some lists this type
            matrix = matrix.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(_no_matrix(X, name, str(error))) from error
    if matrix.dtype.kind not in "biuf":
        raise TypeError(_no_matrix(X, name, f"values of type {matrix.dtype} are not real numbers."))
    if matrix.dtype.itemsize > 8:  # numbers beyond float64 become infinite, which is an error later
        with np.errstate(over="ignore"):
            matrix = matrix.astype(np.float64)
    if issparse(matrix) and not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix if issparse(matrix) else np.asarray(matrix)


def _no_matrix(X: Any, name: str, reason: str) -> str:
    """Return the error message for data that are not a matrix of real numbers."""
    shape = getattr(X, "shape", None)
    reason = reason.splitlines()[0][:150].rstrip(".:")  # later lines would show the data
    what = f"of shape {shape}" if isinstance(shape, tuple) else shown(X)
    return (
        f"{name} is {type(X).__name__} {what}: {reason}. A matrix of real numbers is expected, "
        "whose rows are samples and whose columns are features; convert or drop all other values."
    )


def check_finite(
    chunk: Any,
    name: str,
    first_feature: int = 0,
    features: NDArray[np.intp] | None = None,
    remedy: str | None = None,
    missing: bool = False,
) -> None:
    """Raise ValueError if a block, dense or sparse, holds NaN or infinity.

    The columns of the block are the features from `first_feature` on, or the given `features`. NaN
    is accepted if `missing` is True. The error ends with `remedy`.
    """
    sparse = issparse(chunk)
    values = chunk.data if sparse else chunk
    if values.dtype.kind != "f":
        _check_exact(values, name)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):  # fast and without a copy, as in scikit-learn
            return
    bad = np.isinf(values) if missing else ~np.isfinite(values)
    if not bad.any():  # the sum overflowed, or all NaN are missing values
        return
    kind = "NaN" if not missing and np.isnan(values).any() else "inf"
    column = int(chunk.tocoo().coords[1][bad].min() if sparse else bad.any(axis=0).argmax())
    feature = first_feature + column if features is None else features[column]
    remedy = remedy or (
        "Use PCPCA or CLVM, which take missing values (NaN), drop those rows or features, or fill "
        "the entries in, for example with sklearn.impute.SimpleImputer."
    )
    expected = (
        "finite values, or NaN for missing values, are" if missing else ("complete, finite data is")
    )
    raise ValueError(
        f"{name} contains NaN or inf ({kind} first met in feature {feature}); {expected} "
        f"expected. {remedy}"
    )


def _check_exact(values: Any, name: str) -> None:
    """Raise ValueError if whole numbers are too large for float64 to represent them exactly."""
    if values.dtype.itemsize < 8 or not values.size:
        return
    if values.max() > _LARGEST_WHOLE or values.min() < -_LARGEST_WHOLE:
        raise ValueError(
            f"{name} holds whole numbers whose absolute value exceeds 2**53. float64 cannot "
            "represent them all exactly. First subtract an offset from each feature, for example "
            f"{name} - {name}.min(axis=0)."
        )


def feature_names_of(X: Any, name: str) -> tuple[str, ...] | None:
    """Return the column names of a DataFrame-like `X` if they are strings, else None.

    Raises ValueError if columns share a name.
    """
    columns = getattr(X, "columns", None)
    if columns is None:
        return None
    names = tuple(columns)
    if len(set(names)) < len(names):
        shared = ", ".join(repr(each) for each, n in Counter(names).items() if n > 1)
        raise ValueError(
            f"{name} has several columns of the same name ({shown(shared)}); each feature needs a "
            f"name of its own. Rename the columns, or give {name}.to_numpy()."
        )
    return names if names and all(isinstance(name, str) for name in names) else None


def check_two_dimensional(X: Any, name: str) -> None:
    """Raise ValueError if the data have a shape that is not two-dimensional."""
    shape = getattr(X, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 2:
        raise ValueError(
            f"{name} has shape {tuple(shape)}; two dimensions are expected: rows are samples, "
            "columns are features. Reshape your data to (n_samples, n_features)."
        )
