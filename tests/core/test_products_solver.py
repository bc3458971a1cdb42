"""Tests of the search for eigenpairs, which only multiplies matrices with columns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contrast_core import CPCA, PCPCA, CPCAStar
from contrast_core.linalg import NotConvergedError, search_components, subspace_error
from contrast_core.linalg._search import SearchSpace, Stage, random_block, search
from contrast_core.moments import product_moments, weighted_sum
from contrast_core.rows import rows_of
from tests.core.kinds import long_indices
from tests.core.planned import moments_in, rotation, symmetric


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
