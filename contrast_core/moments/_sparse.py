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

from contrast_core._validation import FloatArray
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.rows import ELEMENTS, check_finite

BoolArray = NDArray[np.bool_]

# Multiplications in a nanosecond of one thread, as measured; only their ratios matter.
_DENSE, _MIXED, _SPARSE = 65.0, 3.0, 0.33
_SPARSE_GRAM, _COMPILED_GRAM = 0.5, 1.05  # of which symmetry saves half
# Fuller columns are centred before they are multiplied. For others there is no need: the square of
# the mean is at most this part of the mean square, so that subtracting it costs no digits.
_FULLEST = 0.5
_CACHED_FEATURES = 1000  # features whose entries stay in the processor's cache
_PARTS_PER_THREAD = 4


def filled_columns(rows: Any) -> BoolArray:
    """Columns of CSR rows that are better treated as dense, (n_features,)."""
    n_rows, n_features = rows.shape
    counts = np.bincount(rows.indices, minlength=n_features)
    order = np.argsort(-counts, kind="stable")
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
    least = int((counts > _FULLEST * n_rows).sum())
    chosen = least + int(np.argmin(nanoseconds[least:]))
    filled = np.zeros(n_features, dtype=np.bool_)
    filled[order[:chosen]] = True
    return filled


def sparse_mean_and_variances(rows: Any, name: str) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each feature, (n_features,) both; ValueError on NaN or infinity."""
    check_finite(rows, name)
    moments = FeatureMoments.at_once(rows)
    return moments.mean, moments.variance


def as_float64(rows: Any) -> Any:
    """The same sparse matrix with values of float64; indices are shared."""
    if rows.dtype == np.float64:
        return rows
    values = rows.data.astype(np.float64)
    return type(rows)((values, rows.indices, rows.indptr), shape=rows.shape)


def sparse_covariance(rows: Any, filled: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Mean (D,) and covariance (D, D), divisor n, of CSR rows; `filled` columns as dense ones."""
    n_rows, n_features = rows.shape
    dense, others = np.flatnonzero(filled), np.flatnonzero(~filled)
    well, thin = rows[:, dense], rows[:, others].astype(np.float64)
    mean = np.bincount(rows.indices, rows.data, n_features) / n_rows
    among, across = np.zeros((len(dense),) * 2), np.zeros((len(others), len(dense)))
    step = max(1, ELEMENTS // max(1, len(dense)))
    for start in range(0, n_rows, step):
        block = well[start : start + step].toarray() - mean[dense]
        among += block.T @ block
        across += thin[start : start + step].T @ block
    square = (thin.T @ thin).toarray()
    square -= n_rows * np.outer(mean[others], mean[others])
    covariance = np.empty((n_features, n_features))
    covariance[np.ix_(dense, dense)] = among
    covariance[np.ix_(others, dense)] = across
    covariance[np.ix_(dense, others)] = across.T
    covariance[np.ix_(others, others)] = square
    covariance /= n_rows
    return mean, covariance


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


def filled_features(counts: NDArray[np.intp], n_rows: int) -> BoolArray:
    """Features that are better treated as dense when rows are multiplied with each other."""
    rate = _SPARSE_GRAM if _compiled_gram() is None else _COMPILED_GRAM
    return np.asarray(counts > n_rows * min(_FULLEST, (rate / _DENSE) ** 0.5))


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
