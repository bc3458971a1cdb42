"""Frames of any size, compared with a library of background frames."""

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
    """Moving cells over a texture that flickers in four patterns, empty frames, and the cells."""
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


def error(estimate: Any, clean: Any, noisy: Any) -> float:
    return float(((estimate - clean) ** 2).sum() / ((noisy - clean) ** 2).sum())


def kinds(result: Any) -> list[str]:
    return [verdict.kind for verdict in result.verdicts]


def test_moving_cells_over_a_flickering_texture() -> None:
    film, empty, clean = movie()
    result = suppress_background(film, empty, sampling="frames")
    assert result.estimator.method_ == "library"
    assert result.estimator.n_components_ == 4
    assert result.denoised.dtype == np.float64
    assert error(gaussian_filter(result.denoised, (0, 1, 1)), clean, film) < 0.05
    np.testing.assert_allclose(result.removed, film - result.denoised)
    assert result.verdicts == ()
    assert repr(result).startswith("SuppressedBackground(40 x 64 x 60 pixels, FrameBackground")


def test_the_fit_is_a_weighted_least_squares_fit_in_plain_numpy() -> None:
    film, empty, _ = (each.reshape(40, -1) for each in movie())
    remover = FrameBackgroundRemover(SHAPE).fit(film, background=empty)
    mean, k = empty.mean(axis=0), remover.n_components_
    centred = empty - mean
    centred -= centred.mean(axis=1, keepdims=True)  # the brightness is fitted beside the components
    components = np.linalg.svd(centred, full_matrices=False)[2][:k]
    design = np.vstack([np.ones(len(mean)), components]).T
    for row, found in zip(film[:3], remover.transform(film[:3]), strict=True):
        weights = np.ones(len(mean))
        for _ in range(10):
            fit = np.linalg.lstsq(
                design * np.sqrt(weights)[:, None], (row - mean) * np.sqrt(weights), rcond=None
            )[0]
            residual = row - mean - design @ fit
            scale = 1.4826 * np.median(abs(residual))
            weights = np.clip(1 - (residual / (4.685 * scale)) ** 2, 0, None) ** 2
        np.testing.assert_allclose(found, residual, atol=2e-4)
    strengths = remover.strengths(empty)
    assert strengths.mean() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(("n_patterns", "m"), [(0, 12), (1, 12), (3, 30), (6, 60)])
def test_the_number_of_components_is_found_by_leaving_frames_out(n_patterns: int, m: int) -> None:
    rng = np.random.default_rng(1)
    frames = rng.normal(size=(m, n_patterns)) @ rng.normal(size=(n_patterns, 3000))
    frames = frames + rng.normal(size=frames.shape)
    library = frame_library((frames + 5).astype(np.float32))
    assert len(library.components) == n_patterns
    np.testing.assert_allclose((library.components**2).mean(axis=1), 1, rtol=0.05)


def test_pixels_fitted_exactly_stop_the_rounds() -> None:
    design = np.vstack([np.ones(9), np.arange(9.0)])
    target = 2 * design[1] + 1
    target[4] = 100.0
    np.testing.assert_allclose(robust_coefficients(target[None], design), [[1, 2]], atol=1e-9)


def test_absorbed_light_gives_the_optical_density() -> None:
    film, empty, clean = movie(noise=0.02)
    density = 0.2 * clean
    light, probe = (1000 * np.exp(0.05 * each) for each in (film - clean, empty))
    shadows, dark = light * np.exp(-density) + 100, np.full((3, *SHAPE), 100.0)
    result = suppress_background(
        shadows.astype("u2"),
        (probe + 100).astype("u2"),
        sampling="frames",
        multiplicative=True,
        dark=dark,
    )
    assert abs(result.denoised - density).mean() < 0.01
    without = suppress_background(shadows, probe + 100, sampling="frames", multiplicative=True)
    assert error(result.denoised, density, 0 * density) < 0.3 * error(
        without.denoised, density, 0 * density
    )
    # Small frames too, and pixels without any light.
    small = np.maximum(shadows[:, :20, :20] - 100, 0)
    small[0, :3] = 0
    found = suppress_background(
        small, probe[:, :20, :20], sampling="frames", multiplicative=True
    ).denoised
    assert found[0, :3].mean() == pytest.approx(np.log(1000), rel=0.02)


def test_verdicts_on_large_frames() -> None:
    film, empty, _ = movie()
    call = {"sampling": "frames"}
    assert kinds(suppress_background(empty[::2], empty[1::2], **call)) == ["nothing found"]  # type: ignore[call-overload]
    assert kinds(suppress_background(empty, film, **call))[0] == "layers probably swapped"  # type: ignore[call-overload]
    assert "too few frames" in kinds(suppress_background(film, empty[:5], **call))  # type: ignore[call-overload]


def test_stored_frames_are_read_and_written_in_parts(tmp_path: Any) -> None:
    film, empty, _ = movie()
    stored = zarr.create_array(tmp_path / "film", shape=film.shape, chunks=(4, 64, 60), dtype="f4")
    stored[:] = film
    out = zarr.create_array(tmp_path / "out", shape=film.shape, chunks=(4, 64, 60), dtype="f4")
    result = suppress_background(stored, empty, sampling="frames", out=out)
    assert result.denoised is out
    expected = suppress_background(film.astype("f4"), empty, sampling="frames").denoised
    np.testing.assert_allclose(np.asarray(out[...]), expected, atol=1e-5)
    marked = suppress_background(
        np.concatenate([empty, film]), np.arange(80) < 40, sampling=Frames()
    )
    np.testing.assert_allclose(marked.denoised[40:], expected, atol=1e-3)


def test_a_library_is_saved_and_units_do_not_matter(tmp_path: Any) -> None:
    film, empty, _ = (each.reshape(40, -1) for each in movie())
    remover = FrameBackgroundRemover(SHAPE).fit(film, background=empty)
    expected = remover.transform(film)
    save(remover, tmp_path / "library.model")
    np.testing.assert_array_equal(load(tmp_path / "library.model").transform(film), expected)
    for scale in (1e-25, 1e25):
        scaled = FrameBackgroundRemover(SHAPE).fit(scale * film, background=scale * empty)
        np.testing.assert_allclose(scaled.transform(scale * film) / scale, expected, atol=1e-3)
    # The same object fitted again to small frames is a filter.
    small = remover.set_params(frame_shape=(6, 10)).fit(film[:, :60], background=empty[:, :60])
    assert small.method_ == "filter"
    assert small.transform(film[:, :60]).shape == (40, 60)


def test_bad_input_is_refused() -> None:
    film, empty, _ = movie(6, 6)
    frames = {"sampling": "frames", "multiplicative": True}
    for arguments, message in [
        ({"background": empty[:3], "sampling": "frames"}, "at least 4 are needed"),
        ({"background": 0 * empty + 1, "sampling": "frames"}, "the background is constant"),
        ({"background": empty, "multiplicative": True}, "is for sampling='frames'"),
        ({"background": empty, "dark": empty[:, :5], **frames}, "dark has 300 pixels"),
        ({"background": empty, "dark": 9 + 0 * empty, **frames}, "no light"),
        ({"background": empty, "out": np.empty((2, 2))}, "out is ndarray of shape"),
    ]:
        with pytest.raises(ValueError, match=message):
            suppress_background(film, **arguments)  # type: ignore[arg-type]


def test_progress_may_stop_the_work() -> None:
    film, empty, _ = movie(6, 6)
    seen: list[str] = []

    def watched(stop: str) -> Any:
        def progress(items: Any, *, total: int, desc: str) -> Any:
            for item in items:
                seen.append(desc)
                if desc == stop:
                    raise KeyboardInterrupt
                yield item

        return progress

    suppress_background(film, empty, sampling="frames", progress=watched(""))
    for sampling, step in [("frames", "map"), ("patches", "map"), ("patches", "check")]:
        with pytest.raises(KeyboardInterrupt):
            suppress_background(film, empty, sampling=sampling, progress=watched(step))  # type: ignore[arg-type]
    assert {"map", "check"} < set(seen)


def test_cold_atoms(contrast_data: Any) -> None:
    """Fourteen shots, each with the probe light of the others: the noise of an empty area."""
    data = np.load(contrast_data / "atoms" / "cold_atoms_14.npz")
    y, x = np.mgrid[:512, :512]
    empty = (y - 350) ** 2 + (x - 345) ** 2 < 65**2
    rough, smooth = [], []
    for shot in range(14):
        density = suppress_background(
            data["atoms"][shot : shot + 1],
            np.delete(data["probe"], shot, axis=0),
            sampling="frames",
            multiplicative=True,
            dark=data["dark"],
        ).denoised[0]
        rough.append(density[empty].std())
        smooth.append(gaussian_filter(density, 3)[empty].std())
    assert np.mean(rough) < 0.085
    assert np.mean(smooth) < 0.028
