"""Tests of the parts of the frame filter: texture, debiased eigenvalues and signal directions."""

from __future__ import annotations

import numpy as np
import pytest

from contrast_core.contrast._noise_bulk import debiased, marchenko_pastur_edge
from contrast_core.images._signal_subspace import signal_subspace, white_mean
from contrast_core.images._stationary import lag_average, stationary_part, texture


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


def test_texture_needs_fewer_frames_than_pixels() -> None:
    rng = np.random.default_rng(0)
    step = np.subtract.outer(np.arange(20), np.arange(20))
    smooth = np.kron(np.exp(-np.abs(step) / 3), np.exp(-np.abs(step) / 3))
    root = np.linalg.cholesky(smooth)
    frames = rng.normal(size=(60, 400)) @ root.T
    found = texture(frames, (20, 20))
    off = np.linalg.norm(found.covariance - smooth) / np.linalg.norm(smooth)
    sample = np.linalg.norm(np.cov(frames.T) - smooth) / np.linalg.norm(smooth)
    assert off < 0.4 * sample
    # Held-out frames select a smaller ridge if the stationary part describes the frames better.
    assert texture(rng.normal(size=(300, 400)) @ root.T, (20, 20)).ridge == 0.1
    assert texture(rng.normal(size=(300, 400)), (20, 20)).ridge == 0.8


@pytest.mark.parametrize("gamma", [0.1, 0.5, 2.0])
def test_debiasing_inverts_the_bias_of_spikes(gamma: float) -> None:
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


def test_frames_of_a_weak_background_count_more() -> None:
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
    noise = (frames**2).sum() / 50**2  # squared noise of the mean frame
    direction = np.full(30, 1 / np.sqrt(30))
    for power, kept in ((0.0, 0.0), (0.5, 0.0), (2.0, 0.5), (10.0, 0.9)):
        mean = np.sqrt(power * noise) * direction
        np.testing.assert_allclose(white_mean(mean, frames), kept * mean, atol=1e-12)
