"""Rows of a matrix wherever it lies: in memory, in the file of a backed AnnData, or in dask."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from contrast_core import SecondMoments
from contrast_core._progress import Progress, with_progress
from contrast_core._sources import is_dask_array, is_stored, map_rows

_BLOCK_ELEMENTS = 2**22  # of dense rows taken from a matrix in memory
_READ_ELEMENTS = 2**24  # of rows read from a file: fewer, larger blocks, for each is merged
_NARROW = 1500  # features whose covariance is cheap however few the cells
_WIDE = 4000  # features whose covariance is large: the core decides what to do

BoolArray = NDArray[np.bool_]


class StoredMatrix:
    """Some columns of a matrix in a file, which gives rows when it is sliced.

    Parameters
    ----------
    dataset
        An HDF5 dataset, a zarr array or a backed CSR matrix, (n_obs, n_vars).
    columns
        The columns in use, a mask of shape (n_vars,).
    """

    def __init__(self, dataset: Any, columns: BoolArray) -> None:
        self._dataset = dataset
        self._columns = None if columns.all() else np.flatnonzero(columns)
        self.shape = (int(dataset.shape[0]), int(columns.sum()))
        self.dtype = dataset.dtype
        self.ndim = 2

    def __getitem__(self, rows: slice) -> Any:
        block = self._dataset[rows]
        return block if self._columns is None else block[:, self._columns]

    @property
    def step(self) -> int:
        """How many rows to read at once: whole storage chunks."""
        chunks = getattr(self._dataset, "chunks", None)
        n_chunk = int(chunks[0]) if isinstance(chunks, tuple) and chunks else 1
        n_columns = int(self._dataset.shape[1])
        return n_chunk * max(1, _READ_ELEMENTS // max(1, n_chunk * n_columns))


def is_in_memory(matrix: Any) -> bool:
    """Whether it is an array or a CSR or CSC matrix."""
    return isinstance(matrix, np.ndarray) or (
        sp.issparse(matrix) and matrix.format in ("csr", "csc")
    )


def is_elsewhere(matrix: Any) -> bool:
    """Whether it is a dataset in a file or a dask array."""
    return is_dask_array(matrix) or is_stored(matrix)


def with_columns(matrix: Any, columns: BoolArray) -> Any:
    """The columns in use, as rows are read next: CSR, never CSC; nothing is read from a file."""
    if is_dask_array(matrix):
        return matrix if columns.all() else _picked(matrix, None, columns)
    if is_stored(matrix):
        if getattr(matrix, "format", None) != "csc":
            return StoredMatrix(matrix, columns)
        matrix = matrix.to_memory()  # columns in a file cannot be read by rows
    if not columns.all():
        matrix = matrix[:, columns]
    return matrix.tocsr() if sp.issparse(matrix) else matrix


def with_rows(matrix: Any, rows: BoolArray) -> Any:
    """The rows in a mask; those of a file are loaded."""
    if is_dask_array(matrix):
        return _picked(matrix, rows, None)
    if isinstance(matrix, StoredMatrix):
        blocks = [matrix[block][rows[block]] for block in _steps(len(rows), matrix.step)]
        return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.vstack(blocks)
    return matrix if rows.all() else matrix[rows]


def takes_moments(matrix: Any, n_rows: int) -> bool:
    """Whether the covariance of the features is what a linear method should start from.

    If not (few rows in memory, many features) it gets the rows and decides for itself.
    """
    n_features = int(matrix.shape[1])
    return not is_in_memory(matrix) or n_features <= min(_WIDE, max(_NARROW, n_rows))


def moments(matrix: Any, parts: list[BoolArray], progress: Progress = False) -> list[SecondMoments]:
    """Moments of several disjoint sets of rows; a file is read once for all of them."""
    if isinstance(matrix, StoredMatrix):
        return _stored_moments(matrix, parts, progress)
    found = []
    for part in parts:
        if is_dask_array(matrix):
            found.append(SecondMoments.from_data(_picked(matrix, part, None)))
        elif part.all():
            found.append(SecondMoments.from_data(matrix, progress=progress))
        else:
            found.append(SecondMoments.from_chunks(_RowBlocks(matrix, part), progress=progress))
    return found


def blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Blocks of rows that are worth working on at once."""
    return _steps(n_rows, max(256, _BLOCK_ELEMENTS // max(1, n_columns)))


def apply(function: Any, matrix: Any, n_columns: int) -> NDArray[np.floating]:
    """`function` of the rows, block by block where they are not in memory, as an array."""
    result = map_rows(function, matrix, n_columns)
    return np.asarray(result.compute() if is_dask_array(result) else result)


class _RowBlocks:
    """Blocks of the rows in a mask: no second matrix as large as the first."""

    def __init__(self, matrix: Any, rows: BoolArray) -> None:
        self._matrix, self._rows = matrix, np.flatnonzero(rows)
        self._step = max(256, _BLOCK_ELEMENTS // max(1, int(matrix.shape[1])))

    def __len__(self) -> int:
        return math.ceil(len(self._rows) / self._step)

    def __iter__(self) -> Iterator[Any]:
        for block in _steps(len(self._rows), self._step):
            yield self._matrix[self._rows[block]]


def _stored_moments(
    matrix: StoredMatrix, parts: list[BoolArray], progress: Progress
) -> list[SecondMoments]:
    sums: list[SecondMoments | None] = [None] * len(parts)
    blocks = list(_steps(matrix.shape[0], matrix.step))
    for block in with_progress(blocks, len(blocks), "cells", progress):
        if not any(part[block].any() for part in parts):
            continue
        rows = matrix[block]
        for i, part in enumerate(parts):
            if part[block].any():
                here = SecondMoments.from_data(
                    rows[part[block]], name=f"adata.X[{block.start}:{block.stop}]"
                )
                before = sums[i]
                sums[i] = here if before is None else before.merge(here)
    return [found for found in sums if found is not None]


def _steps(n: int, step: int) -> Iterator[slice]:
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _picked(matrix: Any, rows: BoolArray | None, columns: BoolArray | None) -> Any:
    """Rows and columns of a dask array, chunk by chunk, whatever its chunks are made of."""
    if matrix.numblocks[1] > 1:
        matrix = matrix.rechunk({1: -1})
    stops = np.cumsum(matrix.chunks[0])
    if np.isnan(stops).any():
        raise ValueError(
            "the dask array has chunks of unknown size: call compute_chunk_sizes() on it first."
        )
    if rows is None:
        masks, sizes = None, tuple(matrix.chunks[0])
    else:
        masks = np.split(rows, stops[:-1])
        sizes = tuple(int(mask.sum()) for mask in masks)
    n_columns = matrix.shape[1] if columns is None else int(columns.sum())
    array: Any = import_module("dask.array")  # not typed
    return array.map_blocks(
        _pick,
        matrix,
        masks=masks,
        columns=columns,
        dtype=matrix.dtype,
        meta=matrix._meta,
        chunks=(sizes, (n_columns,)),
    )


def _pick(
    chunk: Any,
    masks: list[BoolArray] | None = None,
    columns: BoolArray | None = None,
    block_id: tuple[int, ...] = (0, 0),
) -> Any:
    if masks is not None:
        chunk = chunk[masks[block_id[0]]]
    return chunk if columns is None else chunk[:, columns]
