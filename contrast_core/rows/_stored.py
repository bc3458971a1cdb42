"""Rows of datasets that stay in a file: HDF5, zarr, backed AnnData."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack, issparse

from contrast_core.rows._checks import as_matrix
from contrast_core.rows._memory import MemoryRows, in_memory
from contrast_core.rows._rows import Index, Rows, pick, pick_columns


class StoredRows(Rows):
    """Rows of a stored dataset, read in blocks that begin and end with its storage chunks.

    A block of columns costs a pass over all rows if the dataset is sparse or its chunks hold whole
    rows.
    """

    place = "stored"
    _any_order = False

    def __init__(self, dataset: Any, **options: Any) -> None:
        shape = int(dataset.shape[0]), int(dataset.shape[1])
        super().__init__(dataset, shape, np.dtype(dataset.dtype), **options)
        self.is_sparse = hasattr(dataset, "format")
        self._width = shape[1]
        chunks = getattr(dataset, "chunks", None)
        self._chunk = (int(chunks[0]) if isinstance(chunks, tuple) and chunks else 1) or 1
        self.reads_columns = isinstance(chunks, tuple) and len(chunks) == 2 and chunks[1] < shape[1]

    def edges(self, elements: int | None = None) -> list[int]:
        """Return where blocks of rows begin and end: 0, ..., n."""
        most = elements or self.elements
        step = self._chunk * max(1, most // max(1, self._chunk * self._width))
        ends = [*range(0, self._n_source, step), self._n_source]
        if self._rows is None:
            return ends
        return list(np.unique(np.searchsorted(self._rows, ends)).tolist())

    def _read(self, start: int, stop: int) -> Any:
        first, last = self._span(start, stop)
        block = as_matrix(self._source[first:last], self._label(start, stop))
        block = block.tocsr() if issparse(block) else block
        if self._rows is not None:
            block = pick(block, self._rows[start:stop] - first)
        return block if self._columns is None else pick_columns(block, self._columns)

    def _read_columns(self, which: slice) -> Any:
        if self.is_sparse:
            return super()._read_columns(which)
        wanted = np.arange(self._width) if self._columns is None else self._columns
        wanted = wanted[which]
        low, high = wanted.min(), wanted.max() + 1
        parts = []
        for start, stop in pairwise(self.edges()):
            first, last = self._span(start, stop)
            block = pick_columns(self._source[first:last, low:high], wanted - low)
            rows = slice(None) if self._rows is None else self._rows[start:stop] - first
            parts.append(np.asarray(block)[rows])
        return np.concatenate(parts) if parts else np.empty((0, len(wanted)), self.dtype)

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of the file's rows that contains the selected rows `start` to `stop`."""
        if self._rows is None or start == stop:
            return start, stop
        return int(self._rows[start]), int(self._rows[stop - 1]) + 1

    def _label(self, start: int, stop: int) -> str:
        first, last = self._span(start, stop)
        return f"{self.name}[{first}:{last}]"


class StoredColumns(Rows):
    """Rows of a CSC dataset in a file.

    Before rows are read, the selected columns are loaded into memory, once for all selections of
    rows. Blocks of columns are read directly.
    """

    place = "stored"
    is_sparse = True
    reads_rows = False
    _any_order = False

    def __init__(self, dataset: Any, **options: Any) -> None:
        shape = int(dataset.shape[0]), int(dataset.shape[1])
        super().__init__(dataset, shape, np.dtype(dataset.dtype), **options)
        self._loaded: list[MemoryRows] = []

    def _pick_columns(self, index: Index) -> None:
        self._loaded = []

    def blocks(self, **options: Any) -> Iterator[Any]:
        """Yield blocks of rows of bounded size, in the data's own dtype."""
        yield from self.loaded().blocks(**options)

    def load(self, *, dense: bool = False, check: bool = True) -> Any:
        """Return all selected rows as an ndarray or CSR matrix."""
        return self.loaded().load(dense=dense, check=check)

    def loaded(self) -> MemoryRows:
        """Return the selected rows, with the selected columns loaded into memory."""
        if not self._loaded:
            every = self.take_all()
            parts = [block for _, block in every.column_blocks(self._step)]
            matrix = hstack(parts, format="csc").tocsr() if parts else csr_matrix(every.shape)
            self._loaded.append(in_memory(matrix, self))
        whole = self._loaded[0].replace(progress=False)  # the file has been read already
        return whole if self._rows is None else whole.take(self._rows)

    @property
    def _step(self) -> int:
        """Number of columns to read at once, large because many short reads would be slow."""
        return max(1, 16 * self.elements // max(1, self._n_source))

    def _read(self, start: int, stop: int) -> Any:
        return self.loaded()._read(start, stop)

    def _read_columns(self, which: slice) -> Any:
        if self._loaded:
            return self.loaded()._read_columns(which)
        wanted = np.arange(which.start, which.stop)
        if self._columns is not None:
            wanted = self._columns[which]
        ascending = np.sort(wanted)
        ends = np.searchsorted(ascending, np.arange(ascending[0], ascending[-1], self._step)[1:])
        parts = [
            pick_columns(
                as_matrix(self._source[:, some[0] : some[-1] + 1], self.name), some - some[0]
            )
            for some in np.split(ascending, np.unique(ends))
            if len(some)
        ]
        block = hstack(parts, format="csc")
        if (ascending != wanted).any():
            block = block[:, np.searchsorted(ascending, wanted)]
        return block if self._rows is None else pick(block, self._rows)
