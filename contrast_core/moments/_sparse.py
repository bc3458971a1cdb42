"""Products of sparse rows with each other, and sums of their columns.

Problem: multiplying only the stored entries of sparse rows takes far fewer multiplications than
multiplying dense rows, but each of them takes longer. Features are therefore treated as sparse or
as dense by the share of rows in which they are stored: of the products of two features that are
stored in shares a and b of the rows, a share ab is not zero. Features that are stored in most rows
are also centred before they are multiplied, because subtracting a large mean afterwards would cost
digits.
"""

from __future__ import annotations

from concurrent.futures import Executor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from contrast_core._validation import FloatArray

BoolArray = NDArray[np.bool_]

# Measured multiplications per nanosecond of one thread; only their ratios matter.
_DENSE, _SPARSE = 65.0, 0.5  # both multiply only one triangle
# Columns that are stored in a larger share of the rows are centred before they are multiplied. The
# others need not be: the square of their mean is at most this share of their mean square, so that
# subtracting it afterwards costs no digits.
_FULLEST = 0.5
_CACHED_ENTRIES = 2**16
_PARTS_PER_THREAD = 16  # SciPy holds the product of a part twice


def counts_of(rows: Any, codes: Any, n_groups: int) -> tuple[NDArray[Any], FloatArray]:
    """Count the rows of each group, and the stored entries of each feature in each group."""
    if codes is None:
        return np.array([rows.shape[0]]), column_sums(rows, None)[None]
    there = csr_array((np.ones(rows.nnz), rows.indices, rows.indptr), shape=rows.shape)
    return group_sums(there, None, codes, n_groups)


def well_filled(in_group: NDArray[Any], held: FloatArray) -> BoolArray:
    """Return which columns must be centred first, (n_features,), from the result of `counts_of`."""
    return np.asarray((held > _FULLEST * in_group[:, None]).any(axis=0))


def as_float64(rows: Any) -> Any:
    """Return the sparse matrix with float64 values; indices are shared."""
    if rows.dtype == np.float64:
        return rows
    values = rows.data.astype(np.float64)
    return type(rows)((values, rows.indices, rows.indptr), shape=rows.shape)


def column_sums(rows: Any, values: Any) -> FloatArray:
    """Return the column sums of CSR rows with these values; without values, counts of entries."""
    sums = np.zeros(rows.shape[1])
    for start in range(0, rows.nnz, _CACHED_ENTRIES):  # each part is converted in the cache
        part = slice(start, start + _CACHED_ENTRIES)
        weights = None if values is None else values[part]
        sums += np.bincount(rows.indices[part], weights, rows.shape[1])
    return sums


def group_sums(
    rows: Any, weights: Any, codes: Any, n_groups: int
) -> tuple[NDArray[Any], FloatArray]:
    """Return the total weight of each group, (G,), and the weighted sums of rows, (G, n_features).

    Without weights each row counts as one, and without codes all rows are one group.
    """
    n = rows.shape[0]
    if codes is None:
        total = np.array([n if weights is None else weights.sum()])
        if not issparse(rows):
            sums = rows.sum(axis=0, dtype=np.float64) if weights is None else weights @ rows
            return total, np.asarray(sums[None])
        # Not rows.sum(): scipy adds float32 values up in float32, whatever dtype is asked for.
        values = (
            rows.data if weights is None else rows.data * np.repeat(weights, np.diff(rows.indptr))
        )
        return total, column_sums(rows, values)[None]
    each = np.ones(n) if weights is None else weights
    of_group = csr_array((each, (codes, np.arange(n))), shape=(n_groups, n))
    sums = of_group @ rows
    return (
        np.asarray(np.bincount(codes, weights, n_groups)),
        np.asarray(sums.toarray() if issparse(sums) else sums, dtype=np.float64),
    )


def sparse_gram(
    rows: Any, filled: BoolArray, pool: Executor | None = None, n_threads: int = 1
) -> FloatArray:
    """Return products of CSR rows with each other over the features that are not `filled`.

    Parameters
    ----------
    rows : CSR matrix of shape (n, n_features)
        Values of float64 in canonical format: sorted, without duplicate entries.
    filled : ndarray of bool of shape (n_features,)
        Features that are left out.
    pool : Executor, optional
        Threads that share the work.
    n_threads : int, default=1
        Number of threads.

    Returns
    -------
    ndarray of shape (n, n)
        In Fortran order; the upper triangle is filled.
    """
    n = rows.shape[0]
    thin = rows[:, np.flatnonzero(~filled)] if filled.any() else rows
    by_feature = thin.tocsc()
    gram = np.zeros((n, n))  # only the lower triangle is filled here

    def fill(ends: tuple[int, int]) -> None:
        first, last = ends
        gram[first:last, :last] = (thin[first:last] @ by_feature.T[:, :last]).toarray()

    n_parts = _PARTS_PER_THREAD * max(n_threads, 1)
    ends = (n * np.sqrt(np.linspace(0, 1, n_parts + 1))).round().astype(int).tolist()
    list((map if pool is None else pool.map)(fill, pairwise(ends)))
    return gram.T


def filled_features(rows: Any, codes: Any, n_groups: int) -> BoolArray:
    """Return the features that are better treated as dense in products of rows."""
    in_group, in_feature = counts_of(rows, codes, n_groups)
    counts = in_feature.sum(axis=0)
    most = rows.shape[0] * min(_FULLEST, (_SPARSE / _DENSE) ** 0.5)
    return np.asarray((counts > most) | well_filled(in_group, in_feature))
