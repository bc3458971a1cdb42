"""Products of sparse rows with each other, and sums of their columns.

Problem: the product of sparse rows takes far fewer multiplications than the product of dense rows,
but each multiplication takes longer. If two features are stored in shares a and b of the rows, a
share of about ab of their products is not zero. Each feature is therefore treated as sparse or as
dense, depending on the share of rows in which it is stored. Features that are stored in most rows
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
from contrast_core.moments._kernels import add_inner_products

BoolArray = NDArray[np.bool_]

# Measured multiplications per nanosecond of one thread: for products of dense features, and of
# sparse features by SciPy or by the compiled loop. Only the ratios of these numbers matter.
_DENSE, _BY_SCIPY, _BY_NUMBA = 65.0, 0.5, 3.0
# Columns that are stored in a larger share of the rows are centred before they are multiplied. For
# all other columns, the squared mean is at most this share of the mean square, so subtracting the
# mean afterwards costs no digits.
_FULLEST = 0.5
_CACHED_ENTRIES = 2**16  # number of entries that fit into the processor's cache
_PARTS_PER_THREAD = 16  # parts are small because SciPy holds the product of a part twice


def filled_features(rows: Any, codes: Any, n_groups: int, *, compiled: bool = False) -> BoolArray:
    """Return a mask of the features that are treated as dense in products, (n_features,).

    `codes` holds the group number of each row, or is None if there are no groups. `compiled` says
    whether the compiled loop multiplies the other features, instead of SciPy.
    """
    there = csr_array((np.ones(rows.nnz, np.int8), rows.indices, rows.indptr), shape=rows.shape)
    in_group, held = group_sums(there, None, codes, n_groups)
    most = rows.shape[0] * ((_BY_NUMBA if compiled else _BY_SCIPY) / _DENSE) ** 0.5
    is_full = (held > _FULLEST * in_group[:, None]).any(axis=0)
    return np.asarray((held.sum(axis=0) > most) | is_full)


def as_float64(rows: Any) -> Any:
    """Return the sparse matrix with float64 values, which shares its indices with `rows`."""
    if rows.dtype == np.float64:
        return rows
    values = rows.data.astype(np.float64)
    return type(rows)((values, rows.indices, rows.indptr), shape=rows.shape)


def column_sums(rows: Any, values: Any) -> FloatArray:
    """Return the column sums of CSR rows whose stored entries are replaced by `values`."""
    sums = np.zeros(rows.shape[1])
    for start in range(0, rows.nnz, _CACHED_ENTRIES):  # each part is converted in the cache
        part = slice(start, start + _CACHED_ENTRIES)
        sums += np.bincount(rows.indices[part], values[part], rows.shape[1])
    return sums


def group_sums(
    rows: Any, weights: Any, codes: Any, n_groups: int
) -> tuple[NDArray[Any], FloatArray]:
    """Return the total weight of each group, (G,), and the weighted sums of rows, (G, n_features).

    If there are no weights, each row has weight one. If there are no codes, all rows are one group.
    """
    n = rows.shape[0]
    if codes is None:
        total = np.array([n if weights is None else weights.sum()])
        if not issparse(rows):
            sums = rows.sum(axis=0, dtype=np.float64) if weights is None else weights @ rows
            return total, np.asarray(sums[None])
        # `rows.sum()` is not used: SciPy adds up float32 values in float32, whatever the dtype is.
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
        Rows of float64 values in canonical format: sorted, without duplicate entries.
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
        add_inner_products(thin, by_feature, first, gram[first:last])

    # Row i of the lower triangle has i + 1 products, so ends at square roots give equal shares.
    n_parts = _PARTS_PER_THREAD * max(n_threads, 1)
    ends = (n * np.sqrt(np.linspace(0, 1, n_parts + 1))).round().astype(int).tolist()
    list((map if pool is None else pool.map)(fill, pairwise(ends)))
    return gram.T
