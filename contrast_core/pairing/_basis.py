"""Compute features and scores by which rows of different conditions can be compared."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator, svds

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_count,
    check_labels,
    check_number,
)
from contrast_core.linalg import fix_signs
from contrast_core.moments import FeatureMoments
from contrast_core.pairing._unit_scale import to_unit_scale
from contrast_core.rows import load_into_memory, rows_of

# All rows are projected on a random direction. If no row then differs from the mean of its label by
# more than this share of the largest projection, the differences are rounding errors.
_ROUNDING = 1e-12


class ScaledFeatures(NamedTuple):
    """Features scaled to unit variance, with the scales and caps that were applied.

    `matrix` is ``minimum(X, cap) * scale`` and is sparse if X was sparse. `cap` and `scale` have
    shape (n_features,).
    """

    matrix: Any
    cap: FloatArray
    scale: FloatArray


def scaled_features(X: MatrixLike, *, clip: float = 10.0) -> ScaledFeatures:
    """Divide each feature by its standard deviation and cap extremely large values.

    Features are not centred, so that sparse data stay sparse. Only values far above the mean are
    capped, because counts are skewed to the right.

    Parameters
    ----------
    X : array-like, DataFrame or sparse matrix of shape (n, n_features)
        The rows, for example of log-normalised counts.
    clip : float, default=10.0
        Largest distance of a value above the mean, in standard deviations. Infinity means no cap.

    Returns
    -------
    ScaledFeatures
        The scaled features, the scales and the caps. Features that do not vary have scale 0.

    Raises
    ------
    ValueError
        If `clip` is not positive, there are no rows, or a value is NaN or infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.pairing import scaled_features
    >>> scaled_features(np.array([[0.0, 2.0], [4.0, 2.0]])).matrix
    array([[0., 0.],
           [2., 0.]])
    """
    clip = check_number(clip, "clip", above=0, at_most=np.inf)
    data = rows_of(X, min_rows=1)
    [rows], factor = to_unit_scale(data.load())
    moments = FeatureMoments.from_data(data if factor == 1 else rows_of(rows))
    mean, sd = moments.mean, np.sqrt(moments.variance)
    # Because of rounding errors, the computed variance of a constant feature need not be 0.
    varies = sd > 1e-7 * np.maximum(np.abs(mean), np.finfo(np.float64).tiny)
    scale = np.divide(1.0, sd, out=np.zeros_like(sd), where=varies)
    cap = np.full_like(mean, np.inf)
    cap[varies] = mean[varies] + clip * sd[varies]
    if data.is_sparse:
        values = np.empty(len(rows.data))
        # Values are scaled in blocks, because a cap and a scale for every value at once would take
        # twice the memory of the result.
        for start in range(0, len(values), data.elements // 4):
            block = slice(start, start + data.elements // 4)
            features = rows.indices[block]
            np.minimum(rows.data[block], cap[features], out=values[block])
            values[block] *= scale[features]
        matrix: Any = sp.csr_matrix((values, rows.indices, rows.indptr), shape=rows.shape)
    else:
        matrix = np.minimum(rows, cap)
        matrix *= scale
    with np.errstate(over="ignore"):  # a cap may overflow to infinity, which means no cap
        return ScaledFeatures(matrix, cap / factor, scale * factor)


def pairing_basis(X: MatrixLike, within: ArrayLike, *, n_components: int = 20) -> FloatArray:
    r"""Return the scores of a PCA of all rows, after each label's mean is subtracted.

    If each label is a combination of donor and condition, the subtraction removes the differences
    between the means of donors and conditions. A row then lies near rows of its own kind under the
    other condition. All rows share one PCA, because scores in bases that are fitted to each
    condition separately cannot be compared.

    Parameters
    ----------
    X : array-like, DataFrame or sparse matrix of shape (n, n_features)
        Rows of both conditions. Features should have unit variance (see `scaled_features`).
        Sparse input stays sparse, because the means are subtracted implicitly.
    within : array-like of shape (n,)
        Label of each row. The mean of all rows with the same label is subtracted from these rows.
        Therefore give one label for each combination of donor and condition.
    n_components : int, default=20
        Number of principal components, k. It is at most ``min(n, n_features) - 1``, and a larger
        number is reduced to this.

    Returns
    -------
    ndarray of shape (n, k)
        Scores, in descending order of variance. The result is deterministic.

    Raises
    ------
    ValueError
        If the length of `within` is not the number of rows, `n_components` is less than 1, every
        row equals the mean of its label, or a value is NaN or infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.pairing import pairing_basis
    >>> X = np.random.default_rng(0).normal(size=(60, 8))
    >>> condition = np.repeat(["ctrl", "stim"], 30)
    >>> shifted = X + 5.0 * (condition == "stim")[:, None]
    >>> same = pairing_basis(X, condition, n_components=3)
    >>> bool(np.allclose(same, pairing_basis(shifted, condition, n_components=3)))
    True
    """
    n_components = check_count(n_components, "n_components")
    data = load_into_memory(rows_of(X, min_rows=2))
    if data.shape[1] < 2:
        raise ValueError(f"X has shape {data.shape}; expected at least two rows and two features.")
    labels = check_labels(within, data.shape[0], "within")
    [rows], scale = to_unit_scale(data.load().astype(np.float64, copy=False))
    index, counts = np.unique(labels, return_inverse=True, return_counts=True)[1:]
    member = sp.csr_matrix(
        (np.ones(len(index)), (np.arange(len(index)), index)), shape=(len(index), len(counts))
    )
    sums = member.T @ rows
    means = (sums.toarray() if sp.issparse(sums) else np.asarray(sums)) / counts[:, None]

    def times(v: FloatArray) -> FloatArray:
        return np.asarray(rows @ v - (means @ v)[index])

    def transposed_times(u: FloatArray) -> FloatArray:
        return np.asarray(rows.T @ u - means.T @ (member.T @ u))

    operator = LinearOperator(
        rows.shape,
        matvec=lambda v: times(v.ravel()),
        rmatvec=lambda u: transposed_times(u.ravel()),
        dtype=np.float64,
    )
    # A fixed starting vector makes the iteration deterministic. It is random rather than constant,
    # because centring can make a constant vector an exact singular vector, and the iteration would
    # never leave it.
    start = np.random.default_rng(0).normal(size=max(rows.shape))
    largest = np.abs(rows @ start[: rows.shape[1]]).max()
    if np.abs(times(start[: rows.shape[1]])).max() <= _ROUNDING * largest:
        raise ValueError(
            f"no row differs from the mean of its label: X has {rows.shape[0]} rows with "
            f"{len(counts)} labels. Each label must occur in several rows: give a label for "
            "each combination of donor and condition, not a label for each row."
        )
    k = min(n_components, min(rows.shape) - 1)
    vectors = svds(operator, k=k, v0=start[: min(rows.shape)], return_singular_vectors="vh")[2]
    return times(fix_signs(vectors[::-1]).T) / scale
