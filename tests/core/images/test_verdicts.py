"""Tests of the verdicts, which name problems with a contrast of images or with its background."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from contrast_core import SecondMoments
from contrast_core.datasets import cells_behind_fringes
from contrast_core.images import (
    Channels,
    Frames,
    Patches,
    block_moments,
    suppress_background,
    verdicts,
)
from contrast_core.images._blocks import wide_stride
from contrast_core.images._smooth_background import smooth_background
from contrast_core.images._verdicts import participation_ratio
from tests.core.images.pictures import PATTERNS, cells, grid, haze, scan_lines, scene, white
from tests.core.samples import held_out_ratio

QUICK = Patches(size=8, stride=4)


def kinds(found: Any) -> list[str]:
    return [verdict.kind for verdict in found]


def blocks(image: Any, mask: Any = None) -> Any:
    return block_moments(QUICK, image, mask)


def with_background(pattern: Any) -> tuple[Any, Any, Any]:
    """Return cells on a pattern, another image of the pattern alone, and a mask without cells."""
    image, mask, _ = scene(pattern, (160, 170), 80)
    other, _, clean = scene(pattern, (160, 170), 80, seed=1)
    return image, other - clean, mask


@pytest.mark.parametrize("pattern", PATTERNS)
def test_sound_contrasts_get_no_verdict_but_swapped_or_empty_ones_do(pattern: str) -> None:
    image, alone, mask = with_background(PATTERNS[pattern])
    assert verdicts(blocks(image), blocks(image, mask)) == ()
    (swapped,) = verdicts(blocks(alone), blocks(image))
    assert swapped.kind == "layers probably swapped"
    assert swapped.value > swapped.threshold >= 2
    assert swapped.severity == "doubtful"
    assert f"{swapped.value:.2g} times" in swapped.sentence
    assert kinds(verdicts(blocks(image), blocks(image))) == ["nothing found"]
    (verdict,) = verdicts(blocks(alone[:, :85]), blocks(alone[:, 85:]))
    assert verdict.kind == "nothing found"
    assert 0.5 < verdict.value < verdict.threshold


def test_camera_noise_has_no_structure() -> None:
    image, alone, mask = with_background(white)
    (verdict,) = verdicts(blocks(image), blocks(image, mask))
    assert (verdict.kind, verdict.severity) == ("unstructured background", "instead")
    assert verdict.value > 0.9
    assert "Noise2Void or BM3D" in verdict.sentence
    assert kinds(suppress_background(image, alone, sampling=QUICK).verdicts) == [verdict.kind]


def test_the_held_out_ratio_of_variances_agrees_with_plain_numpy() -> None:
    rng = np.random.default_rng(0)
    halves = [[rng.normal(size=(30, 6)) * [2, 1, 1, 1, 1, 1] for _ in "xy"] for _ in range(2)]
    one, other = ([np.cov(rows.T, bias=True) for rows in half] for half in halves)
    x, y = ([SecondMoments.from_data(half[side]) for half in halves] for side in (0, 1))
    verdict = verdicts(x, y)[0]
    assert verdict.kind == "nothing found"
    expected = np.median([held_out_ratio(one, other, 2), held_out_ratio(other, one, 2)])
    assert verdict.value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [40, 4000])
def test_few_rows_do_not_bias_the_participation_ratio(n: int) -> None:
    rng = np.random.default_rng(0)
    # The second term makes whole frames brighter or darker, which does not count as structure.
    film = rng.normal(size=(n, 10, 12)) + 3 * rng.normal(size=(n, 1, 1))
    assert participation_ratio(block_moments(Frames(), film)) == pytest.approx(1, abs=0.1)
    assert participation_ratio([SecondMoments(n, np.zeros(5), np.eye(5))]) == pytest.approx(1)
    structured = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 120))
    assert participation_ratio(block_moments(Frames(), structured.reshape(n, 10, 12))) < 0.05


# LAPACK solves the problem for 40 features, and an iterative solver for 90 features.
@pytest.mark.parametrize("d", [40, 90])
@pytest.mark.parametrize("n", [100, 400])
def test_a_weak_signal_is_found_beside_a_strong_background(n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    strong = rng.normal(size=(3, d)) * 3

    def film(signal: float) -> Any:
        rows = rng.normal(size=(n, d)) + rng.normal(size=(n, 3)) @ strong
        rows[:, :4] += signal * rng.normal(size=(n, 1))
        return block_moments(Frames(), rows.reshape(n, d // 10, 10))

    (null,) = verdicts(film(0), film(0))
    assert null.kind == "nothing found"
    assert 0.5 < null.value < 1.5
    assert verdicts(film(4), film(0)) == ()
    assert kinds(verdicts(film(0), film(4))) == ["layers probably swapped"]


def test_blocks_share_no_pixels_and_hold_all_windows_that_fit() -> None:
    stack = np.random.default_rng(0).normal(size=(3, 48, 64))
    parts = blocks(stack)
    assert len(parts) == 4
    tiles = [stack[:, i : i + 24, j : j + 32] for i in (24, 0) for j in (32, 0)]
    # There are two tiles along each axis, so that each block is one quarter of the images. In these
    # small images, the windows have stride 1.
    for part, tile in zip(parts, tiles, strict=True):
        expected = SecondMoments.from_data(Patches(8, 1).rows(tile))
        assert part.n_samples == expected.n_samples == 3 * 17 * 25
        np.testing.assert_allclose(part.covariance, expected.covariance, atol=1e-12)
    film = block_moments(Frames(), stack[:, :4, :4].repeat(9, axis=0))
    assert [part.n_samples for part in film] == [3, 4, 3, 4, 3, 3, 4, 3]
    assert len(block_moments(Channels(0), stack)) == 8


def test_large_stacks_are_sampled_at_a_wide_stride() -> None:
    large, mask = np.broadcast_to(np.uint8(1), (40, 512, 512)), np.zeros((512, 512), dtype=bool)
    mask[:256] = True
    assert wide_stride(Patches(16), large) == 13  # sqrt(40 * 512**2 / 65536), rounded up
    assert wide_stride(Patches(16), large, mask) == 9
    assert wide_stride(Patches(8), large) == 8
    assert wide_stride(Patches(16), large[0, :99, :99]) == 1


def test_small_parts_are_one_block_and_a_mask_may_have_any_shape() -> None:
    rng = np.random.default_rng(0)
    stack = rng.normal(size=(60, 60))
    small = np.zeros(stack.shape, dtype=bool)
    small[20:31, 5:18] = True
    (only,) = blocks(stack, small)
    assert only.n_samples == 4 * 6
    assert len(block_moments(Frames(), rng.normal(size=(3, 4, 4)))) == 1
    y, x = np.mgrid[:60, :60]
    disc = blocks(stack, (y - 30) ** 2 + (x - 30) ** 2 < 28**2)
    assert len(disc) == 4
    # The contrast is only judged if both datasets have several blocks. A single block suffices to
    # find that the background is noise.
    assert kinds(verdicts([only], disc)) == ["unstructured background"]
    constant = [SecondMoments.from_data(np.ones((9, 64)))] * 2
    assert "nothing found" not in kinds(verdicts(constant, disc))


VARIED = SecondMoments.from_data(np.random.default_rng(0).normal(size=(9, 4)))
CONSTANT = SecondMoments.from_data(np.ones((9, 4)))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: verdicts([], [VARIED]), ValueError, "at least one block of each"),
        (lambda: verdicts([VARIED], [CONSTANT]), ValueError, "the background is constant"),
        (lambda: blocks(np.ones((20, 20)), np.zeros((20, 20), bool)), ValueError, "no window of 8"),
        (lambda: blocks(np.ones((20, 20)), np.ones((20, 20))), TypeError, "has dtype float64"),
    ],
)
def test_bad_input_is_refused(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_tiles_follow_the_height_and_the_width_of_the_image() -> None:
    """Check windows of 4 x 6 pixels in tiles that are at least three windows high and wide.

    Windows that cross the border of a tile must be left out.
    """
    image = np.random.default_rng(0).normal(size=(25, 90))
    found = block_moments(Patches((4, 6), 1), image)
    down, across = (np.arange(n) * k // n % 2 for n, k in ((25, 2), (90, 5)))
    windows = product(range(25 - 3), range(90 - 5))
    sides = [(down[y : y + 4], across[x : x + 6]) for y, x in windows]
    whole = [(a[0], b[0]) for a, b in sides if np.ptp(a) == 0 and np.ptp(b) == 0]
    assert sorted(block.n_samples for block in found) == sorted(Counter(whole).values())


SHAPE = (170, 180)


def test_smooth_backgrounds_are_recognised() -> None:
    hazy, mask, clean = scene(haze, SHAPE, 84)
    rng = np.random.default_rng(0)
    uneven = (clean + 0.3) * np.exp(0.5 * haze(SHAPE, rng)) + 0.01 * rng.normal(size=SHAPE)
    for image, words in ((1 + hazy, "a top-hat filter"), (uneven, "by a flat field")):
        (verdict,) = suppress_background(image, mask).verdicts
        assert (verdict.kind, verdict.severity) == ("smooth background", "instead")
        assert words in verdict.sentence
        assert verdict.value > verdict.threshold


def test_haze_over_equally_smooth_objects_gives_no_verdict() -> None:
    """Check that there is no verdict if a top-hat filter would remove the objects with the haze."""
    rng = np.random.default_rng(0)
    image = 3 * haze(SHAPE, rng) + haze(SHAPE, rng)
    area = haze((90, 90), rng)
    assert smooth_background(lambda each: 0.5 * each, image, area, None) == (True, ())


def test_no_filter_is_considered_for_backgrounds_that_are_not_smooth() -> None:
    rng = np.random.default_rng(0)

    def refuse(image: Any) -> Any:
        raise AssertionError("the background is not smooth, so no signal must be computed")

    for area in (*(each((90, 90), rng) for each in (grid, white, scan_lines)), np.ones((90, 90))):
        assert smooth_background(refuse, cells(SHAPE, rng), area, None) == (False, ())


def test_an_area_over_cells_is_detected() -> None:
    data = cells_behind_fringes((200, 200))
    over = np.zeros((200, 200), dtype=bool)
    over[100:190, 100:190] = True
    (verdict,) = suppress_background(data.image, over).verdicts
    assert verdict.kind == "background holds signal"
    assert verdict.value > verdict.threshold


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_no_filter_is_recommended_if_the_model_finds_no_signal(value: float) -> None:
    fog = gaussian_filter(np.random.default_rng(0).normal(size=(96, 96)), 8)
    found = smooth_background(lambda image: np.full(image.shape, value), fog, fog, None)
    assert found == (True, ())
