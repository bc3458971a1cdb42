"""Contrastive dimension: how many directions are the foreground's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core import SecondMoments, contrast_dimension


def study(own: int, seed: int, n: int = 300, d: int = 40) -> tuple[Any, Any]:
    """Three directions that both vary along, and so many more of the foreground."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    X, Y = rng.normal(size=(2, n, d))
    for rows in (X, Y):
        rows += rng.normal(size=(n, 3)) * [5.0, 4.0, 3.0] @ basis[:3]
    X += rng.normal(size=(n, own)) * np.linspace(3.0, 2.0, own) @ basis[3 : 3 + own]
    return X, Y


@pytest.mark.parametrize("own", [0, 1, 3, 5])
def test_the_right_number_is_found(own: int) -> None:
    found = []
    for seed in range(8):
        X, Y = study(own, seed)
        found.append(contrast_dimension(X, background=Y, n_resamples=50, random_state=seed).n_own)
    assert found.count(own) >= 7


def test_more_variance_along_a_shared_direction_is_no_dimension() -> None:
    X, Y = study(0, 0)
    direction = np.linalg.svd(Y - Y.mean(axis=0))[2][:1]
    X = X + X @ direction.T @ direction  # four times the variance
    assert contrast_dimension(X, background=Y, random_state=0).n_own == 0


def test_moments_and_wide_data_and_seeds() -> None:
    X, Y = study(1, 0)
    from_rows = contrast_dimension(X, background=Y, random_state=3)
    moments = SecondMoments.from_data(X), SecondMoments.from_data(Y)
    from_moments = contrast_dimension(moments[0], background=moments[1], random_state=3)
    assert from_moments.threshold == from_rows.threshold
    assert from_moments.n_own == from_rows.n_own == 1
    scaled = contrast_dimension(1e3 * X, background=1e3 * Y, random_state=3)
    assert scaled.threshold == pytest.approx(from_rows.threshold, rel=1e-9)
    np.testing.assert_allclose(from_rows.cosines, from_moments.cosines)
    assert (from_rows.n_foreground, from_rows.n_background) == (4, 3)
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2, 60, 1700))
    X[:, :100] += 2 * rng.normal(size=(60, 1))
    wide = contrast_dimension(X, background=Y, n_resamples=5, random_state=0)
    assert (wide.n_own, wide.n_background) == (1, 0)


def test_bad_input_is_refused() -> None:
    X, Y = study(0, 0)
    with pytest.raises(ValueError, match="the background is constant"):
        contrast_dimension(X, background=np.ones_like(Y))
    for name, bad in (("level", 1), ("level", 0), ("n_resamples", 0)):
        with pytest.raises(ValueError, match=f"{name}={bad} is out of range"):
            contrast_dimension(X, background=Y, **{name: bad})


def test_a_direction_of_the_background_alone_is_not_shared() -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, 300, 20))
    X[:, 0] *= 4
    Y[:, 1] *= 4
    found = contrast_dimension(X, background=Y, n_resamples=50, random_state=0)
    assert (found.n_own, found.n_foreground, found.n_background) == (1, 1, 1)
    assert found.cosines[0] < 0.3 < 0.9 < found.threshold
