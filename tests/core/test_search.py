"""Tests of the search for eigenpairs and for the automatic contrast, by products with columns.

The automatic contrast is the largest ratio of foreground variance to background variance that k
orthonormal components reach. A ridge is added to the background variance.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core import CPCA, PCPCA, CPCAStar, SecondMoments
from contrast_core.contrast import automatic_contrast
from contrast_core.linalg import (
    NotConvergedError,
    _proof,
    proved_components,
    search_components,
    subspace_error,
)
from contrast_core.linalg._search import SearchSpace, Stage, random_block, search
from contrast_core.moments import product_moments, weighted_sum
from contrast_core.rows import rows_of
from contrast_core.solve import LIMITS, ProblemSize, _automatic, make_plan, solve_contrasts
from tests.core.kinds import long_indices
from tests.core.planned import EAGER, moments_in, plan_in, rotation, symmetric
from tests.core.samples import automatic_by_hand


@pytest.mark.parametrize("size", [1, 2, 7, 320, 321, 400])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.95, 1.0])
def test_eigenpairs_are_exact_for_every_size_and_number_of_components(
    size: int, share: float
) -> None:
    k = max(1, round(share * size))
    rng = np.random.default_rng(size)
    x, y = rng.normal(size=(2, 2 * size + 9, size)) * np.linspace(3, 1, size)
    y *= 0.1  # no component has negative contrast
    found = CPCA(k, alpha=0.5, solver="lanczos").fit(x, background=y)
    exact = CPCA(k, alpha=0.5, solver="eigh").fit(x, background=y)
    np.testing.assert_allclose(
        found.contrastive_eigenvalues_, exact.contrastive_eigenvalues_, atol=1e-11
    )
    np.testing.assert_allclose(found.components_ @ found.components_.T, np.eye(k), atol=1e-11)
    assert subspace_error(found.components_, exact.components_) < 1e-7


def test_a_search_converges_after_restarts() -> None:
    """Use close eigenvalues, for which the search fills its basis of 240 columns several times."""
    values = np.concatenate([[5.0, 4.99, 4.98], np.linspace(4.9, 0.0, 897)])
    matrix = symmetric(values)
    products: list[int] = []

    def multiply(columns: Any) -> list[Any]:
        products.append(columns.shape[1])
        return [matrix @ columns]

    found = search_components(multiply, [matrix.diagonal()], 3, 5000)
    assert sum(products) > 300
    assert found.pairs is not None
    np.testing.assert_allclose(found.pairs.values[:3], values[:3], rtol=1e-12)
    assert subspace_error(found.pairs.vectors.T, rotation(900)[:, :3].T) < 1e-8


def test_no_eigenpair_is_returned_if_the_last_wanted_eigenvalue_is_tied() -> None:
    values = np.concatenate([[5.0, 5.0, 5.0, 5.0, 5.0, 5.0], np.linspace(4.0, 0.0, 994)])
    multiply = lambda columns: [values[:, None] * columns]  # noqa: E731
    assert search_components(multiply, [np.ones(1000)], 2, 600).pairs is None


def test_an_exact_eigenpair_is_not_accepted_before_the_next_one_has_converged() -> None:
    """Start the search with the second eigenvector, and with hardly any part of the first one.

    The second eigenvector then converges before the search finds the first one.
    """
    values = np.concatenate([[10.0, 9.0], np.linspace(8.9, -8.9, 398)])
    start = random_block(400, 9)
    start[0] *= 1e-3
    # The small error keeps the residual of this column above rounding errors.
    start[:, 0] = np.eye(400)[1] + 1e-9 * start[:, 8]
    start = np.linalg.qr(start[:, :8])[0]
    space = SearchSpace(lambda columns: [values[:, None] * columns], start, 300)
    stages = [Stage(lambda _: lambda columns, *_: columns, 1000, extra=2)]
    (pairs,), converged = search(space, lambda: np.zeros(1), 1, stages, lambda *_: 1e-8)
    assert converged
    np.testing.assert_allclose(pairs.values[0], 10.0)


@pytest.mark.parametrize("method", [CPCAStar(2), CPCAStar(2, beta=0.5), PCPCA(2)], ids=str)
def test_methods_that_need_covariance_matrices_compute_them_from_products(method: Any) -> None:
    rng = np.random.default_rng(0)
    for d in (12, 1700):
        x, y = rng.normal(size=(60, d)), rng.normal(size=(50, d))
        x[:, 0] *= 4.0
        products = moments_in("products", x, y)
        found = type(method)(**method.get_params()).fit(products[0], background=products[1])
        wanted = type(method)(**method.get_params()).fit(x, background=y)
        np.testing.assert_allclose(found.components_, wanted.components_, atol=1e-7)
        assert found.strength_ == pytest.approx(wanted.strength_, rel=1e-9)


def test_a_direction_without_variance_is_not_accepted_as_a_component() -> None:
    """Use two equal features: along their difference, nothing varies, so the contrast is 0.

    All other directions have negative contrast, so the difference has the largest eigenvalue.
    """
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(900, 400)), 3 * rng.normal(size=(900, 400))
    x[:, 1], y[:, 1] = x[:, 0], y[:, 0]
    with pytest.raises(NotConvergedError, match="This solver cannot tell whether anything varies"):
        CPCA(1, alpha=50.0, solver="lanczos").fit(x, background=y)


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_matrix, long_indices])
def test_products_with_the_rows_agree_with_products_with_the_covariance(
    convert: Any, dtype: Any, offset: float
) -> None:
    """Check two datasets, one of which is a part of the other; `offset` moves means from zero."""
    rng = np.random.default_rng(1)
    rows = sp.random(400, 30, density=0.3, format="csr", rng=rng).toarray()
    is_background = rng.random(400) < 0.5
    rows[[0, 7, 8]] = 0.0
    rows = (rows + offset * is_background[:, None]).astype(dtype)
    x = rows_of(convert(rows))
    rows = rows.astype(np.float64)
    moments = product_moments([x, x.take(is_background)])
    covariances = [np.cov(part.T, bias=True) for part in (rows, rows[is_background])]
    columns = rng.normal(size=(30, 3))
    largest = max(float(np.abs(part).max()) for part in covariances)
    for weights in ((1.0, 0.0), (0.0, 2.0), (1.0, -0.7)):
        wanted = sum(w * part for w, part in zip(weights, covariances, strict=True)) @ columns
        for n_threads in (0, 1, 2, 5):
            with ThreadPoolExecutor(max(n_threads, 1)) as pool:
                threads = (pool if n_threads else None, n_threads)
                found = weighted_sum(moments, weights).apply(columns, threads)
            np.testing.assert_allclose(found, wanted, atol=1e-12 * max(largest, 1.0))
    for part, covariance in zip(moments, covariances, strict=True):
        np.testing.assert_allclose(part.variances, covariance.diagonal(), rtol=1e-6)


# The automatic contrast

D = 150


def covariances(kind: str, seed: int = 0) -> tuple[Any, Any]:
    """Return a foreground and a background covariance (D, D) with the given kind of spectrum."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 3 * D, D))
    match kind:
        # The features are correlated, and their scales differ.
        case "genes":
            scale = rng.gamma(0.3, size=D) + 1e-3
            mixing = np.eye(D) + 0.1 * rng.normal(size=(D, D)) / D**0.5
            x, y = x * scale @ mixing, y * scale * rng.gamma(4.0, 0.25, size=D) @ mixing
        case "falling":
            x, y = (
                rows / np.arange(1, D + 1) @ np.linalg.qr(rng.normal(size=(D, D)))[0]
                for rows in (x, y)
            )
        case "clusters":
            x, y = (rows * np.repeat(np.arange(D // 10, 0, -1), 10) for rows in (x, y))
        # A few strong directions lie above a flat spectrum of noise.
        case "flat":
            x[:, :3] *= [9.0, 5.0, 3.0]
            y = y[: D // 3]
    return x.T @ x / len(x), y.T @ y / len(y)


def searched(x: Any, y: Any, k: int, most: int, **options: Any) -> Any:
    """Search the automatic contrast of two covariances, with at most `most` products."""
    diagonals = x.diagonal(), y.diagonal()
    return search_components(lambda v: [x @ v, y @ v], diagonals, k, most, **options)


KINDS = ["noise", "genes", "falling", "clusters", "flat"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_automatic_contrast_is_as_exact_as_newtons_iteration(
    kind: str, k: int, scale: float
) -> None:
    x, y = covariances(kind)
    ridge = 0.25 * np.trace(y) / D
    alpha, vectors = automatic_by_hand(x, y, k, ridge)
    found = proved_components((x * scale, y), k, np.inf, ridge=ridge)
    assert found.alpha == pytest.approx(scale * alpha, rel=1e-11)
    assert found.pairs is not None
    assert subspace_error(found.pairs.vectors.T, vectors.T) < 1e-7
    by_products = searched(scale * x, y, k, 10**5, ridge=ridge, random_state=1)
    assert by_products.alpha == pytest.approx(scale * alpha, rel=1e-11)
    assert by_products.pairs is not None
    assert subspace_error(by_products.pairs.vectors.T, vectors.T) < 1e-7


@pytest.mark.parametrize("gap", [0.0, 1e-13, 1e-6])
def test_near_ties_are_refused_or_resolved(gap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use nearly tied eigenvalues; the contrast is exact even if the eigenvectors are refused."""
    values = np.r_[5.0, 4.0, 4.0 - gap, np.linspace(3, 0, D - 3)]
    x, y, basis = symmetric(values), 0.1 * np.eye(D), rotation(D)
    alpha, _ = automatic_by_hand(x, y, 2, 0.025)
    found = proved_components((x, y), 2, 2000, ridge=0.025)
    assert found.alpha == pytest.approx(alpha, rel=1e-10)
    assert (found.pairs is None) == (gap < 1e-12)
    moments = [SecondMoments(9, np.zeros(D), part) for part in (x, y)]  # their ridge is 0.025 too
    again, solution = automatic_contrast(*moments, 2, plan_in("dense", EAGER))
    assert again == pytest.approx(alpha, rel=1e-10)
    assert solution.solver == ("eigh" if gap < 1e-12 else "search")
    if found.pairs is not None:
        assert subspace_error(found.pairs.vectors.T, basis[:, :2].T) < 1e-7
    assert proved_components((x, y), 1, 2000, ridge=0.025).pairs is not None
    # A result is proved by a bound on the next eigenvalue. The bound that is tried here lies below
    # that eigenvalue, so the proof fails.
    monkeypatch.setattr(_proof, "AIMS", (-1.0,))
    assert proved_components((x, y), 1, 2000, ridge=0.025).pairs is None


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
@pytest.mark.parametrize("form", ["dense", "span", "products"])
@pytest.mark.parametrize("k", [1, 3])
def test_the_search_agrees_with_newtons_method_for_every_form_of_moments(
    form: Any, k: int, scale: float
) -> None:
    """Use constant features, equal features, and scales at which squared variances overflow."""
    rng = np.random.default_rng(0)
    n, d = (40, 90) if form == "span" else (300, 60)
    x, y = rng.normal(size=(2, n, d)) * np.r_[9.0, 7.0, 5.0, 4.0, np.linspace(1, 0.1, d - 4)]
    x[:, 5] = y[:, 5] = 3.0
    x[:, 7], y[:, 7] = x[:, 6], y[:, 6]
    moments = moments_in(form, scale * x, scale * y)
    alpha, solution = automatic_contrast(
        *moments, k, make_plan(ProblemSize(n, d, k, form=form), EAGER)
    )
    wanted, other = automatic_contrast(*moments_in("dense", x, y), k)
    assert alpha == pytest.approx(wanted, rel=1e-10)
    assert subspace_error(solution.components, other.components) < 1e-7
    assert np.abs(solution.components[:, 5]).max() < 1e-14


@pytest.mark.parametrize("kind", KINDS)
def test_newtons_iteration_starts_from_a_rough_contrast_if_lapack_is_faster(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = covariances(kind)
    alphas: list[float] = []

    def solve(*arguments: Any, **options: Any) -> Any:
        alphas.extend(arguments[2])
        return solve_contrasts(*arguments, **options)

    monkeypatch.setattr(_automatic, "solve_contrasts", solve)
    moments = [SecondMoments(9, np.zeros(D), part) for part in (x, y)]
    plan = plan_in("dense", replace(LIMITS, iterated=D))
    found, solution = automatic_contrast(*moments, 5, plan)
    expected, vectors = automatic_by_hand(x, y, 5, 0.25 * np.trace(y) / D)
    assert found == pytest.approx(expected, rel=1e-11)
    assert subspace_error(solution.components, vectors.T) < 1e-7
    assert solution.solver == "eigh"
    assert 0.5 * found < alphas[0] <= found


@pytest.mark.parametrize("seed", range(3))
def test_a_leading_direction_of_features_with_small_variances_is_found(seed: int) -> None:
    # Features 50 to 99 have small variances, but they are correlated, so their sum is the leading
    # direction. All other features are independent of them.
    x, y = np.diag(np.linspace(5.0, 1.0, D)), np.eye(D)
    x[50:100, 50:100] = 0.5 * np.eye(50) + 4.55 / 50  # their sum has the eigenvalue 5.05
    found = searched(x, y, 2, 10**4, ridge=0.25, random_state=seed)
    assert found.alpha == pytest.approx((5.05 + 5.0) / (2 + 2 * 0.25), rel=1e-10)


def test_rounding_errors_along_a_strong_direction_do_not_slow_the_search_for_weak_ones() -> None:
    # The spectrum is like that of data with cell types: one eigenvalue is far above the next two,
    # which are close together. `sums` simulates the rounding error of sums over many rows.
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(np.eye(D) + 0.3 * rng.normal(size=(D, D)) / D**0.5)[0]
    values = np.concatenate([[3.0, 3.8e-4, 3.7e-4], -np.geomspace(0.01, 140.0, D - 3)])
    behind = np.linspace(30.0, 1.0, D)
    y, x = (turn * behind) @ turn.T, (turn * (values + 6.0 * behind)) @ turn.T
    sums = 3e-11 * np.outer(turn @ rng.normal(size=D) / D**0.5, turn[:, 0])
    ridge = values[:2].sum() / 12.0
    multiplied = []

    def multiply(columns: Any) -> list[Any]:
        multiplied.append(columns.shape[1])
        return [(x + sums) @ columns, y @ columns]

    found = search_components(multiply, (x.diagonal(), y.diagonal()), 2, 2000, ridge=ridge)
    assert found.alpha == pytest.approx(6.0, rel=1e-10)
    assert found.pairs is not None
    assert subspace_error(found.pairs.vectors.T, turn[:, :2].T) < 1e-6
    assert sum(multiplied) < 400


def test_tall_sparse_data_are_only_multiplied_with_vectors() -> None:
    rng = np.random.default_rng(0)
    x, y = (
        sp.random(900, 80, 0.3, format="csr", rng=rng) @ sp.diags_array(rng.gamma(0.5, size=80))
        for _ in range(2)
    )
    plain = CPCA(2).fit(x.toarray(), background=y.toarray())
    moments = moments_in("products", x, y)
    found, solution = automatic_contrast(*moments, 2, plan_in("products", automatic=True))
    assert solution.solver == "search"
    assert found == pytest.approx(plain.alpha_, rel=1e-10)
    assert subspace_error(solution.components, plain.components_) < 1e-8
    with pytest.raises(NotConvergedError, match="the search for alpha and 2 components"):
        none = replace(LIMITS, columns_each=0)
        automatic_contrast(*moments, 2, plan_in("products", none, automatic=True))
    # This plan allows so few products that the search fails. Newton's method then takes over.
    alone = make_plan(ProblemSize(1, 1, 2, form="products"), replace(LIMITS, products=1))
    assert automatic_contrast(*moments, 2, alone)[0] == pytest.approx(found, rel=1e-10)
