"""Products of sparse centred rows with a few columns, on several threads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import cache
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg.blas import dger

from contrast_core._validation import FloatArray
from contrast_core.moments._sparse import as_float64
from contrast_core.rows import row_view

_LINE = 8  # values in a line of the processor's cache
# Entries from which on numba pays: where it is in use, and where it takes a second to start.
_WORTH_COMPILING, _WORTH_STARTING = 2**16, 2**24
_WORTH_SHARING = 2**18  # entries: fewer are multiplied in a millisecond
_compiling = Lock()


def sharing_pays(n_entries: int) -> bool:
    """Whether threads multiply so many entries faster than one."""
    return n_entries >= _WORTH_SHARING


def multipliable(rows: Any) -> Any:
    """Sparse rows with values that need not be converted at every product."""
    exact = rows.dtype in (np.float32, np.float64) and compiled_products_pay(rows.nnz)
    return rows if exact else as_float64(rows)


def gram_products(
    pieces: Sequence[Any],
    weights: Sequence[float],
    mean: FloatArray,
    columns: FloatArray,
    pool: Executor | None,
    n_threads: int,
) -> FloatArray:
    """``sum(w Z.T @ (Z @ columns))`` of centred rows Z: by numba in one pass, else by scipy.

    Parameters
    ----------
    pieces : CSR matrices of shape (n, n_features)
        Not centred.
    weights : floats
        One for each.
    mean : ndarray of shape (n_features,)
        Subtracted from every row.
    columns : ndarray of shape (n_features, b)
        What they are multiplied with.
    pool : Executor, optional
        Threads that share the rows; which takes which depends on nothing but their number.
    n_threads : int
        Their number.
    """
    compiled = [compiled_products_pay(rows.nnz) for rows in pieces]
    ends = [_ends(rows, max(n_threads, 1)) for rows in pieces]
    width = columns.shape[1]
    padded = _padded(columns) if any(compiled) else columns
    along_mean = mean @ padded

    def product_of(share: int) -> tuple[FloatArray, FloatArray]:
        """What one thread adds up: the product of rows that are not centred; sums of scores."""
        product, total = _zeros(*padded.shape), np.zeros(padded.shape[1])
        for rows, weight, end, fast in zip(pieces, weights, ends, compiled, strict=True):
            multiply = _by_numba if fast else _by_scipy
            multiply(rows, weight, padded, along_mean, product, total, *end[share : share + 2])
        return product, total

    shares = range(max(n_threads, 1))
    (product, total), *others = (map if pool is None else pool.map)(product_of, shares)
    for other, other_total in others:
        product += other
        total += other_total
    return less_outer(product, mean, total)[:, :width]


def less_outer(matrix: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """A matrix less ``outer(left, right)``; if it is in C order, in its own memory."""
    return np.asarray(dger(-1.0, right, left, a=matrix.T, overwrite_a=True).T)


def sparse_scores(rows: Any, columns: FloatArray) -> FloatArray:
    """``rows @ columns`` of a CSR matrix: by numba where that pays, else by scipy."""
    if not (compiled_products_pay(rows.nnz) and multipliable(rows) is rows):
        return np.asarray(rows @ columns)
    padded = _padded(columns)
    scores, origin = _zeros(rows.shape[0], padded.shape[1]), np.zeros(padded.shape[1])
    no_product, total = np.empty((0, padded.shape[1])), np.zeros(padded.shape[1])
    _run(rows, padded, origin, scores, no_product, total, 1.0, 0, rows.shape[0])
    return scores[:, : columns.shape[1]]


def _ends(rows: Any, n_shares: int) -> list[int]:
    """Where shares of the rows begin that have as many entries each, and where the last ends."""
    if n_shares == 1:
        return [0, rows.shape[0]]
    shares = np.linspace(0, rows.nnz, n_shares + 1)[1:-1]
    return [0, *np.searchsorted(rows.indptr, shares).tolist(), rows.shape[0]]


def _by_scipy(
    rows: Any,
    weight: float,
    columns: FloatArray,
    along_mean: FloatArray,
    product: FloatArray,
    total: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Add these rows, not centred, times their scores, so weighted; and the sum of the scores."""
    share = row_view(rows, start, stop)
    scores = share @ columns - along_mean
    scores *= weight
    product += share.T @ scores
    total += scores.sum(axis=0)


def _by_numba(
    rows: Any,
    weight: float,
    columns: FloatArray,
    along_mean: FloatArray,
    product: FloatArray,
    total: FloatArray,
    start: int,
    stop: int,
) -> None:
    """The same, a row's scores being used as soon as they are known."""
    no_scores = np.empty((0, len(total)))
    _run(rows, columns, along_mean, no_scores, product, total, weight, start, stop)


def _run(rows: Any, *arguments: Any) -> None:
    matrix = [np.ascontiguousarray(part) for part in (rows.indptr, rows.indices, rows.data)]
    _compiled(*(part.dtype for part in matrix))(*matrix, *arguments)


def _padded(columns: FloatArray) -> FloatArray:
    """Columns to a number that is summed up in registers: eight take as long as one."""
    size, width = columns.shape
    padded = _zeros(size, max(8, -(-width // 4) * 4))
    padded[:, :width] = columns
    return padded


def _zeros(size: int, width: int) -> FloatArray:
    """Zeros (size, width), eight of a row in one line of the processor's cache.

    Across two, as numpy allocates them, they take half as long again.
    """
    values = np.zeros(size * width + _LINE)
    start = -(values.ctypes.data // values.itemsize) % _LINE
    return values[start : start + size * width].reshape(size, width)


def compiled_products_pay(n_entries: int) -> bool:
    """Whether machine code takes so many entries faster, what it takes to start included."""
    least = _WORTH_COMPILING if "numba" in sys.modules else _WORTH_STARTING
    return n_entries >= least and _numba() is not None


@cache
def _numba() -> ModuleType | None:
    try:
        import numba
    except ImportError:
        return None
    return numba


@cache
def _compiled(*kinds: np.dtype[Any]) -> Callable[..., None]:
    """`_multiply` for arrays of these types, its sums in vector registers: twice as fast.

    numba leaves these out unless it is told to for all that it compiles.
    """
    numba = _numba()
    assert numba is not None

    def array(kind: str, n_axes: int = 1) -> Any:
        return numba.types.Array(getattr(numba.types, kind), n_axes, "C", readonly=True)

    given = [array(kind.name) for kind in kinds]
    given += [array("float64", 2), array("float64")]
    filled = numba.float64[:, ::1], numba.float64[:, ::1], numba.float64[::1]
    signature = numba.void(*given, *filled, numba.float64, numba.intp, numba.intp)
    with _compiling:
        before, numba.config.SLP_VECTORIZE = numba.config.SLP_VECTORIZE, 1
        try:
            compiled: Callable[..., None] = numba.njit(signature, cache=True, nogil=True)(_multiply)
        finally:
            numba.config.SLP_VECTORIZE = before
    return compiled


def _multiply(  # type: ignore[no-untyped-def]
    indptr, indices, values, columns, along_mean, scores, product, total, weight, start, stop
):
    """Scores of rows, their sum, and the rows times them; what has no room is not kept.

    Written so that numba can compile it. With unsigned numbers, for those that could be negative
    would be checked at every entry; sums of four columns by name, for these are kept in registers;
    of eight columns two entries at a time, for each addition has to wait for the one before it.
    """
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    eight, twelve, sixteen = np.uint64(8), np.uint64(12), np.uint64(16)

    def begun(j: Any) -> Any:
        return -along_mean[j], -along_mean[j + one], -along_mean[j + two], -along_mean[j + three]

    def with_entry(sums: Any, value: Any, at: Any, j: Any) -> Any:
        a, b, c, d = sums
        return (
            a + value * columns[at, j],
            b + value * columns[at, j + one],
            c + value * columns[at, j + two],
            d + value * columns[at, j + three],
        )

    def with_two(sums: Any, value: Any, at: Any, other: Any, then: Any, j: Any) -> Any:
        a, b, c, d = sums
        return (
            a + (value * columns[at, j] + other * columns[then, j]),
            b + (value * columns[at, j + one] + other * columns[then, j + one]),
            c + (value * columns[at, j + two] + other * columns[then, j + two]),
            d + (value * columns[at, j + three] + other * columns[then, j + three]),
        )

    def kept(sums: Any, row: Any, j: Any) -> Any:
        a, b, c, d = sums
        a, b, c, d = weight * a, weight * b, weight * c, weight * d
        if len(scores):
            scores[row, j] = a
            scores[row, j + one] = b
            scores[row, j + two] = c
            scores[row, j + three] = d
        total[j] += a
        total[j + one] += b
        total[j + two] += c
        total[j + three] += d
        return a, b, c, d

    def add(sums: Any, value: Any, at: Any, j: Any) -> None:
        a, b, c, d = sums
        product[at, j] += value * a
        product[at, j + one] += value * b
        product[at, j + two] += value * c
        product[at, j + three] += value * d

    width = np.uint64(len(total))
    for i in range(np.uint64(start), np.uint64(stop)):
        row, first, last = i - np.uint64(start), np.uint64(indptr[i]), np.uint64(indptr[i + one])
        end = last if len(product) else first
        j = np.uint64(0)
        while j < width:
            rest, k, m, n = width - j, j + four, j + eight, j + twelve
            w, x = begun(j), begun(k)
            if rest >= sixteen and rest != sixteen + four:
                y, z = begun(m), begun(n)
                for p in range(first, last):
                    at, value = np.uint64(indices[p]), np.float64(values[p])
                    w, x = with_entry(w, value, at, j), with_entry(x, value, at, k)
                    y, z = with_entry(y, value, at, m), with_entry(z, value, at, n)
                w, x, y, z = kept(w, row, j), kept(x, row, k), kept(y, row, m), kept(z, row, n)
                for p in range(first, end):
                    at, value = np.uint64(indices[p]), np.float64(values[p])
                    add(w, value, at, j)
                    add(x, value, at, k)
                    add(y, value, at, m)
                    add(z, value, at, n)
                j += sixteen
            elif rest >= twelve:
                y = begun(m)
                for p in range(first, last):
                    at, value = np.uint64(indices[p]), np.float64(values[p])
                    w, x = with_entry(w, value, at, j), with_entry(x, value, at, k)
                    y = with_entry(y, value, at, m)
                w, x, y = kept(w, row, j), kept(x, row, k), kept(y, row, m)
                for p in range(first, end):
                    at, value = np.uint64(indices[p]), np.float64(values[p])
                    add(w, value, at, j)
                    add(x, value, at, k)
                    add(y, value, at, m)
                j += twelve
            else:
                q = first
                while q + one < last:
                    at, value = np.uint64(indices[q]), np.float64(values[q])
                    then, other = np.uint64(indices[q + one]), np.float64(values[q + one])
                    w = with_two(w, value, at, other, then, j)
                    x = with_two(x, value, at, other, then, k)
                    q += two
                if q < last:
                    at, value = np.uint64(indices[q]), np.float64(values[q])
                    w, x = with_entry(w, value, at, j), with_entry(x, value, at, k)
                w, x = kept(w, row, j), kept(x, row, k)
                for p in range(first, end):
                    at, value = np.uint64(indices[p]), np.float64(values[p])
                    add(w, value, at, j)
                    add(x, value, at, k)
                j += eight
