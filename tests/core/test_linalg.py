"""Tests of eigenpairs, signs and angles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core.linalg import (
    fix_signs,
    leading_eigenpairs,
    pivoted_cholesky,
    principal_angles,
    subspace_error,
)
from tests.core.planned import symmetric

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


def test_angles_between_known_subspaces() -> None:
    eye = np.eye(5)
    turned = np.cos(0.3) * eye[1] + np.sin(0.3) * eye[4]
    np.testing.assert_allclose(principal_angles(eye[:2], [eye[0], turned]), [0.3, 0.0], atol=1e-12)
    assert subspace_error(eye[:2], [eye[0], turned]) == pytest.approx(np.sin(0.3))
    assert subspace_error(eye[:2], 7 * eye[1::-1]) < 1e-15
    # Very small angles keep their relative precision.
    assert subspace_error(eye[:1], [eye[0] + 1e-11 * eye[2]]) == pytest.approx(1e-11, rel=1e-6)
    with pytest.raises(ValueError, match="have 2 and 1 dimensions"):
        subspace_error(eye[:2], eye[:1])
    assert subspace_error([eye[0], eye[0]], eye[:1]) < 1e-12


@pytest.mark.parametrize("rank", [0, 3, 200, 299])  # below and above the block size of LAPACK
def test_a_pivoted_factor_keeps_the_inner_products_of_the_rows(rank: int) -> None:
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
