"""Covariance of sparse rows, in which columns with many entries are treated as dense.

Problem: the product of two sparse columns with fractions a and b of nonzero entries needs only
about a fraction ab of the multiplications of a dense product, but BLAS does many more
multiplications per second. Therefore each column is treated as sparse or as dense, whichever takes
less time. In counts of genes, for example, few columns hold most of the entries. The covariance is
the same up to rounding, whichever columns are treated as dense.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.moments._kernels import compiled_pays, covariance_parts
from contrast_core.moments._moments import in_cache
from contrast_core.moments._sparse import BoolArray, counts_of, group_sums, well_filled

# Measured multiplications per nanosecond on one thread: for products of dense columns with each
# other, of sparse columns with dense columns, and of sparse columns with each other. Only the
# ratios of these numbers matter.
_SCIPY, _NUMBA = (65.0, 3.0, 0.33), (65.0, 11.0, 3.0)


def filled_columns(rows: Any, codes: Any = None, n_groups: int = 1) -> BoolArray:
    """Return a mask of the columns of CSR rows that are treated as dense, (n_features,).

    They include all columns that are well filled in at least one group (see `well_filled`).
    """
    n_rows, n_features = rows.shape
    in_group, held_in_group = counts_of(rows, codes, n_groups)
    counts, full = held_in_group.sum(axis=0), well_filled(in_group, held_in_group)
    order = np.lexsort((-counts, ~full))
    held = np.concatenate([[0.0], np.cumsum(counts[order])])
    n_dense = np.arange(n_features + 1)
    others = rows.nnz - held
    of_dense, of_mixed, of_sparse = _NUMBA if compiled_pays(rows.nnz) else _SCIPY
    nanoseconds = (
        n_rows * n_dense**2.0 / of_dense
        + others * n_dense / of_mixed
        + others**2 / (n_rows * of_sparse)
        # Cost of joining the parts.
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
    """Return the groups' weights (G,), their means (G, D) and the covariance about them, (D, D).

    The columns in the mask `filled` are treated as dense. Only the upper triangle of the covariance
    is filled.
    """
    n_features = rows.shape[1]
    dense, others = np.flatnonzero(filled), np.flatnonzero(~filled)
    total, sums = group_sums(rows, weights, codes, n_groups)
    means = sums / np.maximum(total, np.finfo(np.float64).tiny)[:, None]
    spread = None if weights is None else np.sqrt(weights)
    among, across, square = covariance_parts(rows, dense, others, means[:, dense], spread, codes)
    scaled = np.sqrt(total)[:, None] * means[:, others]
    for some in in_cache(square):
        square[some] -= scaled[:, some].T @ scaled
    within = np.empty((n_features, n_features))
    within[np.ix_(dense, dense)], within[np.ix_(others, others)] = among, square
    within[np.ix_(others, dense)], within[np.ix_(dense, others)] = across, across.T
    within /= total.sum()
    return total, means, within
