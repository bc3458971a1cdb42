"""Mean and covariance of rows that are read one block after another.

Problem: compute mean and covariance of more rows than fit into memory, in one pass and without loss
of accuracy if the mean is far from zero. Each block of rows is centred by its own mean before its
products are taken. Blocks are merged by the update of Chan, Golub and LeVeque (American
Statistician 37:242, 1983), which adds the contribution of the difference of two means. The error of
a covariance is a few rounding errors of its largest entry, whatever the order of the blocks is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse, vstack

from contrast_core._validation import FloatArray, check_choice
from contrast_core.linalg import mirror_upper
from contrast_core.moments._kernels import compiled_pays, covariance_parts
from contrast_core.moments._moments import in_cache
from contrast_core.moments._sparse import BoolArray, filled_features, group_sums
from contrast_core.rows import ELEMENTS, Rows, labelled_blocks

Precision: TypeAlias = Literal["double", "single"]

_SINGLE_ROWS = 4096  # number of rows whose products are added up in float32
_LEAST_ROWS = 256  # smallest block; merging a smaller block costs more than multiplying it
_MAX_FEATURES_PER_WORKER = 4096  # with more features, BLAS runs each product well in parallel


def check_precision(precision: object) -> np.dtype[Any]:
    """Return the type of the products of rows; raise ValueError if the precision is unknown."""
    word = check_choice(precision, "precision", ("double", "single"))
    return np.dtype(np.float64 if word == "double" else np.float32)


def overflow(name: str, dtype: object) -> ValueError:
    """Return the error to raise if sums of products of rows are not finite."""
    advice = "" if "64" in str(dtype) else ", or use precision='double'"
    return ValueError(
        f"the variance of {name} overflows {dtype}; multiply all data by a constant that brings "
        f"all values near 1{advice}."
    )


class Summary(NamedTuple):
    """Weights and means of groups of rows, and the covariance within groups.

    Rows without groups form one group.

    weights : ndarray of shape (G,)
        Total weight of each group; its number of rows if rows have no weights.
    means : ndarray of shape (G, D)
        Mean of each group; 0 for a group without rows.
    within : ndarray of shape (D, D)
        Covariance of all rows, each about the mean of its group, divided by the total weight.
    """

    weights: NDArray[Any]
    means: FloatArray
    within: FloatArray

    @property
    def n_samples(self) -> Any:
        """Number of rows, or their total weight."""
        return self.weights.sum().item()

    @property
    def mean(self) -> FloatArray:
        """Return the mean of all rows."""
        if len(self.means) == 1:
            return np.asarray(self.means[0])
        return np.asarray(self.weights @ self.means / self.n_samples)

    def merge(self, other: Summary, *, in_place: bool = False) -> Summary:
        """Merge with the summary of other rows.

        If `in_place`, the covariance of this summary is overwritten, and only the upper triangles
        are used.
        """
        # The merged covariance is the weighted mean of both covariances, plus the contribution of
        # the difference of the two means of each group that has rows in both summaries.
        weights = self.weights + other.weights
        n = weights.sum()
        share = other.weights / np.maximum(weights, np.finfo(np.float64).tiny)
        shift = other.means - self.means
        spread = share * self.weights / n
        in_both = np.flatnonzero(spread)
        scaled = np.sqrt(spread[in_both])[:, None] * shift[in_both]
        within = self.within if in_place else np.empty_like(self.within)
        part_of_other = float(other.weights.sum() / n)
        for rows in in_cache(within):
            part = np.multiply(self.within[rows], 1 - part_of_other, out=within[rows])
            part += part_of_other * other.within[rows]
            part += scaled[:, rows].T @ scaled
        if not in_place:
            mirror_upper(within)
        return Summary(weights, self.means + share[:, None] * shift, within)


def not_empty(summary: Summary | None, name: str) -> Summary:
    """Return the summary, or raise ValueError if there were no rows."""
    if summary is None:
        raise ValueError(f"{name} has no rows (n_samples=0); at least one is needed.")
    return summary


class Accumulator:
    """Count, mean and covariance of rows that arrive in blocks of any size.

    Rows are gathered into blocks that are large enough for BLAS, and each block is summarised about
    its own means. Summaries are merged in float64. With the precision "single", the products within
    a block are computed in float32. The products of sparse rows are computed entry by entry if that
    is less work than converting them to dense rows.

    Parameters
    ----------
    name : str, default="X"
        Name of the rows in error messages.
    precision : {"double", "single"}, default="double"
        Arithmetic of the products of dense rows.
    elements : int
        Number from which the size of a block follows. A block of dense rows has half this number of
        values, and a block of sparse rows has twice this number of stored entries. Multiplying such
        a block takes longer than merging its summary.
    n_groups : int, default=1
        Number of groups of rows. Each row is centred by the mean of its group.
    start_workers : callable, optional
        Function that is called when the first block is full. It returns a pool of threads and the
        number of threads, or (None, 0). The threads summarise a block while the caller reads the
        next one. Blocks are merged in the order in which they were read, so the result does not
        depend on the threads.
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
        self._name, self._elements, self._n_groups = name, elements, n_groups
        self._start_workers = start_workers
        self._pool: ThreadPoolExecutor | None = None
        self._n_workers = 0
        self._pending: deque[Future[Summary]] = deque()
        self._gathered: list[tuple[Any, Any, Any]] = []  # rows, weights, codes
        self._n_gathered = 0  # values, or entries of sparse rows
        self._total: Summary | None = None

    def consume(self, rows: Rows) -> None:
        """Add all of these rows; raise ValueError on NaN or infinity."""
        for block in labelled_blocks(rows):
            self.add(*block)

    def add(self, chunk: Any, weights: Any = None, codes: Any = None) -> None:
        """Add dense or CSR rows of any real dtype.

        `weights` and `codes` hold the weight and the group number of each row. The rows are copied,
        so the caller may overwrite `chunk` afterwards.
        """
        n_rows, n_features = chunk.shape
        if not n_rows:
            return
        sparse = issparse(chunk)
        if self._gathered and issparse(self._gathered[0][0]) != sparse:
            self._flush()
        self._gathered.append((chunk.copy(), weights, codes))
        self._n_gathered += chunk.nnz if sparse else chunk.size
        least = n_features * _least_rows(n_features)
        if self._n_gathered >= (2 * self._elements if sparse else max(least, self._elements // 2)):
            self._flush(full=True)

    def result(self) -> Summary | None:
        """Return the summary of all rows, or None if there were none; call this only once."""
        if self._gathered:
            self._flush()
        while self._pending:
            self._merge(self._pending.popleft().result())
        if self._total is None:
            return None
        mirror_upper(self._total.within)
        diagonal = self._total.within.diagonal()
        # The computed variance of a constant feature may be a rounding error below zero.
        np.fill_diagonal(self._total.within, np.maximum(diagonal, 0.0))
        if not np.isfinite(diagonal).all():
            raise overflow(self._name, self._dtype)
        return self._total

    def _flush(self, full: bool = False) -> None:
        """Summarise the gathered rows, on a worker thread if they are enough to fill a block."""
        parts, *labels = zip(*self._gathered, strict=True)
        weights, codes = (None if each[0] is None else np.concatenate(each) for each in labels)
        self._gathered, self._n_gathered = [], 0
        stack = partial(vstack, format="csr") if issparse(parts[0]) else np.concatenate
        rows: Any = parts[0] if len(parts) == 1 else stack(parts)
        n_features = rows.shape[1]
        summarise: Callable[..., Summary] = partial(_dense_summary, dtype=self._dtype)
        step = rows.shape[0]
        if issparse(rows):
            full = rows.nnz >= self._elements
            compiled = compiled_pays(rows.nnz)
            filled = filled_features(rows, codes, self._n_groups, compiled=compiled)
            if filled.all():
                step = max(_least_rows(n_features), self._elements // n_features)
            else:
                summarise = partial(_sparse_summary, filled=filled)
        elif self._dtype == np.float32:
            # Rounding errors of a sum in float32 add up, so few rows are summed at a time.
            step = max(_SINGLE_ROWS, n_features // 4)
        for start in range(0, rows.shape[0], step):
            some = slice(start, start + step)
            own = tuple(None if each is None else each[some] for each in (weights, codes))
            if own[0] is not None and not own[0].any():
                continue  # rows without weight have no mean
            block = rows if step >= rows.shape[0] else rows[some]
            self._submit(
                partial(summarise, block, *own, self._n_groups),
                on_threads=full and n_features <= _MAX_FEATURES_PER_WORKER,
            )

    def _submit(self, summarise: Callable[[], Summary], *, on_threads: bool) -> None:
        """Summarise a block now or on a worker thread, and merge summaries in the order of blocks.

        The worker threads are started by the first block with `on_threads`. From then on, they
        summarise all blocks.
        """
        if on_threads and self._start_workers is not None:
            self._pool, self._n_workers = self._start_workers()
            self._start_workers = None
        if self._pool is None:
            self._merge(summarise())
            return
        self._pending.append(self._pool.submit(summarise))
        if len(self._pending) > self._n_workers:
            self._merge(self._pending.popleft().result())

    def _merge(self, part: Summary) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # `result` raises an error on overflow
            total = self._total
            self._total = part if total is None else total.merge(part, in_place=True)


def _least_rows(n_features: int) -> int:
    """Return the number of rows in a block whose products cost as much as merging its summary."""
    return max(_LEAST_ROWS, n_features // 4)


def _dense_summary(
    rows: Any, weights: Any, codes: Any, n_groups: int, *, dtype: np.dtype[Any]
) -> Summary:
    """Summarise one block of rows.

    Sparse rows are first made dense, and dense rows may be overwritten. Only the upper triangle of
    the covariance is filled.
    """
    rows = rows.toarray() if issparse(rows) else rows
    with np.errstate(over="ignore", invalid="ignore"):  # `Accumulator.result` raises an error
        total, sums = group_sums(rows, weights, codes, n_groups)
        n, each = total.sum(), np.maximum(total, np.finfo(np.float64).tiny)[:, None]
        means = sums / each
        centred = rows if rows.dtype == dtype else np.empty(rows.shape, dtype)
        for some in in_cache(rows):  # the difference is taken in float64 and then rounded
            by = means[0] if codes is None else means[codes[some]]
            np.subtract(rows[some], by, out=centred[some], casting="same_kind")
        # Rounding leaves a small mean in the centred rows. Without this correction, a constant
        # feature would have a positive variance.
        left = group_sums(centred, weights, codes, n_groups)[1] / each
        if weights is not None:
            centred *= np.sqrt(weights, dtype=dtype)[:, None]
        products = centred.T @ centred
        within, scaled = products.astype(np.float64, copy=False), left * (total / n)[:, None]
        for some in in_cache(within):
            within[some] /= n
            within[some] -= scaled[:, some].T @ left
        return Summary(total, means + left, within)


def _sparse_summary(
    rows: Any, weights: Any, codes: Any, n_groups: int, *, filled: BoolArray
) -> Summary:
    """Summarise one block of sparse rows.

    The columns in the mask `filled` are treated as dense, which changes the covariance only by
    rounding errors. Only the upper triangle of the covariance is filled.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # `Accumulator.result` raises an error
        n_features = rows.shape[1]
        dense, others = np.flatnonzero(filled), np.flatnonzero(~filled)
        total, sums = group_sums(rows, weights, codes, n_groups)
        means = sums / np.maximum(total, np.finfo(np.float64).tiny)[:, None]
        root_weights = None if weights is None else np.sqrt(weights)
        dense_products, cross_products, other_products = covariance_parts(
            rows, dense, others, means[:, dense], root_weights, codes
        )
        scaled = np.sqrt(total)[:, None] * means[:, others]
        for some in in_cache(other_products):
            other_products[some] -= scaled[:, some].T @ scaled
        within = np.empty((n_features, n_features))
        within[np.ix_(dense, dense)] = dense_products
        within[np.ix_(others, others)] = other_products
        within[np.ix_(others, dense)] = cross_products
        within[np.ix_(dense, others)] = cross_products.T
        within /= total.sum()
        return Summary(total, means, within)
