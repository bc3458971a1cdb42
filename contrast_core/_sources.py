"""Datasets that stay where they are: which ones, and how their rows are read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from contrast_core._tensors import is_tensor, map_tensor
from contrast_core._validation import check_finite, check_rows, iter_chunks

_READ_ELEMENTS = 2**22  # what is read at once, where the storage chunks allow it


def is_dask_array(X: Any) -> bool:
    """Whether `X` is a dask array; dask is not imported for it."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed") and hasattr(X, "map_blocks")


def is_stored(X: Any) -> bool:
    """Whether `X` is a dataset outside memory that gives rows when sliced.

    HDF5 datasets, zarr arrays and the sparse datasets of backed AnnData objects: they have a shape
    and a dtype and can be sliced, but are none of the kinds of arrays in memory.
    """
    in_memory = ("__array_ufunc__", "__array_interface__", "__dlpack__", "__dask_graph__", "tocsr")
    return (
        all(hasattr(X, name) for name in ("shape", "dtype", "__getitem__"))
        and not any(hasattr(X, name) for name in in_memory)
        and not isinstance(X, np.generic)
    )


def check_two_dimensional(X: Any, name: str) -> None:
    """Rows are samples and columns are features."""
    if len(X.shape) != 2:
        raise ValueError(
            f"{name} has shape {tuple(X.shape)}; two dimensions are expected: rows are samples, "
            "columns are features."
        )


class StoredRows:
    """Rows of a stored dataset, read in blocks that begin and end with its storage chunks.

    Parameters
    ----------
    X : dataset of shape (n, n_features)
        See `is_stored`. A sparse dataset stored by columns cannot be read by rows and is loaded.
    name : str
        What error messages call it.
    """

    def __init__(self, X: Any, name: str) -> None:
        check_two_dimensional(X, name)
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self._name = name
        self._X = X.to_memory().tocsr() if getattr(X, "format", None) == "csc" else X
        chunks = getattr(X, "chunks", None)
        n_chunk = int(chunks[0]) if isinstance(chunks, tuple) and chunks else 1
        self._step = n_chunk * max(1, _READ_ELEMENTS // max(1, n_chunk * self.shape[1]))

    def __len__(self) -> int:
        """Return the number of blocks."""
        return math.ceil(self.shape[0] / self._step)

    def blocks(self, *, dense: bool = True) -> Iterator[Any]:
        """Yield finite blocks in the dataset's own dtype; an error names the rows.

        Sparse rows as dense ones or, with ``dense=False``, as CSR.
        """
        for rows in self.slices():
            yield from iter_chunks(self.read(rows), self._label(rows), dense=dense)

    def slices(self) -> Iterator[slice]:
        """The rows of each block."""
        n = self.shape[0]
        return (slice(start, min(start + self._step, n)) for start in range(0, n, self._step))

    def read(self, rows: slice) -> Any:
        """Some rows as an ndarray or CSR matrix, not yet checked for NaN."""
        return check_rows(self._X[rows], self._label(rows))

    def _label(self, rows: slice) -> str:
        return f"{self._name}[{rows.start}:{rows.stop}]"


def map_rows(function: partial[Any], X: Any, n_columns: int) -> Any:
    """`function` of the rows of `X`, block by block: lazy for a dask array, else an ndarray.

    Parameters
    ----------
    function : partial
        From finite rows (b, n_features), dense or CSR, to an ndarray (b, n_columns) of float64, or
        from a tensor to a tensor once its keywords, arrays, are tensors too.
    X : ndarray, CSR matrix, stored dataset, dask array or tensor of shape (n, n_features)
        Rows; those of a stored dataset or memory map are never in memory as a whole.
    n_columns : int
        Number of columns of the result.

    Returns
    -------
    ndarray, dask array or tensor of shape (n, n_columns)
    """
    if is_tensor(X):
        return map_tensor(function, X)
    if is_dask_array(X):
        check_two_dimensional(X, "X")
        rows = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        return rows.map_blocks(
            _map_chunk,
            function,
            n_columns,
            dtype=np.float64,
            meta=np.empty((0, 0)),
            chunks=(rows.chunks[0], (n_columns,)),
        )
    if issparse(X):
        check_finite(X, "X")
        result: NDArray[Any] = function(X)
        return result
    blocks = StoredRows(X, "X").blocks() if is_stored(X) else iter_chunks(X, "X")
    result = np.empty((X.shape[0], n_columns))
    start = 0
    for block in blocks:
        result[start : start + len(block)] = function(block)
        start += len(block)
    return result


def _map_chunk(
    chunk: Any,
    function: partial[Any],
    n_columns: int,
    block_id: tuple[int, ...] | None = None,
) -> Any:
    label = f"chunk {block_id[0]} of X" if block_id else "X"
    rows = check_rows(chunk, label)
    check_finite(rows, label)
    return map_rows(function, rows, n_columns)
