"""Tests of fits, errors, lazy results and copied scripts, without a window.

The core is the package `contrast_core`.
"""

from __future__ import annotations

import time
from itertools import product
from types import SimpleNamespace

import dask
import dask.array as da
import napari
import numpy as np
import pytest
import zarr

from contrast_core import CPCA, PCPCA, CPCAStar
from contrast_core.datasets import cells_behind_fringes
from contrast_core.feedback import muted
from contrast_core.images import (
    FrameBackgroundRemover,
    Frames,
    Patches,
    suppress_background,
    weight_maps,
)
from napari_plugin import _solve
from napari_plugin._layers import layer_data
from napari_plugin._model import Outcome, as_lazy, estimate, examine, frame_scores, moved, removed
from napari_plugin._model import run as run_task
from napari_plugin._pair import Images, Pair, check
from napari_plugin._saved import as_python
from napari_plugin._settings import (
    Cancelled,
    InputError,
    Settings,
    default_samples,
    no_report,
    strength,
)
from napari_plugin._solve import compute
from tests.napari_plugin.plain import make_film, marked, pair_of, run, task_of

CPCA_10 = Settings("cpca", n_components=10)
CPCA_2 = Settings("cpca", n_components=2)
NO_OPTIONS = {"denoised": {}, "weights": {}}  # options of the layers that show a result


@pytest.fixture(scope="module")
def fringes():
    return cells_behind_fringes((160, 160))


@pytest.fixture(scope="module")
def film():
    return make_film()


def box(side, *corner):
    mask = np.zeros((side, side), dtype=bool)
    mask[: corner[0], : corner[1]] = True
    return mask


def remarks_of(result):
    return tuple((each.sentence, each.severity) for each in result.verdicts)


# Choices that cannot work


class Unread:
    """Array that fails the test if its pixels are read."""

    def __init__(self, *shape, dtype="uint16"):
        self.shape, self.dtype = shape, np.dtype(dtype)

    def __getitem__(self, index):
        raise AssertionError("pixels were read")


def cells(*shape, **options):
    return Images("cells", Unread(*shape, **options))


def empty(*shape):
    return Images("empty", Unread(*shape))


WRONG = [
    (Pair(cells(9, 8, 8)), Frames(), Settings(), "No background is marked"),
    (Pair(cells(8, 8), empty(9, 8, 8)), Frames(), Settings(), "1 frames with signal"),
    (Pair(cells(9, 8, 8), empty(3, 8, 8)), Frames(), Settings(), "3 of background; at least 4"),
    (Pair(cells(6, 8, 8), empty(9, 8, 8)), Frames(), CPCA_10, "10 components .* allows 1 to 5"),
    (Pair(cells(8, 8, dtype="c8"), empty(8, 8)), Patches(8), Settings(), "plain intensities"),
    (Pair(cells(99, 99), mask=box(99, 99, 99)), Patches(), Settings(), "is marked as background"),
    (Pair(cells(30, 9, 9), mask=box(9, 5, 5)), Frames(), Settings(), "A box marks pixels"),
]


@pytest.mark.parametrize(("pair", "samples", "settings", "message"), WRONG)
def test_choices_that_cannot_work_are_refused_before_a_pixel_is_read(
    pair, samples, settings, message
):
    with pytest.raises(InputError, match=message):
        check(pair, samples, settings)


@pytest.mark.parametrize("method", ["automatic", "cpca"])
def test_unusable_pixels_are_refused_with_the_names_of_layer_and_frame(film, fringes, method):
    settings = Settings(method, n_components=2)
    image = np.where(fringes.empty, 1.0, fringes.image)
    holed, flat = fringes.image.copy(), np.full((60, 6, 5), 3.0)
    holed[150, 3] = np.inf
    boxed = Pair(Images("cells", holed), mask=fringes.empty)
    stacks = [stack.copy() for stack in film]
    for stack in stacks:
        stack[7, 3, 3] = np.nan
    here = r"has NaN or infinite pixels, first in \[7, .*; fill"
    for pair, samples, message in (
        (pair_of((stacks[0], film[1])), Frames(), f"'cells' {here}"),
        (pair_of((film[0], stacks[1])), Frames(), f"'empty' {here}"),
        (boxed, Patches(), "'cells' has NaN"),
        (pair_of((film[0], flat)), Frames(), "'empty' is constant"),
        (Pair(Images("a", image), mask=fringes.empty), Patches(), "'a' is constant"),
    ):
        with pytest.raises(InputError, match=message):
            run(pair, samples, settings)


# Reading


def test_the_shapes_decide_between_frames_and_patches():
    for shape in [(500, 28, 28), (20, 5, 28, 28)]:
        for method in ("cpca", "automatic"):
            assert default_samples(shape, method, (9, 28, 28)) == Frames()
        assert default_samples(shape, "automatic", None) == Patches(16, 2)
    assert default_samples((14, 512, 512), "automatic", (14, 512, 512)) == Frames()
    for behind in [None, (512, 512), (3, 512, 512), (54, 28, 28), (54, 512, 512)]:
        for shape in [(512, 512), (54, 512, 512)]:
            assert default_samples(shape, "cpca", behind) == Patches(16, 4)


@pytest.mark.parametrize("n", [4999, 5000, 5001, 10_001])
def test_at_most_5000_evenly_spaced_frames_are_plotted(n):
    stack = np.random.default_rng(0).normal(size=(n, 3, 2))
    rows = stack.reshape(n, 6)
    estimator = SimpleNamespace(mean_=rows.mean(axis=0), components_=np.eye(3, 6))
    task = task_of(Pair(Images("film", stack)), Frames())
    solution = SimpleNamespace(estimator=estimator)
    outcome = Outcome(task, solution, stack, stack[0], None, (0.0, 1.0))
    scores, places = frame_scores(outcome, no_report)
    drawn = np.arange(0, n, -(-n // 5000))
    assert len(drawn) <= 5000
    np.testing.assert_array_equal(np.ravel(places), drawn)
    np.testing.assert_allclose(scores, (rows - rows.mean(axis=0))[drawn, :2])


@pytest.mark.parametrize("absorbed", [False, True])
def test_large_frames_are_compared_with_a_library_of_background_frames(absorbed):
    rng = np.random.default_rng(0)
    patterns = rng.random((3, 60, 50))
    frames, empty = (np.einsum("nk,khw->nhw", 1 + rng.random((n, 3)), patterns) for n in (9, 30))
    frames[:, 20:30, 20:30] *= 0.5
    pair = Pair(Images("cells", frames), Images("empty", empty))
    task = task_of(pair, Frames(), Settings(absorbed=absorbed), (0,))
    outcome = run_task(task, no_report)
    expected = suppress_background(frames, empty, sampling="frames", multiplicative=absorbed)
    np.testing.assert_allclose(outcome.denoised, expected.denoised, rtol=1e-3, atol=1e-4)
    # If the cells absorb light, this layer shows the light that would arrive without them.
    light = np.asarray(layer_data(outcome, NO_OPTIONS)["removed"][0])
    gone = frames - expected.denoised
    np.testing.assert_allclose(
        light, frames * np.exp(expected.denoised) if absorbed else gone, rtol=0.01, atol=1e-3
    )
    inside = light[:, 20:30, 20:30] / frames[:, 20:30, 20:30]
    assert not absorbed or abs(np.median(inside) - 2) < 0.02  # the square absorbs half of the light
    assert outcome.maps is None
    found = examine(outcome, no_report)
    assert found.remarks == remarks_of(expected)
    assert found.scores is None


@pytest.mark.parametrize("samples", [Frames(), Patches(4, 2)])
@pytest.mark.parametrize("settings", [Settings(), CPCA_2])
def test_every_fit_reports_its_progress_and_can_be_stopped(film, samples, settings):
    told = []
    with pytest.raises(Cancelled):
        _solve.fit(pair_of(film), samples, settings, lambda *a: told.append(a) or stop(len(told)))
    assert len(told) == 3


def stop(n):
    if n == 3:
        raise Cancelled


def test_only_the_frames_in_use_of_a_long_film_are_read():
    seen = []

    class Counted:
        shape, dtype = (100_000, 8, 8), np.dtype("uint8")

        def __getitem__(self, where):
            numbers = np.arange(100_000)[where[0] if isinstance(where, tuple) else where]
            seen.extend(np.ravel(numbers))
            return np.multiply.outer(numbers % 251, np.ones((8, 8))).astype(np.uint8)

    film = Images("film", Counted())
    frames, n_used = film.frames(None, 2**14, no_report)
    assert (n_used, len(seen)) == (256, 256)
    np.testing.assert_array_equal(frames[:, 0, 0], np.array(seen) % 251)
    assert (seen[0], seen[-1]) == (0, 99_999)
    mask = np.arange(100_000) >= 99_000
    frames, n_used = film.frames(mask, 2**24, no_report)
    assert (n_used, len(frames)) == (None, 1000)


# Fitting


def test_the_automatic_method_gives_the_result_of_the_core(fringes, film):
    pair = Pair(Images("cells", fringes.image), mask=fringes.empty)
    expected = suppress_background(fringes.image, fringes.empty)
    outcome = run_task(task_of(pair, Patches()), no_report)
    np.testing.assert_allclose(outcome.denoised, expected.denoised, atol=1e-5)
    np.testing.assert_allclose(
        removed(pair.foreground, outcome.denoised), expected.removed, atol=1e-5
    )
    assert examine(outcome, no_report).remarks == remarks_of(expected)
    signal, nothing = outcome.maps[fringes.clean > 0.5], outcome.maps[fringes.empty]
    assert signal.mean() > 5 * nothing.mean()
    X, Y = (stack.reshape(-1, 30) for stack in film)
    remover = FrameBackgroundRemover((6, 5)).fit(X, background=Y)
    _, found = run(pair_of(film), Frames())
    np.testing.assert_allclose(found.reshape(80, 30), remover.transform(X), rtol=1e-3, atol=1e-4)
    rng = np.random.default_rng(0)
    frames, empty = rng.normal(size=(80, 6, 5)), rng.normal(size=(80, 6, 5))
    for part in (frames[:, 1:3, 1:3], frames[:, 4:6, 3:5]):  # two squares that blink
        part += 20 * rng.random(size=(80, 1, 1))
    two = run_task(task_of(pair_of((frames, empty)), Frames(), place=(0,)), no_report)
    remover = two.solution.estimator
    scores = (frames.reshape(80, 30) - remover.mean_) @ remover.filters_
    assert remover.n_components_ >= 2
    points = examine(two, no_report).scores
    np.testing.assert_allclose(points, scores[:, :2], atol=1e-4)


def test_strips_along_lines_give_the_result_of_the_core():
    rng = np.random.default_rng(0)
    image = 2 * rng.normal(size=(160, 1)) + 0.2 * rng.normal(size=(160, 160))
    image[100:120, 100:120] += 4
    mask = np.arange(160) < np.full((160, 1), 80)
    strips = suppress_background(image, mask).sampling
    assert strips.sides == (6, 64)
    # If `sampling` is given, the core filters the image only once, as the plugin does.
    expected = suppress_background(image, mask, sampling=strips)
    pair = Pair(Images("cells", image), mask=mask)
    outcome = run_task(task_of(pair, Patches()), no_report)
    np.testing.assert_allclose(outcome.denoised, expected.denoised, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "kind", "parameter", "rule"),
    [
        ("cpca", CPCA, "alpha", "denoise"),
        ("pcpca", PCPCA, "gamma", "auto"),
        ("cpca_star", CPCAStar, "beta", "auto"),
        ("pca", CPCA, "alpha", 0.0),
    ],
)
def test_projections_agree_with_the_core_at_every_position_of_the_slider(
    film, method, kind, parameter, rule
):
    """Check that images, weights and scores equal the core's at each position of the slider."""
    X, Y = (stack.reshape(-1, 30) for stack in film)
    task = task_of(pair_of(film), Frames(), Settings(method, n_components=3), (0,))
    outcome = run_task(task, no_report)
    automatic = outcome.solution.automatic
    largest = {"pcpca": automatic / 0.9, "cpca_star": 1.0}.get(method, np.inf)
    assert outcome.solution.is_live == (method != "pca")
    for position in (0.5, *((0.0, 0.3, 0.9, 1.0) if outcome.solution.is_live else ())):
        value = rule if position == 0.5 else strength(automatic, position, largest=largest)
        with muted():
            expected = kind(3, **{parameter: value}).fit(X, background=Y)
        if position != 0.5:
            outcome = moved(outcome, Settings(method, position, 3), (5,), no_report)
        assert outcome.solution.estimator.strength_ == pytest.approx(expected.strength_)
        denoised = expected.denoise(X, offset="difference").reshape(80, 6, 5)
        np.testing.assert_allclose(outcome.denoised, denoised, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(outcome.maps, weight_maps(expected, (6, 5)), atol=1e-4)
        scores = examine(outcome, no_report).scores
        truth = (X - expected.mean_) @ expected.components_[:2].T
        np.testing.assert_allclose(np.abs(scores), np.abs(truth), atol=1e-4)


@pytest.mark.slow
def test_long_computations_give_the_same_result_in_another_process(film, monkeypatch):
    here = [run(pair_of(film), Frames(), each)[1] for each in (Settings(), CPCA_2)]
    monkeypatch.setattr(_solve, "LONGEST_HERE", 0)
    there = [run(pair_of(film), Frames(), each)[1] for each in (Settings(), CPCA_2)]
    np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-6)
    with pytest.raises(InputError, match="out of range"):
        run(pair_of(film), Frames(), Settings("pcpca", n_components=2, raw_strength=1e9))


def test_a_process_ends_when_it_is_cancelled():
    reports = []

    def report(*_):
        reports.append(time.perf_counter())
        if len(reports) == 5:
            raise Cancelled

    with pytest.raises(Cancelled):
        compute(report, 10_000, time.sleep, 60)
    assert time.perf_counter() - reports[-1] < 30  # it would take a minute without the cancellation


@pytest.mark.slow
def test_frames_too_large_for_a_covariance_give_the_result_of_the_core():
    rng = np.random.default_rng(0)
    stack = rng.integers(0, 200, size=(30, 80, 70)).astype(np.uint8)
    stack[:12, 10:20, 10:20] //= 4
    pair = Pair(Images("film", stack), mask=marked(30, 12, 30))
    solution, found = run(pair, Frames(), Settings("cpca", n_components=4))
    rows = stack.reshape(30, -1).astype(float)
    expected = CPCA(4, alpha="denoise").fit(rows[:12], background=rows[12:])
    np.testing.assert_allclose(
        found.reshape(30, -1), expected.denoise(rows, offset="difference"), atol=1e-2
    )
    assert len(solution.at(0.8, 2).estimator.components_) == 2


def test_estimates_of_time_and_memory_grow_with_the_images():
    one = estimate(task_of(Pair(cells(512, 512), empty(512, 512)), Patches()))
    many = estimate(task_of(Pair(cells(54, 512, 512), empty(512, 512)), Patches()))
    assert (one, many) == ("About 2 s and 0.2 GB of memory.", "About 32 s and 0.2 GB of memory.")
    films = Pair(cells(99, 9, 9), empty(99, 9, 9))
    assert "when it is shown" in estimate(task_of(films, Frames(), CPCA_10))
    assert task_of(Pair(cells(9**6, 64, 64), empty(9, 64, 64)), Patches()).is_lazy


# Results that are computed when they are shown


@pytest.fixture
def computed(monkeypatch):
    """Return the list of sizes of the blocks that were computed for display."""
    sizes, original = [], _solve.Solution.apply

    def apply(self, images, *others):
        sizes.append(images.data.size)
        return original(self, images, *others)

    monkeypatch.setattr(_solve.Solution, "apply", apply)
    return sizes


def test_showing_one_image_computes_few_others(film, fringes, computed):
    """Check that chunks are small, because napari computes the whole chunk of a shown image."""
    run_task(task_of(pair_of(film), Frames(), CPCA_2, (3,)), no_report)
    assert sum(computed) <= film[0].size
    stack = Pair(Images("cells", np.stack([fringes.image] * 3)), mask=fringes.empty)
    by_patches = run(stack, Patches(16, 4), CPCA_2)[0]
    by_frames = run(pair_of(film), Frames(), CPCA_2)[0]
    long = Images("cells", np.broadcast_to(film[0][:1], (20_000, 6, 5)))
    with dask.config.set({"optimization.fuse.active": False}):
        for solution, shown, most in [
            (by_patches, stack.foreground, fringes.image.size),
            (by_frames, long, 2**17),
        ]:
            computed.clear()
            as_lazy(solution, shown)[1].compute()
            assert 0 < sum(computed) <= most


def test_a_lazy_result_equals_the_full_result_and_missing_pixels_stay_missing(film, fringes):
    stack = film[0].reshape(10, 8, 6, 5)
    pair = Pair(Images("cells", stack), Images("empty", film[1]))
    solution, whole = run(pair, Frames(), CPCA_2)
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


# Scripts


def ellipse():
    y, x = np.mgrid[:160, :160]
    return (y - 60) ** 2 + (x - 70) ** 2 < 3000


@pytest.mark.parametrize(
    ("method", "what"),
    [
        *product(("automatic", "cpca"), ("frames", "box", "ellipse", "stack", "stack, frames")),
        *product(("pcpca", "cpca_star", "pca"), ("frames", "stack")),
    ],
)
def test_the_copied_script_gives_the_same_result(film, fringes, method, what, monkeypatch):
    settings, samples = Settings(method, n_components=3), Patches(16, 4)
    image, mask = fringes.image, fringes.empty
    if what == "frames":
        samples, image, mask = Frames(), np.concatenate(film), marked(140, 80, 140)
    elif what == "ellipse":
        mask = ellipse()
    elif what.startswith("stack"):
        image = np.stack([image, image[::-1], image[:, ::-1]]).reshape(3, 1, *image.shape)
        mask = marked(3, 1, 3)[:, None] if what == "stack, frames" else mask
    pair = Pair(Images("cells", image, lambda: "viewer.layers['cells'].data"), mask=mask)
    solution, found = run(pair, samples, settings)
    viewer = SimpleNamespace(layers={"cells": SimpleNamespace(data=image)})
    monkeypatch.setattr(napari, "current_viewer", lambda: viewer)
    names = {}
    exec(as_python(pair, solution), names)
    np.testing.assert_allclose(names["denoised"], found, rtol=1e-3, atol=2e-2)
