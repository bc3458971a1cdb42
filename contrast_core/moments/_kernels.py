"""Products of all pairs of columns of a sparse matrix, by a compiled loop or by SciPy.

Problem: SciPy's product of two sparse matrices stores every intermediate result, and cannot treat
columns with many entries as dense in the same pass. A compiled loop over the entries has neither
drawback, and SciPy takes up to 2.3 times as long as the loop. The loop is used if numba is
installed and there are enough entries to make up for the time that numba takes to start. Otherwise
SciPy computes the same products.

The loop is plain Python that numba can compile. Indices are unsigned integers, because numba
would check at every entry whether a signed index is negative. Other products are left to SciPy,
which is about as fast as compiled loops for products of sparse rows with a few dense columns and
for products of sparse rows with each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from scipy.sparse import diags_array

from contrast_core._validation import FloatArray
from contrast_core.rows import ELEMENTS

# Smallest number of entries for which compiled code is faster, if numba is loaded already.
_WORTH_COMPILING = 2**16
# Loading numba takes a second, so it is loaded only when the matrices of all calls together have
# had this many entries.
_WORTH_STARTING = 2**22
_BLOCK = 2048  # number of rows whose dense columns and entries fit into the processor's cache
_MOST_FEATURES = 2**16  # largest number of features that 16-bit indices can address
_entries_so_far = [0]  # number of entries in all calls before numba was loaded


def compiled_pays(n_entries: int) -> bool:
    """Return whether compiled code is available and faster for this number of entries.

    A process that gets many small blocks, such as the worker of a cluster, also gains from numba.
    Therefore the entries of all calls are added up until numba is loaded.
    """
    if "numba" not in sys.modules:
        _entries_so_far[0] += n_entries
        if _entries_so_far[0] < _WORTH_STARTING:
            return False
    return n_entries >= _WORTH_COMPILING and _numba() is not None


@cache
def _numba() -> ModuleType | None:
    try:
        import numba
    except ImportError:
        return None
    return numba


@cache
def _compiled() -> Callable[..., Any]:
    numba: Any = _numba()
    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True, fastmath={"contract"})(
        _add_rows
    )
    return compiled


def covariance_parts(
    rows: Any, dense: Any, others: Any, centres: FloatArray, root_weights: Any, codes: Any
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the products of all pairs of columns of a CSR matrix.

    Parameters
    ----------
    rows : CSR matrix of shape (n, n_features)
        The rows.
    dense, others : ndarray of shape (m,) and (t,)
        Indices of the columns that are treated as dense, and of all other columns. Only the dense
        columns are centred.
    centres : ndarray of shape (G, m)
        Values that are subtracted from the dense columns, for each group of rows.
    root_weights : ndarray of shape (n,) or None
        Square roots of the rows' weights.
    codes : ndarray of shape (n,) or None
        The group of each row.

    Returns
    -------
    ndarrays of shape (m, m), (t, m) and (t, t)
        Products of the dense columns with each other, of the other columns with the dense columns,
        and of the other columns with each other. In the two symmetric matrices, only the upper
        triangle is filled.
    """
    pays = rows.shape[1] <= _MOST_FEATURES and compiled_pays(rows.nnz)
    return (_by_numba if pays else _by_scipy)(rows, dense, others, centres, root_weights, codes)


def _by_scipy(
    rows: Any, dense: Any, others: Any, centres: FloatArray, root_weights: Any, codes: Any
) -> tuple[FloatArray, FloatArray, FloatArray]:
    dense_part, other_part = rows[:, dense], rows[:, others].astype(np.float64)
    if root_weights is not None:
        other_part = diags_array(root_weights, format="csr") @ other_part
    dense_products = np.zeros((len(dense),) * 2)
    cross_products = np.zeros((len(others), len(dense)))
    step = max(1, ELEMENTS // max(1, len(dense)))
    for start in range(0, rows.shape[0], step):
        some = slice(start, start + step)
        block = dense_part[some].toarray()
        block = block - (centres[0] if codes is None else centres[codes[some]])
        if root_weights is not None:
            block *= root_weights[some, None]
        dense_products += block.T @ block
        cross_products += other_part[some].T @ block
    return dense_products, cross_products, (other_part.T @ other_part).toarray()


def _by_numba(
    rows: Any, dense: Any, others: Any, centres: FloatArray, root_weights: Any, codes: Any
) -> tuple[FloatArray, FloatArray, FloatArray]:
    add_rows = _compiled()
    n_rows, n_features = rows.shape
    rows = rows if rows.has_sorted_indices else rows.sorted_indices()
    place = np.empty(n_features, dtype=np.int32)
    place[dense], place[others] = np.arange(len(dense)), -1 - np.arange(len(others))
    values = rows.data if rows.dtype in (np.float32, np.float64) else rows.data.astype(np.float64)
    # Without weights, values are stored in their own precision. The product of a value and the root
    # of a weight is stored in float64, because it may not be exact in float32.
    kept_as = values.dtype if root_weights is None else np.float64
    root_weights = np.ones(n_rows) if root_weights is None else root_weights
    codes = np.zeros(n_rows, dtype=np.intp) if codes is None else codes
    dense_products = np.zeros((len(dense),) * 2)
    cross_products = np.zeros((len(others), len(dense)))
    other_products = np.zeros((len(others),) * 2)
    block = np.empty((min(_BLOCK, n_rows), len(dense)))
    for first in range(0, n_rows, _BLOCK):
        last = min(first + _BLOCK, n_rows)
        kept = np.empty(rows.indptr[last] - rows.indptr[first], dtype=kept_as)
        part = block[: last - first]
        add_rows(
            *(rows.indptr, rows.indices, values, root_weights, codes, centres, place),
            *(first, kept, part, cross_products, other_products),
        )
        dense_products += part.T @ part
    return dense_products, cross_products, other_products


def _add_rows(  # type: ignore[no-untyped-def]
    indptr,
    indices,
    values,
    root_weights,
    codes,
    centres,
    place,
    first,
    kept,
    block,
    cross_products,
    other_products,
):
    """Write the centred dense columns of some rows to `block`, and add products of other columns.

    The products of the other columns with the dense columns are added to `cross_products`, and
    the products of the other columns with each other to `other_products`. The rows begin at row
    `first`. `place` holds the position of each feature: p >= 0 if it is dense column p, and -1 - p
    if it is column p of the others. `kept` is a buffer for the entries of the other columns.
    """
    n_rows, n_dense = block.shape
    column = np.empty(len(kept), np.uint16)
    ends, reached = np.empty(n_rows, np.uint32), np.empty(n_rows, np.uint32)
    n_kept = 0
    for i in range(n_rows):
        r = first + i
        reached[i] = n_kept
        weight = root_weights[r]
        for j in range(n_dense):
            block[i, j] = -weight * centres[codes[r], j]
        for entry in range(np.uint64(indptr[r]), np.uint64(indptr[r + 1])):
            value, at = weight * values[entry], place[np.uint64(indices[entry])]
            if at >= 0:
                block[i, at] += value
            else:
                column[n_kept], kept[n_kept] = -1 - at, value
                n_kept += 1
        ends[i] = n_kept
        centred = block[i]
        for other in range(np.uint64(reached[i]), np.uint64(n_kept)):
            products, value = cross_products[np.uint64(column[other])], np.float64(kept[other])
            for j in range(n_dense):
                products[j] += value * centred[j]

    # The products of the other columns with each other are computed for bands of 64 columns. The
    # products of one band with all later columns fit into the processor's cache.
    for band in range(64, len(other_products) + 64, 64):
        for i in range(n_rows):
            p, end = np.uint64(reached[i]), np.uint64(ends[i])
            while p < end and column[p] < band:
                products, value = other_products[np.uint64(column[p])], np.float64(kept[p])
                for q in range(p, end):
                    products[np.uint64(column[q])] += value * kept[q]
                p = p + np.uint64(1)
            reached[i] = p
