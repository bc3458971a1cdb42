"""Tests of eigenpairs, signs and angles, and of iterative solvers on difficult spectra.

The solvers prove that their eigenpairs are the leading ones, or else leave the problem to LAPACK.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from contrast_core.linalg import (
    RidgeWeights,
    _path,
    _proof,
    contrastive_path,
    fix_signs,
    leading_eigenpairs,
    leading_ratios,
    pivoted_cholesky,
    principal_angles,
    proved_components,
    solve_contrast,
    subspace_error,
)
from contrast_core.linalg._lapack import largest_eigenpairs
from tests.core.planned import rotation, symmetric

EPS = np.finfo(np.float64).eps


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(5, -3, 40),
        np.r_[3.0, 3.0, 3.0, np.zeros(37)],
        np.r_[2.0, 2.0 - 1e-9, 1.0, -np.ones(37)],
        -np.linspace(1, 9, 40),
        np.r_[1e8, 1.0, np.full(38, 1e-8)],
        np.array([2.0]),
    ],
    ids=["spread", "tied", "near-tie", "negative", "wide-range", "single"],
)
def test_leading_eigenpairs_solve_the_problem(values: Any) -> None:
    matrix = symmetric(values)
    scale = np.abs(values).max()
    for k in {1, min(3, len(values)), len(values)}:
        found = leading_eigenpairs(matrix, k)
        np.testing.assert_allclose(found.values, np.sort(values)[::-1][:k], atol=100 * EPS * scale)
        residual = found.components @ matrix - found.values[:, None] * found.components
        assert np.abs(residual).max() < 200 * EPS * scale
        np.testing.assert_allclose(found.components @ found.components.T, np.eye(k), atol=1e-13)


def test_the_sign_rule_does_not_depend_on_the_last_bit() -> None:
    v = np.array([[0.5, -0.5, 0.5, -0.5]])
    for wobble in (0.0, 1e-15, -1e-15):
        shaken = v.copy()
        shaken[0, 1] += wobble
        assert fix_signs(shaken)[0, 0] > 0
        assert fix_signs(-shaken)[0, 0] > 0


def test_angles_between_known_subspaces_are_exact() -> None:
    eye = np.eye(5)
    turned = np.cos(0.3) * eye[1] + np.sin(0.3) * eye[4]
    np.testing.assert_allclose(principal_angles(eye[:2], [eye[0], turned]), [0.3, 0.0], atol=1e-12)
    assert subspace_error(eye[:2], [eye[0], turned]) == pytest.approx(np.sin(0.3))
    assert subspace_error(eye[:2], 7 * eye[1::-1]) < 1e-15
    # Very small angles keep their relative precision.
    assert subspace_error(eye[:1], [eye[0] + 1e-11 * eye[2]]) == pytest.approx(1e-11, rel=1e-6)
    with pytest.raises(ValueError, match="have 2 and 1 dimensions"):
        subspace_error(eye[:2], eye[:1])
    with pytest.raises(ValueError, match="expected finite rows"):
        subspace_error(eye[:1], [np.nan, 1.0, 0.0, 0.0, 0.0])
    assert subspace_error([eye[0], eye[0]], eye[:1]) < 1e-12


@pytest.mark.parametrize("rank", [0, 3, 200, 299])  # below and above the block size of LAPACK
def test_a_pivoted_cholesky_factor_keeps_the_inner_products_of_the_rows(rank: int) -> None:
    rows = np.random.default_rng(0).normal(size=(300, rank)) * np.linspace(5, 1, rank)
    gram = rows @ rows.T
    factor = pivoted_cholesky(gram, 300 * EPS * gram.diagonal().max())
    coordinates = factor.coordinates()
    assert coordinates.shape == (300, rank)
    np.testing.assert_allclose(coordinates @ coordinates.T, gram, atol=1e-12 * gram.max())
    triangle = coordinates[factor.pivots]
    assert not np.triu(triangle, 1).any()
    # Pivoting takes the row with the largest residual first.
    assert (np.diff(triangle.diagonal()) <= 1e-12).all()

    vectors = np.random.default_rng(1).normal(size=(2, rank))
    weights = factor.weights(vectors)
    np.testing.assert_allclose(weights.T @ coordinates, vectors, atol=1e-10)
    assert not weights[factor.order[rank:]].any()
    found = factor.along_basis(vectors @ coordinates.T)
    np.testing.assert_allclose(found, vectors, atol=1e-10)


D = 240
BUDGET = 1.0 * D  # largest number of vectors that a solver may multiply by the matrix


def spectrum(*leading: float) -> Any:
    """Return D eigenvalues: the given ones, and further ones from 1 down to -4."""
    return np.concatenate([leading, np.linspace(1.0, -4.0, D - len(leading))])


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_the_solver_of_one_contrast_agrees_with_lapack(k: int, scale: float) -> None:
    x = scale * symmetric(spectrum(9.0, 8.0, 7.5, 7.0, 3.0))
    y = scale * symmetric(np.linspace(0.5, 0, D), 1)
    pairs = proved_components((x - 0.5 * y,), k, BUDGET).pairs
    assert pairs is not None
    exact, _ = solve_contrast(x, y, 0.5, k)
    found, solver = solve_contrast(x, y, 0.5, k, BUDGET)
    assert solver == "search"
    np.testing.assert_allclose(found.values, exact.values, rtol=1e-12)
    assert subspace_error(found.components, exact.components) <= 1e-10
    np.testing.assert_array_equal(found.values, pairs.values[:k])


@pytest.mark.parametrize("overwrite", [False, True])
def test_equal_eigenvalues_are_found_where_lapack_finds_none(overwrite: bool) -> None:
    for seed in range(200):  # with some seeds, neither MRRR nor bisection finds an eigenvalue
        matrix = np.asfortranarray(symmetric(np.ones(52), seed))
        values, vectors = largest_eigenpairs(matrix.copy(order="F"), 2, overwrite=overwrite)
        np.testing.assert_allclose(values, [1.0, 1.0])
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(2), atol=1e-12)
        np.testing.assert_allclose(matrix @ vectors, vectors, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 52])
def test_all_eigenpairs_are_computed_if_lapack_finds_too_few(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, unchanged = symmetric(np.arange(52.0)), np.eye(52)
    exact = scipy.linalg.eigh
    asked = []

    def few(*matrices: Any, **options: Any) -> Any:
        values, vectors = exact(*matrices, **options)
        asked.append("subset_by_index" in options)
        return (values[1:], vectors[:, 1:]) if asked[-1] else (values, vectors)

    monkeypatch.setattr(scipy.linalg, "eigh", few)
    wanted = np.arange(52.0)[-k:]
    values, vectors = largest_eigenpairs(np.asfortranarray(matrix.copy()), k)
    np.testing.assert_allclose(values, wanted, atol=1e-12)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-11)
    found = leading_ratios(matrix, unchanged, RidgeWeights(0, 1), k)
    np.testing.assert_allclose(found.values, wanted[::-1], atol=1e-12)
    assert asked == [True, True, False]


@pytest.mark.parametrize("pooled", [False, True])
def test_equal_ratios_are_found_where_lapack_finds_none(pooled: bool) -> None:
    for seed in range(60):  # with some seeds, bisection finds no ratio
        background = symmetric(np.linspace(0.5, 2, 52), seed)
        values, vectors = leading_ratios(
            3 * background, background, RidgeWeights(0, 1), 2, pooled=pooled
        )
        np.testing.assert_allclose(values, [3.0, 3.0])
        np.testing.assert_allclose(vectors @ background @ vectors.T, np.eye(2), atol=1e-12)


@pytest.mark.parametrize(
    "values", [spectrum(9.0, 9.0), spectrum(9.0, 9.0 - 1e-14), np.zeros(D), np.ones(D)]
)
def test_ties_are_left_to_lapack(values: Any) -> None:
    matrix = symmetric(values)
    assert proved_components((matrix,), 1, BUDGET).pairs is None
    found, solver = solve_contrast(matrix, np.zeros_like(matrix), 0.0, 1, BUDGET)
    assert solver == "eigh"
    np.testing.assert_allclose(found.values, values[0], rtol=1e-12)


def test_multiple_and_decoupled_eigenvalues_are_found() -> None:
    matrix = np.zeros((D, D))
    matrix[0, 0] = 20.0  # the first coordinate is an eigenvector by itself
    matrix[1:, 1:] = symmetric(spectrum(9.0, 9.0)[:-1])
    seen = proved_components((matrix,), 3, BUDGET).pairs
    assert seen is not None
    np.testing.assert_allclose(seen.values[:3], [20.0, 9.0, 9.0], rtol=1e-12)


def test_the_automatic_alpha_is_the_largest_trace_ratio() -> None:
    """Check that the leading eigenvalues of ``x - alpha (y + ridge I)`` add up to zero.

    The matrices are so small that the eigenvectors converge while alpha is still rough. A search
    that stopped there would return a wrong alpha.
    """
    for seed in range(8):
        x, y = (symmetric(np.geomspace(each, 0.1, 12), seed + each) for each in (20, 3))
        found = proved_components((x, y), 2, BUDGET, ridge=0.2)
        assert found.pairs is not None
        values = np.linalg.eigvalsh(x - found.alpha * (y + 0.2 * np.eye(12)))
        assert abs(values[-2:].sum()) <= 1e-10


def test_pairs_without_a_leading_eigenvector_are_not_proved() -> None:
    """Check that a proof fails if the leading eigenvector is left out.

    The residuals of the other eigenvectors do not reveal that it is missing. `beta` is an upper
    bound of the third eigenvalue, because two eigenvectors are given.
    """
    values = np.r_[20.0, 9.0, 8.0, np.linspace(1, 0, 27)]
    for first in (0, 1):
        vectors = np.eye(30)[:, first : first + 2]
        pairs = _proof.RitzPairs(values[first : first + 3], vectors, np.zeros(2))
        beta = _proof.bound_by_inertia(lambda: np.diag(-values), pairs)
        assert _proof.is_proved(pairs, beta, 20.0) == (first == 0)


def test_the_solver_gives_up_early_if_there_is_no_eigenvalue_gap() -> None:
    noise = np.random.default_rng(0).normal(size=(2000, 1000))

    class Counted(np.ndarray):  # type: ignore[type-arg]
        columns = 0

        def __rmatmul__(self, other: Any) -> Any:
            if self.shape == noise.T.shape[:1] * 2:  # count products with the whole matrix only
                Counted.columns += len(other)
            return other @ np.asarray(self)

    assert proved_components(((noise.T @ noise).view(Counted),), 2, 30).pairs is None
    assert 20 <= Counted.columns <= 60


def test_the_bound_of_the_angle_divides_each_residual_by_its_own_eigenvalue_gap() -> None:
    """Check the bound of the largest angle between an approximate and the exact leading subspace.

    The bound must be valid for a perturbed subspace. It must also be at most the norm of all
    residuals divided by the eigenvalue gap.
    """
    rng = np.random.default_rng(0)
    values = np.r_[100.0, 9.0, 2.001, 2.0, np.linspace(1, -50, 26)]
    matrix = np.diag(values)
    for size in (1e-9, 1e-6, 1e-4):
        near = np.linalg.qr(np.eye(30)[:, :3] + size * rng.normal(size=(30, 3)))[0]
        ritz, within = np.linalg.eigh(near.T @ matrix @ near)
        vectors, ritz = near @ within[:, ::-1], ritz[::-1]
        residuals = np.linalg.norm(matrix @ vectors - vectors * ritz, axis=0)
        pairs = _proof.RitzPairs(np.r_[ritz, 2.0], vectors, residuals)
        assert np.linalg.norm(vectors[3:]) <= pairs.sine(2.0) * (1 + 1e-6)
        assert pairs.sine(2.0) <= pairs.residual / pairs.gap
    assert pairs.sine(ritz[-1]) == np.inf


@pytest.mark.parametrize("angle", [1e-10, 1e-7, 1e-3])
def test_only_vectors_near_the_eigenvectors_are_proved(angle: float) -> None:
    """Use vectors at small angles to the leading eigenvectors.

    An upper bound `beta` of the third eigenvalue does not suffice to prove two eigenvectors; their
    residuals must be small too.
    """
    values = np.r_[9.0, 8.0, np.linspace(1, 0, 28)]
    turned = np.eye(30)[:, :2]
    turned[1, 1], turned[2, 1] = np.cos(angle), np.sin(angle)
    ritz = np.r_[np.diag(turned.T * values @ turned), 1.0]
    residuals = np.linalg.norm(values[:, None] * turned - turned * ritz[:2], axis=0)
    pairs = _proof.RitzPairs(ritz, turned, residuals)
    beta = _proof.bound_by_inertia(lambda: np.diag(-values), pairs)
    assert 1.0 < beta < 8.0
    assert _proof.is_proved(pairs, beta, 9.0) == (angle < 1e-8)


ALPHAS = np.concatenate([[0.0], np.logspace(-1, 3, 12)])


def solved(x: Any, y: Any, k: int, budget: float | None = np.inf) -> Any:
    """Return eigenvalues (A, k), components (A, k, D) and solvers for a path of A contrasts."""
    pairs, solvers = zip(*contrastive_path(x, y, ALPHAS, k, budget=budget), strict=True)
    values, components = map(np.stack, zip(*pairs, strict=True))
    return values, components, solvers


def covariances(d: int, kind: str, seed: int = 0) -> tuple[Any, Any]:
    """Return a foreground and a background covariance (d, d) with the given kind of spectrum."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(3 * d, d)), rng.normal(size=(3 * d, d))
    if kind == "power-law":
        scale = np.maximum(3 * np.arange(1, d + 1) ** -0.5, 0.15)
        x, y = x * scale, y * scale * (1 + 0.2 * np.sin(np.arange(d)))
    signal = np.linalg.qr(rng.normal(size=(d, 6)))[0]
    x += rng.normal(size=(3 * d, 6)) * np.linspace(6, 2, 6) @ signal.T
    if kind == "clustered":
        x += rng.normal(size=(3 * d, 6)) * 5.0 @ signal.T
    if kind == "rank-deficient":
        y[:, d // 2 :] = 0
        y = y[: d // 4]
    cov_x, cov_y = x.T @ x / len(x), y.T @ y / len(y)
    return cov_x, cov_y


def assert_exact_path(x: Any, y: Any, k: int, components: Any) -> None:
    """Check that every subspace on the path is as exact as its eigengap allows."""
    for alpha, found in zip(ALPHAS, components, strict=True):
        values, vectors = np.linalg.eigh(x - alpha * y)
        norm, gap = np.abs(values).max(), values[-k] - values[-k - 1]
        assert subspace_error(found, vectors[:, -k:].T) <= max(1e-8, 100 * EPS * norm / gap)


@pytest.mark.parametrize("kind", ["noise", "power-law", "clustered", "rank-deficient"])
@pytest.mark.parametrize(("k", "scale"), [(1, 1.0), (2, 1e-30), (2, 1e30), (5, 1.0)])
def test_the_path_solver_is_as_exact_as_lapack(kind: str, k: int, scale: float) -> None:
    """Use extreme scales too; steps in single precision must neither overflow nor underflow."""
    x, y = (scale * part for part in covariances(100, kind))
    values, components, solvers = solved(x, y, k)
    assert_exact_path(x, y, k, components)
    # For a power law and k = 2, at most two contrasts are left to LAPACK.
    assert kind != "power-law" or k != 2 or solvers.count("search") >= len(ALPHAS) - 2
    exact, *_ = solved(x, y, k, budget=None)
    largest = np.abs(exact).max(axis=1, keepdims=True)
    np.testing.assert_allclose(values / largest, exact / largest, atol=1e-12)


def test_a_path_makes_few_cholesky_factors_and_keeps_only_the_last(monkeypatch: Any) -> None:
    made: list[weakref.ref[Any]] = []
    factored = _path.Pencil.factored

    def watched(pencil: Any, ritz: Any) -> Any:
        assert sum(solve() is not None for solve in made) <= 1
        solve = factored(pencil, ritz)
        made.append(weakref.ref(solve))
        return solve

    monkeypatch.setattr(_path.Pencil, "factored", watched)
    x, y = covariances(200, "noise")
    path = contrastive_path(x, y, np.geomspace(0.1, 100, 42), 2, budget=np.inf)
    assert {solver for _, solver in path} == {"search"}
    assert 3 <= len(made) < 7  # less than one for each of the seven groups of contrasts


def test_a_decoupled_eigenvector_is_found() -> None:
    """Use a leading eigenvector that the residuals of the other vectors do not reveal."""
    d = 200
    x, y = covariances(d, "noise", 1)
    # The last coordinate is an eigenvector by itself. It is the leading one only for a large alpha.
    for matrix in (x, y):
        matrix[-1, :] = matrix[:, -1] = 0
    x[-1, -1] = 20.0
    _, components, _ = solved(x, y, 2)
    assert_exact_path(x, y, 2, components)
    assert abs(components[-1, 0, -1]) > 0.999
    assert abs(components[0, :, -1]).max() < 1e-6


def test_a_wrong_candidate_is_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the solver exact eigenpairs that are not the leading ones, which it must refuse."""
    x, y = covariances(120, "power-law", 2)

    def second_and_third(space: Any, contrasts: Any, k: int, *_: Any) -> Any:
        pairs = []
        for alpha in contrasts():
            values, vectors = scipy.linalg.eigh(x - alpha * y)
            order = np.arange(len(values))[::-1][1 : k + 2]
            chosen = vectors[:, order[:k]]
            pairs.append(_proof.RitzPairs(values[order], chosen, np.full(chosen.shape[1], 1e-14)))
        return pairs, True

    monkeypatch.setattr(_path, "search", second_and_third)
    _, components, solvers = solved(x, y, 2)
    assert set(solvers) == {"eigh"}
    assert_exact_path(x, y, 2, components)


@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-7])
def test_near_ties_fall_back_to_lapack_or_are_resolved(gap: float) -> None:
    values = np.r_[5.0, 4.0, 4.0 - gap, np.linspace(3, 0, 147)]
    x, y, basis = symmetric(values), 0.01 * np.eye(150), rotation(150)
    path, components, _ = solved(x, y, 2)
    for alpha, found, eigenvalues in zip(ALPHAS, components, path, strict=True):
        np.testing.assert_allclose(eigenvalues, values[:2] - 0.01 * alpha, atol=1e-11)
        residual = found @ x - 0.01 * alpha * found - eigenvalues[:, None] * found
        assert np.abs(residual).max() < 1e-7
        assert subspace_error(found[:1], basis[:, :1].T) < 1e-8


def test_bounds_hold_where_the_next_ritz_value_has_not_converged(monkeypatch: Any) -> None:
    """Check the upper bounds of the third eigenvalue at each contrast and between two contrasts.

    The search returns two eigenpairs and an estimate of the third eigenvalue (a Ritz value) that is
    too small. In this example, every eigenvalue is a linear function of alpha.
    """
    x, y = np.diag(np.r_[10.0, 9.0, 8.0, np.linspace(1, 0, 57)]), 0.01 * np.eye(60)

    def understated(space: Any, contrasts: Any, k: int, *_: Any) -> Any:
        return [
            _proof.RitzPairs(
                np.array([10.0, 9.0, 7.95]) - 0.01 * alpha, np.eye(60)[:, :2], np.full(2, 1e-14)
            )
            for alpha in contrasts()
        ], True

    monkeypatch.setattr(_path, "search", understated)
    path = _path._ProvedPath(x, y, ALPHAS, 2, np.inf)
    assert len(path.proved) == len(ALPHAS) > path.tried.sum()
    assert (path.beta >= 8.0 - 0.01 * ALPHAS).all()
    found = _path.bound_by_inertia

    def fails_at_the_last(negated: Any, pairs: Any) -> float:
        return np.inf if pairs.values[0] == 10.0 - 0.01 * ALPHAS[-1] else found(negated, pairs)

    # If there is no bound at the last contrast, the one before it bounds all others.
    monkeypatch.setattr(_path, "bound_by_inertia", fails_at_the_last)
    path = _path._ProvedPath(x, y, ALPHAS, 2, np.inf)
    assert list(path.proved) == list(range(len(ALPHAS) - 1))
    assert np.flatnonzero(path.tried).tolist() == [0, len(ALPHAS) - 2, len(ALPHAS) - 1]
