"""Sums of rows and of their products, one block of rows after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import issparse, vstack

from contrast_core._validation import FloatArray
from contrast_core.linalg import add_products, mirror_upper
from contrast_core.moments._sparse import BoolArray, filled_columns, sparse_covariance
from contrast_core.rows import ELEMENTS, Rows

Precision: TypeAlias = Literal["double", "single"]

_CACHED_ELEMENTS = 2**16  # 512 KB of float64
_MAX_SINGLE_ROWS = 4096
_MAX_FEATURES_PER_WORKER = 4096  # beyond, a product is long enough for BLAS to share out well


class Sums(NamedTuple):
    """Count, mean and covariance (divided by the count) of all rows."""

    n_samples: int
    mean: FloatArray
    covariance: FloatArray

    def merge(self, other: Sums) -> Sums:
        """Of the rows of both together; neither changes."""
        n = self.n_samples + other.n_samples
        weight = other.n_samples / n
        shift = other.mean - self.mean
        scaled = np.sqrt(weight * (1 - weight)) * shift
        covariance = np.empty_like(self.covariance)
        for rows in _in_cache(covariance):
            part = np.multiply(self.covariance[rows], 1 - weight, out=covariance[rows])
            part += weight * other.covariance[rows]
            part += np.outer(scaled[rows], scaled)
        return Sums(n, self.mean + weight * shift, covariance)


def some(sums: Sums | None, name: str) -> Sums:
    """The sums, of at least one row."""
    if sums is None:
        raise ValueError(f"{name} has no rows (n_samples=0); at least one is needed.")
    return sums


class Accumulator:
    """Count, mean and scatter of rows that arrive in blocks of any size.

    Rows are shifted by the mean of the first block, which keeps the later subtraction of the mean
    harmless however far the data lie from zero, and gathered into blocks that suit BLAS. Sums are
    kept in float64; "single" takes the products within a block in float32. Sparse rows are
    gathered too, and multiplied as `sparse_covariance` does where that is less work.

    Parameters
    ----------
    name : str, default="X"
        What errors call the rows.
    precision : {"double", "single"}, default="double"
        Arithmetic of the products of dense rows.
    elements : int
        Entries of sparse rows that are gathered, and twice the values of dense ones: enough for
        their products to outweigh adding them up.
    start_workers : callable, optional
        Called once there is more than a block; returns threads and their number, or (None, 0). They
        compute the products while the caller reads and shifts the next block. Which of them are
        added up in which order does not depend on timing, nor does the result.
    """

    def __init__(
        self,
        name: str = "X",
        precision: Precision = "double",
        *,
        elements: int = ELEMENTS,
        start_workers: Callable[[], tuple[ThreadPoolExecutor | None, int]] | None = None,
    ) -> None:
        if precision not in ("double", "single"):
            raise ValueError(f"precision={precision!r} is unknown; expected 'double' or 'single'.")
        self._dtype: Any = np.float64 if precision == "double" else np.float32
        self._name, self._elements = name, elements
        self._start_workers = start_workers
        self._pool: ThreadPoolExecutor | None = None
        self._n_workers = 0
        self._pending: deque[Future[_Block | Sums]] = deque()
        self._spare: list[_Block] = []
        self._gathered: list[Any] = []
        self._sparse: Sums | None = None
        self._count = self._filled = 0
        self._block: _Block | None = None
        self._shift = np.empty(0)
        self._folded: tuple[FloatArray, FloatArray] | None = None  # total and products

    def consume(self, rows: Rows) -> None:
        """Add all of these rows; ValueError on NaN or infinity."""
        for block in rows.blocks():
            self.add(block)

    def add(self, chunk: Any) -> None:
        """Add rows, dense or CSR, of any real dtype; they may be overwritten afterwards."""
        if not chunk.shape[0]:
            return
        if issparse(chunk):
            self._gathered.append(chunk.copy())
            if sum(rows.nnz for rows in self._gathered) >= self._elements:
                self._flush_sparse()
            return
        if not self._count:
            # A shift that the products' arithmetic holds exactly, so that float32 rows can be
            # shifted in float32.
            mean = chunk.mean(axis=0, dtype=np.float64).astype(self._dtype)
            self._shift = mean.astype(np.float64)
        self._count += len(chunk)
        shift = self._shift.astype(self._dtype) if chunk.dtype == np.float32 else self._shift
        start = 0
        while start < len(chunk):
            block = self._block = self._block or self._empty_block()
            rows = chunk[start : start + len(block.rows) - self._filled]
            into = block.rows[self._filled : self._filled + len(rows)]
            with np.errstate(over="ignore"):  # refused in `result`
                np.subtract(rows, shift, out=into, casting="same_kind")
            start, self._filled = start + len(rows), self._filled + len(rows)
            if self._filled == len(block.rows):
                self._flush()

    def result(self) -> Sums | None:
        """What all rows so far add up to, None without any; the accumulator is spent."""
        if self._gathered:
            self._flush_sparse()
        self._flush()
        while self._pending:
            self._collect(self._pending.popleft().result())
        parts = [part for part in (self._dense_sums(), self._sparse) if part is not None]
        if not parts:
            return None
        sums = parts[0] if len(parts) == 1 else parts[0].merge(parts[1])
        diagonal = sums.covariance.diagonal()
        # A feature without variance may come out a rounding error below zero.
        np.fill_diagonal(sums.covariance, np.maximum(diagonal, 0.0))
        if not np.isfinite(diagonal).all():
            raise ValueError(
                f"the variance of {self._name} overflows {self._dtype.__name__}; bring the data to "
                "a smaller scale first, or use precision='double'."
            )
        return sums

    def _dense_sums(self) -> Sums | None:
        if not self._count:
            return None
        for block in self._spare:
            self._fold(block)
        self._spare.clear()
        assert self._folded is not None
        total, covariance = self._folded
        offset = total / self._count
        for rows in _in_cache(covariance):
            covariance[rows] /= self._count
            covariance[rows] -= np.outer(offset[rows], offset)
        mirror_upper(covariance)
        return Sums(self._count, self._shift + offset, covariance)

    def _empty_block(self) -> _Block:
        if self._spare:
            return self._spare.pop()
        n_features = len(self._shift)
        # At least a quarter of the features: fewer rows cost more to add up than to multiply.
        n_rows = max(256, n_features // 4, self._elements // 2 // max(1, n_features))
        if self._dtype == np.float32:  # rounding grows with what is added up in float32
            n_rows = min(n_rows, max(_MAX_SINGLE_ROWS, n_features // 4))
        return _Block(n_rows, n_features, self._dtype)

    def _flush(self) -> None:
        block, n_rows = self._block, self._filled
        self._block, self._filled = None, 0
        if block is None or not n_rows:
            return
        if (
            self._start_workers is not None
            and n_rows == len(block.rows)
            and len(self._shift) <= _MAX_FEATURES_PER_WORKER
        ):
            self._pool, self._n_workers = self._start_workers()
            self._start_workers = None
        self._submit(partial(block.multiply, n_rows))

    def _flush_sparse(self) -> None:
        rows = self._gathered[0] if len(self._gathered) == 1 else vstack(self._gathered, "csr")
        self._gathered = []
        filled = filled_columns(rows)
        if filled.all():
            step = max(1, self._elements // rows.shape[1])
            for start in range(0, rows.shape[0], step):
                self.add(rows[start : start + step].toarray())
            return
        if self._start_workers is not None and rows.nnz >= self._elements:
            self._pool, self._n_workers = self._start_workers()
            self._start_workers = None
        self._submit(partial(_sparse_sums, rows, filled))

    def _submit(self, multiply: Callable[[], _Block | Sums]) -> None:
        if self._pool is None:
            self._collect(multiply())
            return
        self._pending.append(self._pool.submit(multiply))
        if len(self._pending) > self._n_workers:
            self._collect(self._pending.popleft().result())

    def _collect(self, part: _Block | Sums) -> None:
        if isinstance(part, Sums):
            self._sparse = part if self._sparse is None else self._sparse.merge(part)
            return
        if part.products.dtype == np.float32:
            self._fold(part)
        self._spare.append(part)

    def _fold(self, block: _Block) -> None:
        """Add what a block has summed up, in float64, and empty it."""
        if block.total is None:
            return
        if self._folded is None:
            self._folded = block.total, block.products.astype(np.float64, copy=False)
        else:
            total, products = self._folded
            total += block.total
            products += block.products
        block.total = None


class _Block:
    """A block of shifted rows, and the sums of all that it has held since it was last folded."""

    def __init__(self, n_rows: int, n_features: int, dtype: Any) -> None:
        self.rows = np.empty((n_rows, n_features), dtype)
        self.products = np.zeros((n_features, n_features), dtype)  # upper triangle
        self.total: FloatArray | None = None

    def multiply(self, n_rows: int) -> _Block:
        rows = self.rows[:n_rows]
        total = rows.sum(axis=0, dtype=np.float64)
        add_products(rows, self.products, keep=self.total is not None)
        self.total = total if self.total is None else self.total + total
        return self


def _in_cache(matrix: FloatArray) -> Iterator[slice]:
    """Rows at a time, few enough that what is done to them one after the other is one pass."""
    step = max(1, _CACHED_ELEMENTS // max(1, matrix.shape[1]))
    return (slice(start, start + step) for start in range(0, len(matrix), step))


def _sparse_sums(rows: Any, filled: BoolArray) -> Sums:
    with np.errstate(over="ignore", invalid="ignore"):  # refused in `result`
        return Sums(rows.shape[0], *sparse_covariance(rows, filled))
