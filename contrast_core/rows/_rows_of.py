"""Conversion of data of any kind to `Rows`; only `rows_of` looks at the type of the data."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from contrast_core._validation import (
    MatrixLike,
    check_feature_names,
    check_labels,
    check_unmasked,
    check_weights,
    shown,
)
from contrast_core.feedback import Progress
from contrast_core.rows._checks import as_matrix, check_two_dimensional, feature_names_of
from contrast_core.rows._dask import DaskRows
from contrast_core.rows._memory import MemoryRows
from contrast_core.rows._rows import ELEMENTS, Rows
from contrast_core.rows._stored import StoredColumns, StoredRows
from contrast_core.rows._tensor import TensorRows, to_host

# Arrays in memory, tensors, dask arrays and sparse matrices have at least one of these attributes.
# Stored datasets have none of them.
_NOT_STORED = ("__array_ufunc__", "__array_interface__", "__dlpack__", "__dask_graph__", "tocsr")


def rows_of(
    X: MatrixLike | Rows,
    name: str = "X",
    *,
    names: Sequence[str] | None = None,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    min_rows: int = 0,
    elements: int | None = None,
    progress: Progress = False,
    remedy: str | None = None,
    missing: bool = False,
) -> Rows:
    """Return the rows of data of any kind, in memory or not; nothing is read yet.

    Parameters
    ----------
    X : array-like, DataFrame, sparse matrix, stored dataset, dask array, torch tensor or Rows, of \
            shape (n, n_features)
        Data of any real dtype. When rows are read, a sparse matrix is converted to CSR without
        duplicate entries. When only columns are read, a CSC matrix is not converted.
    name : str, default="X"
        Name of the data in error messages; `Rows` keep their own name.
    names : sequence of str, optional
        Names of the features of `X`; by default the column names, if `X` is a DataFrame.
    weights : array-like of shape (n,), optional
        A finite weight of at least 0 for each row of `X`. The weights must not all be zero.
    groups : array-like of shape (n,), optional
        A label for each row of `X`.
    min_rows : int, default=0
        Smallest accepted number of rows.
    elements : int, optional
        Number of values that are read at once, if the storage chunks allow it. The default is 4
        million, or 16 million on a device.
    progress : bool or callable, default=False
        Whether to show tqdm's progress bar of the blocks that are read. A callable is used in the
        place of tqdm. The bar does not show the work of a dask scheduler, which has its own bar.
    remedy : str, optional
        Advice at the end of errors about NaN and infinity.
    missing : bool, default=False
        Whether to accept NaN as a missing value, for data that can hold missing values
        (`Rows.can_miss`). Masked entries then become NaN.

    Returns
    -------
    Rows

    Raises
    ------
    ValueError, TypeError
        If `X` is not two-dimensional, does not hold real numbers, has fewer than `min_rows` rows,
        or is a sparse tensor or a tensor on an unsupported device, or if the number of `names` is
        wrong.
    """
    rows = X if isinstance(X, Rows) else _of_kind(X, name, missing)
    if rows.missing != (missing and rows.can_miss):
        rows = rows.replace(missing=missing and rows.can_miss)
    changes: dict[str, Any] = {"elements": elements, "remedy": remedy}
    changes = {key: value for key, value in changes.items() if value is not None}
    if names is not None:
        changes["names"] = check_feature_names(names, rows.shape[1], rows.name)
    if progress is not False:
        changes["progress"] = progress
    rows = _labelled(rows.replace(**changes), weights, groups)
    if rows.shape[0] < min_rows:
        raise ValueError(
            f"{rows.name} has n_samples={rows.shape[0]}, but at least {min_rows} is needed (rows "
            "are samples, columns are features)."
        )
    return rows


def array_of(values: Any, name: str) -> Any:
    """Return an image or a stack as an array of real numbers that can be sliced.

    It may have any number of axes. Stored and dask arrays stay as they are; lists, DataFrames and
    tensors become ndarrays.

    Raises
    ------
    TypeError
        If the values are not real numbers, or entries are masked.
    ValueError
        If a dask array does not know its shape.
    """
    check_unmasked(values, name)
    array = values
    if _is_tensor(values) and str(values.layout) == "torch.strided":
        array = to_host(values)
    elif not _slices(values):
        try:
            array = np.asarray(values)
        except (TypeError, ValueError) as error:  # rows differ in length
            raise TypeError(_no_array(values, name)) from error
    try:
        dtype = np.dtype(getattr(array, "dtype", np.float64))
    except TypeError as error:
        raise TypeError(_no_array(values, name)) from error
    if dtype.kind not in "biuf":
        if array is not values:
            raise TypeError(_no_array(values, name))
        raise TypeError(
            f"{name} has pixels of type {str(dtype)[:60]}; real numbers are expected. Take the "
            "magnitude or the real part of complex numbers first."
        )
    if any(math.isnan(n) for n in array.shape):
        raise ValueError(
            f"{name} is a dask array with chunks of unknown size; call compute_chunk_sizes() on it "
            "first."
        )
    return array


def _slices(values: Any) -> bool:
    """Return whether `values` can be sliced like an array; DataFrames, for example, cannot."""
    return (
        isinstance(getattr(values, "shape", None), tuple)
        and hasattr(values, "__getitem__")
        and not (hasattr(values, "tocsr") or hasattr(values, "iloc") or _is_tensor(values))
    )


def _no_array(values: Any, name: str) -> str:
    return (
        f"{name} is {type(values).__name__} {shown(values)}; an array of real numbers is expected, "
        "such as a NumPy, dask, zarr or HDF5 array."
    )


def _labelled(rows: Rows, weights: Any, groups: Any) -> Rows:
    """Attach weights and groups to the rows after checking them."""
    if weights is None and groups is None:
        return rows
    n = rows.shape[0]
    if math.isnan(n):
        raise ValueError(
            f"{rows.name} is a dask array with chunks of unknown size, whose rows cannot be given "
            "weights or groups: call compute_chunk_sizes() on it first."
        )
    return rows.labelled(
        None if weights is None else check_weights(weights, n, f"the weights of {rows.name}"),
        None if groups is None else check_labels(groups, n, f"the labels of {rows.name}"),
    )


def _of_kind(X: Any, name: str, missing: bool = False) -> Rows:
    """Return the rows of `X` as an instance of the subclass of `Rows` for this type of data."""
    _check_on_host(X, name)
    check_two_dimensional(X, name)
    names = feature_names_of(X, name)
    options: dict[str, Any] = {"name": name, "names": names, "elements": ELEMENTS}
    if _is_dask_array(X):
        return DaskRows(X, **options)
    if _is_stored(X):
        kind = StoredColumns if getattr(X, "format", None) == "csc" else StoredRows
        return kind(X, **options)
    if _is_tensor(X):
        return TensorRows(X, **options)
    return MemoryRows(as_matrix(X, name, missing), **options)


def _check_on_host(X: Any, name: str) -> None:
    """Raise TypeError for CuPy's arrays and sparse matrices, which the user must convert."""
    kind = type(X)
    if kind.__module__.partition(".")[0] not in ("cupy", "cupyx"):
        return
    raise TypeError(
        f"{name} is {kind.__module__}.{kind.__qualname__}, on a GPU; expected data in memory or a "
        "dense torch tensor. Copy it with .get() (of an AnnData: adata.X = adata.X.get()), or give "
        "contrast_core's classes torch.as_tensor(X, device='cuda'), which stays there."
    )


def _is_tensor(X: Any) -> bool:
    """Return whether `X` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)


def _is_dask_array(X: Any) -> bool:
    """Return whether `X` is a dask array, without importing dask."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed") and hasattr(X, "map_blocks")


def _is_stored(X: Any) -> bool:
    """Return whether `X` is a dataset outside memory from which slices can be read.

    Such datasets are HDF5 datasets, zarr arrays and the sparse datasets of backed AnnData objects.
    They have a shape and a dtype and can be sliced, but lack the attributes of arrays in memory.
    """
    return (
        all(hasattr(X, attribute) for attribute in ("shape", "dtype", "__getitem__"))
        and not any(hasattr(X, attribute) for attribute in _NOT_STORED)
        and not isinstance(X, np.generic)
    )
