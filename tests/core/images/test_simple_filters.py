"""Tests that a verdict names the simple filter that removes a background better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from contrast_core.datasets import cells_behind_fringes
from contrast_core.images import suppress_background
from contrast_core.images._simple_filters import (
    _drawn_background,
    simpler_filters,
    without_lines,
)
from tests.core.images.pictures import (
    cells,
    curtains,
    digits_on_photographs,
    grid,
    haze,
    noisy,
    relative_error,
    scan_lines,
    scene,
    white,
)

SHAPE = (170, 180)


def test_smooth_backgrounds_are_called_by_name() -> None:
    hazy, mask, clean = scene(haze, SHAPE, 84)
    rng = np.random.default_rng(0)
    uneven = (clean + 0.3) * np.exp(0.5 * haze(SHAPE, rng)) + 0.01 * rng.normal(size=SHAPE)
    for image, words in ((1 + hazy, "top-hat filter of radius 7"), (uneven, "by a flat field")):
        (verdict,) = suppress_background(image, mask, brightness="keep").verdicts
        assert (verdict.kind, verdict.severity) == ("smooth background", "instead")
        assert words in verdict.sentence
        assert verdict.value > verdict.threshold


def test_haze_over_objects_as_smooth_is_not_called_so() -> None:
    """Check that haze is not called smooth when a top-hat filter would remove the objects too."""
    rng = np.random.default_rng(0)
    image = 3 * haze(SHAPE, rng) + haze(SHAPE, rng)
    area = haze((90, 90), rng)
    assert simpler_filters(lambda each: 0.5 * each, image, area, None) == (True, ())


@pytest.mark.parametrize("turned", [False, True])
def test_a_stripe_filter_is_named_where_it_is_better(turned: bool) -> None:
    rng = np.random.default_rng(0)
    clean, behind = cells(SHAPE, rng), scan_lines((90, 90), rng)
    if turned:
        behind = behind.T
    smooth, (verdict,) = simpler_filters(lambda image: image, clean, behind, None)
    assert not smooth
    assert (verdict.kind, verdict.severity) == ("simple filter is better", "instead")
    # The threshold is the error that the best setting of the filter leaves.
    assert verdict.threshold < 0.1
    assert f"consists of {('horizontal', 'vertical')[turned]} lines" in verdict.sentence
    assert verdict.value == pytest.approx(1)  # a model that changes nothing leaves the whole error

    def perfect(image: Any) -> Any:
        return clean if image.shape == clean.shape else clean.T

    assert simpler_filters(perfect, clean, behind, None) == (False, ())


def test_patterns_of_other_kinds_are_not_simulated() -> None:
    rng = np.random.default_rng(0)

    def refuse(image: Any) -> Any:
        raise AssertionError("simulated")

    for pattern in (grid, white):
        assert simpler_filters(refuse, cells(SHAPE, rng), pattern((90, 90), rng), None)[1] == ()
    assert simpler_filters(refuse, cells(SHAPE, rng), np.ones((90, 90)), None) == (False, ())


def test_a_stripe_filter_removes_lines_and_keeps_the_rest() -> None:
    rng = np.random.default_rng(0)
    clean = cells((96, 96), rng)
    image = noisy(clean, curtains((96, 96), rng), rng, noise=0.0)
    assert relative_error(without_lines(image, 0, 1, 2), clean, image) < 0.7
    lines = np.tile(rng.normal(size=96), (96, 1))
    lines -= lines.mean()
    np.testing.assert_allclose(without_lines(lines, 0, 0.3, 0), 0, atol=1e-12)
    np.testing.assert_allclose(without_lines(lines.T, 0, 0.3, 200), lines.T, atol=1e-12)


@pytest.mark.parametrize("marked", [False, True])
def test_backgrounds_are_drawn_with_the_covariance_of_the_area(marked: bool) -> None:
    rng = np.random.default_rng(0)
    inside = np.ones((120, 100), dtype=bool)
    if marked:
        inside[:40, :50] = False

    def drawn(area: Any) -> Any:
        area = np.where(inside, area - area[inside].mean(), 0)
        found = _drawn_background(area, inside, (150, 160))
        assert found.std() == pytest.approx(area[inside].std())
        return found / found.std()

    def alike(image: Any, down: int, across: int) -> float:
        rolled = np.roll(image, (down, across), (0, 1))[down:, across:]
        return float((image[down:, across:] * rolled).mean())

    lines = drawn(scan_lines(inside.shape, rng))
    assert alike(lines, 0, 140) > 0.9 > 0.3 > abs(alike(lines, 3, 0))
    noise = drawn(white(inside.shape, rng))
    assert max(abs(alike(noise, 0, 1)), abs(alike(noise, 1, 0))) < 0.1
    wave = drawn(np.cos(np.arange(100) * 2 * np.pi / 8) + np.zeros(inside.shape))
    assert alike(wave, 0, 8) > 0.8 > -0.8 > alike(wave, 0, 4)


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
    found = simpler_filters(lambda image: np.full(image.shape, value), fog, fog, None)
    assert found == (True, ())
