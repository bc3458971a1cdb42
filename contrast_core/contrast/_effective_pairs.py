"""The effective number of pairs, if rows belong to several pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from contrast_core._validation import check_labels


def effective_n_pairs(X_rows: ArrayLike, positive_rows: ArrayLike | None = None) -> float:
    r"""Return Kish's effective number of pairs, which is smaller if rows belong to several pairs.

    A pair consists of a row of X and a row of the positive view, which show the same signal (see
    `PCAPlusPlus`). The effective number is

    .. math:: n_X = \frac{(\sum_j m_j)^2}{\sum_j m_j^2}, \qquad
        n_{\mathit{eff}} = \frac{2}{1/n_X + 1/n_{X^+}}

    where :math:`m_j` is the number of pairs that contain the distinct row j of X. If all rows
    belong to equally many pairs, :math:`n_X` is the number of distinct rows. :math:`n_{X^+}` is
    computed in the same way from the rows of the positive view. Without `positive_rows`, the result
    is :math:`n_X`. Pass the result as ``n_effective`` to `PCAPlusPlus.fit`, whose truncation
    depends on the amount of independent noise in the pairs.

    Parameters
    ----------
    X_rows : array-like of shape (n_pairs,)
        Index or name of each pair's row of X.
    positive_rows : array-like of shape (n_pairs,), optional
        Index or name of each pair's row of the positive view. Leave it out for PCA++ with
        ``exchangeable=False``, in which only X estimates the covariance.

    Returns
    -------
    float
        The effective number of pairs, from 1 to n_pairs.

    Raises
    ------
    ValueError
        If there is no pair, the arguments differ in length, or a name is missing.
    TypeError
        If some names are numbers and others are strings.

    References
    ----------
    Kish, Survey Sampling, 1965.

    Examples
    --------
    Three rows of X form five pairs; the first row belongs to three of them.

    >>> from contrast_core.contrast import effective_n_pairs
    >>> effective_n_pairs([0, 0, 0, 1, 2], [7, 8, 9, 7, 8])
    2.5
    """
    n_pairs = np.asarray(X_rows, dtype=object).size
    views = [check_labels(X_rows, n_pairs, "X_rows")]
    if positive_rows is not None:
        views.append(check_labels(positive_rows, n_pairs, "positive_rows"))
    if not n_pairs:
        raise ValueError("X_rows is empty; expected the row indices of at least one pair.")
    counts = [np.unique(view, return_counts=True)[1] for view in views]
    return float(n_pairs**2 / np.mean([np.sum(count.astype(np.float64) ** 2) for count in counts]))
