"""Datasets that stay where they are: which ones, and how their rows are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import check_rows, iter_chunks

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

    def __iter__(self) -> Iterator[Any]:
        """Yield blocks as ndarrays or CSR matrices, in the dataset's own dtype."""
        for start, stop in self._bounds():
            yield check_rows(self._X[start:stop], self._label(start, stop))

    def dense(self) -> Iterator[NDArray[Any]]:
        """Yield dense, finite blocks; an error names the rows."""
        for (start, stop), rows in zip(self._bounds(), self, strict=True):
            yield from iter_chunks(rows, self._label(start, stop))

    def _bounds(self) -> Iterable[tuple[int, int]]:
        n = self.shape[0]
        return ((start, min(start + self._step, n)) for start in range(0, n, self._step))

    def _label(self, start: int, stop: int) -> str:
        return f"{self._name}[{start}:{stop}]"
