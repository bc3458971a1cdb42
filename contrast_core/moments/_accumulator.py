"""Sums of rows and of their products, one block of rows after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from contrast_core._validation import FloatArray
from contrast_core.linalg import add_products, mirror_upper
from contrast_core.moments._moments import in_cache
from contrast_core.moments._sparse import BoolArray, group_sums
from contrast_core.moments._sparse_within import filled_columns, sparse_within
from contrast_core.rows import ELEMENTS, Rows, labelled_blocks

Precision: TypeAlias = Literal["double", "single"]

_MAX_SINGLE_ROWS = 4096
_MAX_FEATURES_PER_WORKER = 4096  # beyond, a product is long enough for BLAS to share out well


def check_precision(precision: object) -> np.dtype[Any]:
    """Return the type of the products of rows; ValueError if the precision is unknown."""
    if precision not in ("double", "single"):
        raise ValueError(f"precision={precision!r} is unknown; expected 'double' or 'single'.")
    return np.dtype(np.float64 if precision == "double" else np.float32)


def overflow(name: str, dtype: object) -> ValueError:
    """Return the error for sums of products that are not finite."""
    advice = "" if "64" in str(dtype) else ", or use precision='double'"
    return ValueError(
        f"the variance of {name} overflows {dtype}; multiply all data by a constant that brings "
        f"them near 1{advice}."
    )


class Summary(NamedTuple):
    """Summary of rows whose groups have a mean each; rows without groups are one group.

    weights : ndarray of shape (G,)
        Total weight of each group: its number of rows, where these have no weights.
    means : ndarray of shape (G, D)
        Of each group; 0 for one without rows.
    within : ndarray of shape (D, D)
        Covariance about each row's group's mean, divided by the total weight.
    """

    weights: NDArray[Any]
    means: FloatArray
    within: FloatArray

    @property
    def n_samples(self) -> Any:
        """Total weight."""
        return self.weights.sum().item()

    @property
    def mean(self) -> FloatArray:
        """Return the mean of all rows."""
        if len(self.means) == 1:
            return np.asarray(self.means[0])
        return np.asarray(self.weights @ self.means / self.n_samples)

    def merge(self, other: Summary) -> Summary:
        """Merge with the summary of other rows; the operands do not change."""
        weights = self.weights + other.weights
        n = weights.sum()
        share = other.weights / np.maximum(weights, np.finfo(np.float64).tiny)
        shift = other.means - self.means
        scaled = np.sqrt(share * self.weights / n)[:, None] * shift
        within = np.empty_like(self.within)
        part_of_other = float(other.weights.sum() / n)
        for rows in in_cache(within):
            part = np.multiply(self.within[rows], 1 - part_of_other, out=within[rows])
            part += part_of_other * other.within[rows]
            part += scaled[:, rows].T @ scaled
        mirror_upper(within)
        return Summary(weights, self.means + share[:, None] * shift, within)


def not_empty(summary: Summary | None, name: str) -> Summary:
    """The summary; ValueError where there was no row."""
    if summary is None:
        raise ValueError(f"{name} has no rows (n_samples=0); at least one is needed.")
    return summary


class Accumulator:
    """Count, mean and scatter of rows that arrive in blocks of any size.

    Rows are shifted by the mean of the first block, which keeps the later subtraction of the mean
    harmless however far the data lie from zero, and gathered into blocks that suit BLAS. Sums are
    kept in float64; "single" takes the products within a block in float32. Sparse rows are
    gathered too, and multiplied as `sparse_within` does where that is less work.

    Parameters
    ----------
    name : str, default="X"
        What errors call the rows.
    precision : {"double", "single"}, default="double"
        Arithmetic of the products of dense rows.
    elements : int
        Half the entries of sparse rows that are gathered, and twice the values of dense ones:
        enough for their products to outweigh adding them up.
    n_groups : int, default=1
        How many groups the codes of rows tell apart. Each row is then shifted by the first mean of
        its group, however far apart these lie.
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
        n_groups: int = 1,
        start_workers: Callable[[], tuple[ThreadPoolExecutor | None, int]] | None = None,
    ) -> None:
        self._dtype: Any = check_precision(precision)
        self._name, self._elements = name, elements
        self._start_workers = start_workers
        self._pool: ThreadPoolExecutor | None = None
        self._n_workers = 0
        self._pending: deque[Future[_Block | Summary]] = deque()
        self._spare: list[_Block] = []
        self._gathered: list[tuple[Any, Any, Any]] = []
        self._sparse: Summary | None = None
        self._filled = 0
        self._block: _Block | None = None
        self._shifts = np.empty((n_groups, 0))
        self._seen = np.zeros(n_groups, dtype=np.bool_)
        # Weights and totals of the groups (G,), (G, D), and products (D, D).
        self._folded: tuple[NDArray[Any], FloatArray, FloatArray] | None = None

    def consume(self, rows: Rows) -> None:
        """Add all of these rows; ValueError on NaN or infinity."""
        for block in labelled_blocks(rows):
            self.add(*block)

    def add(self, chunk: Any, weights: Any = None, codes: Any = None) -> None:
        """Add rows, dense or CSR, of any real dtype; they may be overwritten afterwards.

        With a weight, and the number of the group, of each.
        """
        if not chunk.shape[0]:
            return
        if issparse(chunk):
            self._gathered.append((chunk.copy(), weights, codes))
            if sum(rows.nnz for rows, *_ in self._gathered) >= 2 * self._elements:
                self._flush_sparse()
            return
        self._see(chunk, codes)
        shifts = self._shifts.astype(self._dtype) if chunk.dtype == np.float32 else self._shifts
        start = 0
        while start < len(chunk):
            block = self._block = self._block or self._empty_block()
            taken = slice(start, start + len(block.rows) - self._filled)
            rows = chunk[taken]
            into = slice(self._filled, self._filled + len(rows))
            own = None if codes is None else codes[taken]
            _subtract(rows, shifts, own, block.rows[into])
            block.label(into, None if weights is None else weights[taken], own)
            start, self._filled = start + len(rows), into.stop
            if self._filled == len(block.rows):
                self._flush()

    def _see(self, chunk: Any, codes: Any) -> None:
        """Take shifts for the groups that come for the first time.

        Such that the products' arithmetic holds them exactly: float32 rows can be shifted in
        float32.
        """
        if self._seen.all():
            return
        if not self._seen.any():
            self._shifts = np.zeros((len(self._seen), chunk.shape[1]))
        for group in [0] if codes is None else np.unique(codes).tolist():
            if not self._seen[group]:
                rows = chunk if codes is None else chunk[codes == group]
                with np.errstate(over="ignore"):  # refused in `result`
                    self._shifts[group] = rows.mean(axis=0, dtype=np.float64).astype(self._dtype)
                self._seen[group] = True

    def result(self) -> Summary | None:
        """Return the summary of all rows, None without any; the accumulator is spent."""
        if self._gathered:
            self._flush_sparse()
        self._flush()
        while self._pending:
            self._collect(self._pending.popleft().result())
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            parts = [part for part in (self._dense_summary(), self._sparse) if part is not None]
            if not parts:
                return None
            sums = parts[0] if len(parts) == 1 else parts[0].merge(parts[1])
        diagonal = sums.within.diagonal()
        # A feature without variance may come out a rounding error below zero.
        np.fill_diagonal(sums.within, np.maximum(diagonal, 0.0))
        if not np.isfinite(diagonal).all():
            raise overflow(self._name, self._dtype)
        return sums

    def _dense_summary(self) -> Summary | None:
        for block in self._spare:
            self._fold(block)
        self._spare.clear()
        if self._folded is None:
            return None
        weights, totals, within = self._folded
        n = weights.sum()
        offsets = totals / np.maximum(weights, np.finfo(np.float64).tiny)[:, None]
        scaled = offsets * (weights / n)[:, None]
        for rows in in_cache(within):
            within[rows] /= n
            within[rows] -= scaled[:, rows].T @ offsets
        mirror_upper(within)
        return Summary(weights, np.where(weights[:, None] > 0, self._shifts + offsets, 0.0), within)

    def _empty_block(self) -> _Block:
        if self._spare:
            return self._spare.pop()
        n_groups, n_features = self._shifts.shape
        # At least a quarter of the features: fewer rows cost more to add up than to multiply.
        n_rows = max(256, n_features // 4, self._elements // 2 // max(1, n_features))
        if self._dtype == np.float32:  # rounding grows with what is added up in float32
            n_rows = min(n_rows, max(_MAX_SINGLE_ROWS, n_features // 4))
        return _Block(n_rows, n_features, self._dtype, n_groups)

    def _flush(self) -> None:
        block, n_rows = self._block, self._filled
        self._block, self._filled = None, 0
        if block is None or not n_rows:
            return
        if (
            self._start_workers is not None
            and n_rows == len(block.rows)
            and self._shifts.shape[1] <= _MAX_FEATURES_PER_WORKER
        ):
            self._pool, self._n_workers = self._start_workers()
            self._start_workers = None
        self._submit(partial(block.multiply, n_rows))

    def _flush_sparse(self) -> None:
        parts, *labels = zip(*self._gathered, strict=True)
        self._gathered = []
        rows = parts[0] if len(parts) == 1 else vstack(parts, "csr")
        weights, codes = (None if each[0] is None else np.concatenate(each) for each in labels)
        n_groups = len(self._seen)
        filled = filled_columns(rows, codes, n_groups)
        if filled.all():
            step = max(1, self._elements // rows.shape[1])
            for start in range(0, rows.shape[0], step):
                some = slice(start, start + step)
                own = (None if each is None else each[some] for each in (weights, codes))
                self.add(rows[some].toarray(), *own)
            return
        if self._start_workers is not None and rows.nnz >= self._elements:
            self._pool, self._n_workers = self._start_workers()
            self._start_workers = None
        self._submit(partial(_sparse_summary, rows, filled, weights, codes, n_groups))

    def _submit(self, multiply: Callable[[], _Block | Summary]) -> None:
        if self._pool is None:
            self._collect(multiply())
            return
        self._pending.append(self._pool.submit(multiply))
        if len(self._pending) > self._n_workers:
            self._collect(self._pending.popleft().result())

    def _collect(self, part: _Block | Summary) -> None:
        if isinstance(part, Summary):
            self._sparse = part if self._sparse is None else self._sparse.merge(part)
            return
        if part.products.dtype == np.float32:
            self._fold(part)
        self._spare.append(part)

    def _fold(self, block: _Block) -> None:
        """Add what a block has summed up, in float64, and empty it."""
        if block.totals is None:
            return
        if self._folded is None:
            products = block.products.astype(np.float64, copy=False)
            self._folded = block.group_weights, block.totals, products
        else:
            weights, totals, products = self._folded
            totals += block.totals
            products += block.products
            self._folded = weights + block.group_weights, totals, products
        block.totals = None


class _Block:
    """A block of shifted rows, and the sums of all that it has held since it was last folded."""

    def __init__(self, n_rows: int, n_features: int, dtype: Any, n_groups: int) -> None:
        self.rows = np.empty((n_rows, n_features), dtype)
        self.products = np.zeros((n_features, n_features), dtype)  # upper triangle
        self.group_weights: NDArray[Any] = np.zeros(n_groups, dtype=np.int64)
        self.totals: FloatArray | None = None  # of each group
        self._weights: FloatArray | None = None
        self._codes: NDArray[np.intp] | None = None

    def label(self, which: slice, weights: Any, codes: Any) -> None:
        """Note the weights and groups of some of the rows."""
        if weights is not None:
            self._weights = np.empty(len(self.rows)) if self._weights is None else self._weights
            self._weights[which] = weights
        if codes is not None:
            codes_here = self._codes
            self._codes = np.empty(len(self.rows), np.intp) if codes_here is None else codes_here
            self._codes[which] = codes

    def multiply(self, n_rows: int) -> _Block:
        rows, n_groups = self.rows[:n_rows], len(self.group_weights)
        weights, codes = (a if a is None else a[:n_rows] for a in (self._weights, self._codes))
        group_weights, totals = group_sums(rows, weights, codes, n_groups)
        if weights is not None:
            rows *= np.sqrt(weights, dtype=rows.dtype)[:, None]
        add_products(rows, self.products, keep=self.totals is not None)
        if self.totals is None:
            self.group_weights, self.totals = group_weights, totals
        else:
            self.group_weights = self.group_weights + group_weights
            self.totals += totals
        return self


def _subtract(rows: Any, shifts: FloatArray, codes: Any, into: FloatArray) -> None:
    """Shift rows, each by what its group is."""
    with np.errstate(over="ignore", invalid="ignore"):  # refused in `result`
        if codes is None:
            np.subtract(rows, shifts[0], out=into, casting="same_kind")
            return
        for some in in_cache(into):
            np.subtract(rows[some], shifts[codes[some]], out=into[some], casting="same_kind")


def _sparse_summary(
    rows: Any, filled: BoolArray, weights: Any, codes: Any, n_groups: int
) -> Summary:
    with np.errstate(over="ignore", invalid="ignore"):  # refused in `result`
        return Summary(*sparse_within(rows, filled, weights, codes, n_groups))
