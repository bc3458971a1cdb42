"""Tests of `LinearMap`, and of the linear map of every fitted linear method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from contrast_core.spectral import LinearMap
from tests.core.estimators import CASES, Case
from tests.core.test_contract import data_for

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")


def made(d: int = 7, k: int = 2) -> tuple[LinearMap, Any]:
    """Return a random linear map, which is not a projector, and rows."""
    rng = np.random.default_rng(0)
    mean, other = rng.normal(size=(2, d))
    linear = LinearMap(
        mean=mean,
        projection=rng.normal(size=(d, k)),
        reconstruction=rng.normal(size=(k, d)),
        offsets={"foreground": mean, "other": other},
    )
    return linear, rng.normal(size=(20, d))


@pytest.mark.parametrize(
    "kind", [np.asarray, sp.csr_array, sp.csc_matrix, pd.DataFrame, np.float32]
)
def test_the_methods_agree_with_their_equations(kind: Any) -> None:
    linear, rows = made()
    m, p, r = linear.mean, linear.projection, linear.reconstruction
    given = kind(rows)
    atol = 1e-6 if kind is np.float32 else 1e-13
    scores = (rows - m) @ p
    np.testing.assert_allclose(linear.transform(given), scores, atol=atol)
    np.testing.assert_allclose(linear.inverse_transform(scores), scores @ r + m, atol=1e-13)
    np.testing.assert_allclose(linear.denoise(given), scores @ r + m, atol=atol)
    other = linear.denoise(given, offset="other")
    np.testing.assert_allclose(other, scores @ r + linear.offsets["other"], atol=atol)
    np.testing.assert_allclose(linear.remove_components(given), rows - scores @ r, atol=atol)
    weights = linear.feature_weights()
    np.testing.assert_allclose(weights, r**2 / (r**2).max(axis=1, keepdims=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_linear_method_has_a_linear_map(case: Case) -> None:
    X, Y = data_for(case)
    fitted = case.fit(X, Y)
    linear = fitted.linear_map_
    scores = (X - fitted.mean_) @ fitted.projection_
    np.testing.assert_allclose(scores, fitted.transform(X), atol=1e-11)
    np.testing.assert_array_equal(linear.transform(X), fitted.transform(X))
    rebuilt = scores @ fitted.reconstruction_ + fitted.mean_
    np.testing.assert_allclose(rebuilt, fitted.inverse_transform(scores), atol=1e-11)
    np.testing.assert_allclose(linear.transform(rebuilt), scores, atol=1e-9)
    if not case.name.startswith("PCAPlusPlus"):  # PCA++ computes scores along oblique directions
        for offset in linear.offsets:
            expected = fitted.denoise(X, offset=offset)
            np.testing.assert_allclose(linear.denoise(X, offset=offset), expected, atol=1e-11)
        if case.orthonormal and case.orthogonal:
            weights = fitted.feature_weights()
            np.testing.assert_allclose(linear.feature_weights(), weights, atol=1e-11)
    if "difference" in linear.offsets:
        np.testing.assert_allclose(linear.offsets["difference"], X.mean(axis=0) - Y.mean(axis=0))


def test_inputs_that_do_not_fit_the_map_are_refused() -> None:
    linear, rows = made()
    without_reconstruction = LinearMap(mean=linear.mean, projection=linear.projection)
    np.testing.assert_array_equal(without_reconstruction.transform(rows), linear.transform(rows))
    calls: list[tuple[Any, str]] = [
        (lambda: linear.transform(rows[:, :5]), "X has 5 features, but the map expects 7"),
        (lambda: linear.inverse_transform(rows), r"scores have shape \(20, 7\); expected \(n, 2\)"),
        (lambda: linear.denoise(rows, offset="mean"), "offset='mean' is unknown; expected 'foregr"),
        (lambda: without_reconstruction.inverse_transform(rows[:, :2]), "has no reconstruction"),
        (lambda: without_reconstruction.remove_components(rows), "has no reconstruction"),
        (without_reconstruction.feature_weights, "has no reconstruction"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
