"""One contrast from the inner products of the rows, against LAPACK in feature space."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from contrast_core import CPCA, contrast_path, subspace_error
from contrast_core.linalg import DualPairs, _dual, _single, dual_eigenpairs
from contrast_core.linalg._proof import RitzPairs
from contrast_core.moments import _row_space

N, M, D = 200, 120, 500


@pytest.fixture(autouse=True)
def small_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dual, "LARGEST_SHARE", 2)
    monkeypatch.setattr(_row_space, "proved_pays", lambda size, k: True)


def rows(seed: int = 0, n: int = N, m: int = M) -> Any:
    """Centred rows: three directions of the foreground, two strong ones of both."""
    rng = np.random.default_rng(seed)
    stacked = rng.normal(size=(n + m, D))
    stacked[:n, :3] *= [9.0, 7.0, 5.0]
    stacked[:, 3:5] *= [20.0, 10.0]
    stacked[:n] -= stacked[:n].mean(axis=0)
    if m:
        stacked[n:] -= stacked[n:].mean(axis=0)
    return stacked


def weights_of(alpha: float, n: int = N, m: int = M) -> Any:
    return np.repeat([1 / n, -alpha / m], [n, m])


def exactly(z: Any, weights: Any) -> tuple[Any, Any]:
    """All eigenvalues and vectors, descending."""
    values, vectors = np.linalg.eigh(z.T @ (weights[:, None] * z))
    return values[::-1], vectors[:, ::-1]


def check(z: Any, weights: Any, found: DualPairs | None, k: int) -> None:
    assert found is not None
    values, vectors = exactly(z, weights)
    components = z.T @ found.combinations
    np.testing.assert_allclose(components.T @ components, np.eye(k), atol=1e-11)
    np.testing.assert_allclose(found.values, values[:k], atol=1e-11 * np.abs(values).max())
    np.testing.assert_allclose(found.scores, z @ components, atol=1e-10)
    assert subspace_error(components.T, vectors[:, :k].T) < 1e-8


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.01, 1.0, 30.0, 1000.0])
def test_it_agrees_with_feature_space(alpha: float, k: int) -> None:
    z, weights = rows(), weights_of(alpha)
    found = dual_eigenpairs(z @ z.T, weights, k)
    # Beside far larger negative eigenvalues the positive ones are close together.
    if found is not None or alpha <= 1:
        check(z, weights, found, k)


@pytest.mark.parametrize("scale", [1e-70, 1e70])
def test_the_scale_is_no_matter(scale: float) -> None:
    z, weights = rows(), weights_of(1.0)
    found = dual_eigenpairs(scale**2 * (z @ z.T), weights, 2)
    assert found is not None
    in_units = DualPairs(found.values / scale**2, found.combinations * scale, found.scores / scale)
    check(z, weights, in_units, 2)
    assert dual_eigenpairs(scale**4 * (z @ z.T), weights, 2) is None  # left to others


def test_rows_that_repeat_or_say_nothing() -> None:
    """A Gram matrix of far less than full rank."""
    z = rows()
    z = np.concatenate([z[:N], z[:N], 0 * z[:5], z[N:], z[N:]])
    weights = weights_of(2.0, 2 * N + 5, 2 * M)
    check(z, weights, dual_eigenpairs(z @ z.T, weights, 2), 2)


def test_a_foreground_alone() -> None:
    z = rows(m=0)
    weights = weights_of(0.0, m=1)[:N]
    check(z, weights, dual_eigenpairs(z @ z.T, weights, 2), 2)


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 10.0, 1000.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_bound_holds_and_is_close(seed: int, alpha: float, k: int) -> None:
    z, weights = rows(seed), weights_of(alpha)
    values, vectors = exactly(z, weights)
    combinations = np.linalg.lstsq(z.T, vectors[:, :k], rcond=None)[0]
    pairs = RitzPairs(values[: k + 1], combinations, 0.0)
    bound = _dual._bound_by_inertia(z @ z.T, weights, pairs)
    assert values[k] < bound < values[k] + 0.6 * (values[k - 1] - values[k])


@pytest.mark.parametrize("missed", [0, 1])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 50.0])
def test_a_missed_eigenvector_is_no_proof(alpha: float, missed: int) -> None:
    """Exact eigenpairs that are not the leading ones: their residuals tell nothing."""
    z, weights = rows(), weights_of(alpha)
    values, vectors = exactly(z, weights)
    kept = np.delete(np.arange(4), missed)
    combinations = np.linalg.lstsq(z.T, vectors[:, kept[:2]], rcond=None)[0]
    pairs = RitzPairs(values[kept], combinations, 0.0)
    assert _dual._bound_by_inertia(z @ z.T, weights, pairs) == np.inf


def test_a_start_that_misses_a_direction_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first foreground row is orthogonal to all others: a block without it never sees it."""
    z, weights = rows(), weights_of(1.0)
    z[:, -1] = 0.0
    z[0] = 0.0
    z[0, -1] = 100.0
    gram = z @ z.T
    check(z, weights, dual_eigenpairs(gram, weights, 2), 2)
    start = _dual._orthonormal

    def blind(block: Any, image: Any) -> Any:
        block, image = block.copy(), image.copy()
        block[0] = image[0] = 0.0
        return start(block, image)

    bounds: list[float] = []
    bound = _dual._bound_by_inertia

    def seen(*args: Any) -> float:
        bounds.append(bound(*args))
        return bounds[-1]

    monkeypatch.setattr(_dual, "_orthonormal", blind)
    monkeypatch.setattr(_dual, "_bound_by_inertia", seen)
    assert dual_eigenpairs(gram, weights, 2) is None
    assert bounds == [np.inf]


@pytest.mark.parametrize("gap", [0.0, 1e-13])
def test_ties_are_left_to_others(gap: float) -> None:
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.normal(size=(D, N)))[0]
    spread = np.r_[3.0, 2.0, 2.0 - gap, np.linspace(1.5, 0.5, N - 3)]
    rotation = np.linalg.qr(rng.normal(size=(N, N)))[0]
    z = rotation @ (np.sqrt(spread * N)[:, None] * vectors.T)
    weights = np.full(N, 1 / N)
    check(z, weights, dual_eigenpairs(z @ z.T, weights, 1), 1)
    assert dual_eigenpairs(z @ z.T, weights, 2) is None


def test_eigenvalues_that_are_not_positive_are_left_to_others() -> None:
    z = rows(n=2)  # which span one dimension
    assert dual_eigenpairs(z @ z.T, weights_of(1.0, 2), 2) is None


def test_cpca_takes_it_and_needs_a_basis_for_more_only(monkeypatch: pytest.MonkeyPatch) -> None:
    z = rows() + 3.0
    x, y = z[:N], z[N:]
    found = CPCA(2, alpha=2.0, solver="gram").fit(x, background=y)
    moments = found.foreground_moments_, found.background_moments_
    assert moments[0].space.gram.products is not None
    assert not moments[0].is_formed
    copy = pickle.loads(pickle.dumps(found)).at(2.0)
    np.testing.assert_array_equal(copy.components_, found.components_)
    dense = CPCA(2, alpha=2.0, solver="eigh").fit(x, background=y)
    np.testing.assert_allclose(found.components_, dense.components_, atol=1e-8)
    for name in ("contrastive_eigenvalues_", "foreground_variance_", "background_variance_"):
        np.testing.assert_allclose(getattr(found, name), getattr(dense, name), rtol=1e-9)
    swapped = CPCA(2, alpha=0.5).fit(moments[1], background=moments[0])
    reference = CPCA(2, alpha=0.5, solver="eigh").fit(y, background=x)
    assert moments[0].space.gram.products is None
    assert subspace_error(swapped.components_, reference.components_) < 1e-8
    path = contrast_path(moments[0], background=moments[1], alphas=[2.0, 9.0], n_representatives=1)
    assert subspace_error(path.components[0], found.components_) < 1e-8
    # After the basis was made, by the matrix in it.
    monkeypatch.setattr(_row_space, "dual_eigenpairs", None)
    np.testing.assert_allclose(found.at(2.0).components_, found.components_, atol=1e-8)


def test_a_factor_that_another_thread_asks_for_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made in the memory of the products: what was found from them may be anything."""
    z = rows()
    found = CPCA(2, alpha=2.0, solver="gram").fit(z[:N], background=z[N:])
    gram = found.foreground_moments_.space.gram

    def interrupted(*args: Any) -> DualPairs:
        dual = dual_eigenpairs(*args)
        assert dual is not None
        assert gram.factor.rank == N + M - 2
        return dual._replace(values=dual.values + 1.0)

    monkeypatch.setattr(_row_space, "dual_eigenpairs", interrupted)
    again = found.at(2.0)
    np.testing.assert_allclose(again.contrastive_eigenvalues_, found.contrastive_eigenvalues_)
    np.testing.assert_allclose(again.components_, found.components_, atol=1e-8)


def test_sums_over_threads_do_not_depend_on_timing() -> None:
    from threadpoolctl import threadpool_limits

    z, weights = rows(), weights_of(1.0)
    gram = z @ z.T
    with threadpool_limits(2):
        first, second = (dual_eigenpairs(gram, weights, 2) for _ in range(2))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.combinations, second.combinations)
    check(z, weights, first, 2)


def test_without_a_gap_it_gives_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    z = np.random.default_rng(0).normal(size=(N + M, 50 * D))
    grown: list[int] = []
    grow = _dual._DualKrylov.grow

    def seen(self: Any) -> None:
        grown.append(1)
        grow(self)

    monkeypatch.setattr(_dual._DualKrylov, "grow", seen)
    monkeypatch.setattr(_dual, "LARGEST_SHARE", 1)
    assert dual_eigenpairs(z @ z.T, weights_of(1.0), 2) is None
    assert len(grown) <= _single._PATIENCE + 4
