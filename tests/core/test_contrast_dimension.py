"""Tests of `contrast_dimension`, which counts the directions that only the foreground has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core import SecondMoments, contrast_dimension


def study(own: int, seed: int, n: int = 300, d: int = 40) -> tuple[Any, Any]:
    """Return two datasets with three shared directions; `own` directions are only in the first."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    X, Y = rng.normal(size=(2, n, d))
    for rows in (X, Y):
        rows += rng.normal(size=(n, 3)) * [5.0, 4.0, 3.0] @ basis[:3]
    X += rng.normal(size=(n, own)) * np.linspace(3.0, 2.0, own) @ basis[3 : 3 + own]
    return X, Y


@pytest.mark.parametrize("own", [0, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 5))])
def test_the_number_of_directions_of_the_foreground_alone_is_found(own: int) -> None:
    found = []
    for seed in range(8):
        X, Y = study(own, seed)
        found.append(contrast_dimension(X, background=Y, n_resamples=50, random_state=seed).n_own)
    assert found.count(own) >= 7


def test_more_variance_along_a_shared_direction_adds_no_dimension() -> None:
    X, Y = study(0, 0)
    direction = np.linalg.svd(Y - Y.mean(axis=0))[2][:1]
    X = X + X @ direction.T @ direction  # four times the variance along a shared direction
    assert contrast_dimension(X, background=Y, random_state=0).n_own == 0


def noise(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> tuple[Any, Any]:
    """Return noise, and a scale factor for each row."""
    if kind == "t entries":
        return rng.standard_t(4, size=shape), 1.0
    entries = rng.normal(size=shape)
    if kind == "t rows":
        return entries, (rng.chisquare(4, size=(shape[0], 1)) / 4) ** -0.5
    return entries * np.linspace(0.5, 1.5, shape[1]), 1.0


@pytest.mark.parametrize(
    "kind",
    [
        "t rows",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("t entries", "unequal features")),
    ],
)
@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("shared", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_the_number_is_right_for_heavy_tailed_and_uneven_noise(
    kind: str, own: int, shared: int
) -> None:
    found = []
    for seed in range(12):
        rng, sets = np.random.default_rng(seed), []
        basis = np.linalg.qr(rng.normal(size=(40, 40)))[0]
        for extra in (own, 0):
            rows, factor = noise(kind, (300, 40), rng)
            rows += rng.normal(size=(300, shared)) * [5.0, 4.0, 3.0][:shared] @ basis[:shared]
            rows += 3.0 * rng.normal(size=(300, extra)) @ basis[shared : shared + extra]
            sets.append(rows * factor)
        X, Y = sets
        found.append(contrast_dimension(X, background=Y, n_resamples=30, random_state=seed).n_own)
    assert found.count(own) >= 10


def test_constant_weights_and_scale_do_not_matter_and_wide_data_are_valid() -> None:
    X, Y = study(1, 0)
    plain = contrast_dimension(X, background=Y, n_resamples=30, random_state=3)
    assert (plain.n_own, plain.n_foreground, plain.n_background) == (1, 4, 3)
    weights = {"sample_weight": np.full(300, 1 / 60), "background_weight": np.full(300, 7.0)}
    for other in (
        contrast_dimension(X, background=Y, n_resamples=30, random_state=3, **weights),
        contrast_dimension(1e3 * X + 5, background=1e3 * Y, n_resamples=30, random_state=3),
    ):
        assert other.threshold == pytest.approx(plain.threshold, rel=1e-9)
        np.testing.assert_allclose(other.cosines, plain.cosines)
        assert other.n_own == 1
    some = (np.arange(300) % 3 > 0).astype(float)  # a row with weight 0 has no effect
    given: dict[str, Any] = {"background": Y, "n_resamples": 10, "random_state": 0}
    found = contrast_dimension(X, sample_weight=some, **given)
    assert found.threshold == contrast_dimension(X[some > 0], **given).threshold
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 60, 1700))
    X[:, :100] += 2 * rng.normal(size=(60, 1))
    wide = contrast_dimension(X, background=Y, n_resamples=5, random_state=0)
    assert (wide.n_own, wide.n_background) == (1, 0)


def test_bad_input_is_refused() -> None:
    X, Y = study(0, 0)
    with pytest.raises(ValueError, match="background is constant"):
        contrast_dimension(X, background=np.ones_like(Y))
    with pytest.raises(TypeError, match="X is SecondMoments, but rows are needed"):
        contrast_dimension(SecondMoments.from_data(X), background=Y)  # type: ignore[arg-type]


def test_a_direction_of_the_background_alone_is_not_shared() -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, 300, 20))
    X[:, 0] *= 4
    Y[:, 1] *= 4
    found = contrast_dimension(X, background=Y, n_resamples=50, random_state=0)
    assert (found.n_own, found.n_foreground, found.n_background) == (1, 1, 1)
    assert found.cosines[0] < 0.3 < 0.9 < found.threshold
