"""Tests that smooth backgrounds and unsuitable background areas are reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from contrast_core.datasets import cells_behind_fringes
from contrast_core.images import suppress_background
from contrast_core.images._smooth_background import smooth_background
from tests.core.images.pictures import (
    cells,
    digits_on_photographs,
    grid,
    haze,
    scan_lines,
    scene,
    white,
)

SHAPE = (170, 180)


def test_smooth_backgrounds_are_called_by_name() -> None:
    hazy, mask, clean = scene(haze, SHAPE, 84)
    rng = np.random.default_rng(0)
    uneven = (clean + 0.3) * np.exp(0.5 * haze(SHAPE, rng)) + 0.01 * rng.normal(size=SHAPE)
    for image, words in ((1 + hazy, "a top-hat filter"), (uneven, "by a flat field")):
        (verdict,) = suppress_background(image, mask, brightness="keep").verdicts
        assert (verdict.kind, verdict.severity) == ("smooth background", "instead")
        assert words in verdict.sentence
        assert verdict.value > verdict.threshold


def test_haze_over_objects_as_smooth_is_not_called_so() -> None:
    """Check that there is no verdict if a top-hat filter would remove the objects with the haze."""
    rng = np.random.default_rng(0)
    image = 3 * haze(SHAPE, rng) + haze(SHAPE, rng)
    area = haze((90, 90), rng)
    assert smooth_background(lambda each: 0.5 * each, image, area, None) == (True, ())


def test_patterns_of_other_kinds_are_not_examined() -> None:
    rng = np.random.default_rng(0)

    def refuse(image: Any) -> Any:
        raise AssertionError("examined")

    for area in (*(each((90, 90), rng) for each in (grid, white, scan_lines)), np.ones((90, 90))):
        assert smooth_background(refuse, cells(SHAPE, rng), area, None) == (False, ())


def test_an_area_over_cells_and_swapped_stacks_are_found_out() -> None:
    data = cells_behind_fringes((200, 200))
    over = np.zeros((200, 200), dtype=bool)
    over[100:190, 100:190] = True
    (verdict,) = suppress_background(data.image, over).verdicts
    assert verdict.kind == "background holds signal"
    assert verdict.value > verdict.threshold
    film = digits_on_photographs(400)
    frames, empty = (
        rows.reshape(-1, 28, 28)[:, ::2, ::2] for rows in (film.foreground, film.background)
    )
    (verdict,) = suppress_background(empty, frames, sampling="frames").verdicts
    assert verdict.kind == "layers probably swapped"


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_model_that_finds_nothing_is_compared_with_no_filter(value: float) -> None:
    fog = gaussian_filter(np.random.default_rng(0).normal(size=(96, 96)), 8)
    found = smooth_background(lambda image: np.full(image.shape, value), fog, fog, None)
    assert found == (True, ())
