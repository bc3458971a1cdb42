"""Tests of `FrameBackgroundRemover`, of the parts of its filter, and of `weight_maps`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contrast_core import CPCA
from contrast_core.contrast._noise_bulk import debiased, marchenko_pastur_edge
from contrast_core.images import FrameBackgroundRemover, Frames, suppress_background, weight_maps
from contrast_core.images._signal_subspace import signal_subspace, white_mean
from contrast_core.images._stationary import lag_average, stationary_part, texture
from tests.core.images.pictures import TWITCHING as SHAPE
from tests.core.images.pictures import (
    digits_on_photographs,
    relative_frame_error,
    twitching_square,
)


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


@pytest.mark.parametrize(("n", "most"), [(50, 0.90), (500, 0.65), (1500, 0.60)])
def test_digits_are_separated_from_photographs_better_than_by_a_projection(
    n: int, most: float
) -> None:
    film = digits_on_photographs(n + 300)
    X, Y = film.foreground[:n], film.background[:n]
    remover = FrameBackgroundRemover(film.shape).fit(X, background=Y)
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


def test_verdicts_name_too_few_frames_swapped_layers_and_a_missing_signal() -> None:
    X, Y, _ = twitching_square(400, 400)
    film, empty = (a.reshape(-1, *SHAPE) for a in (X, Y))

    def kinds(stack: Any, background: Any) -> list[str]:
        result = suppress_background(stack, background, sampling="frames")
        assert np.isfinite(result.denoised).all()
        return [verdict.kind for verdict in result.verdicts]

    assert kinds(film, empty) == []
    assert kinds(film[:4], empty[:4])[-1] == "too few frames"
    assert kinds(empty, film)[0] == "layers probably swapped"
    assert kinds(empty[:200], empty[200:]) == ["nothing found", "too few frames"]


FILM = np.random.default_rng(0).normal(size=(9, 6, 8))


@pytest.mark.parametrize(
    ("stack", "empty", "words"),
    [
        (FILM, FILM[:, :5], "frames have 5 x 8 pixels, but the image's frames have 6 x 8; give"),
        (FILM[0], FILM, r"the image has shape \(6, 8\); frames need"),
        (FILM, np.ones(9, dtype=bool), "True everywhere"),
        (FILM, np.zeros(9, dtype=bool), "no frame of the background lies entirely"),
        (FILM, np.ones((6, 8), dtype=bool) & (np.arange(8) > 2), r"needs a mask of shape \(9,\)"),
    ],
)
def test_stacks_and_masks_that_do_not_fit_are_refused(stack: Any, empty: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        suppress_background(stack, empty, sampling="frames")


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
