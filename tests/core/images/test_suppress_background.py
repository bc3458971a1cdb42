"""Tests of `suppress_background`, which removes a structured background in one call."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy.ndimage import gaussian_filter

from contrast_core import SecondMoments
from contrast_core.datasets import cells_behind_fringes
from contrast_core.images import Patches, StructuredBackgroundRemover, suppress_background
from contrast_core.images._excerpt import excerpt
from contrast_core.images._stacks import chunk_side
from contrast_core.images._window_choice import stationary_moments, window_size
from tests.core.images.pictures import (
    PATTERNS,
    cells,
    curtains,
    fringes,
    relative_error,
    scan_lines,
    scene,
    stripes,
)

QUICK = Patches(size=8, stride=4)
IMAGE, MASK, CLEAN = scene(stripes)
EMPTY = IMAGE[:64, :64]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_removed_and_cells_are_kept_without_tuning(pattern: str) -> None:
    image, mask, clean = scene(PATTERNS[pattern], (192, 192))
    result = suppress_background(image, mask, sampling=Patches(stride=4), brightness="remove")
    blurred = (relative_error(gaussian_filter(image, s), clean, image) for s in (0.5, 1, 1.5, 2, 3))
    assert relative_error(result.denoised, clean, image) < 0.7 * min(blurred)
    assert result.verdicts == ()
    np.testing.assert_allclose(result.denoised + result.removed, image, atol=1e-12)
    # The image keeps its scale: dark areas stay at 0, and cells keep their brightness.
    assert abs(result.denoised[mask].mean()) < 0.05 * clean.std()
    slope = np.polyfit(clean.ravel(), result.denoised.ravel(), 1)[0]
    assert 0.7 < slope < 1.1
    # The removed part contains the pattern and not the cells.
    assert abs(np.corrcoef(result.removed.ravel(), clean.ravel())[0, 1]) < 0.35


def test_a_fit_to_one_image_applies_to_another() -> None:
    whole = suppress_background(IMAGE, MASK, sampling=QUICK)
    part = IMAGE[30:70, 20:131]
    found = suppress_background(IMAGE, MASK, sampling=QUICK, apply_to=part)
    assert found.image is part
    expected = QUICK.map(lambda rows: whole.estimator.transform(rows) + whole.brightness, part)  # type: ignore[union-attr,operator]
    np.testing.assert_allclose(found.denoised, expected)
    assert (found.brightness, found.verdicts) == (whole.brightness, whole.verdicts)
    # A background image, with or without a mask, gives the same result as a mask of the image.
    for behind in ({"background": EMPTY}, {"background": IMAGE, "background_mask": MASK}):
        same = suppress_background(IMAGE, sampling=QUICK, **behind)  # type: ignore[arg-type]
        np.testing.assert_allclose(same.denoised, whole.denoised, atol=1e-8)
        assert same.verdicts == whole.verdicts
    frames, empty = np.random.default_rng(0).normal(size=(2, 30, 5, 6))
    empty[20:] += 100
    marked = np.arange(30) < 20
    by_mask = suppress_background(
        frames, empty, background_mask=marked, sampling="frames", apply_to=frames[3:4]
    )
    by_frames = suppress_background(frames, empty[:20], sampling="frames")
    np.testing.assert_allclose(by_mask.denoised, by_frames.denoised[3:4], atol=1e-9)
    with pytest.raises(ValueError, match="apply_to cannot be combined with channel_axis=0"):
        suppress_background(frames, empty, channel_axis=0, apply_to=frames)


def test_squares_are_used_if_strips_do_not_fit_in_the_image() -> None:
    rng = np.random.default_rng(0)
    lines = stripes((140, 140), rng) + 0.1 * rng.normal(size=(140, 140))
    image = lines[:40, :40] + cells((40, 40), rng, empty=20)
    assert max(window_size(lines, None)) == 64
    assert suppress_background(image, lines).sampling == Patches((16, 16), 2)


def test_the_result_equals_the_output_of_the_remover_fitted_to_patches() -> None:
    result = suppress_background(IMAGE, MASK, sampling=QUICK, background_strength="constant")
    # The image is small, so the fit uses the windows at every position.
    every = Patches(size=8, stride=1)
    background = SecondMoments.from_data(every.rows(EMPTY))
    fitted = StructuredBackgroundRemover(background_strength="constant").fit(
        SecondMoments.from_data(every.rows(IMAGE)),
        background=stationary_moments(background, (8, 8)),
    )
    expected = QUICK.map(fitted.transform, IMAGE) + result.brightness
    np.testing.assert_allclose(result.denoised, expected, atol=1e-12)


def test_masks_may_be_integers_and_ambiguous_arrays_are_refused() -> None:
    expected = suppress_background(IMAGE, MASK, sampling=QUICK).denoised
    for behind in (MASK.astype(int), MASK.astype("f4"), MASK[None] * 255):
        found = suppress_background(IMAGE[None], behind, sampling=QUICK).denoised[0]
        np.testing.assert_allclose(found, expected, atol=1e-12)
    labels = np.where(MASK, 0, 1 + (IMAGE > 0))
    for behind in (labels, 2 * MASK + 3, (-1) * MASK):
        with pytest.raises(ValueError, match="may be a mask, labels or an image"):
            suppress_background(IMAGE, behind, sampling=QUICK)
    # An array that does not have the shape of a mask, or has many grey levels, is an image.
    counts = np.random.default_rng(0).poisson(0.3, size=(70, 70))
    for behind in (counts, np.round(IMAGE * 100).astype(int)):
        assert np.isfinite(suppress_background(IMAGE, behind, sampling=QUICK).denoised).all()
    film = np.random.default_rng(0).normal(size=(40, 6, 6))
    even = np.arange(40) % 2
    by_numbers, by_truth = (
        suppress_background(film, mask, sampling="frames").denoised for mask in (even, even == 1)
    )
    np.testing.assert_array_equal(by_numbers, by_truth)


@pytest.mark.parametrize("dtype", ["u1", "f4", "i4", "f2", ">f8"])
def test_images_of_any_real_type_give_the_result_of_float64(dtype: str) -> None:
    scaled = np.round(40 * (IMAGE - IMAGE.min())).clip(0, 255).astype(dtype)
    result = suppress_background(scaled, MASK, sampling=QUICK)
    expected = suppress_background(scaled.astype(float), MASK, sampling=QUICK)
    wide = dtype in ("i4", ">f8")
    assert result.denoised.dtype == result.removed.dtype == (np.float64 if wide else np.float32)
    np.testing.assert_allclose(result.denoised, expected.denoised, atol=1e-3)
    np.testing.assert_allclose(result.denoised + result.removed, scaled, atol=1e-4)


@pytest.mark.parametrize("kind", ["dask", "zarr", "lists"])
def test_stacks_of_any_kind_share_one_background(kind: str, tmp_path: Any) -> None:
    image, mask = IMAGE[:100, :91], MASK[:100, :91]
    stack = np.stack([image, image[::-1], 2 * image])[:, None]
    expected = suppress_background(stack, EMPTY, sampling=QUICK)
    stored = zarr.create_array(tmp_path, data=stack, chunks=(1, 1, 50, 50))
    lazy = {"dask": da.from_array(stack, chunks=50), "zarr": stored, "lists": stack.tolist()}[kind]
    result = suppress_background(lazy, EMPTY, sampling=QUICK)
    assert result.denoised.shape == result.removed.shape == stack.shape
    np.testing.assert_allclose(result.denoised, expected.denoised, atol=1e-12)
    for marked in (mask, np.stack([mask, False & mask, False & mask])[:, None]):
        again = suppress_background(lazy, marked, sampling=QUICK)
        assert again.denoised.shape == stack.shape


WITH_NAN = np.where(np.arange(131) == 100, np.nan, IMAGE)


FILM = np.random.default_rng(0).normal(size=(9, 6, 8))
FRAMES = {"sampling": "frames"}


@pytest.mark.parametrize(
    ("image", "behind", "options", "words"),
    [
        (IMAGE, np.ones_like(MASK), {}, "True everywhere, so that no place is left"),
        (IMAGE, 0 * MASK == 1, {}, "of the background lies entirely within the mask; draw a"),
        (IMAGE, MASK[:-1], {}, r"shape \(139, 131\); the background has shape \(140, 1"),
        (IMAGE, MASK.T, {}, r"shape \(131, 140\); .* needs a mask of shape \(140, 131\)"),
        (IMAGE, IMAGE[:9], {}, r"the background has images of 9 x 131 pixels, in which"),
        (IMAGE, 0 * EMPTY + 0.1, {}, r"the background is constant \(none of its"),
        (0 * IMAGE, MASK, {}, "the background is constant"),
        (WITH_NAN, MASK, {}, r"the image has NaN or infinite pixels, first in \["),
        (np.dstack([IMAGE] * 3), MASK, {}, "colours or channels are in the last axis"),
        (FILM, FILM[:, :5], FRAMES, "frames have 5 x 8 pixels, but the image's frames have 6 x 8"),
        (FILM[0], FILM, FRAMES, r"the image has shape \(6, 8\); frames need"),
        (FILM, np.ones(9, dtype=bool), FRAMES, "True everywhere"),
        (FILM, np.zeros(9, dtype=bool), FRAMES, "no frame of the background lies entirely"),
        (FILM, FILM[0] > 0, FRAMES, r"needs a mask of shape \(9,\)"),
        (IMAGE, MASK, {"sampling": "pixels"}, "'pixels' is unknown; expected 'patches', 'frames'"),
        (IMAGE, MASK, {"background_strength": "none"}, "background_strength='none' is unknown"),
        (IMAGE, MASK, {"brightness": "zero"}, "brightness='zero' is unknown; expected 'keep'"),
        (IMAGE, MASK, {"multiplicative": True}, "needs sampling='frames'"),
        (IMAGE, MASK, {"out": np.empty((2, 2))}, "out is ndarray of shape"),
        (IMAGE, MASK, {"channel_axis": 3}, "channel_axis"),
    ],
)
def test_bad_images_and_arguments_are_refused_with_advice(
    image: Any, behind: Any, options: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        suppress_background(image, behind, **options)


@pytest.mark.parametrize(
    ("height", "width", "small"), [(9, 10, True), (32, 31, True), (64, 64, False)]
)
def test_a_background_with_few_windows_is_called_too_small(
    height: int, width: int, small: bool
) -> None:
    mask = MASK.copy()
    mask[height:], mask[:, width:] = False, False
    for image, behind in (
        (IMAGE, mask),
        (IMAGE, IMAGE[:height, :width]),
        (IMAGE[None], mask[None]),
    ):
        found = suppress_background(image, behind, sampling=QUICK).verdicts
        said = [each for each in found if each.kind == "background too small"]
        assert len(said) == small
        if small:
            assert said[0].value == pytest.approx(height * width / 64)
            assert "windows of 8 x 8 pixels" in said[0].sentence


def test_the_mean_brightness_of_an_image_is_kept_unless_its_removal_is_requested() -> None:
    rng = np.random.default_rng(0)
    clean = 0.6 + 0.3 * cells(MASK.shape, rng) - 0.4 * cells(MASK.shape, rng)
    image = clean + 0.1 * stripes(MASK.shape, rng)
    kept = suppress_background(image, MASK, sampling=QUICK)
    assert abs(kept.denoised.mean() - image.mean()) < 0.005 * np.ptp(clean)
    assert kept.brightness == pytest.approx(0.6, abs=0.03)
    asked = suppress_background(image, MASK, sampling=QUICK, brightness="remove")
    assert asked.brightness == 0
    np.testing.assert_allclose(kept.denoised - asked.denoised, kept.brightness, atol=1e-12)
    assert kept.verdicts == asked.verdicts == ()
    # The mean is also kept if the masked area is darker than the rest of the image. The first image
    # has a dark ground behind bright cells, and the second has a texture with a dark part.
    for bright in (IMAGE + 100, 0.5 + np.abs(image - 0.6)):
        result = suppress_background(bright, MASK, sampling=QUICK)
        assert result.denoised.mean() == pytest.approx(bright.mean(), abs=0.02)


@pytest.mark.parametrize("turned", [False, True])
def test_stripes_are_sampled_in_strips_and_fringes_in_squares(turned: bool) -> None:
    for pattern, size in [(stripes, (6, 64)), (fringes, (16, 16))]:
        image, mask, _ = scene(pattern, (180, 190), 96)
        if turned:
            image, mask, size = image.T, mask.T, size[::-1]
        assert window_size(image, mask) == size
        assert window_size(np.stack([0 * image, image]), np.stack([0 * mask, mask])) == size
    assert window_size(image[:20, :20], None) == (16, 16)
    # The empty area of this image is hardly longer than a strip.
    small = cells_behind_fringes((256, 256))
    assert window_size(small.image, small.empty) == (16, 16)


@pytest.mark.parametrize(
    ("pattern", "strengths", "sides", "other", "share"),
    [
        pytest.param(
            *(stripes, (1, 0.3), (6, 64), {"sampling": Patches()}, 0.95), marks=pytest.mark.slow
        ),
        # A strip shows only a few lines of random brightness. If the strength could vary, their
        # differences would be mistaken for a change of strength. With brightness="remove", the
        # default is therefore a constant strength, which gives the smaller error.
        (curtains, (2, 0.1), (64, 6), {"background_strength": "varying"}, 0.75),
    ],
)
def test_lines_are_removed_best_in_strips_with_a_constant_strength(
    pattern: Any, strengths: Any, sides: Any, other: Any, share: float
) -> None:
    amplitude, noise = strengths
    image, mask, clean = scene(pattern, (180, 190), 96, amplitude=amplitude, noise=noise)
    strips = suppress_background(image, mask)
    assert strips.sampling == Patches(sides, 2)
    assert strips.estimator.background_strength == "varying"  # type: ignore[union-attr]
    given = {"sampling": strips.sampling, "brightness": "remove"}
    left, otherwise = (
        relative_error(suppress_background(image, mask, **options).denoised, clean, image)
        for options in (given, given | other)
    )
    assert left < share * otherwise


@pytest.mark.slow
def test_lines_are_averaged_over_their_whole_length() -> None:
    image, mask, clean = scene(scan_lines, (180, 190), 96, amplitude=2, noise=0.1)
    out = np.empty(image.shape)
    result = suppress_background(np.stack([image, image[::-1]]), np.stack([mask, mask[::-1]]))
    # By default, the image is filtered twice. What the first filtering removes is averaged along
    # each whole line and subtracted from the image, and the difference is filtered again.
    twice = suppress_background(image, mask, out=out)
    once = suppress_background(image, mask, sampling=Patches((6, 64)))
    assert twice.sampling == result.sampling == once.sampling
    errors = [relative_error(each.denoised, clean, image) for each in (twice, once)]
    assert errors[0] < 0.7 * errors[1]
    assert relative_error(result.denoised[1], clean[::-1], image[::-1]) < 0.7 * errors[1]
    assert twice.denoised is out
    lines = once.removed.mean(axis=1, keepdims=True)
    shorter = image - lines + lines.mean()
    windows = Patches(window_size(shorter, mask))
    rest = suppress_background(shorter, mask, sampling=windows)
    np.testing.assert_allclose(twice.denoised, rest.denoised, atol=1e-10)
    dark = suppress_background(image, mask, brightness="remove")
    assert relative_error(dark.denoised, clean, image) < errors[0]
    assert (dark.brightness, dark.denoised[mask].mean()) == (0, pytest.approx(0, abs=0.03))
    assert twice.verdicts == once.verdicts


def test_stationary_moments_are_averages_over_pixel_pairs_with_equal_offsets() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 6))
    moments = SecondMoments.from_data(rows)
    found = stationary_moments(moments, (1, 6))
    covariance = np.cov(rows.T, bias=True)
    lags = [np.diag(covariance, k).mean() for k in range(6)]
    # The covariance of windows that are not square is also multiplied by 1.3.
    expected = 1.3 * np.array([[lags[abs(i - j)] for j in range(6)] for i in range(6)])
    np.testing.assert_allclose(found.covariance, expected, atol=1e-12)
    np.testing.assert_allclose(found.mean, rows.mean())
    assert stationary_moments(moments, (1, 2, 3)) is moments


def test_every_channel_has_a_background_of_its_own() -> None:
    other = 3 * IMAGE[::-1].copy() + 7
    behind = np.stack([EMPTY, other[-64:, :64]], axis=-1)
    both = np.stack([IMAGE, other], axis=-1)
    result = suppress_background(both, behind, sampling=QUICK, channel_axis=-1)
    for channel, alone in enumerate((IMAGE, other)):
        expected = suppress_background(alone, behind[..., channel], sampling=QUICK)
        np.testing.assert_allclose(result.denoised[..., channel], expected.denoised, atol=1e-12)
        assert result.brightness[channel] == expected.brightness  # type: ignore[index]
    assert len(result.estimator) == len(result.sampling) == 2  # type: ignore[arg-type]
    np.testing.assert_allclose(result.removed, both - result.denoised)
    pair = np.stack([IMAGE, IMAGE + 100], axis=-1).astype("f4")
    shared = suppress_background(pair, MASK, sampling=QUICK, channel_axis=2)
    assert shared.denoised.dtype == np.float32


class Chunks:
    """Stored image that counts how often each of its chunks is loaded."""

    def __init__(self, image: Any, side: int) -> None:
        self.image, self.shape, self.dtype = image, image.shape, image.dtype
        self.chunks = (side, side)
        self.loads: Any = 0

    def __getitem__(self, index: Any) -> Any:
        read = np.zeros(self.shape, dtype=bool)
        read[index] = True
        for axis, (n, side) in enumerate(zip(self.shape, self.chunks, strict=True)):
            read = np.logical_or.reduceat(read, range(0, n, side), axis=axis)
        self.loads = self.loads + read
        return self.image[index]


def test_chunks_of_a_large_image_are_loaded_at_most_four_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("contrast_core.images._stack_rows._WHOLE_IMAGE", 2**16)
    monkeypatch.setattr("contrast_core.images._excerpt._PIXELS", 2**15)
    monkeypatch.setattr("contrast_core.images._excerpt._SIDE", 96)
    image, mask, clean = scene(stripes, (400, 390), 130)
    stored = Chunks(image, 100)
    result = suppress_background(stored, mask, sampling=QUICK)
    assert stored.loads.max() <= 4
    whole = suppress_background(image, mask, sampling=QUICK)
    errors = [relative_error(each.denoised, clean, image) for each in (result, whole)]
    assert errors[0] < 1.2 * errors[1]
    tiles, marked = excerpt(stored, mask)
    assert tiles.shape == marked.shape == (2**15 // 96**2, 96, 96)  # type: ignore[union-attr]
    assert marked is not None
    assert marked[0].all()
    arrays = (image, stored, da.ones((9, 7), chunks=4))
    assert [chunk_side(each, -1) for each in arrays] == [None, 100, 4]


def test_the_marked_area_is_read_from_the_whole_length_of_a_long_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("contrast_core.images._excerpt._PIXELS", 10 * 20**2)
    stack = np.broadcast_to(np.arange(91.0)[:, None, None], (91, 20, 20))
    for mask in (np.ones((20, 20), bool), np.ones(stack.shape, bool)):
        tiles, _ = excerpt(stack, mask)
        assert tiles[:, 0, 0].tolist() == list(range(0, 91, 10))
    mask[40] = False
    mask[40, 3:, 3:] = True  # the tile with the fewest marked pixels is not read
    mask[41:] = False
    assert excerpt(stack, mask)[0].max() == 39
