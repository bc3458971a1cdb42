"""Covariance of sparse rows: well filled columns by BLAS, the others entry by entry.

A pair of columns that are a and b of the rows full takes a part ab of the multiplications that it
takes when dense. BLAS does many more of them in a second, so each column goes the way that costs
less: in counts of genes few columns hold most of the entries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.linalg import mirror_upper
from contrast_core.moments._kernels import compiled_pays, covariance_parts
from contrast_core.moments._sparse import BoolArray, counts_of, group_sums, well_filled

# Multiplications in a nanosecond of one thread, as measured; only their ratios matter: of dense
# columns with each other, of others with these, and of others with each other.
_SCIPY, _NUMBA = (65.0, 3.0, 0.33), (65.0, 11.0, 3.0)


def filled_columns(rows: Any, codes: Any = None, n_groups: int = 1) -> BoolArray:
    """Return the columns of CSR rows that are better treated as dense, (n_features,).

    All of those that are well filled in one of the groups, about whose means they are taken.
    """
    n_rows, n_features = rows.shape
    in_group, held_in_group = counts_of(rows, codes, n_groups)
    counts, full = held_in_group.sum(axis=0), well_filled(in_group, held_in_group)
    order = np.lexsort((-counts, ~full))
    held = np.concatenate([[0.0], np.cumsum(counts[order])])
    n_dense = np.arange(n_features + 1)
    others = rows.nnz - held
    of_dense, of_mixed, of_sparse = _NUMBA if compiled_pays(rows.nnz, 2**22) else _SCIPY
    nanoseconds = (
        n_rows * n_dense**2.0 / of_dense
        + others * n_dense / of_mixed
        + others**2 / (n_rows * of_sparse)
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
    """Return weights (G,), means (G, D) and the covariance about the groups' means, (D, D).

    `filled` columns as dense ones.
    """
    n_features = rows.shape[1]
    dense, others = np.flatnonzero(filled), np.flatnonzero(~filled)
    total, sums = group_sums(rows, weights, codes, n_groups)
    means = sums / np.maximum(total, np.finfo(np.float64).tiny)[:, None]
    spread = None if weights is None else np.sqrt(weights)
    among, across, square = covariance_parts(rows, dense, others, means[:, dense], spread, codes)
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
