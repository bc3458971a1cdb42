"""Tests of the fits, their errors and their lazy results, without a window.

The core is the package `contrast_core`.
"""

from __future__ import annotations

import os
import signal
import time

import dask.array as da
import numpy as np
import pytest
import zarr

from contrast_core import CPCA
from contrast_core.images import Frames, Patches
from napari_plugin import _solve
from napari_plugin._model import Task, as_lazy, estimate
from napari_plugin._pair import Images, Pair
from napari_plugin._settings import Cancelled, InputError, Settings, default_samples, no_report
from tests.napari_plugin.conftest import Watched, cancel_at, pair_of

CPCA_2 = Settings("cpca", n_components=2)


def run(pair, samples, settings):
    """Return the solution and the denoised images in memory."""
    solution = _solve.fit(pair, samples, settings, no_report)
    return solution, solution.apply(pair.foreground)


@pytest.mark.parametrize("method", ["automatic", "cpca"])
def test_unusable_pixels_are_refused_with_the_names_of_layer_and_frame(film, fringes, method):
    settings = Settings(method, n_components=2)
    holed, flat = fringes.image.copy(), np.where(fringes.empty, 1.0, fringes.image)
    holed[150, 3] = np.inf
    cells, empty = (stack.copy() for stack in film)
    cells[7, 3, 3] = empty[7, 3, 3] = np.nan
    here = r"has NaN or infinite pixels, first in \[7, .*; fill"
    for pair, samples, message in (
        (pair_of((cells, film[1])), Frames(), f"'cells' {here}"),
        (pair_of((film[0], empty)), Frames(), f"'empty' {here}"),
        (pair_of((film[0], np.full((60, 6, 5), 3.0))), Frames(), "'empty' is constant"),
        (Pair(Images("a", holed), mask=fringes.empty), Patches(), "'a' has NaN"),
        (pair_of(np.zeros((2, 9, 8, 8), dtype="c8")), Frames(), "'cells' has pixels that are not"),
        (Pair(Images("a", flat), mask=fringes.empty), Patches(), "'a' is constant"),
    ):
        with pytest.raises(InputError, match=message):
            run(pair, samples, settings)


def test_the_shapes_decide_between_frames_and_patches():
    for shape in [(500, 28, 28), (20, 5, 28, 28)]:
        for method in ("cpca", "automatic"):
            assert default_samples(shape, method, (9, 28, 28)) == Frames()
        assert default_samples(shape, "automatic", None) == Patches(16, 2)
    assert default_samples((14, 512, 512), "automatic", (14, 512, 512)) == Frames()
    for behind in [None, (512, 512), (3, 512, 512), (54, 28, 28), (54, 512, 512)]:
        for shape in [(512, 512), (54, 512, 512)]:
            assert default_samples(shape, "cpca", behind) == Patches(16, 4)


@pytest.mark.parametrize("samples", [Frames(), Patches(4, 2)])
@pytest.mark.parametrize("settings", [Settings(), CPCA_2])
def test_every_fit_reports_its_progress_and_can_be_stopped(film, samples, settings):
    with pytest.raises(Cancelled):
        _solve.fit(pair_of(film), samples, settings, cancel_at(3))


def test_only_the_frames_in_use_of_a_long_film_are_read():
    numbers = np.arange(100_000, dtype="f4")[:, None, None]
    data = Watched(np.broadcast_to(numbers, (100_000, 8, 8)))
    film = Images("film", data)
    frames, n_used = film.frames(None, 2**14, no_report)
    assert n_used == 256
    assert sum(n_pixels for _, n_pixels in data.reads) == frames.size == 2**14
    steps = np.diff(frames[:, 0, 0])
    assert (frames[0, 0, 0], frames[-1, 0, 0]) == (0, 99_999)
    assert np.ptp(steps) <= 1
    frames, n_used = film.frames(np.arange(100_000) >= 99_000, 2**24, no_report)
    assert (n_used, len(frames)) == (None, 1000)


@pytest.mark.slow
def test_long_computations_give_the_same_result_in_another_process(film, monkeypatch):
    here = [run(pair_of(film), Frames(), each)[1] for each in (Settings(), CPCA_2)]
    monkeypatch.setattr(_solve, "LONGEST_HERE", 0)
    there = [run(pair_of(film), Frames(), each)[1] for each in (Settings(), CPCA_2)]
    np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-6)
    with pytest.raises(InputError, match="out of range"):
        run(pair_of(film), Frames(), Settings("pcpca", n_components=2, raw_strength=1e9))


def test_the_other_process_is_kept_until_a_long_computation_is_cancelled_or_it_dies():
    def process():
        return _solve.compute(no_report, 10_000, os.getpid)

    first, start = process(), time.perf_counter()
    assert first != os.getpid()
    with pytest.raises(ValueError, match="invalid literal"):
        _solve.compute(no_report, 10_000, int, "x")
    assert process() == first
    with pytest.raises(Cancelled):
        _solve.compute(cancel_at(2), 10_000, time.sleep, 60)
    assert time.perf_counter() - start < 50
    second = process()
    assert second != first
    os.kill(second, signal.SIGTERM)
    assert process() not in (first, second)


@pytest.mark.slow
def test_frames_too_large_for_a_covariance_give_the_result_of_the_core():
    rng = np.random.default_rng(0)
    stack = rng.integers(0, 200, size=(30, 80, 70)).astype(np.uint8)
    stack[:12, 10:20, 10:20] //= 4
    pair = Pair(Images("film", stack), mask=np.arange(30) >= 12)
    solution, found = run(pair, Frames(), Settings("cpca", n_components=4))
    rows = stack.reshape(30, -1).astype(float)
    expected = CPCA(4, alpha="denoise").fit(rows[:12], background=rows[12:])
    truth = expected.denoise(rows, offset="difference").reshape(stack.shape)
    np.testing.assert_allclose(found, truth, atol=1e-2)
    assert len(solution.at(0.8, 2).estimator.components_) == 2


def test_estimates_of_time_and_memory_grow_with_the_images():
    def task(shape, background, samples, settings):
        layers = (Images("", np.broadcast_to(0, each)) for each in (shape, background))
        return Task(Pair(*layers), samples, settings, (), available=2**33)

    one = estimate(task((512, 512), (512, 512), Patches(), Settings()))
    many = estimate(task((54, 512, 512), (512, 512), Patches(), Settings()))
    assert (one, many) == ("About 2 s and 0.2 GB of memory.", "About 32 s and 0.2 GB of memory.")
    assert "when it is shown" in estimate(task((99, 9, 9), (99, 9, 9), Frames(), CPCA_2))
    assert task((9**6, 64, 64), (9, 64, 64), Patches(), Settings()).is_lazy


def test_a_lazy_result_equals_the_full_result_and_missing_pixels_stay_missing(film):
    stack = film[0].reshape(10, 8, 6, 5)
    solution, whole = run(pair_of((stack, film[1])), Frames(), CPCA_2)
    for data in (stack, da.from_array(stack, chunks=3), zarr.array(stack)):
        lazy = as_lazy(solution, Images("cells", data))
        assert (lazy.shape, lazy.dtype) == (whole.shape, np.float32)
        for index in [(0, 0), (-1, slice(1, 7, 2), slice(2, 4)), ..., (slice(2, 4), slice(3), 1)]:
            np.testing.assert_allclose(lazy[index].compute(), whole[index], atol=1e-5)
    holed = stack.copy()
    holed[3, 0, 2, 2] = np.nan
    found = np.asarray(as_lazy(solution, Images("cells", holed)))
    assert np.isnan(found[3, 0, 2, 2])
    assert np.isfinite(found).sum() == found.size - 1
    np.testing.assert_allclose(found[4], whole[4], atol=1e-5)
