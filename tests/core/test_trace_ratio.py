"""Tests of the search for the automatic contrast, against Newton's method with LAPACK.

The automatic contrast is the largest ratio of foreground variance to background variance that k
orthonormal components reach. A ridge is added to the background variance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

from contrast_core import CPCA
from contrast_core.contrast import automatic_contrast
from contrast_core.linalg import (
    NotConvergedError,
    _proof,
    proved_components,
    search_components,
    subspace_error,
)
from contrast_core.moments import SecondMoments
from contrast_core.solve import LIMITS, ProblemSize, make_plan
from tests.core.planned import EAGER, moments_in, plan_in, rotation, symmetric

D = 150


def exact(x: Any, y: Any, k: int, ridge: float) -> tuple[float, Any]:
    """Return the exact automatic contrast, and the leading eigenvectors at it as rows."""
    alpha = 0.0
    while True:
        vectors = scipy.linalg.eigh(x - alpha * y)[1][:, : -k - 1 : -1].T
        variances = [np.einsum("kd,de,ke", vectors, part, vectors) for part in (x, y)]
        risen = variances[0] / (variances[1] + k * ridge)
        if risen <= alpha * (1 + 1e-14):
            return alpha, vectors
        alpha = risen


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


KINDS = ["noise", "genes", "falling", "clusters", "flat"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_automatic_contrast_is_as_exact_as_newtons_iteration(
    kind: str, k: int, scale: float
) -> None:
    x, y = covariances(kind)
    ridge = 0.25 * np.trace(y) / D
    alpha, vectors = exact(x, y, k, ridge)
    found = proved_components((x * scale, y), k, np.inf, ridge=ridge)
    assert found.alpha == pytest.approx(scale * alpha, rel=1e-11)
    assert found.pairs is not None
    assert subspace_error(found.pairs.vectors.T, vectors) < 1e-7
    by_products = search_components(
        lambda columns: [scale * (x @ columns), y @ columns],
        (scale * x.diagonal(), y.diagonal()),
        *(k, 10**5),
        ridge=ridge,
        random_state=1,
    )
    assert by_products.alpha == pytest.approx(scale * alpha, rel=1e-11)
    assert by_products.pairs is not None
    assert subspace_error(by_products.pairs.vectors.T, vectors) < 1e-7


@pytest.mark.parametrize("gap", [0.0, 1e-13, 1e-6])
def test_near_ties_are_refused_or_resolved(gap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use nearly tied eigenvalues; the contrast is exact even if the eigenvectors are refused."""
    values = np.r_[5.0, 4.0, 4.0 - gap, np.linspace(3, 0, D - 3)]
    x, y, basis = symmetric(values), 0.1 * np.eye(D), rotation(D)
    alpha, _ = exact(x, y, 2, 0.025)
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


@pytest.mark.parametrize("seed", range(3))
def test_a_leading_direction_of_features_with_small_variances_is_found(seed: int) -> None:
    # Features 50 to 99 have small variances, but they are correlated, so their sum is the leading
    # direction. All other features are independent of them.
    x, y = np.diag(np.linspace(5.0, 1.0, D)), np.eye(D)
    x[50:100, 50:100] = 0.5 * np.eye(50) + 4.55 / 50  # their sum has the eigenvalue 5.05
    found = search_components(
        lambda columns: [x @ columns, y @ columns],
        (x.diagonal(), y.diagonal()),
        *(2, 10**4),
        ridge=0.25,
        random_state=seed,
    )
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
