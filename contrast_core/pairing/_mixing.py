"""Measure how well an embedding mixes conditions, by LISI, kBET and the transfer of labels.

All three measures use the nearest neighbours of each row. An embedding without any structure mixes
conditions perfectly. Therefore also measure how well the embedding keeps the structure that should
be kept, such as cell types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_PERPLEXITY = 30  # perplexity of LISI, which uses three times as many neighbours
_BISECTIONS = 40  # steps of the bisection by which the width of the kernel is found
_TESTED = 50  # number of neighbours of each row in the test of kBET
_FEWEST = 20  # kBET leaves out types with fewer rows than this
_VOTES = 15  # number of neighbours that vote for a label


def mixing_scores(
    X: ArrayLike, conditions: ArrayLike, types: ArrayLike, clusterings: Sequence[ArrayLike]
) -> dict[str, float]:
    """Return how well an embedding mixes conditions, and how well it keeps types apart.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        The embedding.
    conditions, types : array-like of shape (n,)
        The condition and the type of each row. There must be at least two conditions and two types.
    clusterings : sequence of array-like of shape (n,)
        One or more clusterings of the embedding, each with the cluster of every row. Scores are
        averaged over the clusterings.

    Returns
    -------
    dict of float
        The scores by name:

        - ``mixing_ari`` is the adjusted Rand index of clusters and conditions, computed within each
          type that has more than one condition and then averaged. It is NaN without such a type.
        - ``cell_type_ari`` is the adjusted Rand index of clusters and types.
        - ``silhouette_condition`` and ``silhouette_cell_type`` are the silhouettes of conditions
          and of types.
        - ``transfer``, ``ilisi`` and ``kbet`` are the results of `label_transfer`, `ilisi` and
          `kbet`.

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
    """Return the median effective number of conditions among neighbours, scaled to 0 to 1.

    The effective number of a row is the inverse Simpson index of the conditions of its neighbours,
    which is 1 divided by the sum of the squared shares of the conditions. The neighbours are
    weighted by a normal kernel of perplexity 30 [1]_. Let M be the median of the effective numbers
    over rows. The score is ``(M - 1) / (number of conditions - 1)``.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        The embedding.
    conditions : array-like of shape (n,)
        The condition of each row. There must be at least two conditions.

    Returns
    -------
    float
        The score. It is 0 if all neighbours of a row have the same condition, and 1 if all
        conditions are equally frequent among them.

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
    """Return the fraction of rows whose neighbours have the same mix of conditions as their type.

    For each row, a chi-squared test at level .05 compares the frequencies of the conditions among
    the row's 50 nearest neighbours of the same type with their frequencies in the whole type [1]_.
    In a type of n < 200 rows, only the n / 4 nearest neighbours are used instead of 50.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        The embedding.
    conditions, types : array-like of shape (n,)
        The condition and the type of each row.

    Returns
    -------
    float
        Fraction of rows that the test does not reject, averaged over the types with at least 20
        rows and two conditions. It is NaN if there is no such type. With perfect mixing, the
        expected value is about .95 for large types, and up to .99 for small ones.

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
    """Return how often the nearest neighbours under other conditions predict a row's label.

    The 15 nearest neighbours of a row under the other conditions vote for its label.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        The embedding.
    labels, conditions : array-like of shape (n,)
        The label and the condition of each row. There must be at least two conditions.

    Returns
    -------
    float
        Fraction of rows whose label is predicted correctly, averaged over the conditions.

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
    """Return weights of neighbours by a normal kernel whose width gives the perplexity."""
    squares = np.square(distances, dtype=np.float64)
    squares -= squares.min(axis=1, keepdims=True)
    scale = squares.mean(axis=1, keepdims=True)
    squares /= np.where(scale > 0, scale, 1)
    # Bounds of the logarithm of the kernel's precision, which is the inverse of its squared width.
    low, high = np.full(scale.shape, -20.0), np.full(scale.shape, 20.0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        weights = np.exp(-squares * np.exp(middle))
        weights /= weights.sum(axis=1, keepdims=True)
        entropy = -(weights * np.log(np.maximum(weights, np.finfo(float).tiny))).sum(axis=1)
        wide = (entropy > np.log(perplexity))[:, None]
        low, high = np.where(wide, middle, low), np.where(wide, high, middle)
    return np.asarray(weights)


def _neighbors(rows: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return distances and indices of the k nearest neighbours of each row.

    If k is larger than a quarter of the number of rows, it is reduced to a quarter.
    """
    from sklearn.neighbors import NearestNeighbors

    k = min(k, max(1, len(rows) // 4))
    distances, indices = NearestNeighbors(n_neighbors=k).fit(rows).kneighbors()
    return distances, indices
