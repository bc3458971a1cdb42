"""A structured background out of one image, in one call."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy.ndimage import gaussian_filter

from contrast_core import SecondMoments, load, save
from contrast_core.datasets import cells_behind_fringes
from contrast_core.images import (
    Patches,
    StructuredBackgroundRemover,
    suppress_background,
    weight_maps,
)
from contrast_core.images._chunks import chunk_side
from contrast_core.images._excerpt import excerpt
from contrast_core.images._window_choice import stationary_moments, window_size
from tests.core.images.pictures import (
    PATTERNS,
    cells,
    curtains,
    fringes,
    noisy,
    relative_error,
    stripes,
)

QUICK = Patches(size=8, stride=4)


def striped_cells(shape: Any = (140, 131), *, empty: int = 64) -> tuple[Any, Any, Any]:
    """An image, the mask of an empty rectangle in its corner, and the clean image."""
    rng = np.random.default_rng(0)
    clean = cells(shape, rng, empty=empty)
    mask = np.zeros(shape, dtype=bool)
    mask[:empty, :empty] = True
    return noisy(clean, stripes(shape, rng), rng), mask, clean


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_go_and_cells_stay_without_tuning(pattern: str) -> None:
    rng = np.random.default_rng(0)
    clean = cells((192, 192), rng)
    image = noisy(clean, PATTERNS[pattern]((192, 192), rng), rng)
    mask = np.zeros(image.shape, dtype=bool)
    mask[:64, :64] = True
    result = suppress_background(image, mask, sampling=Patches(stride=4))
    blurred = (relative_error(gaussian_filter(image, s), clean, image) for s in (0.5, 1, 1.5, 2, 3))
    assert relative_error(result.denoised, clean, image) < 0.7 * min(blurred)
    assert result.verdicts == ()
    np.testing.assert_allclose(result.denoised + result.removed, image, atol=1e-12)
    # The image keeps its scale: dark stays 0, and cells their brightness.
    assert abs(result.denoised[mask].mean()) < 0.05 * clean.std()
    slope = np.polyfit(clean.ravel(), result.denoised.ravel(), 1)[0]
    assert 0.7 < slope < 1.1
    # What was removed is the pattern, not the cells.
    assert abs(np.corrcoef(result.removed.ravel(), clean.ravel())[0, 1]) < 0.35


def test_what_is_learnt_from_one_image_is_applied_to_another() -> None:
    image, mask, _ = striped_cells()
    whole = suppress_background(image, mask, sampling=QUICK)
    part = image[30:70, 20:131]
    found = suppress_background(image, mask, sampling=QUICK, apply_to=part)
    assert found.image is part
    expected = QUICK.map(lambda rows: whole.estimator.transform(rows) + whole.brightness, part)  # type: ignore[union-attr,operator]
    np.testing.assert_allclose(found.denoised, expected)
    assert (found.brightness, found.verdicts) == (whole.brightness, whole.verdicts)
    # A background image and its mask are what a mask of the image stands for.
    crop, inside = image[:80, :96], mask[:80, :96]
    cropped = suppress_background(image, crop, background_mask=inside, sampling=QUICK)
    np.testing.assert_allclose(cropped.denoised, whole.denoised, atol=1e-8)
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


def test_strips_that_do_not_fit_the_image_give_way_to_squares() -> None:
    rng = np.random.default_rng(0)
    lines = stripes((140, 140), rng) + 0.1 * rng.normal(size=(140, 140))
    image = lines[:40, :40] + cells((40, 40), rng, empty=20)
    assert max(window_size(lines, None)) == 64
    for target in (None, image):
        found = suppress_background(lines if target is image else image, lines, apply_to=target)
        assert found.sampling == Patches((16, 16), 2)


def test_it_is_the_remover_on_patches() -> None:
    image, mask, _ = striped_cells()
    result = suppress_background(image, mask, sampling=QUICK, background_strength="constant")
    every = Patches(size=8, stride=1)  # of so few
    fitted = StructuredBackgroundRemover(background_strength="constant").fit(
        SecondMoments.from_data(every.rows(image)),
        background=stationary_moments(SecondMoments.from_data(every.rows(image[:64, :64])), (8, 8)),
    )
    assert result.brightness == 0
    np.testing.assert_allclose(result.denoised, QUICK.map(fitted.transform, image), atol=1e-12)
    assert result.estimator.background_strength == "constant"


def test_a_mask_and_the_cut_out_rectangle_are_the_same() -> None:
    image, mask, _ = striped_cells()
    marked = suppress_background(image, mask, sampling=QUICK)
    cut_out = suppress_background(image, image[:64, :64], sampling=QUICK)
    np.testing.assert_allclose(marked.denoised, cut_out.denoised, atol=1e-12)
    assert marked.verdicts == cut_out.verdicts


def test_masks_may_be_integers_and_what_may_be_either_is_refused() -> None:
    image, mask, _ = striped_cells()
    expected = suppress_background(image, mask, sampling=QUICK).denoised
    stack = image[None]
    for behind in (mask.astype(int), np.uint8(255) * mask, mask.astype("f4"), mask[None] * 255):
        found = suppress_background(stack, behind, sampling=QUICK).denoised[0]
        np.testing.assert_allclose(found, expected, atol=1e-12)
    labels = np.where(mask, 0, 1 + (image > 0))
    for behind in (labels, 2 * mask + 3, (-1) * mask):
        with pytest.raises(ValueError, match="may be a mask, labels or an image"):
            suppress_background(image, behind, sampling=QUICK)
    # Another shape than a mask's, or many grey levels: an image.
    counts = np.random.default_rng(0).poisson(0.3, size=(70, 70))
    grey = np.round(image * 100).astype(int)
    for behind in (counts, grey):
        assert np.isfinite(suppress_background(image, behind, sampling=QUICK).denoised).all()
    film = np.random.default_rng(0).normal(size=(40, 6, 6))
    even = np.arange(40) % 2
    marked = suppress_background(film, even, sampling="frames").denoised
    np.testing.assert_array_equal(
        marked, suppress_background(film, even == 1, sampling="frames").denoised
    )


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "i4", "f2", ">f8"])
def test_images_of_any_real_type(dtype: str) -> None:
    image, mask, _ = striped_cells()
    scaled = np.round(40 * (image - image.min())).clip(0, 255).astype(dtype)
    result = suppress_background(scaled, mask, sampling=QUICK)
    expected = suppress_background(scaled.astype(float), mask, sampling=QUICK)
    wide = dtype in ("i4", ">f8")
    assert result.denoised.dtype == result.removed.dtype == (np.float64 if wide else np.float32)
    np.testing.assert_allclose(result.denoised, expected.denoised, atol=1e-3)
    np.testing.assert_allclose(result.denoised + result.removed, scaled, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_units_do_not_matter(scale: float) -> None:
    image, mask, _ = striped_cells()
    plain = suppress_background(image, mask, sampling=QUICK)
    scaled = suppress_background(scale * image, mask, sampling=QUICK)
    np.testing.assert_allclose(scaled.denoised / scale, plain.denoised, atol=1e-8)
    single = suppress_background((scale * image).astype("f4"), mask, sampling=QUICK)
    np.testing.assert_allclose(single.denoised / scale, plain.denoised, atol=1e-3)
    shifted = suppress_background(image + 1e4, mask, sampling=QUICK)
    np.testing.assert_allclose(shifted.denoised, plain.denoised, atol=1e-6)


@pytest.mark.parametrize("kind", ["dask", "zarr", "readonly view", "lists"])
def test_stacks_of_any_kind_share_one_background(kind: str, tmp_path: Any) -> None:
    image, mask, _ = striped_cells((100, 91))
    stack = np.stack([image, image[::-1], 2 * image])[:, None]
    expected = suppress_background(stack, image[:64, :64], sampling=QUICK)
    lazy: Any
    match kind:
        case "dask":
            lazy = da.from_array(stack, chunks=50)
        case "zarr":
            lazy = zarr.create_array(
                tmp_path / "z", shape=stack.shape, chunks=(1, 1, 50, 50), dtype="f8"
            )
            lazy[:] = stack
        case "lists":
            lazy = stack.tolist()
        case _:
            lazy = np.repeat(stack, 2, axis=-1)[..., ::2]
            lazy.flags.writeable = False
    result = suppress_background(lazy, image[:64, :64], sampling=QUICK)
    assert result.denoised.shape == result.removed.shape == stack.shape
    np.testing.assert_allclose(result.denoised, expected.denoised, atol=1e-12)
    for marked in (mask, np.stack([mask, False & mask, False & mask])[:, None]):
        again = suppress_background(lazy, marked, sampling=QUICK)
        assert again.denoised.shape == stack.shape


def test_boxes_of_three_sides_use_depth() -> None:
    rng = np.random.default_rng(1)
    clean = np.stack([cells((72, 72), np.random.default_rng(7), empty=40)] * 6)
    image = noisy(clean, np.stack([stripes((72, 72), rng)] * 6), rng, noise=1.0)
    mask = np.zeros(image.shape, dtype=bool)
    mask[:, :40, :40] = True
    flat = suppress_background(image, mask, sampling=Patches(8, 4)).denoised
    deep = suppress_background(image, mask, sampling=Patches((2, 8, 8), 2)).denoised
    assert relative_error(deep, clean, image) < 0.95 * relative_error(flat, clean, image)


def test_the_fitted_remover_is_saved_and_shows_where_the_signal_is(tmp_path: Any) -> None:
    image, mask, clean = striped_cells()
    result = suppress_background(image, mask, sampling=QUICK)
    save(result.estimator, tmp_path / "stripes.model")
    remover = load(tmp_path / "stripes.model")
    found = QUICK.map(remover.transform, image) + result.brightness
    np.testing.assert_allclose(found, result.denoised, atol=1e-12)
    maps = weight_maps(remover, (8, 8))
    assert maps.shape == (len(remover.patterns_), 8, 8)
    np.testing.assert_allclose(abs(maps).max(axis=(1, 2)), 1.0)
    strength = QUICK.map(lambda rows: remover.strengths(rows)[:, :1], image)
    bright = clean > 0.5 * clean.max()
    assert strength[bright].mean() > 5 * strength[mask].mean()


def test_a_background_that_touches_every_border() -> None:
    rng = np.random.default_rng(0)
    clean = np.zeros((96, 120))
    clean[30:66, 30:90] = cells((36, 60), rng, empty=0)
    image = noisy(clean, stripes(clean.shape, rng), rng)
    mask = np.ones(clean.shape, dtype=bool)
    mask[20:76, 20:100] = False
    result = suppress_background(image, mask, sampling=QUICK)
    assert relative_error(result.denoised, clean, image) < 0.6


def test_bad_input_is_refused_with_what_to_do() -> None:
    image, mask, _ = striped_cells((60, 70), empty=40)
    with_nan = image.copy()
    with_nan[50, 3] = np.nan
    for bad, behind, error, message in [
        (image, np.ones_like(mask), ValueError, "True everywhere, so that no place is left"),
        (
            image,
            np.zeros_like(mask),
            ValueError,
            "of the background lies in the mask whole; draw a",
        ),
        (image, mask[:-1], ValueError, r"shape \(59, 70\); the background has shape \(60, 70\)"),
        (image, mask.T, ValueError, r"shape \(70, 60\); .* needs a mask of shape \(60, 70\)"),
        (image[:10], image, ValueError, r"the image has images of 10 x 70 pixels, in which no"),
        (image, image[:9], ValueError, r"the background has images of 9 x 70 pixels, in which"),
        (image, np.full((40, 40), 0.1), ValueError, r"the background is constant \(none of its"),
        (with_nan, mask, ValueError, r"the image has NaN or infinite pixels, first in rows"),
        (image, with_nan, ValueError, r"the background has NaN or infinite pixels, first in"),
        (np.dstack([image] * 3), mask, ValueError, "Colours or channels in the last axis"),
        (image, np.ma.array(image, mask=mask), TypeError, "the background is a masked array"),
        (image * 1j, mask, TypeError, "complex128"),
    ]:
        with pytest.raises(error, match=message):
            suppress_background(bad, behind)
    with pytest.raises(
        ValueError, match=r"sampling='pixels' is unknown; expected 'patches', 'frames'"
    ):
        suppress_background(image, mask, sampling="pixels")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="background_strength='none' is unknown"):
        suppress_background(image, mask, background_strength="none")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("height", "width", "small"), [(9, 10, True), (32, 31, True), (64, 64, False)]
)
def test_a_background_that_holds_few_windows_is_called_too_small(
    height: int, width: int, small: bool
) -> None:
    image, mask, _ = striped_cells()
    mask[height:], mask[:, width:] = False, False
    for behind in (mask, image[:height, :width], np.stack([mask])):
        found = suppress_background(
            image if behind.ndim == 2 else image[None], behind, sampling=QUICK
        )
        said = [each for each in found.verdicts if each.kind == "background too small"]
        assert len(said) == small
        if small:
            assert said[0].value == pytest.approx(height * width / 64)
            assert "windows of 8 x 8 pixels" in said[0].sentence


def test_a_constant_image_is_left_empty() -> None:
    _, mask, _ = striped_cells((60, 70), empty=40)
    empty = np.random.default_rng(0).normal(size=(40, 40))
    result = suppress_background(np.full((60, 70), 3.0), empty, sampling=QUICK)
    assert np.isfinite(result.denoised).all()
    with pytest.raises(ValueError, match="the background is constant"):
        suppress_background(np.zeros((60, 70)), mask)


def bright_field(shape: Any = (160, 170)) -> tuple[Any, Any, Any]:
    """Dark and bright cells on a grey ground behind stripes; the mask; the clean image."""
    rng = np.random.default_rng(0)
    clean = 0.6 + 0.3 * cells(shape, rng) - 0.4 * cells(shape, rng)
    mask = np.zeros(shape, dtype=bool)
    mask[:64, :64] = True
    return clean + 0.1 * stripes(shape, rng), mask, clean


def test_bright_images_stay_as_bright_and_dark_grounds_become_zero() -> None:
    image, mask, clean = bright_field()
    kept = suppress_background(image, mask, sampling=QUICK)
    spread = clean.max() - clean.min()
    assert abs(kept.denoised.mean() - image.mean()) < 0.005 * spread
    assert kept.brightness == pytest.approx(0.6, abs=0.03)
    asked = suppress_background(image, mask, sampling=QUICK, brightness="remove")
    assert asked.brightness == 0
    np.testing.assert_allclose(kept.denoised - asked.denoised, kept.brightness, atol=1e-12)
    assert kept.verdicts == asked.verdicts == ()
    # Fluorescence: its brightness goes, and a verdict says so where it is more than the pattern.
    glow, mask, clean = striped_cells()
    (said,) = suppress_background(glow + 100, mask, sampling=QUICK).verdicts
    assert said.kind == "brightness removed"
    assert said.value == pytest.approx(100 + glow.mean() - clean.mean(), abs=0.1)
    bright = suppress_background(glow + 100, mask, sampling=QUICK, brightness="keep")
    assert bright.denoised.mean() == pytest.approx(100 + glow.mean(), abs=0.02)
    with pytest.raises(ValueError, match="brightness='zero' is unknown; expected 'auto'"):
        suppress_background(image, mask, brightness="zero")  # type: ignore[arg-type]


@pytest.mark.parametrize("turned", [False, True])
def test_stripes_are_looked_at_in_strips_and_fringes_in_squares(turned: bool) -> None:
    rng = np.random.default_rng(0)
    shape = (180, 190)
    clean = cells(shape, rng, empty=96)
    mask = np.zeros(shape, dtype=bool)
    mask[:96, :96] = True
    for pattern, size in [(stripes, (6, 64)), (fringes, (16, 16))]:
        image = noisy(clean, pattern(shape, rng), rng)
        places = mask
        if turned:
            image, size, places = image.T, size[::-1], mask.T
        assert window_size(image, places) == size
        assert window_size(np.stack([0 * image, image]), np.stack([0 * places, places])) == size
    assert window_size(image[:20, :20], None) == (16, 16)
    small = cells_behind_fringes((256, 256))  # an area that is hardly longer than a strip
    assert window_size(small.image, small.empty) == (16, 16)


def test_strips_leave_less_of_lines_than_squares() -> None:
    rng = np.random.default_rng(0)
    shape = (180, 190)
    clean = cells(shape, rng, empty=96)
    mask = np.zeros(shape, dtype=bool)
    mask[:96, :96] = True
    image = noisy(clean, stripes(shape, rng), rng)
    strips = suppress_background(image, mask)
    assert strips.sampling == Patches((6, 64), 2)
    squares = suppress_background(image, mask, sampling=Patches())
    left = [relative_error(result.denoised, clean, image) for result in (strips, squares)]
    assert left[0] < 0.95 * left[1]


def test_strong_curtains_are_removed_at_a_constant_strength() -> None:
    """Lines of random brightness look like a background whose strength varies, and are none."""
    rng = np.random.default_rng(0)
    shape = (180, 190)
    clean = cells(shape, rng, empty=96)
    mask = np.zeros(shape, dtype=bool)
    mask[:96, :96] = True
    image = noisy(clean, curtains(shape, rng), rng, amplitude=2.0, noise=0.1)
    result = suppress_background(image, mask)
    assert result.sampling == Patches((64, 6), 2)
    assert result.estimator.background_strength == "constant"  # type: ignore[union-attr]
    varying = suppress_background(image, mask, background_strength="varying")
    left = [relative_error(found.denoised, clean, image) for found in (result, varying)]
    assert left[0] < 0.75 * left[1]


def test_stationary_moments_average_over_equal_steps() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 6))
    moments = SecondMoments.from_data(rows)
    found = stationary_moments(moments, (1, 6))
    centred = rows - rows.mean(axis=0)
    covariance = centred.T @ centred / 50
    lags = [np.diag(covariance, k).mean() for k in range(6)]
    expected = 1.3 * np.array([[lags[abs(i - j)] for j in range(6)] for i in range(6)])
    np.testing.assert_allclose(found.covariance, expected, atol=1e-12)
    np.testing.assert_allclose(found.mean, rows.mean())
    assert stationary_moments(moments, (1, 2, 3)) is moments


def test_every_channel_has_a_background_of_its_own() -> None:
    image, mask, _ = striped_cells()
    other = 3 * image[::-1].copy() + 7
    behind = np.stack([image[:64, :64], other[-64:, :64]], axis=-1)
    both = np.stack([image, other], axis=-1)
    result = suppress_background(both, behind, sampling=QUICK, channel_axis=-1)
    for channel, alone in enumerate((image, other)):
        expected = suppress_background(alone, behind[..., channel], sampling=QUICK)
        np.testing.assert_allclose(result.denoised[..., channel], expected.denoised, atol=1e-12)
        assert result.brightness[channel] == expected.brightness  # type: ignore[index]
    assert len(result.estimator) == len(result.sampling) == 2  # type: ignore[arg-type]
    np.testing.assert_allclose(result.removed, both - result.denoised)
    pair = np.stack([image, image + 100], axis=-1).astype("f4")
    shared = suppress_background(pair, mask, sampling=QUICK, channel_axis=2)
    assert shared.denoised.dtype == np.float32
    assert [v.sentence[:9] for v in shared.verdicts if "brightness" in v.kind] == ["Channel 1"]
    with pytest.raises(ValueError, match="channel_axis"):
        suppress_background(both, mask, channel_axis=3)


class Chunks:
    """A stored image that counts how often each of its chunks is loaded."""

    def __init__(self, image: Any, side: int) -> None:
        self.image, self.shape, self.dtype = image, image.shape, image.dtype
        self.chunks = (side, side)
        self.loads = np.zeros([-(-n // side) for n in image.shape], dtype=int)

    def __getitem__(self, index: Any) -> Any:
        index = index if isinstance(index, tuple) else (index,)
        index = (*(part for part in index if part is not Ellipsis), slice(None), slice(None))[:2]
        ends = [part.indices(n) for part, n in zip(index, self.shape, strict=True)]
        side = self.chunks[0]
        where = tuple(slice(start // side, -(-stop // side)) for start, stop, _ in ends)
        self.loads[where] += 1
        return self.image[index]


def test_chunks_of_a_large_image_are_loaded_at_most_four_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("contrast_core.images._patches._WHOLE_IMAGE", 2**14)
    monkeypatch.setattr("contrast_core.images._excerpt._PIXELS", 2**15)
    monkeypatch.setattr("contrast_core.images._excerpt._SIDE", 96)
    image, mask, clean = striped_cells((400, 390), empty=130)
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
    assert [chunk_side(each, -1) for each in (image, stored, da.ones((9, 7), chunks=4))] == [
        None,
        100,
        4,
    ]
