"""Products of sparse centred rows with a few columns, on several threads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Executor
from functools import cache, partial
from itertools import pairwise
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.moments._sparse import as_float64
from contrast_core.rows import row_view

_TOGETHER = 8  # columns, which are summed up in registers and take no longer than one
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
    rows: Any, mean: FloatArray, columns: FloatArray, pool: Executor | None, n_threads: int
) -> FloatArray:
    """``Z.T @ (Z @ columns)`` of centred rows Z: by numba in one pass over them, else by scipy.

    Parameters
    ----------
    rows : CSR matrix of shape (n, n_features)
        Not centred.
    mean : ndarray of shape (n_features,)
        Of the rows.
    columns : ndarray of shape (n_features, b)
        What they are multiplied with.
    pool : Executor, optional
        Threads that share the rows; which takes which depends on nothing but their number.
    n_threads : int
        Their number.
    """
    multiply = _by_scipy
    if compiled_products_pay(rows.nnz):
        kinds = (part.dtype.name for part in (rows.indptr, rows.indices, rows.data))
        multiply = partial(_by_numba, _compiled(*kinds))
    shares = np.linspace(0, rows.nnz, max(n_threads, 1) + 1)[1:-1]
    ends = [0, *np.searchsorted(rows.indptr, shares).tolist(), rows.shape[0]]

    def product_of(ends: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
        return multiply(rows, mean, columns, *ends)

    (product, total), *others = (map if pool is None else pool.map)(product_of, pairwise(ends))
    for other, other_total in others:
        product += other
        total += other_total
    product -= np.outer(mean, total)
    return product


def _by_scipy(
    rows: Any, mean: FloatArray, columns: FloatArray, start: int, stop: int
) -> tuple[FloatArray, FloatArray]:
    """These rows, not centred, times their scores (n_features, b), and the sum of the scores."""
    share = row_view(rows, start, stop)
    scores = share @ columns - mean @ columns
    return share.T @ scores, scores.sum(axis=0)


def _by_numba(
    compiled: Callable[..., None],
    rows: Any,
    mean: FloatArray,
    columns: FloatArray,
    start: int,
    stop: int,
) -> tuple[FloatArray, FloatArray]:
    """The same, a row's scores being used as soon as they are known."""
    size, width = columns.shape
    whole = -(-width // _TOGETHER) * _TOGETHER
    padded, product, total = _zeros(size, whole), _zeros(size, whole), np.zeros(whole)
    padded[:, :width] = columns
    matrix = map(np.ascontiguousarray, (rows.indptr, rows.indices, rows.data))
    compiled(*matrix, padded, mean @ padded, product, total, start, stop)
    return product[:, :width], total[:width]


def _zeros(size: int, width: int) -> FloatArray:
    """Zeros (size, width), each eight of a row in one line of the processor's cache.

    Across two, as numpy allocates them, they take half as long again.
    """
    values = np.zeros(size * width + _TOGETHER)
    start = -(values.ctypes.data // values.itemsize) % _TOGETHER
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
def _compiled(ends: str, indices: str, values: str) -> Callable[..., None]:
    """`_multiply` for arrays of these types, its sums in vector registers: twice as fast.

    numba leaves these out unless it is told to for all that it compiles.
    """
    numba = _numba()
    assert numba is not None

    def array(kind: str, n_axes: int = 1) -> Any:
        return numba.types.Array(getattr(numba.types, kind), n_axes, "C", readonly=True)

    given = [array(kind) for kind in (ends, indices, values)]
    given += [array("float64", 2), array("float64")]
    filled = numba.float64[:, ::1], numba.float64[::1]
    signature = numba.void(*given, *filled, numba.intp, numba.intp)
    with _compiling:
        before, numba.config.SLP_VECTORIZE = numba.config.SLP_VECTORIZE, 1
        try:
            compiled: Callable[..., None] = numba.njit(signature, cache=True, nogil=True)(_multiply)
        finally:
            numba.config.SLP_VECTORIZE = before
    return compiled


def _multiply(  # type: ignore[no-untyped-def]
    indptr, indices, values, columns, along_mean, product, total, start, stop
):
    """Written so that numba can compile it.

    With unsigned numbers, for those that could be negative would be checked at every entry, and
    eight sums by name, for these are kept in registers.
    """
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    five, six, seven = np.uint64(5), np.uint64(6), np.uint64(7)
    for i in range(np.uint64(start), np.uint64(stop)):
        first, last = np.uint64(indptr[i]), np.uint64(indptr[i + one])
        for j in range(np.uint64(0), np.uint64(len(total)), np.uint64(8)):
            a, b = -along_mean[j], -along_mean[j + one]
            c, d = -along_mean[j + two], -along_mean[j + three]
            e, f = -along_mean[j + four], -along_mean[j + five]
            g, h = -along_mean[j + six], -along_mean[j + seven]
            for p in range(first, last):
                at, value = np.uint64(indices[p]), np.float64(values[p])
                a += value * columns[at, j]
                b += value * columns[at, j + one]
                c += value * columns[at, j + two]
                d += value * columns[at, j + three]
                e += value * columns[at, j + four]
                f += value * columns[at, j + five]
                g += value * columns[at, j + six]
                h += value * columns[at, j + seven]
            total[j] += a
            total[j + one] += b
            total[j + two] += c
            total[j + three] += d
            total[j + four] += e
            total[j + five] += f
            total[j + six] += g
            total[j + seven] += h
            for p in range(first, last):
                at, value = np.uint64(indices[p]), np.float64(values[p])
                product[at, j] += value * a
                product[at, j + one] += value * b
                product[at, j + two] += value * c
                product[at, j + three] += value * d
                product[at, j + four] += value * e
                product[at, j + five] += value * f
                product[at, j + six] += value * g
                product[at, j + seven] += value * h
