"""Tests of the proved solver of one contrast against LAPACK, on difficult spectra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core.linalg import (
    _proof,
    _proved,
    solve_contrast,
    subspace_error,
)
from tests.core.planned import symmetric

D = 240
BUDGET = 1.0 * D


def spectrum(*leading: float) -> Any:
    return np.concatenate([leading, np.linspace(1.0, -4.0, D - len(leading))])


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_the_solver_of_one_contrast_agrees_with_lapack(k: int, scale: float) -> None:
    x = scale * symmetric(spectrum(9.0, 8.0, 7.5, 7.0, 3.0))
    y = scale * symmetric(np.linspace(0.5, 0, D), 1)
    pairs = _proved.proved_eigenpairs(x - 0.5 * y, k, BUDGET)
    assert pairs is not None
    exact, _ = solve_contrast(x, y, 0.5, k)
    found, solver = solve_contrast(x, y, 0.5, k, BUDGET)
    assert solver == "eigsh"
    np.testing.assert_allclose(found.values, exact.values, rtol=1e-12)
    assert subspace_error(found.components, exact.components) <= 1e-10
    np.testing.assert_array_equal(found.values, pairs.values[:k])


@pytest.mark.parametrize(
    "values", [spectrum(9.0, 9.0), spectrum(9.0, 9.0 - 1e-14), np.zeros(D), np.ones(D)]
)
def test_ties_are_left_to_lapack(values: Any) -> None:
    matrix = symmetric(values)
    assert _proved.proved_eigenpairs(matrix, 1, BUDGET) is None
    found, solver = solve_contrast(matrix, np.zeros_like(matrix), 0.0, 1, BUDGET)
    assert solver == "eigh"
    np.testing.assert_allclose(found.values, values[0], rtol=1e-12)


def test_multiple_and_decoupled_eigenvalues_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a start with and without a part along a leading eigenvector.

    Without this part, no residual reveals the eigenvector, and the solver must refuse the result.
    """
    matrix = np.zeros((D, D))
    matrix[0, 0] = 20.0
    matrix[1:, 1:] = symmetric(spectrum(9.0, 9.0)[:-1])
    start = np.random.default_rng(0).normal(size=D)
    eigsh = _proved.eigsh
    monkeypatch.setattr(_proved, "eigsh", lambda *a, v0, **more: eigsh(*a, v0=start, **more))
    seen = _proved.proved_eigenpairs(matrix, 3, BUDGET)
    assert seen is not None
    np.testing.assert_allclose(seen.values[:3], [20.0, 9.0, 9.0], rtol=1e-12)
    start[0] = 0.0
    assert _proved.proved_eigenpairs(matrix, 3, BUDGET) is None


def test_the_solver_gives_up_early_if_there_is_no_eigenvalue_gap() -> None:
    noise = np.random.default_rng(0).normal(size=(2000, 1000))

    class Counted(np.ndarray):  # type: ignore[type-arg]
        products = 0

        def __matmul__(self, other: Any) -> Any:
            Counted.products += 1
            return np.asarray(self) @ other

    assert _proved.proved_eigenpairs((noise.T @ noise).view(Counted), 2, 90) is None
    assert 20 <= Counted.products <= 110


def test_the_sine_bound_divides_each_residual_by_its_own_distance() -> None:
    """Check that the bound of the sine holds for a perturbed subspace.

    It must also be at most the norm of all residuals divided by the gap.
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
    """Use vectors at small angles to the eigenvectors.

    A bound of the next eigenvalue does not suffice for a proof; the residuals must be small too.
    """
    values = np.r_[9.0, 8.0, np.linspace(1, 0, 28)]
    turned = np.eye(30)[:, :2]
    turned[1, 1], turned[2, 1] = np.cos(angle), np.sin(angle)
    ritz = np.r_[np.diag(turned.T * values @ turned), 1.0]
    residuals = np.linalg.norm(values[:, None] * turned - turned * ritz[:2], axis=0)
    pairs = _proof.RitzPairs(ritz, turned, residuals)
    beta = _proof.bound_by_inertia(lambda: np.diag(-values), pairs, 9.0)
    assert 1.0 < beta < 8.0
    assert _proof.is_proved(pairs, beta, 9.0) == (angle < 1e-8)
