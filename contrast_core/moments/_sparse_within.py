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
from contrast_core.moments._kernels import covariance_parts
from contrast_core.moments._moments import in_cache
from contrast_core.moments._sparse import BoolArray, group_sums


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
