"""Sums of rows and of their products, one block of rows after another.

Problem: mean and covariance of more rows than fit into memory, in one pass and without loss of
digits where the mean is far from zero. Rows are shifted by the mean of the first block, their
products are summed in float64, and what is left of the mean is subtracted at the end; sums of parts
merge pairwise (Chan, Golub and LeVeque, American Statistician 37:242, 1983). The error of a
covariance is a few roundings of its largest entry, in whatever order blocks arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
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

_SINGLE_ROWS = 4096  # whose products are added up in float32
_LEAST_ROWS = 256  # in a block: fewer cost more to add up than to multiply, as do few for features
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

    Rows are gathered into blocks that suit BLAS. Sums are kept in float64; "single" takes the
    products within a block in float32. Sparse rows are multiplied as `sparse_within` does where
    that is less work.

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
        self._pending: deque[Future[_Sums | Summary]] = deque()
        self._gathered: list[tuple[Any, Any, Any]] = []  # rows, weights, codes
        self._n_gathered = 0  # values, or entries of sparse rows
        self._idle: list[_Sums] = []
        self._folded: _Sums | None = None
        self._sparse: Summary | None = None
        self._shifts = np.empty((n_groups, 0))
        self._seen = np.zeros(n_groups, dtype=np.bool_)

    def consume(self, rows: Rows) -> None:
        """Add all of these rows; ValueError on NaN or infinity."""
        for block in labelled_blocks(rows):
            self.add(*block)

    def add(self, chunk: Any, weights: Any = None, codes: Any = None) -> None:
        """Add rows, dense or CSR, of any real dtype; they may be overwritten afterwards.

        With a weight, and the number of the group, of each.
        """
        n_rows, n_features = chunk.shape
        if not n_rows:
            return
        sparse = issparse(chunk)
        if self._gathered and issparse(self._gathered[0][0]) != sparse:
            self._flush()
        rows = chunk.copy() if sparse else self._shifted(chunk, codes)
        self._gathered.append((rows, weights, codes))
        self._n_gathered += chunk.nnz if sparse else chunk.size
        least = n_features * max(_LEAST_ROWS, n_features // 4)
        if self._n_gathered >= (2 * self._elements if sparse else max(least, self._elements // 2)):
            self._flush(full=True)

    def _shifted(self, chunk: Any, codes: Any) -> FloatArray:
        """Return rows less the first mean of their group."""
        if not self._seen.any():
            self._shifts = np.zeros((len(self._seen), chunk.shape[1]))
        for group in () if self._seen.all() else np.unique([0] if codes is None else codes):
            if not self._seen[group]:
                rows = chunk if codes is None else chunk[codes == group]
                with np.errstate(over="ignore"):  # refused in `result`
                    # Rounded to the products' arithmetic, which can then shift rows without loss.
                    self._shifts[group] = rows.mean(axis=0, dtype=np.float64).astype(self._dtype)
                self._seen[group] = True
        shifts = self._shifts.astype(self._dtype) if chunk.dtype == np.float32 else self._shifts
        shifted = np.empty(chunk.shape, self._dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # refused in `result`
            for some in [slice(None)] if codes is None else in_cache(shifted):
                by = shifts[0] if codes is None else shifts[codes[some]]
                np.subtract(chunk[some], by, out=shifted[some], casting="same_kind")
        return shifted

    def result(self) -> Summary | None:
        """Return the summary of all rows, None without any; the accumulator is spent."""
        while (
            self._gathered
        ):  # sparse rows without an empty column are gathered again as dense ones
            self._flush()
        while self._pending:
            self._collect(self._pending.popleft().result())
        for sums in self._idle:
            self._fold(sums)
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            dense = None if self._folded is None else self._folded.summary(self._shifts)
            parts = [part for part in (dense, self._sparse) if part is not None]
            if not parts:
                return None
            total = parts[0] if len(parts) == 1 else parts[0].merge(parts[1])
        diagonal = total.within.diagonal()
        # A feature without variance may come out a rounding error below zero.
        np.fill_diagonal(total.within, np.maximum(diagonal, 0.0))
        if not np.isfinite(diagonal).all():
            raise overflow(self._name, self._dtype)
        return total

    def _flush(self, full: bool = False) -> None:
        """Multiply the rows that are gathered, on threads once a block is full."""
        parts, *labels = zip(*self._gathered, strict=True)
        weights, codes = (None if each[0] is None else np.concatenate(each) for each in labels)
        self._gathered, self._n_gathered = [], 0
        n_groups = len(self._seen)
        if issparse(parts[0]):
            rows = parts[0] if len(parts) == 1 else vstack(parts, "csr")
            filled = filled_columns(rows, codes, n_groups)
            if not filled.all():
                self._submit(
                    partial(_sparse_summary, rows, filled, weights, codes, n_groups),
                    on_threads=rows.nnz >= self._elements,
                )
                return
            step = max(1, self._elements // rows.shape[1])
            add: Callable[..., None] = self.add
        else:
            rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
            on_threads = full and rows.shape[1] <= _MAX_FEATURES_PER_WORKER
            step = len(rows)
            if self._dtype == np.float32:  # rounding grows with what is added up in float32
                step = max(_SINGLE_ROWS, rows.shape[1] // 4)

            def add(*block: Any) -> None:
                sums = self._idle.pop() if self._idle else _Sums.empty(n_groups, rows)
                self._submit(partial(sums.add, *block), on_threads=on_threads)

        for start in range(0, rows.shape[0], step):
            some = slice(start, start + step)
            own = (None if each is None else each[some] for each in (weights, codes))
            add(rows[some].toarray() if issparse(rows) else rows[some], *own)

    def _submit(self, multiply: Callable[[], _Sums | Summary], *, on_threads: bool) -> None:
        if on_threads and self._start_workers is not None:
            self._pool, self._n_workers = self._start_workers()
            self._start_workers = None
        if self._pool is None:
            self._collect(multiply())
            return
        self._pending.append(self._pool.submit(multiply))
        if len(self._pending) > self._n_workers:
            self._collect(self._pending.popleft().result())

    def _collect(self, part: _Sums | Summary) -> None:
        if isinstance(part, Summary):
            self._sparse = part if self._sparse is None else self._sparse.merge(part)
            return
        if part.products.dtype == np.float32:
            self._fold(part)
        self._idle.append(part)

    def _fold(self, sums: _Sums) -> None:
        """Move sums into those of float64."""
        if self._folded is None and sums.products.dtype == np.float64:
            self._folded = sums
            return
        if self._folded is None:
            products = sums.products.astype(np.float64)
            self._folded = _Sums(sums.weights, sums.totals, products)
        else:
            self._folded.weights = self._folded.weights + sums.weights
            self._folded.totals += sums.totals
            self._folded.products += sums.products
        sums.weights, sums.totals = sums.weights * 0, np.zeros_like(sums.totals)
        sums.products[:] = 0


@dataclass
class _Sums:
    """Sums of shifted rows: weights and totals of the groups (G,), (G, D); products (D, D)."""

    weights: NDArray[Any]
    totals: FloatArray
    products: NDArray[Any]  # upper triangle

    @classmethod
    def empty(cls, n_groups: int, rows: FloatArray) -> _Sums:
        """Return sums of no rows, with the dtype of the products to come."""
        size = rows.shape[1]
        weights = np.zeros(n_groups, dtype=np.int64)
        return cls(weights, np.zeros((n_groups, size)), np.zeros((size, size), rows.dtype))

    def add(self, rows: FloatArray, weights: Any, codes: Any) -> _Sums:
        """Add rows, which are overwritten."""
        group_weights, totals = group_sums(rows, weights, codes, len(self.weights))
        if weights is not None:
            rows *= np.sqrt(weights, dtype=rows.dtype)[:, None]
        add_products(rows, self.products)
        self.weights = self.weights + group_weights
        self.totals += totals
        return self

    def summary(self, shifts: FloatArray) -> Summary:
        """Return means and covariance, in place of the products."""
        within, n = self.products, self.weights.sum()
        offsets = self.totals / np.maximum(self.weights, np.finfo(np.float64).tiny)[:, None]
        scaled = offsets * (self.weights / n)[:, None]
        for rows in in_cache(within):
            within[rows] /= n
            within[rows] -= scaled[:, rows].T @ offsets
        mirror_upper(within)
        means = np.where(self.weights[:, None] > 0, shifts + offsets, 0.0)
        return Summary(self.weights, means, within)


def _sparse_summary(
    rows: Any, filled: BoolArray, weights: Any, codes: Any, n_groups: int
) -> Summary:
    with np.errstate(over="ignore", invalid="ignore"):  # refused in `result`
        return Summary(*sparse_within(rows, filled, weights, codes, n_groups))
