"""Tests of pairing: the pairs of rows, and the coordinates whose distances decide them."""

from __future__ import annotations

import sys
import types
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from contrast_core.pairing import match_clusters, neighbor_pairs, pairing_basis, scaled_features
from tests.core.kinds import KINDS


@pytest.fixture
def views():
    """Return two views of 80 rows, the type of each row, and the group of each row.

    The rows belong to three well separated types, and to two groups of 40 rows.
    """
    rng = np.random.default_rng(0)
    kinds = np.tile([0, 1, 2], 27)[:80]
    centres = 12 * np.eye(3, 5)
    X, P = (centres[kinds] + rng.normal(size=(80, 5)) for _ in range(2))
    return X, P, kinds, np.repeat(["a", "b"], 40)


def as_set(pairs):
    return set(zip(pairs.rows.tolist(), pairs.positive_rows.tolist(), strict=True))


@pytest.mark.parametrize("k", [1, 3, 10])
def test_mutual_neighbours_are_neighbours_of_each_other(views, k):
    X, P, *_ = views
    # `there` has the k nearest rows of P for each row of X, and `back` the reverse.
    distance = np.linalg.norm(X[:, None] - P[None], axis=2)
    there = np.argsort(np.argsort(distance, axis=1), axis=1) < k
    back = np.argsort(np.argsort(distance, axis=0), axis=0) < k
    pairs = neighbor_pairs(X, P, n_neighbors=k)
    assert as_set(pairs) == set(map(tuple, np.argwhere(there & back).tolist()))
    either = neighbor_pairs(X, P, n_neighbors=k, mutual=False)
    assert as_set(either) == set(map(tuple, np.argwhere(there | back).tolist()))
    assert either.coverage == (1.0, 1.0)
    np.testing.assert_allclose(
        pairs.distances, np.linalg.norm(X[pairs.rows] - P[pairs.positive_rows], axis=1)
    )


def test_the_summary_counts_pairs_and_rows(views):
    X, P, _, groups = views
    pairs = neighbor_pairs(X, P, within=groups, positive_within=groups, n_neighbors=2)
    for summary in pairs.within:
        inside = groups[pairs.rows] == summary.label
        assert (summary.n_rows, summary.n_positive_rows) == (40, 40)
        assert summary.n_pairs == inside.sum()
        assert summary.n_rows_paired == len(set(pairs.rows[inside]))
        assert summary.n_positive_rows_paired == len(set(pairs.positive_rows[inside]))
        assert summary.median_distance == np.median(pairs.distances[inside])
    assert pairs.coverage == (len(set(pairs.rows)) / 80, len(set(pairs.positive_rows)) / 80)


def test_a_group_in_one_view_only_has_no_pairs_and_is_listed(views):
    X, P, _, groups = views
    pairs = neighbor_pairs(X, P[:40], within=groups, positive_within=groups[:40])
    alone = pairs.within[1]
    assert (alone.label, alone.n_rows, alone.n_positive_rows, alone.n_pairs) == ("b", 40, 0, 0)
    assert np.isnan(alone.median_distance)
    assert pairs.rows.max() < 40


def test_clusters_are_matched_for_any_labels(views):
    X, P, kinds, _ = views
    X, P = X - X.mean(axis=0), P - P.mean(axis=0)
    matched = match_clusters(X, P, kinds, np.array(["x", "y", "z"])[(kinds + 1) % 3])
    assert matched == [(0, "y"), (1, "z"), (2, "x")]
    one_less = match_clusters(X, P[kinds > 0], kinds, kinds[kinds > 0])
    assert one_less == [(1, 1), (2, 2)]


def test_pairs_stay_in_matched_clusters_and_their_number_is_limited(views):
    X, P, kinds, groups = views
    X, P = X - X.mean(axis=0), P - P.mean(axis=0)
    labels = {"within": groups, "positive_within": groups}
    clusters = {"clusters": kinds, "positive_clusters": (kinds + 1) % 3}
    pairs = neighbor_pairs(X, P, **labels, **clusters)
    assert (kinds[pairs.rows] == kinds[pairs.positive_rows]).all()
    capped = neighbor_pairs(X, P, **labels, **clusters, max_pairs=5)
    assert capped.n_pairs == 2 * 3 * 5
    assert as_set(capped) <= as_set(pairs)
    for group in "ab":
        for kind in range(3):
            kept, all_ = (
                p.distances[(groups[p.rows] == group) & (kinds[p.rows] == kind)]
                for p in (capped, pairs)
            )
            np.testing.assert_allclose(np.sort(kept), np.sort(all_)[:5])


class StandIn:
    """Replacement of pynndescent.NNDescent, whose compilation takes a minute.

    The replacement searches exactly. papers/pca_pp_cells.py compares pynndescent itself with the
    exact search.
    """

    built: ClassVar[list[dict[str, int]]] = []

    def __init__(self, rows, **options):
        self.rows = rows
        self.built.append(options)

    def query(self, queries, k):
        distance, index = NearestNeighbors(n_neighbors=k).fit(self.rows).kneighbors(queries)
        return index, distance


def test_large_groups_are_searched_approximately(monkeypatch):
    module = types.ModuleType("pynndescent")
    module.NNDescent = StandIn
    monkeypatch.setitem(sys.modules, "pynndescent", module)
    rng = np.random.default_rng(0)
    X, P = rng.normal(size=(300, 5)), rng.normal(size=(200, 5))
    exact = neighbor_pairs(X, P)
    assert not StandIn.built
    approximate = neighbor_pairs(X, P, search="approximate", random_state=3)
    assert as_set(approximate) == as_set(exact)
    assert [options["random_state"] for options in StandIn.built] == [3, 3]
    monkeypatch.setattr("contrast_core.pairing._neighbors._EXACT_DISTANCES", 1000)
    neighbor_pairs(X, P)
    assert len(StandIn.built) == 4


def test_without_pynndescent_the_error_of_the_approximate_search_gives_advice(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    rows = np.random.default_rng(0).normal(size=(200, 3))
    with pytest.raises(ImportError, match="search='exact'"):
        neighbor_pairs(rows, rows, search="approximate")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"within": [0] * 80}, ValueError, "within was given without positive_within"),
        ({"clusters": [0] * 80}, ValueError, "clusters was given without positive_clusters"),
        ({"within": ["a"] * 80, "positive_within": ["b"] * 80}, ValueError, "no label in common"),
        ({"within": ["a"] * 80, "positive_within": [0] * 80}, TypeError, "no labels can be equal"),
    ],
)
def test_labels_that_cannot_be_compared_are_refused(views, arguments, error, message):
    with pytest.raises(error, match=message):
        neighbor_pairs(*views[:2], **arguments)


def counts(n=200, d=30):
    rng = np.random.default_rng(0)
    return np.log1p(rng.poisson(0.2 + rng.gamma(1.0, 1.0, size=(1, d)), size=(n, d)).astype(float))


def test_scaled_features_have_unit_variance_and_extreme_values_are_clipped_above_the_mean():
    X = counts()
    X[:, 3] = 0.7
    X[0, 0] = 1000.0
    scaled = scaled_features(X, clip=np.inf)
    expected = np.r_[np.ones(3), 0, np.ones(26)]
    np.testing.assert_allclose(scaled.matrix.var(axis=0), expected, atol=1e-12)
    np.testing.assert_allclose(scaled.matrix, X * scaled.scale)
    scaled = scaled_features(X, clip=10)
    assert scaled.cap[0] == pytest.approx(X[:, 0].mean() + 10 * X[:, 0].std())
    assert scaled.matrix[0, 0] == pytest.approx(scaled.cap[0] * scaled.scale[0])
    np.testing.assert_allclose(scaled.matrix[1:], X[1:] * scaled.scale)


SPARSE = [sp.csr_matrix, sp.csc_matrix, sp.csr_array, partial(KINDS["duplicates"], folder=None)]


@pytest.mark.parametrize("as_sparse", SPARSE)
def test_sparse_features_stay_sparse_and_agree_with_dense_features(as_sparse):
    X = counts()
    X[0, 0] = 1000.0
    dense, sparse = scaled_features(X), scaled_features(as_sparse(X))
    assert sp.issparse(sparse.matrix)
    np.testing.assert_allclose(sparse.matrix.toarray(), dense.matrix)
    np.testing.assert_allclose(sparse.cap, dense.cap)
    groups = np.arange(200) % 4
    np.testing.assert_allclose(
        pairing_basis(sparse.matrix, groups), pairing_basis(dense.matrix, groups), atol=1e-8
    )


def test_the_basis_is_pca_of_rows_centred_within_groups():
    X, groups = counts(), np.arange(200) % 4
    centred = X - np.array([X[groups == g].mean(axis=0) for g in range(4)])[groups]
    expected = PCA(5, svd_solver="full").fit_transform(centred)
    scores = pairing_basis(X, groups, n_components=5)
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), atol=1e-8)
    np.testing.assert_array_equal(scores, pairing_basis(X, groups, n_components=5))


def test_groups_of_one_row_each_are_refused_for_a_basis(views):
    X, _, _, groups = views
    for labels in (np.arange(80), [str(i) for i in range(80)]):
        with pytest.raises(
            ValueError, match=r"X has 80 rows with 80 labels. Each label must occur in several rows"
        ):
            pairing_basis(X, labels)
    with pytest.raises(ValueError, match="no row differs from the mean of its label"):
        pairing_basis(np.full((80, 5), 0.1), groups)


def test_a_group_of_one_row_does_not_affect_the_basis() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 4)) * [5, 1, 1, 1]
    X[0] = [0, 1000, 0, 0]  # this row is alone in its group, so it equals the mean of the group
    groups = np.repeat(["a", "b", "c"], [1, 9, 10])
    scores = pairing_basis(X, groups, n_components=2)
    np.testing.assert_allclose(scores[0], 0, atol=1e-9)
    rest = pairing_basis(X[1:], groups[1:], n_components=2)
    np.testing.assert_allclose(scores[1:] @ scores[1:].T, rest @ rest.T, atol=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("scale", [2.0**-565, 2.0**532])
def test_squares_outside_the_range_of_float64_change_no_result(views, kind, scale):
    X, P, kinds, _ = views
    x, p = kind(scale * X), kind(scale * P)
    found, expected = neighbor_pairs(x, p), neighbor_pairs(kind(X), kind(P))
    assert as_set(found) == as_set(expected)
    np.testing.assert_allclose(found.distances / scale, expected.distances)
    assert match_clusters(x, p, kinds, kinds) == [(i, i) for i in range(3)]
    scores = pairing_basis(x, kinds, n_components=2) / scale
    np.testing.assert_allclose(scores, pairing_basis(kind(X), kinds, n_components=2), atol=1e-9)
    np.testing.assert_allclose(scaled_features(x).scale * scale, scaled_features(kind(X)).scale)
