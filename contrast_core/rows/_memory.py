"""Rows in memory: ndarrays, memory maps, CSR and CSC matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from contrast_core._validation import check_finite
from contrast_core.feedback import Progress
from contrast_core.rows._rows import Index, Rows, pick, pick_columns


class MemoryRows(Rows):
    """Rows of a matrix in memory, which is neither changed nor copied; blocks may be views of it.

    A CSC matrix is turned into CSR once rows are read, and a CSR matrix into CSC once columns are.
    """

    def __init__(self, matrix: Any, **options: Any) -> None:
        super().__init__(matrix, matrix.shape, matrix.dtype, **options)
        self.is_sparse = issparse(matrix)
        self._formats = {matrix.format: matrix} if self.is_sparse else {}

    def _pick_columns(self, index: Index) -> None:
        self._source = pick_columns(self._source, index)
        self._formats = {self._source.format: self._source} if self.is_sparse else {}

    def _as(self, kind: str) -> Any:
        """The whole source; sparse in this format."""
        if not self.is_sparse:
            return self._source
        if kind not in self._formats:
            self._formats[kind] = self._source.asformat(kind)
        return self._formats[kind]

    def _read(self, start: int, stop: int) -> Any:
        matrix = self._as("csr")
        return matrix[start:stop] if self._rows is None else pick(matrix, self._rows[start:stop])

    def _read_columns(self, which: slice) -> Any:
        columns = self._as("csc")[:, which]
        return columns if self._rows is None else pick(columns, self._rows)

    def load(self, *, check: bool = True, progress: Progress = False) -> Any:
        """All rows selected, as an ndarray or CSR matrix: the data's own where all are."""
        whole = self._as("csr")
        matrix = whole if self._rows is None else pick(whole, self._rows)
        if check:
            check_finite(matrix, self.name)
        return matrix


def as_matrix(X: Any, name: str) -> Any:
    """`X` as a two-dimensional numeric ndarray or a CSR or CSC matrix without duplicate entries.

    Without copying where possible. Finiteness is checked while the rows are read.
    """
    from sklearn.utils.validation import check_array

    matrix = check_array(
        X,
        accept_sparse=["csr", "csc"],
        accept_large_sparse=True,
        dtype="numeric",
        ensure_all_finite=False,
        ensure_min_samples=0,
        input_name=name,
    )
    if issparse(matrix) and not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix if issparse(matrix) else np.asarray(matrix)
