"""Tests of background removal from large frames.

The background of each frame is fitted by the mean and the components of many background frames,
which are called the library.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr
from scipy.ndimage import gaussian_filter

from contrast_core import load, save
from contrast_core.images import FrameBackgroundRemover, Frames, suppress_background
from contrast_core.images._frame_library import frame_library, robust_coefficients

SHAPE = (64, 60)


def movie(n: int = 40, m: int = 40, *, noise: float = 0.3) -> tuple[Any, Any, Any]:
    """Return moving cells over a flickering texture, frames of the texture alone, and the cells."""
    rng = np.random.default_rng(0)
    textures = gaussian_filter(rng.normal(size=(4, *SHAPE)), (0, 1.5, 1.5))
    textures /= textures.std(axis=(1, 2), keepdims=True)

    def background(k: int) -> Any:
        strength = rng.normal(size=(k, 4)) * [0.3, 0.4, 0.3, 0.2] + [1, 0, 0, 0]
        return np.einsum("kj,jyx->kyx", strength, textures) + noise * rng.normal(size=(k, *SHAPE))

    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    clean = np.zeros((n, *SHAPE))
    places, speeds = rng.uniform(0, 60, size=(5, 2)), rng.normal(size=(5, 2))
    for t, frame in enumerate(clean):
        for place, speed in zip(places, speeds, strict=True):
            cy, cx = (place + t * speed) % 60
            frame[(y - cy) ** 2 + (x - cx) ** 2 < 20] = 1.0
    clean = gaussian_filter(clean, (0, 1, 1))
    clean /= clean.std()
    return clean + background(n), background(m), clean


FILM, EMPTY, CELLS = movie()
ROWS, EMPTY_ROWS = FILM.reshape(40, -1), EMPTY.reshape(40, -1)


def error(estimate: Any, clean: Any, noisy: Any) -> float:
    return float(((estimate - clean) ** 2).sum() / ((noisy - clean) ** 2).sum())


def suppressed(frames: Any, background: Any, **options: Any) -> Any:
    return suppress_background(frames, background, sampling="frames", **options)


def test_moving_cells_are_separated_from_a_flickering_texture() -> None:
    result = suppressed(FILM, EMPTY)
    assert result.estimator.method_ == "library"
    assert result.estimator.n_components_ == 4
    assert result.denoised.dtype == np.float64
    assert error(gaussian_filter(result.denoised, (0, 1, 1)), CELLS, FILM) < 0.05
    np.testing.assert_allclose(result.removed, FILM - result.denoised)
    assert result.verdicts == ()
    assert repr(result).startswith("SuppressedBackground(40 x 64 x 60 pixels, FrameBackground")


def test_the_result_agrees_with_weighted_least_squares_in_plain_numpy() -> None:
    remover = FrameBackgroundRemover(SHAPE).fit(ROWS, background=EMPTY_ROWS)
    mean, k = EMPTY_ROWS.mean(axis=0), remover.n_components_
    centred = EMPTY_ROWS - mean
    # The fit has a coefficient for each component, and one for the brightness.
    centred -= centred.mean(axis=1, keepdims=True)
    components = np.linalg.svd(centred, full_matrices=False)[2][:k]
    design = np.vstack([np.ones(len(mean)), components]).T
    for row, found in zip(ROWS[:3], remover.transform(ROWS[:3]), strict=True):
        weights = np.ones(len(mean))
        for _ in range(10):
            root = np.sqrt(weights)
            fit = np.linalg.lstsq(design * root[:, None], (row - mean) * root, rcond=None)[0]
            residual = row - mean - design @ fit
            scale = 1.4826 * np.median(abs(residual))
            weights = np.clip(1 - (residual / (4.685 * scale)) ** 2, 0, None) ** 2
        np.testing.assert_allclose(found, residual, atol=2e-4)
    assert remover.strengths(EMPTY_ROWS).mean() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(("n_patterns", "m"), [(0, 12), (1, 12), (3, 30), (6, 60)])
def test_the_number_of_components_is_found_by_leaving_frames_out(n_patterns: int, m: int) -> None:
    rng = np.random.default_rng(1)
    frames = rng.normal(size=(m, n_patterns)) @ rng.normal(size=(n_patterns, 3000))
    frames = frames + rng.normal(size=frames.shape)
    library = frame_library((frames + 5).astype(np.float32))
    assert len(library.components) == n_patterns
    np.testing.assert_allclose((library.components**2).mean(axis=1), 1, rtol=0.05)


def test_the_robust_fit_ignores_an_outlier_if_all_other_pixels_fit_exactly() -> None:
    design = np.vstack([np.ones(9), np.arange(9.0)])
    target = 2 * design[1] + 1
    target[4] = 100.0
    np.testing.assert_allclose(robust_coefficients(target[None], design), [[1, 2]], atol=1e-9)


def test_absorbed_light_gives_the_optical_density() -> None:
    film, empty, clean = movie(noise=0.02)
    density = 0.2 * clean
    light, probe = (1000 * np.exp(0.05 * each) for each in (film - clean, empty))
    shadows, bright = light * np.exp(-density) + 100, probe + 100
    result, without = (
        suppressed(shadows.astype("u2"), bright.astype("u2"), multiplicative=True, dark=dark)
        for dark in (np.full((3, *SHAPE), 100.0), None)
    )
    assert abs(result.denoised - density).mean() < 0.01
    left, otherwise = (((each.denoised - density) ** 2).sum() for each in (result, without))
    assert left < 0.3 * otherwise
    # Small frames and pixels without any light also give an optical density.
    small = np.maximum(shadows[:, :20, :20] - 100, 0)
    small[0, :3] = 0
    found = suppressed(small, probe[:, :20, :20], multiplicative=True).denoised
    assert found[0, :3].mean() == pytest.approx(np.log(1000), rel=0.02)


def test_a_missing_signal_swapped_layers_and_too_few_frames_get_a_verdict() -> None:
    for frames, background, kind in (
        (EMPTY[::2], EMPTY[1::2], "nothing found"),
        (EMPTY, FILM, "layers probably swapped"),
        (FILM, EMPTY[:5], "too few frames"),
    ):
        said = suppressed(frames, background).verdicts
        assert kind in [verdict.kind for verdict in said]


def test_stored_frames_give_the_same_result_and_are_written_to_a_stored_array(
    tmp_path: Any,
) -> None:
    stored, out = (
        zarr.create_array(tmp_path / name, shape=FILM.shape, chunks=(4, 64, 60), dtype="f4")
        for name in ("film", "out")
    )
    stored[:] = FILM
    assert suppressed(stored, EMPTY, out=out).denoised is out
    expected = suppressed(FILM.astype("f4"), EMPTY).denoised
    np.testing.assert_allclose(np.asarray(out[...]), expected, atol=1e-5)
    both, marked = np.concatenate([EMPTY, FILM]), np.arange(80) < 40
    found = suppress_background(both, marked, sampling=Frames()).denoised
    np.testing.assert_allclose(found[40:], expected, atol=1e-3)


def test_a_saved_library_gives_the_same_result_and_units_do_not_matter(tmp_path: Any) -> None:
    remover = FrameBackgroundRemover(SHAPE).fit(ROWS, background=EMPTY_ROWS)
    expected = remover.transform(ROWS)
    save(remover, tmp_path / "library.model")
    np.testing.assert_array_equal(load(tmp_path / "library.model").transform(ROWS), expected)
    for scale in (1e-25, 1e25):
        scaled = FrameBackgroundRemover(SHAPE).fit(scale * ROWS, background=scale * EMPTY_ROWS)
        np.testing.assert_allclose(scaled.transform(scale * ROWS) / scale, expected, atol=1e-3)
    # If the same object is fitted again to small frames, it uses the filter for small frames.
    small = remover.set_params(frame_shape=(6, 10)).fit(ROWS[:, :60], background=EMPTY_ROWS[:, :60])
    assert small.method_ == "filter"
    assert small.transform(ROWS[:, :60]).shape == (40, 60)


@pytest.mark.parametrize(
    ("background", "options", "words"),
    [
        (EMPTY[:3], {}, "at least 4 are needed"),
        (0 * EMPTY + 1, {}, "the background is constant"),
        (EMPTY, {"multiplicative": True, "dark": EMPTY[:, :5]}, "dark has 300 pixels"),
        (EMPTY, {"multiplicative": True, "dark": 9 + 0 * EMPTY}, "no light"),
    ],
)
def test_bad_input_is_refused(background: Any, options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        suppressed(FILM, background, **options)


@pytest.mark.parametrize("sampling", ["frames", "patches"])
def test_the_progress_function_can_stop_the_computation(sampling: Any) -> None:
    seen = []

    def progress(items: Any, *, total: int, desc: str) -> Any:
        for item in items:
            seen.append(desc)
            if desc in stops:
                raise KeyboardInterrupt
            yield item

    for stops in ("map", "check"):
        if (sampling, stops) == ("frames", "check"):  # large frames have no blocks to check
            continue
        with pytest.raises(KeyboardInterrupt):
            suppress_background(FILM[:6], EMPTY[:6], sampling=sampling, progress=progress)
        assert seen[-1] == stops
