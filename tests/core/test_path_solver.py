"""Tests of the proved path solver against LAPACK, on difficult spectra."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.linalg

from contrast_core.linalg import (
    _path,
    _proof,
    contrastive_path,
    subspace_error,
)
from tests.core.planned import rotation, symmetric

EPS = np.finfo(np.float64).eps
ALPHAS = np.concatenate([[0.0], np.logspace(-1, 3, 12)])


class Solved(NamedTuple):
    """Eigenvalues (A, k), components (A, k, D) and solvers for a path of A contrasts."""

    values: Any
    components: Any
    solvers: tuple[str, ...]


def solved(*args: Any, **options: Any) -> Solved:
    pairs, solvers = zip(*contrastive_path(*args, **options), strict=True)
    return Solved(*map(np.stack, zip(*pairs, strict=True)), solvers)


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


def largest_excess(x: Any, y: Any, alphas: Any, k: int, components: Any) -> float:
    """Return the largest sine of an angle over the path, relative to its tolerance."""
    worst = 0.0
    for alpha, found in zip(alphas, components, strict=True):
        values, vectors = scipy.linalg.eigh(x - alpha * y)
        norm, gap = np.abs(values).max(), values[-k] - values[-k - 1]
        allowed = max(1e-8, 100 * EPS * norm / gap)
        worst = max(worst, subspace_error(found, vectors[:, -k:].T) / allowed)
    return worst


@pytest.mark.parametrize("kind", ["noise", "power-law", "clustered", "rank-deficient"])
@pytest.mark.parametrize(("k", "scale"), [(1, 1.0), (2, 1e-30), (2, 1e30), (5, 1.0)])
def test_the_path_solver_is_as_exact_as_lapack(kind: str, k: int, scale: float) -> None:
    """Check also that the steps in single precision neither overflow nor underflow."""
    x, y = (scale * part for part in covariances(100, kind))
    solution = solved(x, y, ALPHAS, k, budget=np.inf)
    assert largest_excess(x, y, ALPHAS, k, solution.components) <= 1.0
    assert kind != "power-law" or k != 2 or solution.solvers.count("search") >= len(ALPHAS) - 2
    exact = solved(x, y, ALPHAS, k)
    largest = np.abs(exact.values).max(axis=1, keepdims=True)
    np.testing.assert_allclose(solution.values / largest, exact.values / largest, atol=1e-12)


def test_a_decoupled_eigenvector_is_found() -> None:
    """Use a leading eigenvector that the residuals of the other vectors do not reveal."""
    d = 200
    x, y = covariances(d, "noise", 1)
    # The last coordinate is an eigenvector by itself. It is the leading one only for a large alpha.
    for matrix in (x, y):
        matrix[-1, :] = matrix[:, -1] = 0
    x[-1, -1] = 20.0
    solution = solved(x, y, ALPHAS, 2, budget=np.inf)
    assert largest_excess(x, y, ALPHAS, 2, solution.components) <= 1.0
    assert abs(solution.components[-1, 0, -1]) > 0.999
    assert abs(solution.components[0, :, -1]).max() < 1e-6


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
    solution = solved(x, y, ALPHAS, 2, budget=np.inf)
    assert set(solution.solvers) == {"eigh"}
    assert largest_excess(x, y, ALPHAS, 2, solution.components) <= 1.0


@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-7])
def test_near_ties_fall_back_to_lapack_or_are_resolved(gap: float) -> None:
    values = np.r_[5.0, 4.0, 4.0 - gap, np.linspace(3, 0, 147)]
    x, y, basis = symmetric(values), 0.01 * np.eye(150), rotation(150)
    solution = solved(x, y, ALPHAS, 2, budget=np.inf)
    for alpha, found, eigenvalues in zip(ALPHAS, solution.components, solution.values, strict=True):
        np.testing.assert_allclose(eigenvalues, values[:2] - 0.01 * alpha, atol=1e-11)
        residual = found @ x - 0.01 * alpha * found - eigenvalues[:, None] * found
        assert np.abs(residual).max() < 1e-7
        assert subspace_error(found[:1], basis[:, :1].T) < 1e-8


def test_bounds_hold_where_the_next_ritz_value_has_not_converged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check the upper bounds of the next eigenvalue at each contrast and between two contrasts.

    In this example, every eigenvalue is a linear function of alpha.
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
