"""Rows in memory: ndarrays, memory maps, CSR and CSC matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from contrast_core.rows._rows import Index, Rows, pick, pick_columns, row_view


class MemoryRows(Rows):
    """Rows of a matrix in memory; the matrix is not changed, and blocks may be views of it.

    A CSC matrix is converted to CSR when rows are first read, and a CSR matrix is converted to CSC
    when columns are first read. If the matrix is a part of a larger dataset, `features` holds the
    indices of its columns in that dataset, which error messages report.
    """

    def __init__(self, matrix: Any, features: Index | None = None, **options: Any) -> None:
        super().__init__(matrix, matrix.shape, matrix.dtype, **options)
        self._columns = features
        self.is_sparse = issparse(matrix)
        self._formats = {matrix.format: matrix} if self.is_sparse else {}
        self.reads_rows = "csc" not in self._formats

    def _pick_columns(self, index: Index) -> None:
        self._source = pick_columns(self._source, index)
        self._formats = {self._source.format: self._source} if self.is_sparse else {}

    def _in_format(self, kind: str) -> Any:
        """Return the whole source; a sparse source is converted to this format."""
        if not self.is_sparse:
            return self._source
        if kind not in self._formats:
            self._formats[kind] = self._source.asformat(kind)
        return self._formats[kind]

    def _read(self, start: int, stop: int) -> Any:
        matrix = self._in_format("csr")
        if self._rows is not None:
            return pick(matrix, self._rows[start:stop])
        return row_view(matrix, start, stop) if self.is_sparse else matrix[start:stop]

    def _read_columns(self, which: slice) -> Any:
        columns = self._in_format("csc")[:, which]
        return columns if self._rows is None else pick(columns, self._rows)

    @property
    def n_entries(self) -> int:
        """Number of stored entries of the selected sparse rows."""
        matrix = self._in_format("csr")
        if self._rows is None:
            return int(matrix.nnz)
        return int(np.diff(matrix.indptr)[self._rows].sum(dtype=np.int64))

    def load(self, *, dense: bool = False, check: bool = True) -> Any:
        """Return all selected rows; they are not copied if all rows are selected."""
        if dense and self.is_sparse:
            return super().load(dense=True, check=check)
        whole = self._in_format("csr")
        matrix = whole if self._rows is None else pick(whole, self._rows)
        if check:
            self._check(matrix, self.name)
        return matrix


def load_into_memory(rows: Rows) -> Rows:
    """Return the same rows in memory; if they are not yet there, they are read and checked."""
    return rows if rows.in_memory else in_memory(rows.load(), rows)


def in_memory(matrix: Any, like: Rows) -> MemoryRows:
    """Return the rows of `matrix`, with the name, labels and options of the rows `like`."""
    options = ("name", "names", "elements", "progress", "remedy", "missing")
    rows = MemoryRows(
        matrix, like._columns, **{option: getattr(like, option) for option in options}
    )
    return rows.replace(_weights=like.weights, _codes=like.codes, groups=like.groups)
