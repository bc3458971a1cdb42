"""Pair neighbouring rows of two sets, if the rows have equal labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_both_labels,
    check_choice,
    check_count,
    check_flag,
    check_same_features,
    check_seed,
    shown,
)
from contrast_core.pairing._clusters import match_clusters
from contrast_core.pairing._pairs import LabelSummary, PositivePairs
from contrast_core.pairing._unit_scale import to_unit_scale
from contrast_core.rows import rows_of

Search: TypeAlias = Literal["auto", "exact", "approximate"]

# The search among the rows of a label is exact up to this number of distances, which takes about
# 20 s in 20 dimensions.
_EXACT_DISTANCES = 1e9


def neighbor_pairs(
    X: MatrixLike,
    positive: MatrixLike,
    *,
    within: ArrayLike | None = None,
    positive_within: ArrayLike | None = None,
    n_neighbors: int = 10,
    mutual: bool = True,
    clusters: ArrayLike | None = None,
    positive_clusters: ArrayLike | None = None,
    max_pairs: int | None = None,
    search: Search = "auto",
    random_state: int | None = 0,
) -> PositivePairs:
    """Pair rows of two sets if they have equal labels and are mutual nearest neighbours.

    Parameters
    ----------
    X, positive : array-like of shape (n, n_features) and (m, n_features)
        The two sets in a common space of few dimensions (see `pairing_basis`).
    within, positive_within : array-like of shape (n,) and (m,), optional
        Label of each row, such as the donor. Only rows with equal labels are paired. A label that
        occurs in only one set has no pairs, but it is listed in the result.
    n_neighbors : int, default=10
        Number of nearest neighbours of each row in the other set.
    mutual : bool, default=True
        Whether each row of a pair must be among the neighbours of the other row. If False, it is
        enough that one row is a neighbour of the other. Then every row of a label is paired, even
        if the other set has no similar rows.
    clusters, positive_clusters : array-like of shape (n,) and (m,), optional
        Cluster of each row. If clusters are given, they are matched within each label (see
        `match_clusters`), and only rows of matched clusters are paired.
    max_pairs : int, optional
        Largest number of pairs for each pair of matched clusters, or for each label if no clusters
        are given. The pairs with the smallest distances are kept.
    search : {"auto", "exact", "approximate"}, default="auto"
        Method of the search for neighbours. "exact" uses scikit-learn, and "approximate" uses the
        package pynndescent. "auto" is exact except for labels with more than a billion distances.
    random_state : int, optional
        Seed of the approximate search; the exact search is deterministic.

    Returns
    -------
    PositivePairs

    Raises
    ------
    ValueError
        If the sets differ in features, or a number is less than 1. The error is also raised if the
        number of labels differs from the number of rows, if labels are given for one set only, or
        if no label occurs in both sets.
    ImportError
        If the approximate search is needed and pynndescent is missing.

    References
    ----------
    Haghverdi, Lun, Morgan and Marioni, Nature Biotechnology 36:421, 2018 (mutual nearest
    neighbours).

    Examples
    --------
    >>> from contrast_core.pairing import neighbor_pairs
    >>> pairs = neighbor_pairs([[0.0], [5.0], [9.0]], [[5.1], [0.2]], n_neighbors=1)
    >>> pairs.rows, pairs.positive_rows, pairs.coverage[1]
    (array([0, 1]), array([1, 0]), 1.0)
    """
    first, second = rows_of(X, "X"), rows_of(positive, "positive")
    check_same_features(
        *(first.shape[1], first.names, second.shape[1], second.names), background_name="positive"
    )
    n_neighbors = check_count(n_neighbors, "n_neighbors")
    max_pairs = None if max_pairs is None else check_count(max_pairs, "max_pairs")
    mutual = check_flag(mutual, "mutual")
    random_state = check_seed(random_state)
    check_choice(search, "search", ["auto", "exact", "approximate"])
    dense = not (
        first.is_sparse and second.is_sparse
    )  # scikit-learn needs both sparse or both dense
    loaded = (rows.load(dense=dense).astype(np.float64, copy=False) for rows in (first, second))
    (rows, positive_rows), scale = to_unit_scale(*loaded)
    labels, positive_labels = _two_labels(
        "within", within, positive_within, rows.shape[0], positive_rows.shape[0]
    )
    if not set(labels.tolist()) & set(positive_labels.tolist()):
        raise ValueError(
            f"within and positive_within have no label in common ({shown(labels[0])} and "
            f"{shown(positive_labels[0])} are the first), so there is nothing to pair. Give labels "
            "that rows of both sets share, such as the donor."
        )
    types = None
    if clusters is not None or positive_clusters is not None:
        types = _two_labels(
            "clusters", clusters, positive_clusters, rows.shape[0], positive_rows.shape[0]
        )

    summaries = []
    found: list[tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]] = []
    for label in sorted({*labels.tolist(), *positive_labels.tolist()}):
        members = np.flatnonzero(labels == label), np.flatnonzero(positive_labels == label)
        blocks = []
        for i, j in _blocks(rows, positive_rows, members, types):
            block = _pairs(rows[i], positive_rows[j], n_neighbors, mutual, search, random_state)
            one, other, distance = block
            if max_pairs is not None:
                nearest = np.lexsort((other, one, distance))[:max_pairs]
                one, other, distance = one[nearest], other[nearest], distance[nearest]
            blocks.append((i[one], j[other], distance / scale))
        in_label = _joined(blocks)
        found.append(in_label)
        summaries.append(
            LabelSummary(
                label,
                len(members[0]),
                len(members[1]),
                len(in_label[0]),
                len(np.unique(in_label[0])),
                len(np.unique(in_label[1])),
                float(np.median(in_label[2])) if len(in_label[2]) else float("nan"),
            )
        )
    i, j, distance = _joined(found)
    order = np.lexsort((j, i))
    return PositivePairs(i[order], j[order], distance[order], tuple(summaries))


def _two_labels(
    name: str, labels: ArrayLike | None, positive: ArrayLike | None, n: int, m: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    found = check_both_labels((labels, positive), (n, m), (name, f"positive_{name}"))
    if found is None:
        return np.zeros(n, dtype=np.intp), np.zeros(m, dtype=np.intp)
    kinds = tuple(each.dtype.kind for each in found)
    # Labels of `within` are compared between the sets. Labels of clusters are not compared, so
    # their types may differ.
    if name == "within" and set(kinds) & set("US") and set(kinds) & set("biuf"):
        raise TypeError(
            f"{name} are {found[0].dtype} but positive_{name} are {found[1].dtype}, so no labels "
            "can be equal. Give both as strings, or both as numbers."
        )
    return found


def _blocks(
    rows: Any,
    positive: Any,
    members: tuple[NDArray[np.intp], NDArray[np.intp]],
    clusters: tuple[NDArray[Any], NDArray[Any]] | None,
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield the rows of a label that may be paired: all rows, or the rows of matched clusters."""
    i, j = members
    if not len(i) or not len(j):
        return
    if clusters is None:
        yield i, j
        return
    first, second = clusters[0][i], clusters[1][j]
    for label, positive_label in match_clusters(rows[i], positive[j], first, second):
        yield i[first == label], j[second == positive_label]


def _pairs(
    rows: Any,
    positive: Any,
    n_neighbors: int,
    mutual: bool,
    search: Search,
    random_state: int | None,
) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]:
    """Return the indices of paired rows in both sets, and their distances."""
    there = _neighbors(rows, positive, n_neighbors, search, random_state)
    back = _neighbors(positive, rows, n_neighbors, search, random_state).T
    both = (there.multiply(back) if mutual else there + back).tocoo()
    i, j = both.row.astype(np.intp), both.col.astype(np.intp)
    difference = rows[i] - positive[j]
    if sp.issparse(difference):
        difference = difference.toarray()
    return i, j, np.linalg.norm(difference, axis=1)


def _neighbors(
    queries: Any, rows: Any, n_neighbors: int, search: Search, random_state: int | None
) -> sp.csr_matrix:
    """Return which rows are nearest to each query, as a Boolean matrix (n_queries, n_rows)."""
    from sklearn.neighbors import NearestNeighbors

    shape = queries.shape[0], rows.shape[0]
    n_neighbors = min(n_neighbors, shape[1])
    approximate = search == "approximate" or (
        search == "auto" and float(shape[0]) * shape[1] > _EXACT_DISTANCES
    )
    # pynndescent cannot build its graph on a few rows. The exact search is fast for few rows.
    if approximate and shape[1] > 100:
        index = _approximate_index(rows, n_neighbors, random_state).query(queries, k=n_neighbors)[0]
    else:
        nearest = NearestNeighbors(n_neighbors=n_neighbors).fit(rows)
        index = nearest.kneighbors(queries, return_distance=False)
    start = np.arange(shape[0] + 1) * n_neighbors
    return sp.csr_matrix((np.ones(index.size, dtype=bool), index.ravel(), start), shape=shape)


def _approximate_index(rows: Any, n_neighbors: int, random_state: int | None) -> Any:
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise ImportError(
            "approximate neighbours need the package pynndescent, which is installed with scanpy. "
            "Install it, or choose search='exact'."
        ) from error
    return NNDescent(rows, n_neighbors=max(30, n_neighbors), random_state=random_state)


def _joined(
    blocks: list[tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]],
) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]:
    none = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp), np.empty(0)
    parts = list(zip(*[none, *blocks], strict=True))
    return np.concatenate(parts[0]), np.concatenate(parts[1]), np.concatenate(parts[2])
