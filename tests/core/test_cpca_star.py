"""Tests of cPCA*: the generalised eigenproblem, the automatic strength and the contrast index.

The tests also cover a singular background, `condition_limit` and `orthogonal`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import contrast_core as cc
from contrast_core import CPCA, PCPCA, ContrastWarning, CPCAStar, SecondMoments, SparseCPCA
from contrast_core.contrast import background_ridge, trace_ratio_alpha
from contrast_core.linalg import subspace_error
from tests.core.test_contract import planted


def normal_pair(n: int = 200, m: int = 150, d: int = 15, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d))
    scales = np.linspace(3, 1, d)
    return (rng.normal(size=(n, d)) * scales) @ mixing, rng.normal(size=(m, d)) @ mixing


def covariances(X: Any, Y: Any) -> tuple[Any, Any]:
    return np.cov(X.T, bias=True), np.cov(Y.T, bias=True)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.9, 1.0])
def test_directions_solve_the_generalised_eigenproblem(beta: float) -> None:
    X, Y = normal_pair()
    c_x, c_y = covariances(X, Y)
    b = (1 - beta) * np.eye(15) + beta * c_y
    star = CPCAStar(4, beta=beta).fit(X, background=Y)
    v, values = star.directions_, star.generalized_eigenvalues_
    np.testing.assert_allclose(c_x @ v.T, b @ v.T * values, atol=1e-10 * np.abs(c_x).max())
    np.testing.assert_allclose(v @ b @ v.T, np.eye(4), atol=1e-10)
    reference = scipy.linalg.eigh(c_x, b, eigvals_only=True, subset_by_index=[11, 14])[::-1]
    np.testing.assert_allclose(values, reference, rtol=1e-10)
    for j in range(1, 5):  # the first j components and the first j directions have the same span
        assert subspace_error(star.components_[:j], v[:j]) < 1e-12
    for C, variance in ((c_x, star.foreground_variance_), (c_y, star.background_variance_)):
        np.testing.assert_allclose(np.diag(star.components_ @ C @ star.components_.T), variance)
    scaled = CPCAStar(4, beta=beta).fit(5 * X, background=Y)
    assert subspace_error(scaled.components_, star.components_) < 1e-10
    np.testing.assert_allclose(scaled.generalized_eigenvalues_, 25 * values)


@pytest.mark.parametrize(("n_rows", "n_singular"), [(10, 6), (15, 1)])
def test_beta_one_needs_a_positive_definite_background(n_rows: int, n_singular: int) -> None:
    X, Y = normal_pair(m=n_rows)
    message = rf"singular to working precision.*in {n_singular} of 15 directions.*beta < 1"
    with pytest.raises(ValueError, match=message):
        CPCAStar(beta=1.0).fit(X, background=Y)
    fitted = CPCAStar(beta=0.99).fit(X, background=Y)
    with pytest.raises(ValueError, match=message):
        fitted.at(1.0)


def test_the_automatic_beta_uses_the_ridge_of_the_automatic_alpha() -> None:
    X, Y = normal_pair()
    x, y = SecondMoments.from_data(X), SecondMoments.from_data(Y)
    tau = background_ridge(x, y)
    np.testing.assert_allclose(tau, y.total_variance / 15 / 4)
    assert CPCAStar().fit(x, background=y).beta_ == pytest.approx(1 / (1 + tau))
    # The automatic alpha of cPCA equals the ratio of variances with the same ridge.
    alpha = trace_ratio_alpha(x, y, 2)
    cpca = CPCA(2, alpha=alpha).fit(x, background=y)
    assert alpha == pytest.approx(
        cpca.foreground_variance_.sum() / (cpca.background_variance_.sum() + 2 * tau)
    )


def greedy(c_x: Any, b: Any, k: int) -> tuple[Any, Any]:
    """Return the ratios ``v^T c_x v / v^T b v`` of k orthogonal directions v, and the directions.

    Each direction has the largest ratio among all directions orthogonal to the earlier ones.
    """
    found = np.empty((0, len(c_x)))
    values = []
    for _ in range(k):
        rest = scipy.linalg.null_space(found) if len(found) else np.eye(len(c_x))
        w, v = scipy.linalg.eigh(rest.T @ c_x @ rest, rest.T @ b @ rest)
        direction = rest @ v[:, -1]
        found = np.vstack([found, direction / np.linalg.norm(direction)])
        values.append(w[-1])
    return np.array(values), found


def same_up_to_sign(a: Any, b: Any, atol: float) -> None:
    np.testing.assert_allclose(a * np.sign((a * b).sum(axis=1, keepdims=True)), b, atol=atol)


def test_condition_limit_keeps_the_leading_principal_directions_of_both_datasets() -> None:
    X, Y = normal_pair(80, 60, 12)
    c_x, c_y = covariances(X, Y)
    values, vectors = np.linalg.eigh(c_x + c_y)
    kept = vectors[:, -5:]
    limit = values[-1] / np.sqrt(values[-5] * values[-6])
    limited = CPCAStar(3, beta=0.7, condition_limit=limit).fit(X, background=Y)
    inside = CPCAStar(3, beta=0.7).fit(X @ kept, background=Y @ kept)
    same_up_to_sign(limited.directions_, inside.directions_ @ kept.T, 1e-10)
    np.testing.assert_allclose(limited.generalized_eigenvalues_, inside.generalized_eigenvalues_)
    with pytest.raises(ValueError, match=r"n_components=6, but 5 directions .* condition_limit"):
        CPCAStar(6, beta=0.7, condition_limit=limit).fit(X, background=Y)
    with pytest.raises(ValueError, match="condition_limit=1 is out of range: it must be above 1"):
        CPCAStar(3, condition_limit=1).fit(X, background=Y)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_the_ratio_is_infinite_along_directions_with_foreground_variance_only(scale: float) -> None:
    X, Y = (part * scale for part in normal_pair(80, 60, 12))
    Y[:, :2] = 3.0 * scale
    with pytest.raises(ValueError, match=r"singular to working precision.*condition_limit"):
        CPCAStar(3, beta=1).fit(X, background=Y)
    star = CPCAStar(3, beta=1, condition_limit=1e13).fit(X, background=Y)
    assert np.isinf(star.generalized_eigenvalues_).tolist() == [True, True, False]
    c_x, c_y = covariances(X, Y)
    v = star.directions_
    # The background has no variance along these directions, and their scores are uncorrelated.
    total = np.trace(c_x)
    assert np.abs(np.diag(v[:2] @ c_y @ v[:2].T)).max() < 1e-9 * total * (v[:2] ** 2).sum()
    np.testing.assert_allclose(v[:2] @ c_x @ v[:2].T, np.eye(2), atol=1e-8)
    np.testing.assert_allclose(star.contrast_index_[:2], 1, atol=1e-9)
    # The first finite ratio is the largest ratio among the directions whose foreground scores are
    # uncorrelated with the scores of these two directions.
    rest = scipy.linalg.null_space(v[:2] @ c_x)
    w = scipy.linalg.eigh(rest.T @ c_x @ rest, rest.T @ c_y @ rest, eigvals_only=True)
    np.testing.assert_allclose(star.generalized_eigenvalues_[2], w[-1], rtol=1e-7)
    with pytest.warns(ContrastWarning, match="2 directions vary in the foreground only.* which 1 "):
        CPCAStar(1, beta=1, condition_limit=1e13).fit(X, background=Y)
    CPCAStar(2, beta=1, condition_limit=1e13).fit(X, background=Y)  # without this warning


@pytest.mark.parametrize("kind", [np.asarray, SecondMoments.from_data])
def test_beta_one_is_refused_if_no_direction_varies_in_both_datasets(kind: Any) -> None:
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(20, 60)), rng.normal(size=(15, 60))
    X[:, :3] += rng.normal(size=(20, 1)) * 9
    Y[:, 3:6] += rng.normal(size=(15, 1)) * 9
    x, y = kind(X), kind(Y)
    with pytest.raises(ValueError, match=r"each of the 33 directions .* one of the datasets only"):
        CPCAStar(2, beta=1, condition_limit=1e13).fit(x, background=y)
    pooled = np.linalg.eigvalsh(sum(covariances(X, Y)))[::-1]
    limit = pooled[0] / np.sqrt(pooled[5] * pooled[6])
    star = CPCAStar(2, beta=1, condition_limit=limit).fit(x, background=y)
    assert np.isfinite(star.generalized_eigenvalues_).all()
    assert star.contrast_index_[0] > 0.9
    # If beta is below 1, no ratio is infinite.
    CPCAStar(2, beta=0.9, condition_limit=1e13).fit(x, background=y)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    ("shape", "condition_limit"), [((80, 60, 12), None), ((80, 60, 12), 1e12), ((15, 12, 40), None)]
)
def test_each_orthogonal_direction_has_the_largest_remaining_ratio(
    beta: float, shape: tuple[int, int, int], condition_limit: float | None
) -> None:
    """Check tall data, and wide data, which are solved in the span of their rows."""
    X, Y = normal_pair(*shape, seed=4)
    if shape[2] > shape[1] and beta == 1.0:
        beta = 0.9  # beta=1 needs more background rows than features
    c_x, c_y = covariances(X, Y)
    n_features, k = shape[2], min(shape[2], 12)
    values, directions = greedy(c_x, (1 - beta) * np.eye(n_features) + beta * c_y, k)
    star = CPCAStar(k, beta=beta, orthogonal=True, condition_limit=condition_limit)
    star.fit(X, background=Y)
    np.testing.assert_allclose(star.generalized_eigenvalues_, values, rtol=1e-8)
    same_up_to_sign(star.directions_, directions, 1e-7)
    np.testing.assert_allclose(star.components_, star.directions_, atol=1e-13)
    np.testing.assert_allclose(star.components_ @ star.components_.T, np.eye(k), atol=1e-13)


def test_constant_features_do_not_change_the_fit_and_a_path_agrees_with_single_fits() -> None:
    X, Y = normal_pair(80, 60, 12)
    options: dict[str, Any] = {"orthogonal": True, "condition_limit": 1e6}
    star = CPCAStar(5, beta=0.9, **options).fit(X, background=Y)
    padded = CPCAStar(5, beta=0.9, **options)
    padded.fit(np.pad(X, ((0, 0), (0, 3))), background=np.pad(Y, ((0, 0), (0, 3))))
    np.testing.assert_allclose(padded.components_, np.pad(star.components_, ((0, 0), (0, 3))))
    for beta, one in zip((0.2, 1.0), star.path([0.2, 1.0]), strict=True):
        alone = CPCAStar(5, beta=beta, **options).fit(X, background=Y)
        np.testing.assert_allclose(one.components_, alone.components_, atol=1e-9)


def test_the_permutation_test_refuses_a_condition_limit() -> None:
    X, Y = normal_pair(80, 60, 12)
    with pytest.raises(ValueError, match="condition_limit"):
        cc.permutation_test(CPCAStar(1, condition_limit=1e3), X, background=Y, n_permutations=19)


METHODS = [CPCA(3, alpha=0.5), PCPCA(3), SparseCPCA(3, alpha=0.5), CPCAStar(3), CPCAStar(3, beta=0)]


def index_along(directions: Any, X: Any, Y: Any) -> Any:
    x, y = ((rows @ directions.T).var(axis=0) for rows in (X, Y))
    return (x - y) / (x + y)


def wide() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 1700)), rng.normal(size=(25, 1700))
    X[:, :9] *= 5
    return X, Y


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("data", [planted, wide])
def test_the_contrast_index_agrees_with_its_definition(method: Any, data: Any) -> None:
    X, Y = data()
    fitted = method.fit(X, background=Y)
    directions = getattr(fitted, "directions_", fitted.components_)
    np.testing.assert_allclose(fitted.contrast_index_, index_along(directions, X, Y), atol=1e-9)
    assert (np.abs(fitted.contrast_index_) <= 1).all()
    for other in (fitted.at(0.1), *fitted.path([0.1])):
        directions = getattr(other, "directions_", other.components_)
        np.testing.assert_allclose(other.contrast_index_, index_along(directions, X, Y), atol=1e-9)
