"""Tests that directions without variance come last, and that constant features have no effect."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from contrast_core import CPCA, ContrastWarning, CPCAStar
from contrast_core.linalg import subspace_error

pytestmark = pytest.mark.filterwarnings("ignore:.*negative contrast:contrast_core.ContrastWarning")


def data(n: int = 60, m: int = 50, d: int = 6, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    spread = np.linspace(2.0, 0.5, d)
    return rng.normal(size=(n, d)) * spread, rng.normal(size=(m, d)) * spread[::-1]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_collinear_features_are_recognised_at_any_scale(scale: float) -> None:
    """Use eight features with two linear dependences; one feature has another unit."""
    x, y = data()
    mixing = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 6)))[0].T
    units = np.array([scale, 1, 1, 1, 1, 1, 1, 1])
    wide = [rows @ mixing for rows in (x, y)]
    plain = CPCA(6, alpha=5.0).fit(x, background=y)
    found = CPCA(6, alpha=5.0).fit(wide[0], background=wide[1])
    np.testing.assert_allclose(
        found.contrastive_eigenvalues_, plain.contrastive_eigenvalues_, atol=1e-10
    )
    assert subspace_error(found.components_, mixing) < 1e-9
    units_differ = (
        pytest.warns(ContrastWarning, match="hardly depends on") if scale > 1 else nullcontext()
    )
    with (
        units_differ,
        pytest.warns(ContrastWarning, match="last 1 of 7 components are directions in which nei"),
    ):
        seven = CPCA(7, alpha=5.0).fit(wide[0] * units, background=wide[1] * units)
    null = seven.components_[-1]
    assert np.abs((wide[0] * units) @ null).max() < 1e-8 * max(scale, 1.0) * np.abs(wide[0]).max()
    assert (seven.foreground_variance_[:6] + seven.background_variance_[:6] > 0).all()
    np.testing.assert_allclose(seven.components_ @ seven.components_.T, np.eye(7), atol=1e-10)


def test_a_feature_with_a_tiny_variance_is_not_constant() -> None:
    x, y = (rows * [1, 1, 1, 1, 1, 1e-9] for rows in data())
    found = CPCA(6, alpha=5.0).fit(x, background=y)
    assert np.abs(found.components_[:, 5]).max() > 0.99


def test_infinite_contrast_counts_only_directions_with_variance() -> None:
    x, y = data()
    x = np.hstack([x, np.zeros((60, 3))])
    y = np.hstack([y[:, :4], np.zeros((50, 5))])
    found = CPCA(2, alpha=np.inf).fit(x, background=y)
    np.testing.assert_allclose(found.components_[:, [0, 1, 2, 3, 6, 7, 8]], 0.0, atol=1e-12)
    expected = np.linalg.eigvalsh(np.cov(x[:, 4:6].T, bias=True))[::-1]
    np.testing.assert_allclose(found.contrastive_eigenvalues_, expected)
    with pytest.raises(ValueError, match=r"have 2 such directions, but n_components=3"):
        CPCA(3, alpha=np.inf).fit(x, background=y)


def test_more_components_than_directions_with_variance_cause_a_warning() -> None:
    x, y = (np.insert(rows, [0, 3, 6], 0.0, axis=1) for rows in data())
    for method in (CPCA(8), CPCA(8, alpha=1.0), CPCAStar(8), CPCAStar(8, beta=1.0)):
        with pytest.warns(ContrastWarning, match="last 2 of 8 components are directions in which"):
            found = method.fit(x, background=y)
        np.testing.assert_allclose(found.components_ @ found.components_.T, np.eye(8), atol=1e-12)
        np.testing.assert_array_equal(found.foreground_variance_[6:], 0.0)
        assert np.isfinite(getattr(found, "directions_", found.components_)).all()
    with pytest.warns(ContrastWarning, match="last 2 of 2 components"):
        CPCA(2, alpha=1.0).fit(np.ones((9, 4)), background=np.ones((9, 4)))
