"""Tests of `contrast_path`: its grid of alphas, and the representatives that it selects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

from contrast_core import CPCA, contrast_path
from contrast_core.contrast import representatives, subspace_affinity
from contrast_core.datasets import make_four_groups
from contrast_core.linalg import subspace_error
from tests.core.test_contract import planted


@pytest.fixture(scope="module")
def path() -> Any:
    X, Y = planted()
    return contrast_path(X, background=Y, n_components=2)


def test_the_default_grid_has_zero_and_forty_values_with_equal_ratios(path: Any) -> None:
    assert len(path.alphas) == 41
    np.testing.assert_allclose(path.alphas[[0, 1, -1]], [0.0, 0.1, 1000.0])
    np.testing.assert_allclose(np.diff(np.log(path.alphas[1:])), np.log(1e4) / 39)


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
def test_every_point_of_the_path_equals_a_fit_at_its_alpha(path: Any) -> None:
    X, Y = planted()
    for i in (0, 7, 20, 40):
        fitted = CPCA(alpha=path.alphas[i]).fit(X, background=Y)
        assert subspace_error(path.components[i], fitted.components_) < 1e-10
        np.testing.assert_allclose(path.eigenvalues[i], fitted.contrastive_eigenvalues_)
        np.testing.assert_array_equal(path.at(path.alphas[i]).components_, fitted.components_)


def test_variances_trace_the_pareto_front(path: Any) -> None:
    """Check that both variances fall as alpha rises (Abid et al. 2018, Thm 1).

    This holds for the first component and for the sum over components.
    """
    for variances in (path.foreground_variances, path.background_variances):
        for curve in (variances[:, 0], variances.sum(axis=1)):
            assert (np.diff(curve) <= 1e-10 * curve[0]).all()


def test_affinity_is_the_product_of_the_cosines_of_principal_angles(path: Any) -> None:
    u, v = path.components[0], path.components[25]
    cosines = np.linalg.svd(u @ v.T, compute_uv=False)
    assert path.affinity[0, 25] == pytest.approx(np.prod(cosines))
    np.testing.assert_allclose(path.affinity, path.affinity.T)
    np.testing.assert_array_equal(path.affinity.diagonal(), 1.0)
    # For more than 10 components, the product would be close to 0, so the affinity is the geometric
    # mean of the cosines. For orthogonal subspaces, it is 0 and not NaN.
    rng = np.random.default_rng(0)
    subspaces = np.stack([np.linalg.qr(rng.normal(size=(200, 60)))[0].T for _ in range(3)])
    cosines = np.linalg.svd(subspaces[0] @ subspaces[1].T, compute_uv=False)
    mean = np.exp(np.log(cosines).mean())
    assert subspace_affinity(subspaces)[0, 1] == pytest.approx(mean)
    assert subspace_affinity(np.stack([np.eye(4)[:2], np.eye(4)[2:]]))[0, 1] == 0.0


def test_representatives_are_medoids_of_clusters(path: Any) -> None:
    assert len(path.representatives) == 3
    assert (np.diff(path.representatives) > 0).all()
    for cluster, medoid in enumerate(path.representatives):
        members = np.flatnonzero(path.labels == cluster)
        assert medoid in members
        summed = path.affinity[np.ix_(members, members)].sum(axis=1)
        assert summed[members == medoid][0] >= summed.max() * (1 - 1e-9)
    np.testing.assert_array_equal(path.representative_alphas, path.alphas[path.representatives])


def test_clusters_agree_with_the_algorithm_of_ng_jordan_and_weiss() -> None:
    data = make_four_groups(random_state=19)
    path = contrast_path(data.foreground, background=data.background)
    weights = path.affinity - np.eye(41)
    roots = np.sqrt(weights.sum(axis=0))
    rows = np.linalg.eigh(weights / np.outer(roots, roots))[1][:, -3:]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = KMeans(3, n_init=10, random_state=0).fit_predict(rows)
    assert adjusted_rand_score(labels, path.labels) == 1.0


def test_equal_subspaces_need_one_representative() -> None:
    X, Y = planted()
    whole = contrast_path(X[:, :3], background=Y[:, :3], n_components=3)
    assert len(whole.representatives) == 1
    short = contrast_path(X, background=Y, alphas=[0, 1])
    assert len(short.representative_alphas) <= 2
    labels, medoids = representatives(np.eye(5), 5, 0)
    assert sorted(labels) == sorted(medoids) == [0, 1, 2, 3, 4]
    assert representatives(np.ones((5, 5)), 1, 0)[1] == [2]  # the middle of a constant path


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")
@pytest.mark.parametrize("seed", range(2))
def test_the_path_shows_three_divisions_of_four_groups(seed: int) -> None:
    """Reproduce Abid et al. 2018, App. A, with the three representative alphas.

    From the smallest to the largest alpha, the scores separate the groups by features 1 to 10, by
    features 1 to 20, and by features 11 to 20.
    """
    data = make_four_groups(random_state=seed)
    path = contrast_path(data.foreground, background=data.background)
    splits = {"first": data.labels // 2, "second": data.labels % 2, "both": data.labels}
    scores = [path.at(alpha).transform(data.foreground) for alpha in path.representative_alphas]
    low, middle, high = (
        {name: silhouette_score(part, groups) for name, groups in splits.items()} for part in scores
    )
    assert low["first"] > 0.1 > low["second"] + 0.05
    assert middle["both"] > 0.75
    assert high["second"] > 0.5 > high["first"] + 0.4
