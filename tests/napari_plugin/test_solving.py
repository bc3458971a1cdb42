"""Solving in the thread or in a process: what the core finds."""

from __future__ import annotations

import time

import numpy as np
import pytest

from contrast_core import CPCA, PCPCA, CPCAStar
from contrast_core.datasets import cells_behind_fringes
from contrast_core.images import FrameBackgroundRemover, Frames, Patches, suppress_background
from napari_plugin import _solve
from napari_plugin._apply import removed, signal_strength
from napari_plugin._pair import Images, Pair
from napari_plugin._read import read
from napari_plugin._settings import Settings, strength
from napari_plugin._solve import judge, solve
from tests.napari_plugin.plain import finish, make_film, marked, pair_of, run


@pytest.fixture(scope="module")
def fringes():
    return cells_behind_fringes((160, 160))


@pytest.fixture(scope="module")
def film():
    return make_film()


def test_background_removal_by_patches_is_that_of_the_core(fringes):
    pair = Pair(Images("cells", fringes.image), mask=fringes.empty)
    expected = suppress_background(fringes.image, fringes.empty, sampling=Patches())
    reading, solution, found = run(pair, Patches(), Settings())
    np.testing.assert_allclose(found, expected.denoised, atol=1e-5)
    assert [v.kind for v in expected.verdicts] == ["background too small"]  # not yet the dock's
    assert finish(judge(reading))[0] == ()
    np.testing.assert_allclose(removed(pair.foreground, found), expected.removed, atol=1e-5)
    strengths, _ = finish(signal_strength(solution, pair.foreground))
    assert strengths[fringes.clean > 0.5].mean() > 5 * strengths[fringes.empty].mean()


def test_background_removal_by_frames_is_that_of_the_core(film):
    expected = FrameBackgroundRemover((6, 5)).fit(
        film[0].reshape(80, 30), background=film[1].reshape(60, 30)
    )
    _, _, found = run(pair_of(film), Frames(), Settings())
    np.testing.assert_allclose(
        found.reshape(80, 30), expected.transform(film[0].reshape(80, 30)), rtol=1e-3, atol=1e-4
    )


@pytest.mark.slow
def test_long_background_removal_is_the_same_in_its_process(film, monkeypatch):
    _, _, here = run(pair_of(film), Frames(), Settings(signal_anywhere=True))
    reading, _ = finish(read(pair_of(film), Frames(), Settings()))
    said, _ = finish(judge(reading))
    monkeypatch.setattr(_solve, "SHORT_FRAMES", 0)
    _, _, there = run(pair_of(film), Frames(), Settings(signal_anywhere=True))
    np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-6)
    assert finish(judge(reading))[0] == said


@pytest.mark.slow
def test_long_projections_are_the_same_in_their_process(film, monkeypatch):
    settings = Settings("cpca", n_components=3, suppression=0.7)
    _, here, image = run(pair_of(film), Frames(), settings)
    monkeypatch.setattr(_solve, "LONGEST_HERE", 0)
    _, there, same = run(pair_of(film), Frames(), settings)
    assert there.automatic == here.automatic
    assert there.is_live
    np.testing.assert_allclose(same, image, rtol=1e-6, atol=1e-6)


def test_dropping_a_process_ends_it_at_once(film, monkeypatch):
    monkeypatch.setattr(_solve, "SHORT_FRAMES", 0)
    reading, _ = finish(read(pair_of(film), Frames(), Settings()))
    steps = solve(reading, Settings())
    for _ in range(3):
        next(steps)
    process = steps.gi_yieldfrom.gi_yieldfrom.gi_frame.f_locals["self"]._process
    assert process.poll() is None
    start = time.perf_counter()
    steps.close()
    assert process.poll() is not None
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize(
    ("method", "kind", "parameter", "rule"),
    [
        ("cpca", CPCA, "alpha", "denoise"),
        ("pcpca", PCPCA, "gamma", "auto"),
        ("cpca_star", CPCAStar, "beta", "auto"),
        ("pca", CPCA, "alpha", 0.0),
    ],
)
def test_projections_are_those_of_the_core(film, method, kind, parameter, rule):
    X, Y = (stack.reshape(-1, 30) for stack in film)
    expected = kind(3, **{parameter: rule}).fit(X, background=Y)
    _, solution, found = run(pair_of(film), Frames(), Settings(method, n_components=3))
    np.testing.assert_allclose(
        found.reshape(80, 30), expected.denoise(X, offset="difference"), rtol=1e-4, atol=1e-4
    )
    assert solution.is_live == (method != "pca")
    if solution.is_live:
        value = strength(
            solution.automatic,
            0.3,
            largest={"pcpca": solution.automatic / 0.9, "cpca_star": 1.0}.get(method, np.inf),
        )
        other = kind(2, **{parameter: value}).fit(X, background=Y)
        moved = solution.at(0.3, 2)
        if method != "pcpca":  # whose range is another for two patterns
            assert moved.estimator.strength_ == pytest.approx(value)
            np.testing.assert_allclose(
                abs(moved.estimator.components_ @ other.components_.T), np.eye(2), atol=1e-6
            )
        assert solution.at(0.0, 2).estimator.strength_ == 0
        assert solution.at(1.0, 3).estimator.strength_ > solution.automatic


def test_frames_too_large_for_a_covariance_are_projected_in_their_span():
    rng = np.random.default_rng(0)
    stack = rng.integers(0, 200, size=(30, 80, 70)).astype(np.uint8)
    stack[:12, 10:20, 10:20] //= 4
    pair = Pair(Images("film", stack), mask=marked(30, 12, 30))
    _, solution, found = run(pair, Frames(), Settings("cpca", n_components=4))
    rows = stack.reshape(30, -1).astype(float)
    expected = CPCA(4, alpha="denoise").fit(rows[:12], background=rows[12:])
    np.testing.assert_allclose(
        found.reshape(30, -1), expected.denoise(rows, offset="difference"), atol=1e-2
    )
    assert solution.is_live
    assert len(solution.at(0.8, 2).estimator.components_) == 2


def test_a_stack_of_images_shares_one_background_by_patches(fringes):
    stack = np.stack([fringes.image, fringes.image[::-1].copy()])[:, None]
    mask = np.zeros(stack.shape, dtype=bool)
    mask[0, 0], mask[1, 0] = fringes.empty, fringes.empty[::-1]
    _, _, found = run(Pair(Images("stack", stack), mask=mask), Patches(16, 4), Settings())
    expected = suppress_background(stack, mask, sampling=Patches(16, 4)).denoised
    np.testing.assert_allclose(found, expected, atol=2e-2)
    range_of_images = Pair(Images("stack", stack[:, 0]), mask=marked(2, 1, 2))
    _, _, found = run(range_of_images, Patches(16, 4), Settings("cpca"))
    other = Pair(Images("stack", stack[:, 0]), Images("second", stack[1]))
    np.testing.assert_allclose(
        found, run(other, Patches(16, 4), Settings("cpca"))[2], rtol=1e-4, atol=1e-4
    )
