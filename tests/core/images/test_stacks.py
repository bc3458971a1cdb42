"""Tests of `weight_maps`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core import CPCA
from contrast_core.images import FrameBackgroundRemover, weight_maps

SHAPE = (4, 5)


@pytest.fixture(scope="module")
def frames() -> Any:
    """Return foreground rows and background rows of noise.

    In the foreground a square also varies. One of its corners varies with the opposite sign.
    """
    rng = np.random.default_rng(0)
    foreground = rng.normal(size=(60, *SHAPE)) + 3.0
    sign = np.array([[1, 1], [1, -1]])
    foreground[:, 1:3, 1:3] += 4 * sign * rng.normal(size=(60, 1, 1))
    return foreground.reshape(60, -1), rng.normal(size=(50, 20)) + 2.0


def test_weight_maps_are_squared_loadings_with_their_sign(frames: Any) -> None:
    foreground, background = frames
    cpca = CPCA(2, alpha=1.0).fit(foreground, background=background)
    maps = weight_maps(cpca, SHAPE)
    loadings = cpca.components_.reshape(2, *SHAPE)
    expected = loadings * abs(loadings) / (loadings**2).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(maps, expected, atol=1e-12)
    np.testing.assert_allclose(weight_maps(cpca.linear_map_, SHAPE), expected, atol=1e-12)
    # The corner that varies in the opposite direction has the opposite sign.
    np.testing.assert_array_equal(
        np.sign(maps[0, 1:3, 1:3]) * np.sign(maps[0, 1, 1]), [[1, 1], [1, -1]]
    )
    remover = FrameBackgroundRemover(SHAPE).fit(foreground, background=background)
    (square,) = weight_maps(remover, SHAPE)[:, 1:3, 1:3]
    np.testing.assert_array_equal(np.sign(square) * np.sign(square[0, 0]), [[1, 1], [1, -1]])


def test_errors_say_what_came_and_what_to_do(frames: Any) -> None:
    cpca = CPCA(2, alpha=1.0).fit(frames[0], background=frames[1])
    with pytest.raises(ValueError, match=r"frame_shape=\(2, 5\) has 10 pixels, .* rows of 20"):
        weight_maps(cpca, (2, 5))
