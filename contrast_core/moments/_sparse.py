"""Products of sparse rows: by BLAS where columns are well filled, entry by entry where not.

A pair of columns that are a and b of the rows full takes a part ab of the multiplications that it
takes when dense. BLAS does many more of them in a second, so each column goes the way that costs
less: in counts of genes few columns hold most of the entries.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, issparse

from contrast_core._validation import FloatArray
from contrast_core.rows import ELEMENTS

BoolArray = NDArray[np.bool_]

# Multiplications in a nanosecond of one thread, as measured; only their ratios matter.
_DENSE, _MIXED, _SPARSE = 65.0, 3.0, 0.33
_SPARSE_GRAM, _COMPILED_GRAM = 0.5, 1.05  # of which symmetry saves half
# Fuller columns are centred before they are multiplied. For others there is no need: the square of
# the mean is at most this part of the mean square, so that subtracting it costs no digits.
_FULLEST = 0.5
_CACHED_FEATURES = 1000  # features whose entries stay in the processor's cache
_PARTS_PER_THREAD = 4


def filled_columns(rows: Any, codes: Any = None, n_groups: int = 1) -> BoolArray:
    """Columns of CSR rows that are better treated as dense, (n_features,).

    All of those that are well filled in one of the groups, about whose means they are taken.
    """
    n_rows, n_features = rows.shape
    in_group, held_in_group = _counts(rows, codes, n_groups)
    counts, full = held_in_group.sum(axis=0), _full(in_group, held_in_group)
    order = np.lexsort((-counts, ~full))
    held = np.concatenate([[0.0], np.cumsum(counts[order])])
    n_dense = np.arange(n_features + 1)
    others = rows.nnz - held
    nanoseconds = (
        n_rows * n_dense**2.0 / _DENSE
        + others * n_dense / _MIXED
        + others**2 / (n_rows * _SPARSE)
        # Putting the parts together.
        + n_features**2.0 * (n_dense < n_features)
    )
    least = int(full.sum())
    chosen = least + int(np.argmin(nanoseconds[least:]))
    filled = np.zeros(n_features, dtype=np.bool_)
    filled[order[:chosen]] = True
    return filled


def _counts(rows: Any, codes: Any, n_groups: int) -> tuple[NDArray[Any], FloatArray]:
    """Rows of each group, and stored entries of each of their features."""
    there = csr_array((np.ones(rows.nnz), rows.indices, rows.indptr), shape=rows.shape)
    return group_sums(there, None, codes, n_groups)


def _full(in_group: NDArray[Any], held: FloatArray) -> BoolArray:
    return np.asarray((held > _FULLEST * in_group[:, None]).any(axis=0))


def as_float64(rows: Any) -> Any:
    """The same sparse matrix with values of float64; indices are shared."""
    if rows.dtype == np.float64:
        return rows
    values = rows.data.astype(np.float64)
    return type(rows)((values, rows.indices, rows.indptr), shape=rows.shape)


def group_sums(
    rows: Any, weights: Any, codes: Any, n_groups: int
) -> tuple[NDArray[Any], FloatArray]:
    """Total weight of each group, (G,), and the weighted sum of its rows, (G, n_features).

    Of rows without weights: their number. Of rows without codes: one group.
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
        sums = np.bincount(rows.indices, values, rows.shape[1])
        return total, np.asarray(sums[None], dtype=np.float64)
    each = np.ones(n) if weights is None else weights
    of_group = csr_array((each, (codes, np.arange(n))), shape=(n_groups, n))
    sums = of_group @ rows
    return (
        np.asarray(np.bincount(codes, weights, n_groups)),
        np.asarray(sums.toarray() if issparse(sums) else sums, dtype=np.float64),
    )


def sparse_within(
    rows: Any, filled: BoolArray, weights: Any, codes: Any, n_groups: int
) -> tuple[NDArray[Any], FloatArray, FloatArray]:
    """Weights (G,), means (G, D) and covariance (D, D) about the groups' means of CSR rows.

    `filled` columns as dense ones.
    """
    n_rows, n_features = rows.shape
    dense, others = np.flatnonzero(filled), np.flatnonzero(~filled)
    well, thin = rows[:, dense], rows[:, others].astype(np.float64)
    total, sums = group_sums(rows, weights, codes, n_groups)
    means = sums / np.maximum(total, np.finfo(np.float64).tiny)[:, None]
    spread = None if weights is None else np.sqrt(weights)
    if spread is not None:
        thin = diags_array(spread, format="csr") @ thin
    among, across = np.zeros((len(dense),) * 2), np.zeros((len(others), len(dense)))
    step = max(1, ELEMENTS // max(1, len(dense)))
    for start in range(0, n_rows, step):
        some = slice(start, start + step)
        centres = means[:1] if codes is None else means[codes[some]]
        block = well[some].toarray() - centres[:, dense]
        if spread is not None:
            block *= spread[some, None]
        among += block.T @ block
        across += thin[some].T @ block
    square = (thin.T @ thin).toarray()
    scaled = np.sqrt(total)[:, None] * means[:, others]
    square -= scaled.T @ scaled  # symmetric to the last bit
    within = np.empty((n_features, n_features))
    within[np.ix_(dense, dense)] = among
    within[np.ix_(others, dense)] = across
    within[np.ix_(dense, others)] = across.T
    within[np.ix_(others, others)] = square
    within /= total.sum()
    return total, means, within


def sparse_gram(
    rows: Any, filled: BoolArray, pool: Executor | None = None, n_threads: int = 1
) -> FloatArray:
    """Products of CSR rows with each other over the features that are not `filled`.

    Parameters
    ----------
    rows : CSR matrix of shape (n, n_features)
        Of float64, in canonical format: sorted, without duplicate entries.
    filled : ndarray of bool of shape (n_features,)
        Features that are left out.
    pool : Executor, optional
        Threads that share the work.
    n_threads : int, default=1
        Their number.

    Returns
    -------
    ndarray of shape (n, n)
        In Fortran order; the upper triangle is filled.
    """
    n = rows.shape[0]
    thin = rows[:, np.flatnonzero(~filled)] if filled.any() else rows
    by_feature = thin.tocsc()
    gram = np.zeros((n, n))  # lower triangle: row i with those before it
    part = partial(_compiled_gram() or _gram_by_blocks, thin, by_feature, gram)
    n_parts = _PARTS_PER_THREAD * max(n_threads, 1)
    ends = (n * np.sqrt(np.linspace(0, 1, n_parts + 1))).round().astype(int).tolist()
    for _ in (pool.map if pool is not None else map)(lambda ends: part(*ends), pairwise(ends)):
        pass
    return gram.T


def filled_features(rows: Any, codes: Any, n_groups: int) -> BoolArray:
    """Features that are better treated as dense when rows are multiplied with each other."""
    rate = _SPARSE_GRAM if _compiled_gram() is None else _COMPILED_GRAM
    in_group, held = _counts(rows, codes, n_groups)
    most = rows.shape[0] * min(_FULLEST, (rate / _DENSE) ** 0.5)
    return np.asarray((held.sum(axis=0) > most) | _full(in_group, held))


def _gram_by_blocks(rows: Any, by_feature: Any, gram: FloatArray, first: int, last: int) -> None:
    gram[first:last, :last] = (rows[first:last] @ by_feature.T[:, :last]).toarray()


@cache
def _compiled_gram() -> Callable[..., None] | None:
    """`_gram_by_blocks` as machine code, twice as fast, where numba is installed."""
    try:
        from numba import njit
    except ImportError:
        return None
    compiled: Any = njit(cache=True, nogil=True)(_gram_entries)

    def multiply(rows: Any, by_feature: Any, gram: FloatArray, first: int, last: int) -> None:
        before = rows.indices[: rows.indptr[first]]
        compiled(
            *(rows.indptr, rows.indices, rows.data),
            *(by_feature.indptr, by_feature.indices, by_feature.data),
            by_feature.indptr[:-1] + np.bincount(before, minlength=rows.shape[1]),
            rows.indptr[first:last].copy(),
            gram,
            first,
        )

    return multiply


def _gram_entries(  # type: ignore[no-untyped-def]
    indptr, indices, data, feature_indptr, row_of, value_of, reached, position, gram, first
):
    """Rows of the lower triangle; written so that numba can compile it.

    `reached` is how far each feature's entries lie in rows up to the current one, `position` how
    far each row has been read: features are taken in blocks whose entries stay in the cache.
    """
    n_features = len(feature_indptr) - 1
    for block in range(0, n_features, _CACHED_FEATURES):
        for i in range(len(position)):
            products = gram[first + i]
            p = position[i]
            while p < indptr[first + i + 1] and indices[p] < block + _CACHED_FEATURES:
                feature, value = indices[p], data[p]
                reached[feature] += 1
                for q in range(feature_indptr[feature], reached[feature]):
                    products[row_of[q]] += value * value_of[q]
                p += 1
            position[i] = p
