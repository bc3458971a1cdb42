"""Pairs of rows of two conditions: who is paired with whom, and in which space."""

from __future__ import annotations

import sys
import types
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from contrast_core.pairing import (
    match_clusters,
    neighbor_pairs,
    pairing_basis,
    scaled_features,
)


@pytest.fixture
def views():
    """Three kinds of rows in two views of two groups, 40 rows each, well apart."""
    rng = np.random.default_rng(0)
    kinds = np.tile([0, 1, 2], 27)[:80]
    centres = 12 * np.eye(3, 5)
    X, P = (centres[kinds] + rng.normal(size=(80, 5)) for _ in range(2))
    return X, P, kinds, np.repeat(["a", "b"], 40)


def as_set(pairs):
    return set(zip(pairs.rows.tolist(), pairs.positive_rows.tolist(), strict=True))


def brute_force(X, P, k):
    distance = np.linalg.norm(X[:, None] - P[None], axis=2)
    there = np.argsort(np.argsort(distance, axis=1), axis=1) < k
    back = np.argsort(np.argsort(distance, axis=0), axis=0) < k
    return there, back


@pytest.mark.parametrize("k", [1, 3, 10])
def test_mutual_neighbours_are_neighbours_of_each_other(views, k):
    X, P, *_ = views
    there, back = brute_force(X, P, k)
    pairs = neighbor_pairs(X, P, n_neighbors=k)
    assert as_set(pairs) == set(zip(*map(np.ndarray.tolist, np.nonzero(there & back)), strict=True))
    either = neighbor_pairs(X, P, n_neighbors=k, mutual=False)
    assert as_set(either) == set(
        zip(*map(np.ndarray.tolist, np.nonzero(there | back)), strict=True)
    )
    assert either.coverage == (1.0, 1.0)
    np.testing.assert_allclose(
        pairs.distances, np.linalg.norm(X[pairs.rows] - P[pairs.positive_rows], axis=1)
    )


def test_pairs_stay_within_groups_and_kinds(views):
    X, P, kinds, groups = views
    pairs = neighbor_pairs(X, P, within=groups, positive_within=groups)
    assert (groups[pairs.rows] == groups[pairs.positive_rows]).all()
    assert (kinds[pairs.rows] == kinds[pairs.positive_rows]).all()


def test_the_summary_counts_what_is_there(views):
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


def test_the_order_of_the_rows_does_not_matter(views):
    X, P, _, groups = views
    order = np.random.default_rng(1).permutation(80)
    pairs = neighbor_pairs(X, P, within=groups, positive_within=groups)
    shuffled = neighbor_pairs(X[order], P, within=groups[order], positive_within=groups)
    assert as_set(pairs) == {(int(order[i]), j) for i, j in as_set(shuffled)}


def test_a_kind_that_one_view_lacks_is_mostly_left_unpaired():
    rng = np.random.default_rng(0)
    centres = 12 * np.eye(3, 5)
    X = np.repeat(centres, 40, axis=0) + rng.normal(size=(120, 5))
    P = np.repeat(centres[:2], 40, axis=0) + rng.normal(size=(80, 5))
    mutual = neighbor_pairs(X, P)
    assert not (mutual.rows >= 80).any()
    assert neighbor_pairs(X, P, mutual=False).coverage[0] == 1.0


def test_clusters_are_matched_whatever_their_labels(views):
    X, P, kinds, _ = views
    X, P = X - X.mean(axis=0), P - P.mean(axis=0)
    matched = match_clusters(X, P, kinds, np.array(["x", "y", "z"])[(kinds + 1) % 3])
    assert matched == [(0, "y"), (1, "z"), (2, "x")]
    one_less = match_clusters(X, P[kinds > 0], kinds, kinds[kinds > 0])
    assert one_less == [(1, 1), (2, 2)]


def test_matched_clusters_confine_and_cap_the_pairs(views):
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
    """In the place of pynndescent.NNDescent, whose compilation takes a minute; it is exact.

    papers/pca_pp_cells.py compares the real one with the exact search.
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


def test_without_pynndescent_the_approximate_search_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    rows = np.random.default_rng(0).normal(size=(200, 3))
    with pytest.raises(ImportError, match="search='exact'"):
        neighbor_pairs(rows, rows, search="approximate")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors=0 is out of range: it must be at least 1"),
        ({"max_pairs": 0}, "max_pairs=0"),
        ({"search": "fast"}, "search='fast' is unknown; expected 'auto'"),
        ({"within": [0] * 80}, "positive_within is missing"),
        ({"within": [0], "positive_within": [0] * 80}, r"within has shape \(1,\)"),
        (
            {"within": np.r_[np.nan, np.zeros(79)], "positive_within": [0] * 80},
            "within has 1 missing label",
        ),
        ({"clusters": [0] * 80}, "positive_clusters is missing"),
    ],
)
def test_wrong_arguments_are_explained(views, arguments, message):
    X, P, *_ = views
    with pytest.raises(ValueError, match=message):
        neighbor_pairs(X, P, **arguments)


def test_the_views_need_one_space(views):
    X, P, *_ = views
    with pytest.raises(ValueError, match="positive has 4 features but X has 5"):
        neighbor_pairs(X, P[:, :4])


def counts(n=200, d=30):
    rng = np.random.default_rng(0)
    return np.log1p(rng.poisson(0.2 + rng.gamma(1.0, 1.0, size=(1, d)), size=(n, d)).astype(float))


def test_scaled_features_have_unit_variance():
    X = counts()
    X[:, 3] = 0.7
    scaled = scaled_features(X, clip=np.inf)
    expected = np.r_[np.ones(3), 0, np.ones(26)]
    np.testing.assert_allclose(scaled.matrix.var(axis=0), expected, atol=1e-12)
    np.testing.assert_allclose(scaled.matrix, X * scaled.scale)


def test_extremes_are_cut_above_the_mean():
    X = counts()
    X[0, 0] = 1000.0
    scaled = scaled_features(X, clip=10)
    assert scaled.cap[0] == pytest.approx(X[:, 0].mean() + 10 * X[:, 0].std())
    assert scaled.matrix[0, 0] == pytest.approx(scaled.cap[0] * scaled.scale[0])
    np.testing.assert_allclose(scaled.matrix[1:], X[1:] * scaled.scale)
    with pytest.raises(ValueError, match="clip=0 is out of range"):
        scaled_features(X, clip=0)


@pytest.mark.parametrize("as_sparse", [sp.csr_matrix, sp.csc_matrix, sp.csr_array])
def test_sparse_features_stay_sparse_and_agree(as_sparse):
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


def test_the_basis_is_pca_of_the_centred_rows():
    X, groups = counts(), np.arange(200) % 4
    centred = X - np.array([X[groups == g].mean(axis=0) for g in range(4)])[groups]
    expected = PCA(5, svd_solver="full").fit_transform(centred)
    scores = pairing_basis(X, groups, n_components=5)
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), atol=1e-8)
    np.testing.assert_array_equal(scores, pairing_basis(X, groups, n_components=5))


def test_the_basis_has_no_more_components_than_the_data():
    assert pairing_basis(counts(6), np.zeros(6), n_components=20).shape == (6, 5)


@pytest.mark.parametrize(
    ("groups", "n_components", "message"),
    [
        ([0] * 5, 2, r"within has shape \(5,\)"),
        ([0] * 200, 0, "n_components=0 is out of range: it must be at least 1"),
    ],
)
def test_wrong_arguments_of_the_basis_are_explained(groups, n_components, message):
    with pytest.raises(ValueError, match=message):
        pairing_basis(counts(), groups, n_components=n_components)


def repeated_entries(matrix):
    """The same matrix as CSR with every entry in two halves, in descending order of columns."""
    whole = sp.csr_array(matrix)
    rows = np.repeat(np.arange(whole.shape[0]), 2 * np.diff(whole.indptr))
    halves = np.repeat(whole.data / 2, 2), np.repeat(whole.indices, 2)
    order = np.lexsort((-halves[1], rows))
    made = sp.csr_array((halves[0][order], halves[1][order], 2 * whole.indptr), shape=whole.shape)
    assert not made.has_canonical_format
    np.testing.assert_array_equal(made.toarray(), matrix)
    return made


def test_sparse_rows_in_any_form_are_their_dense_ones(views):
    X, P, kinds, groups = views
    X, P = (np.where(np.abs(rows) < 1, 0.0, rows) for rows in (X, P))
    pairs = neighbor_pairs(X, P)
    scores = pairing_basis(X, groups, n_components=3)
    matched = match_clusters(X, P, kinds, kinds[::-1])
    scaled = scaled_features(X).matrix
    for form in (repeated_entries, sp.csc_matrix, sp.coo_array, sp.lil_matrix):
        ours = neighbor_pairs(form(X), form(P))
        assert as_set(ours) == as_set(pairs)
        np.testing.assert_allclose(ours.distances, pairs.distances)
        np.testing.assert_allclose(pairing_basis(form(X), groups, n_components=3), scores)
        assert match_clusters(form(X), form(P), kinds, kinds[::-1]) == matched
        np.testing.assert_allclose(scaled_features(form(X)).matrix.toarray(), scaled)


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int8, np.float16, np.float32, np.uint64, np.longdouble]
)
def test_rows_of_other_dtypes_are_taken_in_double_precision(views, dtype):
    X, P, kinds, groups = views
    X, P = (np.clip(np.round(rows * 4 + 30), 0, 120) for rows in (X, P))
    for one, two in [
        (neighbor_pairs(X, P), neighbor_pairs(X.astype(dtype), P.astype(dtype))),
        (neighbor_pairs(X, P), neighbor_pairs(X, P.astype(dtype))),
    ]:
        assert as_set(one) == as_set(two)
        np.testing.assert_array_equal(one.distances, two.distances)
    np.testing.assert_allclose(
        pairing_basis(X.astype(dtype), groups, n_components=3),
        pairing_basis(X, groups, n_components=3),
    )
    assert match_clusters(X, P, kinds, kinds) == match_clusters(
        X.astype(dtype), P.astype(dtype), kinds, kinds
    )


@pytest.mark.parametrize("exponent", [-900, -500, 500, 900])
def test_the_scale_of_rows_does_not_matter(views, exponent):
    X, P, kinds, groups = views
    scale = 2.0**exponent
    pairs, scaled = neighbor_pairs(X, P), neighbor_pairs(scale * X, scale * P)
    assert as_set(pairs) == as_set(scaled)
    np.testing.assert_allclose(scaled.distances / scale, pairs.distances)
    np.testing.assert_allclose(
        pairing_basis(scale * X, groups, n_components=3) / scale,
        pairing_basis(X, groups, n_components=3),
    )
    assert match_clusters(scale * X, scale * P, kinds, kinds) == match_clusters(X, P, kinds, kinds)
    features = scaled_features(scale * X)
    np.testing.assert_allclose(features.matrix, scaled_features(X).matrix)
    np.testing.assert_allclose(features.scale * scale, scaled_features(X).scale)


def test_groups_of_one_are_refused_for_a_basis(views):
    X, _, _, groups = views
    for labels in (np.arange(80), [str(i) for i in range(80)]):
        with pytest.raises(ValueError, match=r"X has 80 rows with 80 labels. Labels need several"):
            pairing_basis(X, labels)
    with pytest.raises(ValueError, match="no row differs from the mean of its label"):
        pairing_basis(np.full((80, 5), 0.1), groups)
    alone = np.where(np.arange(80) == 7, "alone", groups)
    assert np.abs(pairing_basis(X, alone, n_components=3)[7]).max() < 1e-12


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_missing_are_refused(views, bad):
    X, P, kinds, groups = views
    broken = X.copy()
    broken[3, 2] = bad
    for call in (
        lambda: neighbor_pairs(broken, P),
        lambda: pairing_basis(broken, groups),
        lambda: match_clusters(broken, P, kinds, kinds),
        lambda: scaled_features(broken),
    ):
        with pytest.raises(ValueError, match=r"X contains NaN or inf .* in feature 2"):
            call()
    with pytest.raises(ValueError, match="positive contains NaN or inf"):
        neighbor_pairs(P, broken)


def test_clusters_and_groups_must_fit(views):
    X, P, kinds, groups = views
    with pytest.raises(ValueError, match="positive has 3 features but X has 5"):
        match_clusters(X, P[:, :3], kinds, kinds)
    with pytest.raises(TypeError, match="within mixes labels of the types int, str"):
        neighbor_pairs(X, P, within=[1, "a"] * 40, positive_within=groups)
    with pytest.raises(TypeError, match="no label of one can equal one of the other"):
        neighbor_pairs(X, P, within=groups, positive_within=kinds)
    with pytest.raises(ValueError, match="positive_within has 1 missing labels"):
        neighbor_pairs(X, P, within=kinds, positive_within=[*kinds[1:].tolist(), np.nan])


def test_a_group_of_one_row_has_no_part_in_the_basis() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 4)) * [5, 1, 1, 1]
    X[0] = [0, 1000, 0, 0]  # as large as it may be, it is its group's mean
    groups = np.repeat(["a", "b", "c"], [1, 9, 10])
    scores = pairing_basis(X, groups, n_components=2)
    np.testing.assert_allclose(scores[0], 0, atol=1e-9)
    rest = pairing_basis(X[1:], groups[1:], n_components=2)
    np.testing.assert_allclose(scores[1:] @ scores[1:].T, rest @ rest.T, atol=1e-9)


def test_clusters_of_other_features_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(6, 4))
    with pytest.raises(ValueError, match="positive has 3 features but X has 4; both need the same"):
        match_clusters(X, X[:, :3], [0, 1] * 3, [0, 1] * 3)


def test_groups_without_a_label_in_common_are_refused() -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, 10, 3))
    with pytest.raises(ValueError, match="no label in common"):
        neighbor_pairs(X, Y, within=["a"] * 10, positive_within=["b"] * 10)
