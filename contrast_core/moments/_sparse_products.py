"""Products of sparse centred rows with a few columns, on several threads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Executor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from contrast_core._validation import FloatArray

_TOGETHER = 4  # columns, which are summed up in registers
_WORTH_STARTING = 2**24  # entries from which on a fit saves more than the second that numba takes
_WORTH_SHARING = 2**18  # entries: fewer are multiplied in a millisecond


def sharing_pays(n_entries: int) -> bool:
    """Whether threads multiply so many entries faster than one."""
    return n_entries >= _WORTH_SHARING


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
    multiply = _by_numba if _compiled_pays(rows.nnz) else _by_scipy
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
    ends = rows.indptr[start : stop + 1]
    entries = slice(ends[0], ends[-1])
    # A view: scipy would copy the rows that a slice takes.
    share = csr_array(
        (rows.data[entries], rows.indices[entries], ends - ends[0]),
        shape=(stop - start, rows.shape[1]),
    )
    scores = share @ columns - mean @ columns
    return share.T @ scores, scores.sum(axis=0)


def _by_numba(
    rows: Any, mean: FloatArray, columns: FloatArray, start: int, stop: int
) -> tuple[FloatArray, FloatArray]:
    """The same, a row's scores being used as soon as they are known."""
    compiled = _compiled()
    assert compiled is not None
    size, width = columns.shape
    padded = np.zeros((size, -(-width // _TOGETHER) * _TOGETHER))
    padded[:, :width] = columns
    product, total = np.zeros(padded.shape), np.zeros(padded.shape[1])
    matrix = rows.indptr, rows.indices, rows.data
    compiled(*matrix, padded, mean @ padded, product, total, start, stop)
    return product[:, :width], total[:width]


def _compiled_pays(n_entries: int) -> bool:
    least = _WORTH_SHARING if "numba" in sys.modules else _WORTH_STARTING
    return n_entries >= least and _compiled() is not None


@cache
def _compiled() -> Callable[..., None] | None:
    try:
        from numba import njit
    except ImportError:
        return None
    compiled: Callable[..., None] = njit(cache=True, nogil=True)(_multiply)
    return compiled


def _multiply(  # type: ignore[no-untyped-def]
    indptr, indices, values, columns, along_mean, product, total, start, stop
):
    """Written so that numba can compile it.

    With unsigned numbers, for those that could be negative would be checked at every entry, and
    four sums by name, for these are kept in registers.
    """
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    for i in range(np.uint64(start), np.uint64(stop)):
        first, last = np.uint64(indptr[i]), np.uint64(indptr[i + one])
        for j in range(np.uint64(0), np.uint64(len(total)), np.uint64(4)):
            a, b = -along_mean[j], -along_mean[j + one]
            c, d = -along_mean[j + two], -along_mean[j + three]
            for p in range(first, last):
                at, value = np.uint64(indices[p]), values[p]
                a += value * columns[at, j]
                b += value * columns[at, j + one]
                c += value * columns[at, j + two]
                d += value * columns[at, j + three]
            total[j] += a
            total[j + one] += b
            total[j + two] += c
            total[j + three] += d
            for p in range(first, last):
                at, value = np.uint64(indices[p]), values[p]
                product[at, j] += value * a
                product[at, j + one] += value * b
                product[at, j + two] += value * c
                product[at, j + three] += value * d
