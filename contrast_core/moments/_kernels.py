"""Compiled loops over the entries of sparse rows, and the same computations by SciPy.

Three loops are compiled:

- `covariance_parts` computes the products of all pairs of columns. SciPy's product of two sparse
  matrices stores every intermediate result, and cannot treat columns with many entries as dense in
  the same pass. It takes up to 2.3 times as long.
- `scatter_product` multiplies the scatter matrix of the rows with a few dense columns. The loop
  uses the scores of a row at once, while its entries are still in the processor's cache, and adds
  up eight columns in registers. SciPy makes two passes over the entries and takes two to three
  times as long.
- `add_inner_products` computes the inner products of all pairs of rows. SciPy finds the positions
  of all nonzero products first, and takes two to three times as long.

The loops are used if numba is installed and there are enough entries to make up for the time that
numba takes to start. Otherwise SciPy computes the same results. The loops are plain Python that
numba can compile. Indices are unsigned integers, because numba would check at every entry whether
a signed index is negative.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from threading import Lock
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
_FEATURES = 1000  # number of sparse features whose entries fit into the processor's cache
_MOST_FEATURES = 2**16  # largest number of features that 16-bit indices can address
_entries_so_far = [0.0]  # number of entries in all calls before numba was loaded
# One product with a few columns gains this share of the time that one covariance gains.
_PRODUCT = 1 / 16
_compiling = Lock()


def compiled_pays(n_entries: int, gain: float = 1.0) -> bool:
    """Return whether compiled code is available and faster for this number of entries.

    A process that gets many small blocks, such as the worker of a cluster, also gains from numba.
    Therefore the entries of all calls, multiplied by the `gain` of each call, are added up until
    numba is loaded.
    """
    if "numba" not in sys.modules:
        _entries_so_far[0] += gain * n_entries
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
def _compiled(loop: Callable[..., None]) -> Any:
    numba: Any = _numba()
    return numba.njit(cache=True, nogil=True, fastmath={"contract"})(loop)


def _run(loop: Callable[..., None], *arguments: Any) -> None:
    """Run a loop, compiled for the types of these arguments.

    By default, numba does not let LLVM combine neighbouring statements into vector instructions.
    With them, `_add_products` takes half the time.
    """
    numba: Any = _numba()
    compiled = _compiled(loop)
    with _compiling:
        before, numba.config.SLP_VECTORIZE = numba.config.SLP_VECTORIZE, 1
        try:
            compiled.compile(tuple(map(numba.typeof, arguments)))
        finally:
            numba.config.SLP_VECTORIZE = before
    compiled(*arguments)


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
        _run(
            *(_add_rows, rows.indptr, rows.indices, values, root_weights, codes, centres, place),
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


def scatter_product(
    rows: Any, columns: FloatArray, along_mean: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return ``rows.T @ scores`` and the sums of the scores ``rows @ columns - along_mean``.

    Parameters
    ----------
    rows : CSR matrix of shape (n, n_features)
        The rows, as float64 values. They are not centred.
    columns : ndarray of shape (n_features, b)
        The columns.
    along_mean : ndarray of shape (b,)
        Products of the mean with the columns.

    Returns
    -------
    ndarrays of shape (n_features, b) and (b,)
    """
    if not compiled_pays(rows.nnz, _PRODUCT):
        scores = rows @ columns - along_mean
        return rows.T @ scores, scores.sum(axis=0)
    width = columns.shape[1]
    padding = -width % 8
    columns, along_mean = np.pad(columns, ((0, 0), (0, padding))), np.pad(along_mean, (0, padding))
    product, sums = np.empty(columns.shape), np.zeros(len(along_mean))
    for start in range(0, width, 8):
        some = slice(start, start + 8)
        eight = np.zeros((len(columns), 8))
        _run(
            *(_add_products, rows.indptr, rows.indices, rows.data),
            *(np.ascontiguousarray(columns[:, some]), along_mean[some], eight, sums[some]),
        )
        product[:, some] = eight
    return product[:, :width], sums[:width]


def _add_products(  # type: ignore[no-untyped-def]
    indptr, indices, values, columns, along_mean, product, sums
):
    """Add the product and the sums of `scatter_product` for eight columns.

    The eight sums have names of their own, because only then they are kept in registers.
    """
    for row in range(len(indptr) - 1):
        entries = range(np.uint64(indptr[row]), np.uint64(indptr[row + 1]))
        a, b, c, d = -along_mean[0], -along_mean[1], -along_mean[2], -along_mean[3]
        e, f, g, h = -along_mean[4], -along_mean[5], -along_mean[6], -along_mean[7]
        for entry in entries:
            x, v = values[entry], columns[np.uint64(indices[entry])]
            a, b, c, d = a + x * v[0], b + x * v[1], c + x * v[2], d + x * v[3]
            e, f, g, h = e + x * v[4], f + x * v[5], g + x * v[6], h + x * v[7]
        scores = a, b, c, d, e, f, g, h
        for j in range(8):
            sums[j] += scores[j]
        for entry in entries:
            x, to = values[entry], product[np.uint64(indices[entry])]
            for j in range(8):
                to[j] += x * scores[j]


def add_inner_products(rows: Any, by_feature: Any, first: int, gram: FloatArray) -> None:
    """Fill part of the lower triangle of a Gram matrix, the inner products of all pairs of rows.

    Parameters
    ----------
    rows : CSR matrix of shape (n, n_features)
        The rows, as float64 values, with sorted indices.
    by_feature : CSC matrix of shape (n, n_features)
        The same rows, with sorted indices as well.
    first : int
        Index of the first row of this part.
    gram : ndarray of shape (number of rows of this part, n)
        The part of the Gram matrix, which holds zeros and is filled.
    """
    last = first + len(gram)
    if not compiled_pays(rows.nnz):
        gram[:, :last] = (rows[first:last] @ by_feature.T[:, :last]).toarray()
        return
    _run(
        *(_add_inner_products, rows.indptr, rows.indices, rows.data),
        *(by_feature.indptr, by_feature.indices, by_feature.data, first, gram),
    )


def _add_inner_products(  # type: ignore[no-untyped-def]
    indptr, indices, values, feature_ends, feature_rows, feature_values, first, gram
):
    """Add the inner products of `add_inner_products`, entry by entry.

    The features are taken in blocks, whose entries stay in the processor's cache while all rows are
    multiplied. `position` holds the next entry of each row.
    """
    position = indptr[first : first + len(gram)].astype(np.uint64)
    for block in range(0, len(feature_ends) - 1, _FEATURES):
        for i in range(len(gram)):
            row, products, entry = np.uint64(first + i), gram[i], position[i]
            end = np.uint64(indptr[row + np.uint64(1)])
            while entry < end and indices[entry] < block + _FEATURES:
                feature, value = np.uint64(indices[entry]), values[entry]
                start, stop = feature_ends[feature], feature_ends[feature + np.uint64(1)]
                for other in range(np.uint64(start), np.uint64(stop)):
                    at = np.uint64(feature_rows[other])
                    if at > row:
                        break
                    products[at] += value * feature_values[other]
                entry += np.uint64(1)
            position[i] = entry
