"""Covariance of sparse rows: well filled columns by BLAS, the others entry by entry.

A pair of columns that are a and b of the rows full takes a part ab of the multiplications that it
takes when dense. BLAS does many more of them in a second, so each column goes the way that costs
less: in counts of genes few columns hold most of the entries.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import diags_array

from contrast_core._validation import FloatArray
from contrast_core.linalg import add_products, mirror_upper
from contrast_core.moments._sparse import BoolArray, counts_of, group_sums, well_filled
from contrast_core.rows import ELEMENTS


class _Rates(NamedTuple):
    """Multiplications in a nanosecond of one thread, as measured; only their ratios matter.

    Of dense columns with each other, of others with these, and of others with each other.
    """

    dense: float
    mixed: float
    sparse: float


_SCIPY, _NUMBA = _Rates(65.0, 3.0, 0.33), _Rates(65.0, 11.0, 3.0)
_BLOCK = 2048  # rows, whose dense columns and entries are read again from the processor's cache
_MOST_FEATURES = 2**16  # that a half word tells apart
_WORTH_COMPILING, _WORTH_STARTING = 2**16, 2**22  # entries, where numba is in use and where not


class _Parts(NamedTuple):
    """Products of the dense columns (m, m), of the others with them (t, m) and among them (t, t).

    Of symmetric ones the upper triangle.
    """

    among: FloatArray
    across: FloatArray
    square: FloatArray


def compiled_covariance_pays(n_entries: int) -> bool:
    """Whether so many entries are multiplied in machine code."""
    least = _WORTH_COMPILING if "numba" in sys.modules else _WORTH_STARTING
    return n_entries >= least and _compiled() is not None


def filled_columns(rows: Any, codes: Any = None, n_groups: int = 1) -> BoolArray:
    """Columns of CSR rows that are better treated as dense, (n_features,).

    All of those that are well filled in one of the groups, about whose means they are taken.
    """
    n_rows, n_features = rows.shape
    in_group, held_in_group = counts_of(rows, codes, n_groups)
    counts, full = held_in_group.sum(axis=0), well_filled(in_group, held_in_group)
    order = np.lexsort((-counts, ~full))
    held = np.concatenate([[0.0], np.cumsum(counts[order])])
    n_dense = np.arange(n_features + 1)
    others = rows.nnz - held
    rates = _NUMBA if compiled_covariance_pays(rows.nnz) else _SCIPY
    nanoseconds = (
        n_rows * n_dense**2.0 / rates.dense
        + others * n_dense / rates.mixed
        + others**2 / (n_rows * rates.sparse)
        # Putting the parts together.
        + n_features**2.0 * (n_dense < n_features)
    )
    least = int(full.sum())
    chosen = least + int(np.argmin(nanoseconds[least:]))
    filled = np.zeros(n_features, dtype=np.bool_)
    filled[order[:chosen]] = True
    return filled


def sparse_within(
    rows: Any, filled: BoolArray, weights: Any, codes: Any, n_groups: int
) -> tuple[NDArray[Any], FloatArray, FloatArray]:
    """Weights (G,), means (G, D) and covariance (D, D) about the groups' means of CSR rows.

    `filled` columns as dense ones.
    """
    n_features = rows.shape[1]
    dense, others = np.flatnonzero(filled), np.flatnonzero(~filled)
    total, sums = group_sums(rows, weights, codes, n_groups)
    means = sums / np.maximum(total, np.finfo(np.float64).tiny)[:, None]
    spread = None if weights is None else np.sqrt(weights)
    compiled = n_features <= _MOST_FEATURES and compiled_covariance_pays(rows.nnz)
    multiply = _by_numba if compiled else _by_scipy
    among, across, square = multiply(rows, dense, others, means[:, dense], spread, codes)
    scaled = np.sqrt(total)[:, None] * means[:, others]
    square -= scaled.T @ scaled  # symmetric to the last bit
    joined = np.zeros((n_features, n_features))
    m = len(dense)
    joined[:m, :m], joined[m:, m:] = among, square
    joined[:m, m:] = across.T
    joined /= total.sum()
    mirror_upper(joined)
    place = np.empty(n_features, dtype=np.intp)
    place[dense], place[others] = np.arange(m), np.arange(m, n_features)
    return total, means, joined[np.ix_(place, place)]


def _by_scipy(
    rows: Any, dense: Any, others: Any, centres: FloatArray, spread: Any, codes: Any
) -> _Parts:
    well, thin = rows[:, dense], rows[:, others].astype(np.float64)
    if spread is not None:
        thin = diags_array(spread, format="csr") @ thin
    among, across = np.zeros((len(dense),) * 2), np.zeros((len(others), len(dense)))
    step = max(1, ELEMENTS // max(1, len(dense)))
    for start in range(0, rows.shape[0], step):
        some = slice(start, start + step)
        block = well[some].toarray() - (centres[0] if codes is None else centres[codes[some]])
        if spread is not None:
            block *= spread[some, None]
        among += block.T @ block
        across += thin[some].T @ block
    return _Parts(among, across, (thin.T @ thin).toarray())


def _by_numba(
    rows: Any, dense: Any, others: Any, centres: FloatArray, spread: Any, codes: Any
) -> _Parts:
    compiled = _compiled()
    assert compiled is not None
    n_rows, n_features = rows.shape
    rows = rows if rows.has_sorted_indices else rows.sorted_indices()
    place = np.empty(n_features, dtype=np.int32)
    place[dense], place[others] = np.arange(len(dense)), -1 - np.arange(len(others))
    values = rows.data if rows.dtype in (np.float32, np.float64) else rows.data.astype(np.float64)
    # In the values' own precision, where that is exact.
    kept_as = values.dtype if spread is None else np.float64
    spread = np.ones(n_rows) if spread is None else spread
    codes = np.zeros(n_rows, dtype=np.intp) if codes is None else codes
    among, across = np.zeros((len(dense),) * 2), np.zeros((len(others), len(dense)))
    square = np.zeros((len(others),) * 2)
    block = np.empty((min(_BLOCK, n_rows), len(dense)))
    for first in range(0, n_rows, _BLOCK):
        last = min(first + _BLOCK, n_rows)
        kept = np.empty(rows.indptr[last] - rows.indptr[first], dtype=kept_as)
        part = block[: last - first]
        compiled(
            *(rows.indptr, rows.indices, values, spread, codes, centres, place),
            *(first, kept, part, across, square),
        )
        add_products(part, among)
    return _Parts(among, across, square)


@cache
def _compiled() -> Callable[..., None] | None:
    try:
        from numba import njit
    except ImportError:
        return None
    compiled: Callable[..., None] = njit(cache=True, nogil=True, fastmath={"contract"})(_add_rows)
    return compiled


def _add_rows(  # type: ignore[no-untyped-def]
    indptr, indices, values, spread, codes, centres, place, first, kept, block, across, square
):
    """Centre a block's dense columns, and add up its other columns' products.

    Written so that numba can compile it: see `_sparse_products._multiply` about unsigned numbers.
    """
    n_rows, n_dense = block.shape
    n_others = len(square)
    column, row = np.empty(len(kept), np.uint16), np.empty(len(kept), np.uint16)
    ends, reached = np.empty(n_rows, np.uint32), np.empty(n_rows, np.uint32)
    starts = np.zeros(n_others + 1, np.uint32)
    n_kept = 0
    for i in range(n_rows):
        r = first + i
        reached[i] = n_kept
        weight = spread[r]
        for j in range(n_dense):
            block[i, j] = -weight * centres[codes[r], j]
        for entry in range(np.uint64(indptr[r]), np.uint64(indptr[r + 1])):
            value, at = weight * values[entry], place[np.uint64(indices[entry])]
            if at >= 0:
                block[i, at] += value
            else:
                at = -1 - at
                column[n_kept], row[n_kept], kept[n_kept] = at, i, value
                starts[at + 1] += np.uint32(1)
                n_kept += 1
        ends[i] = n_kept

    # Of the other columns with each other: those of a band, whose products with all that follow
    # stay in the processor's cache, row by row.
    for band in range(64, n_others + 64, 64):
        for i in range(n_rows):
            p, end = np.uint64(reached[i]), np.uint64(ends[i])
            while p < end and column[p] < band:
                products, value = square[np.uint64(column[p])], np.float64(kept[p])
                for q in range(p, end):
                    products[np.uint64(column[q])] += value * kept[q]
                p = p + np.uint64(1)
            reached[i] = p

    # With the dense ones: column by column, eight of its rows at a time.
    order = np.empty(n_kept, np.uint32)
    for at in range(n_others):
        starts[at + 1] += starts[at]
    for entry in range(np.uint64(n_kept)):
        of_column = np.uint64(column[entry])
        order[np.uint64(starts[of_column])] = entry
        starts[of_column] += np.uint32(1)
    t, one, eight = np.uint64(0), np.uint64(1), np.uint64(8)
    for i in range(n_others):
        products, stop = across[i], np.uint64(starts[i])
        while t + eight <= stop:
            a, b, c, d = order[t], order[t + 1], order[t + 2], order[t + 3]
            e, f, g, h = order[t + 4], order[t + 5], order[t + 6], order[t + 7]
            of_a, of_b, of_c, of_d = block[row[a]], block[row[b]], block[row[c]], block[row[d]]
            of_e, of_f, of_g, of_h = block[row[e]], block[row[f]], block[row[g]], block[row[h]]
            va, vb, vc, vd = kept[a], kept[b], kept[c], kept[d]
            ve, vf, vg, vh = kept[e], kept[f], kept[g], kept[h]
            for j in range(n_dense):
                products[j] += (
                    va * of_a[j] + vb * of_b[j] + vc * of_c[j] + vd * of_d[j]
                    + ve * of_e[j] + vf * of_f[j] + vg * of_g[j] + vh * of_h[j]
                )  # fmt: skip
            t = t + eight
        while t < stop:
            value, of_row = kept[order[t]], block[row[order[t]]]
            for j in range(n_dense):
                products[j] += value * of_row[j]
            t = t + one
