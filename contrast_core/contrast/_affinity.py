"""Affinity between subspaces, and clusters of subspaces with a representative of each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray

_LARGE_K = 10  # the product of more than 10 cosines is near 0 unless the subspaces are equal


def subspace_affinity(components: FloatArray) -> FloatArray:
    """Return the product of the cosines of the principal angles between all pairs of subspaces.

    Parameters
    ----------
    components : ndarray of shape (n_subspaces, k, n_features)
        Orthonormal rows for each subspace.

    Returns
    -------
    ndarray of shape (n_subspaces, n_subspaces)
        Affinities ``|det(V_i V_j^T)|``, between 0 and 1. For k > 10, the k-th root of this product
        is returned, which is the geometric mean of the cosines. The product of so many cosines
        would be close to 0 for all pairs of different subspaces.

    References
    ----------
    Abid, Zhang, Bagaria and Zou 2018, Algorithm 2.
    """
    n, k, n_features = components.shape
    stacked = components.reshape(n * k, n_features)
    cross = (stacked @ stacked.T).reshape(n, k, n, k).transpose(0, 2, 1, 3)
    log_product = np.linalg.slogdet(cross).logabsdet
    if k > _LARGE_K:
        log_product = log_product / k
    affinity = np.exp(np.minimum(log_product, 0.0))
    affinity = (affinity + affinity.T) / 2
    np.fill_diagonal(affinity, 1.0)
    return np.asarray(affinity, dtype=np.float64)


def representatives(
    affinity: FloatArray, n_clusters: int, random_state: int | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Cluster subspaces spectrally by their affinity, and return the medoid of each cluster.

    Parameters
    ----------
    affinity : ndarray of shape (n, n)
        Affinities, for example from `subspace_affinity`.
    n_clusters : int
        Number of clusters, from 1 to n. If at most this many subspaces are different, each
        different subspace is a cluster.
    random_state : int or None
        Seed of the k-means step.

    Returns
    -------
    labels : ndarray of shape (n,)
        Cluster of each subspace; clusters are numbered in the order of their medoids.
    medoids : ndarray of shape (n_found,)
        For each cluster, the index of the member with the largest sum of affinities to all members.
        The indices are ascending.

    References
    ----------
    Abid, Zhang, Bagaria and Zou 2018, Algorithm 2, which cites the spectral clustering of Ng,
    Jordan and Weiss, "On spectral clustering: analysis and an algorithm", 2002.
    """
    raw = _spectral_labels(affinity, n_clusters, random_state)
    medoids = []
    for cluster in np.unique(raw):
        members = np.flatnonzero(raw == cluster)
        within = affinity[np.ix_(members, members)].sum(axis=1)
        # Equal subspaces have equal sums up to rounding. The middle one of them is the medoid.
        best = members[within >= within.max() * (1 - 1e-9)]
        medoids.append(int(best[len(best) // 2]))
    medoids.sort()
    labels = np.empty(len(raw), dtype=np.intp)
    for number, medoid in enumerate(medoids):
        labels[raw == raw[medoid]] = number
    return labels, np.array(medoids, dtype=np.intp)


def _spectral_labels(
    affinity: FloatArray, n_clusters: int, random_state: int | None
) -> NDArray[np.intp]:
    from scipy.sparse.csgraph import connected_components
    from sklearn.cluster import k_means
    from sklearn.manifold import spectral_embedding

    n_distinct, distinct = connected_components(affinity > 1 - 1e-12, directed=False)
    if n_distinct <= n_clusters:
        return np.asarray(distinct, dtype=np.intp)
    # A floor of 1e-12 keeps the graph connected if subspaces are exactly orthogonal.
    rows = spectral_embedding(
        np.maximum(affinity, 1e-12),
        n_components=n_clusters,
        drop_first=False,
        random_state=random_state,
    )
    # Ng, Jordan and Weiss normalise the rows of the embedding to unit length, but scikit-learn's
    # spectral clustering does not.
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = k_means(rows, n_clusters, n_init=10, random_state=random_state)[1]
    return np.asarray(labels, dtype=np.intp)
