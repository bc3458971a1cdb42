"""A structured background out of one image, in one call."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy.ndimage import gaussian_filter

from contrast_core import SecondMoments, load, save
from contrast_core.images import (
    Patches,
    StructuredBackgroundRemover,
    suppress_background,
    weight_maps,
)
from tests.core.images.pictures import PATTERNS, cells, noisy, relative_error, stripes

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


def test_it_is_the_remover_on_patches() -> None:
    image, mask, _ = striped_cells()
    result = suppress_background(image, mask, sampling=QUICK, background_strength="constant")
    every = Patches(size=8, stride=1)  # of so few
    fitted = StructuredBackgroundRemover(background_strength="constant").fit(
        SecondMoments.from_data(every.rows(image)),
        background=SecondMoments.from_data(every.rows(image[:64, :64])),
    )
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
    np.testing.assert_array_equal(QUICK.map(remover.transform, image), result.denoised)
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
        (with_nan, mask, ValueError, r"the image has NaN or infinite pixels, somewhere in rows"),
        (image, with_nan, ValueError, r"the background has NaN or infinite pixels, somewhere in"),
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
