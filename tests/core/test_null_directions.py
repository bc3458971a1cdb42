"""Tests that directions without variance come last, and that constant features have no effect."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from contrast_core import CPCA, ContrastWarning, CPCAStar
from contrast_core.linalg import subspace_error

METHODS: list[Any] = [
    CPCA(3),
    CPCA(3, alpha=2.0),
    CPCA(3, alpha=1000.0),
    CPCA(3, alpha="denoise"),
    CPCAStar(3),
    CPCAStar(3, beta=0.5),
    CPCAStar(3, beta=1.0),
]


@pytest.fixture(autouse=True)
def negative_contrast_is_no_matter() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*negative contrast", ContrastWarning)
        yield


def data(n: int = 60, m: int = 50, d: int = 6, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    spread = np.linspace(2.0, 0.5, d)
    return rng.normal(size=(n, d)) * spread, rng.normal(size=(m, d)) * spread[::-1]


def padded(rows: Any, value: float, where: Any = slice(None, None, 3)) -> tuple[Any, Any]:
    """Return rows with constant columns inserted, and the positions of the other columns."""
    wide = np.full((len(rows), rows.shape[1] + 3), value)
    kept = np.delete(np.arange(wide.shape[1]), [0, 4, 8])
    wide[:, kept] = rows
    return wide, kept


@pytest.mark.parametrize("value", [0.0, 1.0, 1e3, -0.1])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_constants_change_nothing(method: Any, value: float) -> None:
    x, y = data()
    plain = method.fit(x, background=y)
    (wide_x, kept), (wide_y, _) = padded(x, value), padded(y, 2 * value)
    found = type(method)(**method.get_params()).fit(wide_x, background=wide_y)
    assert found.strength_ == pytest.approx(plain.strength_, rel=1e-12)
    np.testing.assert_allclose(found.components_[:, kept], plain.components_, atol=1e-9)
    np.testing.assert_array_equal(np.delete(found.components_, kept, axis=1), 0.0)
    np.testing.assert_allclose(found.foreground_variance_, plain.foreground_variance_, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_collinear_features_are_recognised_whatever_their_scale(scale: float) -> None:
    """Check two linear dependences among eight features, one of which has another unit."""
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
        pytest.warns(ContrastWarning, match="hardly about") if scale > 1 else nullcontext()
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


def test_a_feature_of_tiny_spread_is_no_constant() -> None:
    x, y = (rows * [1, 1, 1, 1, 1, 1e-9] for rows in data())
    found = CPCA(6, alpha=5.0).fit(x, background=y)
    assert np.abs(found.components_[:, 5]).max() > 0.99


def test_infinite_contrast_counts_only_what_varies() -> None:
    x, y = data()
    x = np.hstack([x, np.zeros((60, 3))])
    y = np.hstack([y[:, :4], np.zeros((50, 5))])
    found = CPCA(2, alpha=np.inf).fit(x, background=y)
    np.testing.assert_allclose(found.components_[:, [0, 1, 2, 3, 6, 7, 8]], 0.0, atol=1e-12)
    with pytest.raises(ValueError, match=r"there are 2 of them .* but n_components=3"):
        CPCA(3, alpha=np.inf).fit(x, background=y)


def test_more_components_than_vary_say_so() -> None:
    x, y = (padded(rows, 0.0)[0] for rows in data())
    for method in (CPCA(8, alpha=1.0), CPCAStar(8), CPCAStar(8, beta=1.0)):
        with pytest.warns(ContrastWarning, match="last 2 of 8 components are directions in which"):
            found = method.fit(x, background=y)
        np.testing.assert_allclose(found.components_ @ found.components_.T, np.eye(8), atol=1e-12)
        np.testing.assert_array_equal(found.foreground_variance_[6:], 0.0)
        assert np.isfinite(getattr(found, "directions_", found.components_)).all()
    with pytest.warns(ContrastWarning, match="last 2 of 2 components"):
        CPCA(2, alpha=1.0).fit(np.ones((9, 4)), background=np.ones((9, 4)))
