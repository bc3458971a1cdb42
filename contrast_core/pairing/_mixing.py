"""Measures of how well an embedding mixes conditions: LISI, kBET and the transfer of labels.

All three measures use the nearest neighbours of each row. An embedding without any structure mixes
conditions perfectly, so these measures must be read together with a measure of the structure that
should be kept, such as cell types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_PERPLEXITY = 30  # of LISI, which uses three times as many neighbours
_BISECTIONS = 40
_TESTED = 50  # neighbours of each row whose conditions kBET tests
_FEWEST = 20  # smallest number of rows of a type that kBET tests
_VOTES = 15  # neighbours that vote for a label


def mixing_scores(
    X: ArrayLike, conditions: ArrayLike, types: ArrayLike, clusterings: Sequence[ArrayLike]
) -> dict[str, float]:
    """Return how well an embedding mixes conditions, and how well it keeps types apart.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        The embedding.
    conditions, types : array-like of shape (n,)
        The condition and the type of each row; at least two of both.
    clusterings : sequence of array-like of shape (n,)
        Clusters of the rows in the embedding, once or several times; scores are averaged.

    Returns
    -------
    dict of float
        ``mixing_ari`` (adjusted Rand index of clusters and condition within the types that have
        both conditions; NaN without such a type), ``silhouette_condition``, ``cell_type_ari`` (of
        clusters and type), ``silhouette_cell_type``, and `label_transfer`, `ilisi` and `kbet` as
        ``transfer``, ``ilisi`` and ``kbet``.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.pairing import mixing_scores
    >>> types, conditions = np.arange(40) // 20, np.arange(40) % 2
    >>> X = 50.0 * types[:, None] + np.random.default_rng(0).normal(size=(40, 1))
    >>> mixing_scores(X, conditions, types, [types])["cell_type_ari"]
    1.0
    """
    from sklearn.metrics import adjusted_rand_score, silhouette_score

    rows, conditions, types = np.asarray(X), np.asarray(conditions), np.asarray(types)
    clusters = [np.asarray(each) for each in clusterings]
    inside = [types == name for name in np.unique(types)]
    mixed = [
        adjusted_rand_score(conditions[here], each[here])
        for each in clusters
        for here in inside
        if len(np.unique(conditions[here])) > 1
    ]
    return {
        "mixing_ari": float(np.mean(mixed)) if mixed else float("nan"),
        "silhouette_condition": float(silhouette_score(rows, conditions)),
        "cell_type_ari": float(np.mean([adjusted_rand_score(types, each) for each in clusters])),
        "silhouette_cell_type": float(silhouette_score(rows, types)),
        "transfer": label_transfer(rows, types, conditions),
        "ilisi": ilisi(rows, conditions),
        "kbet": kbet(rows, conditions, types),
    }


def ilisi(X: ArrayLike, conditions: ArrayLike) -> float:
    """Return the median effective number of conditions among neighbours, from 0 to 1.

    The effective number is the inverse Simpson index of the conditions among the neighbours of each
    row, weighted by a normal kernel of perplexity 30 [1]_. The score is the median minus one,
    divided by the number of conditions minus one.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        The embedding.
    conditions : array-like of shape (n,)
        The condition of each row; at least two.

    Returns
    -------
    float
        0 if all neighbours have one condition, 1 if all conditions are equally frequent among them.

    References
    ----------
    .. [1] Korsunsky et al. (2019). Fast, sensitive and accurate integration of single-cell data
       with Harmony. Nature Methods 16.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.pairing import ilisi
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> apart = X + 50 * (np.arange(200) % 2)[:, None]
    >>> round(ilisi(X, np.arange(200) % 2), 1), ilisi(apart, np.arange(200) % 2)
    (0.9, 0.0)
    """
    distances, indices = _neighbors(np.asarray(X), 3 * _PERPLEXITY)
    weights = _neighbor_weights(distances, min(_PERPLEXITY, distances.shape[1] / 3))
    levels, codes = np.unique(np.asarray(conditions), return_inverse=True)
    shares = [(weights * (codes[indices] == code)).sum(axis=1) for code in range(len(levels))]
    number = 1 / np.square(shares).sum(axis=0)
    return float((np.median(number) - 1) / (len(levels) - 1))


def kbet(X: ArrayLike, conditions: ArrayLike, types: ArrayLike) -> float:
    """Return the fraction of rows whose neighbours have the conditions of their type.

    A chi-squared test at level .05 compares the conditions among the 50 nearest neighbours of the
    same type with those of the whole type [1]_.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        The embedding.
    conditions, types : array-like of shape (n,)
        The condition and the type of each row.

    Returns
    -------
    float
        Mean over the types with at least 20 rows and two conditions; NaN if there is no such type.
        With perfect mixing, the expected value is .95.

    References
    ----------
    .. [1] Büttner et al. (2019). A test metric for assessing single-cell RNA-seq batch correction.
       Nature Methods 16.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.pairing import kbet
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> kbet(X + 50 * (np.arange(200) % 2)[:, None], np.arange(200) % 2, np.zeros(200))
    0.0
    """
    from scipy.stats import chi2

    rows, conditions, types = np.asarray(X), np.asarray(conditions), np.asarray(types)
    accepted = []
    for name in np.unique(types):
        here = types == name
        levels, codes = np.unique(conditions[here], return_inverse=True)
        if len(levels) < 2 or len(codes) < _FEWEST:
            continue
        _, indices = _neighbors(rows[here], _TESTED)
        counts = [(codes[indices] == code).sum(axis=1) for code in range(len(levels))]
        expected = np.bincount(codes) / len(codes) * indices.shape[1]
        statistic = (np.square(np.stack(counts, axis=1) - expected) / expected).sum(axis=1)
        accepted.append(float((statistic <= chi2.ppf(0.95, len(levels) - 1)).mean()))
    return float(np.mean(accepted)) if accepted else float("nan")


def label_transfer(X: ArrayLike, labels: ArrayLike, conditions: ArrayLike) -> float:
    """Return how often a label is that of most nearest neighbours under the other conditions.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        The embedding.
    labels, conditions : array-like of shape (n,)
        The label and the condition of each row; at least two conditions.

    Returns
    -------
    float
        Fraction of rows, averaged over the conditions; 15 neighbours vote.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.pairing import label_transfer
    >>> labels, conditions = np.arange(40) // 20, np.arange(40) % 2
    >>> label_transfer(50.0 * labels[:, None], labels, conditions)
    1.0
    """
    from sklearn.neighbors import KNeighborsClassifier

    rows, labels, conditions = np.asarray(X), np.asarray(labels), np.asarray(conditions)
    accuracies = []
    for name in np.unique(conditions):
        here = conditions == name
        classifier = KNeighborsClassifier(min(_VOTES, int((~here).sum())))
        accuracies.append(
            classifier.fit(rows[~here], labels[~here]).score(rows[here], labels[here])
        )
    return float(np.mean(accuracies))


def _neighbor_weights(distances: NDArray[np.floating], perplexity: float) -> NDArray[np.floating]:
    """Return normal weights of each row's neighbours, with the width that gives this perplexity."""
    squares = np.square(distances, dtype=np.float64)
    squares -= squares.min(axis=1, keepdims=True)
    scale = squares.mean(axis=1, keepdims=True)
    squares /= np.where(scale > 0, scale, 1)
    low, high = np.full(scale.shape, -20.0), np.full(scale.shape, 20.0)  # logarithms
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        weights = np.exp(-squares * np.exp(middle))
        weights /= weights.sum(axis=1, keepdims=True)
        entropy = -(weights * np.log(np.maximum(weights, np.finfo(float).tiny))).sum(axis=1)
        wide = (entropy > np.log(perplexity))[:, None]
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    return np.asarray(weights)


def _neighbors(rows: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return distances and indices of the k nearest neighbours, at most a quarter of the rows."""
    from sklearn.neighbors import NearestNeighbors

    k = min(k, max(1, len(rows) // 4))
    distances, indices = NearestNeighbors(n_neighbors=k).fit(rows).kneighbors()
    return distances, indices
