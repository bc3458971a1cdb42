"""Tests of the contrast index: the difference of two variances over their sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

from contrast_core import CPCA, PCPCA, CPCAStar, SparseCPCA
from tests.core.test_contract import planted

METHODS = [CPCA(3, alpha=0.5), PCPCA(3), SparseCPCA(3, alpha=0.5), CPCAStar(3), CPCAStar(3, beta=0)]


def index_along(directions: Any, X: Any, Y: Any) -> Any:
    x, y = ((rows @ directions.T).var(axis=0) for rows in (X, Y))
    return (x - y) / (x + y)


def wide() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 1700)), rng.normal(size=(25, 1700))
    X[:, :9] *= 5
    return X, Y


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("data", [planted, wide])
def test_the_index_is_the_difference_of_the_variances_over_their_sum(
    method: Any, data: Any
) -> None:
    X, Y = data()
    fitted = method.fit(X, background=Y)
    directions = getattr(fitted, "directions_", fitted.components_)
    np.testing.assert_allclose(fitted.contrast_index_, index_along(directions, X, Y), atol=1e-9)
    assert (np.abs(fitted.contrast_index_) <= 1).all()
    for other in (fitted.at(0.1), *fitted.path([0.1])):
        directions = getattr(other, "directions_", other.components_)
        np.testing.assert_allclose(other.contrast_index_, index_along(directions, X, Y), atol=1e-9)


def test_without_a_ridge_generalised_contrastive_pca_maximises_the_index() -> None:
    X, Y = planted()
    x, y = (np.cov(rows.T, bias=True) for rows in (X, Y))
    values, vectors = scipy.linalg.eigh(x - y, x + y)
    star = CPCAStar(12, beta=1).fit(X, background=Y)
    np.testing.assert_allclose(star.contrast_index_, values[::-1], atol=1e-12)
    ratios = star.generalized_eigenvalues_
    np.testing.assert_allclose(star.contrast_index_, (ratios - 1) / (ratios + 1), atol=1e-12)
    for ours, theirs in zip(star.directions_, vectors[:, ::-1].T, strict=True):
        cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
        assert abs(cosine) == pytest.approx(1, abs=1e-10)
    scaled = CPCAStar(12, beta=1).fit(1e-6 * X, background=1e-6 * Y)
    np.testing.assert_allclose(scaled.contrast_index_, star.contrast_index_, atol=1e-12)
