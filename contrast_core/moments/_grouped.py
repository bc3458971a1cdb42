"""Covariances within and between groups of rows, such as donors or batches.

Problem: separate the variation within groups from the differences between their means, as in the
multivariate analysis of variance (Mardia, Kent and Bibby, Multivariate Analysis, 1979).
Let group g have n_g rows with mean m_g, and let m be the mean of all n rows. Let g(i) be the group
of row x_i. By the law of total covariance, the covariance of all rows is the sum of a part within
and a part between groups:

    C = W + B,   W = 1/n sum_i (x_i - m_g(i)) (x_i - m_g(i))^T,
                 B = sum_g n_g/n (m_g - m) (m_g - m)^T.

W is computed from rows that are centred by the mean of their group, so it loses no digits if groups
lie far apart. Because W is divided by n, its expectation for G groups is (1 - G/n) times the
covariance within groups in the population. If the rows have weights w_i, let n be the sum of all
weights, and w_g the sum of the weights in group g. This factor is then
1 - 1/n sum_g sum_{i in g} w_i^2 / w_g.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import FloatArray, check_labels, check_weights, shown
from contrast_core.moments._accumulator import Summary
from contrast_core.moments._given import check_means


def check_groups(groups: Any, weights: Any, means: Any) -> tuple[NDArray[Any], Any, FloatArray]:
    """Check labels, weights and means of groups, and return them sorted by label."""
    means = check_means(means, "group_means")
    labels = check_labels(groups, len(means), "groups")
    if len(np.unique(labels)) < len(labels):
        raise ValueError(f"groups={shown(labels.tolist())} names a group twice. Merge its rows.")
    weights = np.asarray(weights)
    if check_weights(weights, len(means), "group_weights").min() <= 0:
        raise ValueError("group_weights holds 0; leave out groups without rows.")
    order = np.argsort(labels)
    return labels[order], weights[order], means[order]


def between_groups(weights: NDArray[Any], means: FloatArray) -> FloatArray:
    """Return the covariance B between groups, given their weights (G,) and means (G, D)."""
    n = weights.sum().item()
    away = np.sqrt(weights / n)[:, None] * (means - weights @ means / n)
    return np.asarray(away.T @ away)


def common_labels(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any]:
    """Return the sorted union of the labels; raise TypeError if their types differ."""
    listed = [*ours.tolist(), *theirs.tolist()]
    return np.unique(check_labels(listed, len(listed), "the groups of foreground and background"))


def spread_over(labels: ArrayLike, summary: Summary, groups: NDArray[Any]) -> Summary:
    """Extend a summary of the groups `groups` to all `labels`; new groups get weight zero."""
    labels = np.asarray(labels)
    at = np.searchsorted(labels, groups)
    weights = np.zeros(len(labels), summary.weights.dtype)
    means = np.zeros((len(labels), summary.means.shape[1]))
    weights[at], means[at] = summary.weights, summary.means
    return Summary(weights, means, summary.within)
