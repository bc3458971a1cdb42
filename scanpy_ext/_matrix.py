"""Rows of a matrix wherever it lies: in memory, in the file of a backed AnnData, or in dask."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from contrast_core import SecondMoments
from contrast_core._sources import is_dask_array, is_stored, map_rows
from contrast_core.feedback import Progress, with_progress

_BLOCK_ELEMENTS = 2**22  # of dense rows taken from a matrix in memory
_READ_ELEMENTS = 2**24  # of rows read from a file: fewer, larger blocks, for each is merged
_NARROW = 1500  # features whose covariance is cheap however few the cells
_WIDE = 4000  # features whose covariance is large: the core decides what to do

BoolArray = NDArray[np.bool_]
T = TypeVar("T")


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


def with_columns(matrix: Any, columns: BoolArray, progress: Progress = False) -> Any:
    """The columns in use, as rows are read next: CSR, never CSC.

    Nothing is read from a file yet, unless it holds a CSC matrix: of that, these columns are
    loaded, for it cannot be read by rows.
    """
    if is_dask_array(matrix):
        return matrix if columns.all() else _picked(matrix, None, columns)
    if is_stored(matrix):
        if not is_stored_by_columns(matrix):
            return StoredMatrix(matrix, columns)
        read = column_blocks(matrix, columns, progress)
        matrix = sp.hstack([part[:, columns[block]] for block, part in read], format="csc")
    elif not columns.all():
        matrix = matrix[:, columns]
    return matrix.tocsr() if sp.issparse(matrix) else matrix


def with_rows(matrix: Any, rows: BoolArray, progress: Progress = False) -> Any:
    """The rows in a mask, in memory: of a file or dask they are loaded, and no others are kept."""
    if is_in_memory(matrix):
        return matrix if rows.all() else matrix[rows]
    parts = list(over_blocks(_only, matrix, [rows], progress))
    if sp.issparse(parts[0]):
        return sp.vstack(parts, format="csr")
    return np.concatenate(parts)


def over_blocks(
    function: Callable[..., T], matrix: Any, masks: Sequence[BoolArray], progress: Progress = False
) -> Iterator[T]:
    """`function(rows, *masks)` of every block of rows with its parts of the masks.

    Blocks in which no mask has a row are not read. The chunks of a dask array are left to its
    scheduler, which has no progress bar here, and their results come together.

    Parameters
    ----------
    function
        Of an array or CSR matrix (b, n_columns), and of masks of shape (b,).
    matrix
        In memory, in a file or in dask, (n, n_columns).
    masks
        Rows that are asked about, of shape (n,) each.
    progress
        As in `contrast_core`.
    """
    wanted = np.logical_or.reduce(masks)
    if not is_dask_array(matrix):
        for block, rows in _row_blocks(matrix, wanted, progress):
            yield function(rows, *(mask[block] for mask in masks))
        return
    dask: Any = import_module("dask")  # not typed
    whole, stops = _row_chunks(matrix)
    tasks = [
        dask.delayed(_of_chunk)(chunk, function, parts)
        for chunk, *parts in zip(
            whole.to_delayed().ravel(), *(np.split(mask, stops) for mask in masks), strict=True
        )
        if any(part.any() for part in parts)
    ]
    yield from dask.compute(*tasks)


def is_stored_by_columns(matrix: Any) -> bool:
    """Whether it is a CSC matrix in a file."""
    return is_stored(matrix) and getattr(matrix, "format", None) == "csc"


def column_blocks(
    matrix: Any, wanted: BoolArray, progress: Progress = False
) -> Iterator[tuple[slice, sp.csc_matrix]]:
    """Blocks of columns of a CSC matrix, and where they are; none without wanted columns."""
    n, n_columns = (int(size) for size in matrix.shape)
    steps = [
        block
        for block in _steps(n_columns, max(1, _READ_ELEMENTS // max(1, n)))
        if wanted[block].any()
    ]
    for block in with_progress(steps, len(steps), "genes", progress):
        yield block, matrix[:, block]


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
    for block, rows in _row_blocks(matrix, np.logical_or.reduce(parts), progress):
        for i, part in enumerate(parts):
            if part[block].any():
                here = SecondMoments.from_data(
                    rows[part[block]], name=f"adata.X[{block.start}:{block.stop}]"
                )
                before = sums[i]
                sums[i] = here if before is None else before.merge(here)
    return [found for found in sums if found is not None]


def _row_blocks(matrix: Any, wanted: BoolArray, progress: Progress) -> Iterator[tuple[slice, Any]]:
    """Blocks of a matrix in memory or in a file, and where they are; none without wanted rows."""
    n, n_columns = matrix.shape
    every = _steps(n, matrix.step) if isinstance(matrix, StoredMatrix) else blocks(n, n_columns)
    used = [block for block in every if wanted[block].any()]
    for block in with_progress(used, len(used), "cells", progress):
        yield block, matrix[block]


def _only(rows: Any, mask: BoolArray) -> Any:
    return rows if mask.all() else rows[mask]


def _of_chunk(chunk: Any, function: Callable[..., T], masks: Sequence[BoolArray]) -> T:
    rows = chunk.tocsr() if sp.issparse(chunk) else np.asarray(chunk)
    return function(rows, *masks)


def _steps(n: int, step: int) -> Iterator[slice]:
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _picked(matrix: Any, rows: BoolArray | None, columns: BoolArray | None) -> Any:
    """Rows and columns of a dask array, chunk by chunk, whatever its chunks are made of."""
    matrix, stops = _row_chunks(matrix)
    if rows is None:
        masks, sizes = None, tuple(matrix.chunks[0])
    else:
        masks = np.split(rows, stops)
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


def _row_chunks(matrix: Any) -> tuple[Any, NDArray[np.intp]]:
    """A dask array in chunks of whole rows, and where all but the last of them stop."""
    if matrix.numblocks[1] > 1:
        matrix = matrix.rechunk({1: -1})
    stops = np.cumsum(matrix.chunks[0])
    if np.isnan(stops).any():
        raise ValueError(
            "the dask array has chunks of unknown size: call compute_chunk_sizes() on it first."
        )
    return matrix, stops[:-1]


def _pick(
    chunk: Any,
    masks: list[BoolArray] | None = None,
    columns: BoolArray | None = None,
    block_id: tuple[int, ...] = (0, 0),
) -> Any:
    if masks is not None:
        chunk = chunk[masks[block_id[0]]]
    return chunk if columns is None else chunk[:, columns]
