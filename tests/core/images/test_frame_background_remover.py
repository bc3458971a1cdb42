"""Tests of `FrameBackgroundRemover` for small and large frames, and of `weight_maps`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr
from scipy.ndimage import gaussian_filter

from contrast_core import CPCA, load, save
from contrast_core.contrast._noise_bulk import debiased, marchenko_pastur_edge
from contrast_core.datasets import digits_on_photos
from contrast_core.images import FrameBackgroundRemover, Frames, suppress_background, weight_maps
from contrast_core.images._frame_library import frame_library, robust_coefficients
from contrast_core.images._signal_subspace import signal_subspace, white_mean
from contrast_core.images._stationary import lag_average, stationary_part, texture
from tests.core.images.pictures import TWITCHING as SHAPE
from tests.core.images.pictures import relative_frame_error, twitching_square


def fitted(X: Any, Y: Any) -> FrameBackgroundRemover:
    return FrameBackgroundRemover(SHAPE).fit(X, background=Y)


def test_the_filter_is_the_posterior_mean() -> None:
    X, Y, _ = twitching_square()
    remover = fitted(X, Y)
    k, variances = remover.n_components_, remover.signal_variances_
    assert k >= 1
    # S is the covariance of the signal, and G is the covariance of a background of strength 1.
    S = (remover.patterns_.T * variances) @ remover.patterns_
    G = remover.patterns_.T @ remover.patterns_
    estimates = remover.transform(X)
    for row, strength, estimate in zip(X, remover.strengths(X)[:, 0], estimates, strict=True):
        expected = S @ np.linalg.solve(S + strength * G, row - remover.mean_)
        np.testing.assert_allclose(estimate, expected + remover.signal_mean_, atol=1e-8)
    np.testing.assert_allclose(remover.patterns_ @ remover.filters_, np.eye(63), atol=1e-9)
    # The strength of the background in a frame is the frame's mean square in the directions
    # without signal, divided by the mean of this value over the background frames. Smaller
    # strengths are set to 0.5.
    rest = (((Y - remover.mean_) @ remover.filters_[:, k:]) ** 2).mean(axis=1)
    expected = np.maximum(rest / rest.mean(), 0.5)
    np.testing.assert_allclose(remover.strengths(Y)[:, 0], expected, rtol=0.01)


@pytest.mark.parametrize(
    ("n", "most"), [(50, 0.90), (500, 0.65), pytest.param(1500, 0.60, marks=pytest.mark.slow)]
)
def test_digits_are_separated_from_photographs_better_than_by_a_projection(
    n: int, most: float
) -> None:
    film = digits_on_photos(n + 300)
    X, Y = film.foreground[:n], film.background[:n]
    remover = FrameBackgroundRemover((28, 28)).fit(X, background=Y)
    estimate = remover.transform(film.foreground)
    seen, new = (
        relative_frame_error(estimate[part], film.clean[part], film.foreground[part])
        for part in (slice(n), slice(n, None))
    )
    assert seen < most
    assert new < seen + 0.06
    projected = CPCA(10, alpha="denoise").fit(X, background=Y).denoise(X, offset="difference")
    assert seen < relative_frame_error(projected, film.clean[:n], X)


def test_stacks_of_frames_are_filtered_in_one_call() -> None:
    X, Y, signal = twitching_square()
    stack, empty = X.reshape(50, 6, *SHAPE), Y.reshape(-1, *SHAPE)
    result = suppress_background(stack, empty, sampling="frames")
    expected = fitted(X, Y).transform(X)
    np.testing.assert_allclose(result.denoised.reshape(300, 63), expected, atol=1e-12)
    np.testing.assert_allclose(result.denoised + result.removed, stack, atol=1e-12)
    assert result.verdicts == ()
    film = np.concatenate([empty, stack.reshape(-1, *SHAPE)])
    marked = suppress_background(film, np.arange(len(film)) < 250, sampling=Frames())
    np.testing.assert_allclose(marked.denoised[250:].ravel(), result.denoised.ravel(), atol=1e-9)
    assert (marked.denoised[:250] ** 2).mean() < 0.1 * (signal**2).mean()


@pytest.mark.parametrize("shape", [(3, 4), (3, 5), (1, 6), (5, 1), (1, 1)])
def test_the_lag_average_is_the_mean_over_pixel_pairs_with_equal_offsets(
    shape: tuple[int, int],
) -> None:
    rng = np.random.default_rng(0)
    D = shape[0] * shape[1]
    mixed = rng.normal(size=(D, D))
    covariance = mixed @ mixed.T
    at = np.array(list(np.ndindex(*shape)))
    steps = at[:, None] - at[None]
    equal = (steps[:, :, None, None] == steps).all(axis=-1)
    expected = (equal * covariance).sum(axis=(2, 3)) / equal.sum(axis=(2, 3))
    averaged = lag_average(covariance, shape)
    np.testing.assert_allclose(averaged, expected, atol=1e-12)
    np.testing.assert_allclose(lag_average(averaged, shape), averaged, atol=1e-12)
    values, vectors = np.linalg.eigh(averaged)
    positive = (vectors * np.maximum(values, 0)) @ vectors.T
    np.testing.assert_allclose(stationary_part(covariance, shape).matrix(), positive, atol=1e-12)


def test_the_covariance_of_a_texture_is_estimated_from_fewer_frames_than_pixels() -> None:
    rng = np.random.default_rng(0)
    step = np.subtract.outer(np.arange(20), np.arange(20))
    smooth = np.kron(np.exp(-np.abs(step) / 3), np.exp(-np.abs(step) / 3))
    root = np.linalg.cholesky(smooth)
    frames = rng.normal(size=(60, 400)) @ root.T
    found = texture(frames, (20, 20))
    off = np.linalg.norm(found.covariance - smooth) / np.linalg.norm(smooth)
    sample = np.linalg.norm(np.cov(frames.T) - smooth) / np.linalg.norm(smooth)
    assert off < 0.4 * sample
    # The ridge, which is added to the variance of every pixel, is selected by held-out frames. It
    # is small for a texture, which a stationary covariance describes well, and large for white
    # noise.
    assert texture(rng.normal(size=(300, 400)) @ root.T, (20, 20)).ridge == 0.1
    assert texture(rng.normal(size=(300, 400)), (20, 20)).ridge == 0.8


@pytest.mark.parametrize("gamma", [0.1, 0.5, 2.0])
def test_debiasing_recovers_large_eigenvalues_from_their_biased_estimates(gamma: float) -> None:
    # gamma is the number of features divided by the number of rows. The noise has variance 1.
    spikes = 1 + np.sqrt(gamma) * np.array([1.0, 1.5, 3.0, 20.0])
    observed = spikes * (1 + gamma / (spikes - 1))
    np.testing.assert_allclose(debiased(observed, gamma), spikes, rtol=1e-7)
    assert observed[0] == pytest.approx(marchenko_pastur_edge(gamma))


def test_planted_directions_are_found_and_no_others() -> None:
    rng = np.random.default_rng(0)
    D, n = 120, 400
    basis = np.linalg.qr(rng.normal(size=(D, 2)))[0]
    background = rng.normal(size=(n, D))
    noise = rng.normal(size=(n, D))
    found = signal_subspace(noise + rng.normal(size=(n, 2)) * [4.0, 3.0] @ basis.T, background)
    assert found.n_components == 2
    cosines = np.linalg.svd(found.basis[:, :2].T @ basis, compute_uv=False)
    assert cosines.min() > 0.95
    np.testing.assert_allclose(found.variances[:2], [16, 9], rtol=0.25)
    assert found.background_variance == pytest.approx(1, abs=0.05)
    assert signal_subspace(noise, background).n_components == 0
    # A direction is not part of the signal if the background varies more along it than the model of
    # the background says.
    loud = rng.normal(size=(n, 1)) * 4 * basis[:, :1].T
    assert signal_subspace(noise + loud[::-1], background + loud).n_components == 0


def test_frames_with_a_weak_background_get_a_larger_weight() -> None:
    rng = np.random.default_rng(0)
    u = np.linalg.qr(rng.normal(size=(60, 1)))[0]
    strength = np.tile([1.0, 25.0], 200)[:, None]
    noise, background = rng.normal(size=(2, 400, 60))
    signal = 2 * rng.normal(size=(400, 1)) @ u.T
    found = signal_subspace(np.sqrt(strength) * noise + signal, background)
    assert found.n_components == 1
    assert abs(found.basis[:, 0] @ u[:, 0]) > 0.8


def test_variances_are_debiased_and_small_in_undetected_directions() -> None:
    rng = np.random.default_rng(0)
    u = np.linalg.qr(rng.normal(size=(400, 1)))[0]
    noise, background = rng.normal(size=(2, 200, 400))
    found = signal_subspace(noise + 2.5 * rng.normal(size=(200, 1)) @ u.T, background)
    assert found.variances[0] == pytest.approx(6.25, rel=0.2)  # about 8.6 without debiasing
    assert found.variances[-1] == pytest.approx(0.1 * np.sqrt(400 / 200), rel=0.02)


def test_a_mean_is_shrunk_according_to_its_noise() -> None:
    frames = np.random.default_rng(0).normal(size=(50, 30))
    noise = (frames**2).sum() / 50**2  # squared norm of the noise in the mean frame
    direction = np.full(30, 1 / np.sqrt(30))
    for power, kept in ((0.0, 0.0), (0.5, 0.0), (2.0, 0.5), (10.0, 0.9)):
        mean = np.sqrt(power * noise) * direction
        np.testing.assert_allclose(white_mean(mean, frames), kept * mean, atol=1e-12)


def test_weight_maps_are_squared_loadings_with_their_sign() -> None:
    """Use a foreground in which a square varies; one of its corners has the opposite sign."""
    rng, shape = np.random.default_rng(0), (4, 5)
    foreground = rng.normal(size=(60, *shape)) + 3.0
    sign = np.array([[1, 1], [1, -1]])
    foreground[:, 1:3, 1:3] += 4 * sign * rng.normal(size=(60, 1, 1))
    foreground, background = foreground.reshape(60, -1), rng.normal(size=(50, 20)) + 2.0
    cpca = CPCA(2, alpha=1.0).fit(foreground, background=background)
    maps = weight_maps(cpca, shape)
    loadings = cpca.components_.reshape(2, *shape)
    expected = loadings * abs(loadings) / (loadings**2).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(maps, expected, atol=1e-12)
    np.testing.assert_allclose(weight_maps(cpca.linear_map_, shape), expected, atol=1e-12)
    remover = FrameBackgroundRemover(shape).fit(foreground, background=background)
    (only,) = weight_maps(remover, shape)
    for square in (maps[0, 1:3, 1:3], only[1:3, 1:3]):
        np.testing.assert_array_equal(np.sign(square) * np.sign(square[0, 0]), sign)
    with pytest.raises(ValueError, match=r"frame_shape=\(2, 5\) has 10 pixels, .* rows of 20"):
        weight_maps(cpca, (2, 5))


# Large frames. The background of each frame is fitted by the mean and the components of many
# background frames, which are called the library.

LARGE = (64, 60)  # height and width of the frames of `movie`


def movie(n: int = 40, m: int = 40, *, noise: float = 0.3) -> tuple[Any, Any, Any]:
    """Return moving cells over a flickering texture, frames of the texture alone, and the cells."""
    rng = np.random.default_rng(0)
    textures = gaussian_filter(rng.normal(size=(4, *LARGE)), (0, 1.5, 1.5))
    textures /= textures.std(axis=(1, 2), keepdims=True)

    def background(k: int) -> Any:
        strength = rng.normal(size=(k, 4)) * [0.3, 0.4, 0.3, 0.2] + [1, 0, 0, 0]
        return np.einsum("kj,jyx->kyx", strength, textures) + noise * rng.normal(size=(k, *LARGE))

    y, x = np.mgrid[: LARGE[0], : LARGE[1]]
    clean = np.zeros((n, *LARGE))
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


def suppressed(frames: Any, background: Any, **options: Any) -> Any:
    return suppress_background(frames, background, sampling="frames", **options)


def test_moving_cells_are_separated_from_a_flickering_texture() -> None:
    result = suppressed(FILM, EMPTY)
    assert result.estimator.method_ == "library"
    assert result.estimator.n_components_ == 4
    assert result.denoised.dtype == np.float64
    smooth = gaussian_filter(result.denoised, (0, 1, 1))
    assert ((smooth - CELLS) ** 2).sum() < 0.05 * ((FILM - CELLS) ** 2).sum()
    np.testing.assert_allclose(result.removed, FILM - result.denoised)
    assert result.verdicts == ()
    assert repr(result).startswith("SuppressedBackground(40 x 64 x 60 pixels, FrameBackground")


def test_the_result_agrees_with_weighted_least_squares_in_plain_numpy() -> None:
    remover = FrameBackgroundRemover(LARGE).fit(ROWS, background=EMPTY_ROWS)
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
        for dark in (np.full((3, *LARGE), 100.0), None)
    )
    assert abs(result.denoised - density).mean() < 0.01
    left, otherwise = (((each.denoised - density) ** 2).sum() for each in (result, without))
    assert left < 0.3 * otherwise
    # Small frames and pixels without any light also give an optical density.
    small = np.maximum(shadows[:, :20, :20] - 100, 0)
    small[0, :3] = 0
    found = suppressed(small, probe[:, :20, :20], multiplicative=True).denoised
    assert found[0, :3].mean() == pytest.approx(np.log(1000), rel=0.02)


@pytest.mark.parametrize("size", ["small", "large"])
def test_verdicts_name_too_few_frames_swapped_layers_and_a_missing_signal(size: str) -> None:
    film, empty = FILM, EMPTY
    if size == "small":
        film, empty = (rows.reshape(-1, *SHAPE) for rows in twitching_square(400, 400)[:2])

    def kinds(stack: Any, background: Any) -> list[str]:
        result = suppressed(stack, background)
        assert np.isfinite(result.denoised).all()
        return [verdict.kind for verdict in result.verdicts]

    assert kinds(film, empty) == []
    assert kinds(film[:4], empty[:4])[-1] == "too few frames"
    assert kinds(empty, film)[0] == "layers probably swapped"
    assert kinds(empty[::2], empty[1::2])[0] == "nothing found"


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
    remover = FrameBackgroundRemover(LARGE).fit(ROWS, background=EMPTY_ROWS)
    expected = remover.transform(ROWS)
    save(remover, tmp_path / "library.model")
    np.testing.assert_array_equal(load(tmp_path / "library.model").transform(ROWS), expected)
    for scale in (1e-25, 1e25):
        scaled = FrameBackgroundRemover(LARGE).fit(scale * ROWS, background=scale * EMPTY_ROWS)
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
