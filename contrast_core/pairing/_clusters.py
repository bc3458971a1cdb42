"""Match the clusters of two sets of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from contrast_core._validation import FloatArray, MatrixLike, check_labels, check_same_features
from contrast_core.pairing._unit_scale import to_unit_scale
from contrast_core.rows import Rows, load_into_memory, rows_of


def match_clusters(
    X: MatrixLike, positive: MatrixLike, clusters: ArrayLike, positive_clusters: ArrayLike
) -> list[tuple[Any, Any]]:
    """Match the clusters of two sets of rows one to one, by the cosines of their centroids.

    The matching has the largest possible sum of cosines. If one set has more clusters than the
    other, some of its clusters stay unmatched.

    Parameters
    ----------
    X, positive : array-like of shape (n, n_features) and (m, n_features)
        The two sets of rows in one centred space (see `pairing_basis`). Cosines are computed with
        respect to its origin.
    clusters, positive_clusters : array-like of shape (n,) and (m,)
        The cluster of each row. The labels of the two sets are unrelated, so clusters with equal
        labels are not necessarily matched.

    Returns
    -------
    list of (label, positive label)
        Labels of matched clusters, sorted by the label in X.

    Raises
    ------
    ValueError
        If the number of labels is not the number of rows, or the two sets differ in features.

    References
    ----------
    "PCA++: How uniformity induces robustness to background noise in contrastive learning",
    Appendix I.2. The optimal assignment and the common space are not in the paper.

    Examples
    --------
    >>> from contrast_core.pairing import match_clusters
    >>> match_clusters([[1.0, 0.0], [0.0, 1.0]], [[0.1, 2.0], [2.0, 0.1]], [0, 1], ["a", "b"])
    [(0, 'b'), (1, 'a')]
    """
    x, p = (
        load_into_memory(rows_of(X, "X", min_rows=1)),
        load_into_memory(rows_of(positive, "positive", min_rows=1)),
    )
    check_same_features(x.shape[1], x.names, p.shape[1], p.names, background_name="positive")
    labels, centroids = _centroids(x, clusters, "clusters")
    positive_labels, positive_centroids = _centroids(p, positive_clusters, "positive_clusters")
    first, second = linear_sum_assignment(centroids @ positive_centroids.T, maximize=True)
    return [(labels[i], positive_labels[j]) for i, j in zip(first, second, strict=True)]


def _centroids(data: Rows, clusters: ArrayLike, name: str) -> tuple[list[Any], FloatArray]:
    """Return the sorted labels, and the centroid of each label's rows, scaled to unit length."""
    labels = check_labels(clusters, data.shape[0], name)
    [rows], _ = to_unit_scale(data.load().astype(np.float64, copy=False))
    found = np.unique(labels)
    means = np.array([np.asarray(rows[labels == c].mean(axis=0)).ravel() for c in found])
    length = np.linalg.norm(means, axis=1, keepdims=True)
    return found.tolist(), means / np.where(length > 0, length, 1)
