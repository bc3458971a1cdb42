"""Leading eigenpairs exactly and all eigenvalues nearly, from products alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core import subspace_error
from contrast_core.contrast import noise_bulk
from contrast_core.linalg import EstimatedSpectrum, NotConvergedError


class Products:
    def __init__(self, matrix: Any) -> None:
        self.matrix, self.n_products = matrix, 0

    def __call__(self, columns: Any) -> Any:
        self.n_products += columns.shape[1]
        return self.matrix @ columns


def estimated(matrix: Any, rank: int) -> EstimatedSpectrum:
    return of_products(Products(matrix), rank, float(np.trace(matrix)))


def of_products(products: Products, rank: int, trace: float) -> EstimatedSpectrum:
    return EstimatedSpectrum(products, len(products.matrix), rank, trace, max_products=640)


def covariance(n: int, d: int, spikes: Any = ()) -> Any:
    rows = np.random.default_rng(0).normal(size=(n, d))
    rows[:, : len(spikes)] *= np.sqrt(1 + np.array(spikes))
    return rows.T @ rows / n


@pytest.mark.parametrize("n", [6000, 3000, 1500, 1000, 500])
def test_the_noise_level_is_that_of_the_whole_spectrum(n: int) -> None:
    """Above and below as many rows as features; spikes of any size have no say in it."""
    for top in (20.0, 1e6):
        matrix = covariance(n, 1500, np.geomspace(top, 20, 6) * (1 + 1500 / n))
        values = np.linalg.eigvalsh(matrix)[::-1]
        exact = noise_bulk(values, 1500, n + 1)
        bulk = noise_bulk(estimated(matrix, min(n, 1500)).values, 1500, n + 1)
        # 32 probes of 1,500 values: a standard deviation of up to 0.8%.
        assert bulk.variance == pytest.approx(exact.variance, rel=0.02)
        # Eigenvalues further from the edge than that are kept and left as by the exact rule.
        assert (
            (values > 1.02 * exact.edge).sum() <= bulk.n_above <= (values > 0.98 * exact.edge).sum()
        )


def test_leading_pairs_are_exact() -> None:
    matrix = covariance(900, 800, [80.0, 40.0, 40.0, 20.0])
    values, vectors = np.linalg.eigh(matrix)
    for k in (1, 4):
        found = estimated(matrix, 800).leading(k)
        np.testing.assert_allclose(found.values, values[::-1][:k], rtol=1e-12)
        assert subspace_error(found.components, vectors[:, ::-1][:, :k].T) < 1e-8
        np.testing.assert_allclose(found.components @ found.components.T, np.eye(k), atol=1e-13)


def test_multiple_eigenvalues_are_all_found() -> None:
    values = np.concatenate([np.full(20, 5.0), np.linspace(2, 0, 580)])
    found = estimated(np.diag(values), 600).leading(20)
    np.testing.assert_allclose(found.values, 5.0)
    assert subspace_error(found.components, np.eye(20, 600)) < 1e-8


def test_a_small_rank_is_exhausted() -> None:
    rows = np.random.default_rng(0).normal(size=(70, 900))
    matrix = rows.T @ rows
    exact = np.linalg.eigvalsh(matrix)[::-1][:70]
    spectrum = estimated(matrix, 800)
    np.testing.assert_allclose(spectrum.values[:70], exact, rtol=1e-10)
    assert (spectrum.values[70:] < 1e-9 * exact[0]).all()
    np.testing.assert_allclose(spectrum.leading(70).values, exact, rtol=1e-10)


def test_it_says_when_it_does_not_converge() -> None:
    matrix = covariance(2000, 1500)
    with pytest.raises(NotConvergedError, match=r"used 640 products .* eigenvalues 30 and 31 are"):
        estimated(matrix, 1500).leading(30)
    early = Products(matrix)
    with pytest.raises(NotConvergedError, match="are close"):
        of_products(early, 1500, 1500.0).leading(30, only_if_separated=True)
    assert early.n_products < 320
    with pytest.raises(NotConvergedError, match=r"without finding eigenvalue 600 to within"):
        estimated(matrix, 1500).settle(599, 1e-3)


def test_settling_knows_an_eigenvalue() -> None:
    matrix = covariance(2000, 1500)
    spectrum = estimated(matrix, 1500)
    spectrum.settle(0, 1e-3)
    assert np.abs(spectrum.values[0] - np.linalg.eigvalsh(matrix)[-1]) < 1e-3
