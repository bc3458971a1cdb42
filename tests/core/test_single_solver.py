"""The proved solver of one contrast against LAPACK, on spectra made to mislead it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from contrast_core import CPCA
from contrast_core.linalg import (
    Iteration,
    _precondition,
    _proof,
    _search,
    _single,
    contrastive_eigenpairs,
    subspace_error,
)

D = 240
LIMITS = Iteration(budget=D, refine=False)


def with_spectrum(values: Any, seed: int = 0) -> Any:
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values),) * 2))[0]
    return (rotation * values) @ rotation.T


def formed(matrix: Any) -> Any:
    """What makes the matrix, or its negative, in memory that is used again."""
    memory = np.empty_like(matrix)
    return lambda sign: np.multiply(matrix, sign, out=memory)


def spectrum(*leading: float) -> Any:
    return np.concatenate([leading, np.linspace(1.0, -4.0, D - len(leading))])


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_it_agrees_with_lapack(k: int, scale: float) -> None:
    x = scale * with_spectrum(spectrum(9.0, 8.0, 7.5, 7.0, 3.0))
    y = scale * with_spectrum(np.linspace(0.5, 0, D), 1)
    pairs, _ = _single.proved_eigenpairs(formed(x - 0.5 * y), k, LIMITS)
    assert pairs is not None
    exact = contrastive_eigenpairs(x, y, 0.5, k)
    found = contrastive_eigenpairs(x, y, 0.5, k, iteration=LIMITS)
    np.testing.assert_allclose(found.values, exact.values, rtol=1e-12)
    assert subspace_error(found.components, exact.components) <= 1e-10
    np.testing.assert_array_equal(found.values, pairs.values[:k])


def test_a_multiple_eigenvalue_within_the_wanted_is_found() -> None:
    pairs, _ = _single.proved_eigenpairs(formed(with_spectrum(spectrum(9.0, 9.0, 9.0))), 3, LIMITS)
    assert pairs is not None
    np.testing.assert_allclose(pairs.values[:3], 9.0, rtol=1e-12)


@pytest.mark.parametrize("gap", [0.0, 1e-14])
def test_ties_are_left_to_lapack(gap: float) -> None:
    matrix = with_spectrum(spectrum(9.0, 9.0 - gap))
    assert _single.proved_eigenpairs(formed(matrix), 1, LIMITS)[0] is None
    found = contrastive_eigenpairs(matrix, np.zeros_like(matrix), 0.0, 1, iteration=LIMITS)
    np.testing.assert_allclose(found.values, 9.0, rtol=1e-12)


def test_an_eigenvector_that_the_space_misses_is_found_by_the_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No residual points to a decoupled eigenvector to which the whole start is orthogonal."""
    matrix = np.zeros((D, D))
    matrix[0, 0] = 20.0
    matrix[1:, 1:] = with_spectrum(spectrum(9.0, 8.0)[:-1])

    def blind(columns: Any, *_: Any) -> Any:
        columns[0] = 0  # what rounding puts there would grow
        return columns

    def stage(patience: int) -> Any:
        return _search.Stage(lambda _: blind, patience, extra=2)

    def start(*args: Any) -> Any:
        return np.linalg.qr(blind(_search.random_block(*args)))[0]

    seen, _ = _single.proved_eigenpairs(formed(matrix), 2, LIMITS)
    assert seen is not None
    np.testing.assert_allclose(seen.values[:2], [20.0, 9.0], rtol=1e-12)
    monkeypatch.setattr(_single, "unconditioned", stage)
    monkeypatch.setattr(_single, "random_block", start)
    assert _single.proved_eigenpairs(formed(matrix), 2, LIMITS)[0] is None
    found = contrastive_eigenpairs(matrix, np.zeros_like(matrix), 0.0, 2, iteration=LIMITS)
    np.testing.assert_allclose(found.values, [20.0, 9.0], rtol=1e-12)


def test_no_gap_gives_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    multiplied: list[int] = []
    multiply = _precondition.Pencil.multiply
    monkeypatch.setattr(
        _precondition.Pencil,
        "multiply",
        lambda self, columns: (multiplied.append(columns.shape[1]), multiply(self, columns))[1],
    )
    noise = np.random.default_rng(0).normal(size=(2000, 1000))
    assert _single.proved_eigenpairs(formed(noise.T @ noise), 2, Iteration(90, False))[0] is None
    assert sum(multiplied) < 90 + 5


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 1000.0])
def test_without_a_gap_it_goes_on_from_what_the_space_shows(
    alpha: float, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Iteration(np.inf, refine=True)
    refined: list[int] = []
    factored = _precondition.Pencil.factored
    monkeypatch.setattr(
        _precondition.Pencil,
        "factored",
        lambda *args: (refined.append(1), factored(*args))[1],
    )
    monkeypatch.setattr(_single, "unconditioned", lambda _: _precondition.unconditioned(1))
    noise = np.random.default_rng(0).normal(size=(2, 500, D)) / 500**0.5
    x, y = (rows.T @ rows for rows in noise)
    pairs, _ = _single.proved_eigenpairs(formed(x - alpha * y), k, limits)
    assert refined
    assert pairs is not None
    exact = contrastive_eigenpairs(x, y, alpha, k)
    np.testing.assert_allclose(pairs.values[:k], exact.values, rtol=1e-10, atol=1e-12)
    assert subspace_error(pairs.vectors.T, exact.components) <= 1e-8


@pytest.mark.parametrize("angle", [1e-10, 1e-7, 1e-3])
def test_only_what_is_near_the_eigenvectors_is_proved(angle: float) -> None:
    """A bound of the next eigenvalue alone says nothing of how far these are from theirs."""
    values = np.r_[9.0, 8.0, np.linspace(1, 0, 28)]
    turned = np.eye(30)[:, :2]
    turned[1, 1], turned[2, 1] = np.cos(angle), np.sin(angle)
    ritz = np.r_[np.diag(turned.T * values @ turned), 1.0]
    residuals = np.linalg.norm(values[:, None] * turned - turned * ritz[:2], axis=0)
    pairs = _proof.RitzPairs(ritz, turned, residuals)
    beta, _ = _proof.bound_by_inertia(lambda: np.diag(-values), pairs, 9.0)
    assert 1.0 < beta < 8.0
    assert _proof.is_proved(pairs, beta, 9.0) == (angle < 1e-8)


def test_each_residual_counts_over_its_own_distance() -> None:
    """The sine of a subspace that is a little off is bounded, and no looser than over the gap."""
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


def test_zero_and_constant_matrices_are_left_to_lapack() -> None:
    for matrix in (np.zeros((D, D)), np.eye(D)):
        assert _single.proved_eigenpairs(formed(matrix), 2, LIMITS)[0] is None
        found = contrastive_eigenpairs(matrix, np.zeros((D, D)), 0.0, 2, iteration=LIMITS)
        np.testing.assert_allclose(found.values, matrix[0, 0])


@pytest.mark.parametrize("scale", [1e-100, 1e100])
@pytest.mark.parametrize("solver", ["eigh", "gram", "lanczos"])
def test_the_scale_may_be_far_from_one(solver: Any, scale: float) -> None:
    """Squares of the covariance leave the range of float64, and the matrix is large."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1200, 1200)), rng.normal(size=(1100, 1200))
    x[:, 0] *= 9.0
    if solver == "gram":
        x, y = rng.normal(size=(600, 1600)), rng.normal(size=(500, 1600))
        x[:, 0] *= 20.0
    cpca = CPCA(1, alpha=1.0, solver=solver, random_state=0)
    if solver == "lanczos":
        with pytest.raises(ValueError, match="bring the data to a scale near 1"):
            cpca.fit(x * scale, background=y * scale)
        return
    reference = clone(cpca).fit(x, background=y)
    found = cpca.fit(x * scale, background=y * scale)
    assert subspace_error(found.components_, reference.components_) < 1e-8
    np.testing.assert_allclose(
        found.contrastive_eigenvalues_ / scale / scale, reference.contrastive_eigenvalues_
    )
