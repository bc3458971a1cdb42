"""Reading, solving, applying and keeping, without a window."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
import zarr

from contrast_core import CPCA, PCPCA, CPCAStar, SecondMoments
from contrast_core.datasets import cells_behind_fringes
from contrast_core.images import FrameBackgroundRemover, Frames, Patches, suppress_background
from napari_plugin import _read, _solve
from napari_plugin._apply import Denoised, as_layer_data, denoise, removed, signal_strength
from napari_plugin._cache import ReadingCache
from napari_plugin._copy import as_python
from napari_plugin._estimate import estimate
from napari_plugin._model import RemovalModel, Task
from napari_plugin._pair import Images, Pair, check
from napari_plugin._read import read
from napari_plugin._settings import InputError, Settings, default_samples, strength
from napari_plugin._solve import judge, solve


def finish(steps):
    """The result of steps, and what they reported."""
    reports = []
    while True:
        try:
            reports.append(next(steps))
        except StopIteration as stop:
            return stop.value, reports


def run(pair, samples, settings):
    """Reading, solution and denoised images."""
    check(pair, samples, settings)
    reading, _ = finish(read(pair, samples, settings))
    solution, _ = finish(solve(reading, settings))
    return reading, solution, finish(denoise(solution, pair.foreground))[0]


@pytest.fixture(scope="module")
def fringes():
    return cells_behind_fringes((160, 160))


@pytest.fixture(scope="module")
def film():
    """A blinking square on frames of 6 x 5 pixels, and frames without it."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(1, 6, 5))
    foreground = 40 + 10 * rng.normal(size=(80, 1, 1)) * common + rng.normal(size=(80, 6, 5))
    foreground[:, 1:3, 1:3] += 6 * rng.random(size=(80, 1, 1))
    background = 30 + 10 * rng.normal(size=(60, 1, 1)) * common + rng.normal(size=(60, 6, 5))
    return foreground, background


def pair_of(film):
    return Pair(Images("cells", film[0]), Images("empty", film[1]))


def marked(n, *background):
    mask = np.zeros(n, dtype=bool)
    mask[slice(*background)] = True
    return mask


def test_background_removal_by_patches_is_that_of_the_core(fringes):
    pair = Pair(Images("cells", fringes.image), mask=fringes.empty)
    expected = suppress_background(fringes.image, fringes.empty)
    reading, solution, found = run(pair, Patches(), Settings())
    np.testing.assert_allclose(found, expected.denoised, atol=1e-5)
    assert finish(judge(reading))[0] == tuple(v.sentence for v in expected.verdicts)
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


def test_long_background_removal_is_the_same_in_its_process(film, monkeypatch):
    _, _, here = run(pair_of(film), Frames(), Settings(signal_anywhere=True))
    reading, _ = finish(read(pair_of(film), Frames(), Settings()))
    said, _ = finish(judge(reading))
    monkeypatch.setattr(_solve, "SHORT_FRAMES", 0)
    _, _, there = run(pair_of(film), Frames(), Settings(signal_anywhere=True))
    np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-6)
    assert finish(judge(reading))[0] == said


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


def test_lazy_stacks_are_read_in_blocks_and_give_the_same(film, tmp_path, monkeypatch):
    monkeypatch.setattr(_read, "ELEMENTS", 16 * 30)
    settings = Settings("cpca", n_components=2)
    _, _, expected = run(pair_of(film), Frames(), settings)
    lazy = [da.from_array(stack, chunks=(10, 6, 5)) for stack in film]
    stored = []
    for i, stack in enumerate(film):
        stored.append(zarr.create_array(str(tmp_path / str(i)), data=stack, chunks=(10, 6, 5)))
    for stacks in (lazy, stored):
        reading, reports = finish(read(pair_of(stacks), Frames(), settings))
        assert reading.n_used == 80
        done = [report.done for report in reports]
        assert done == sorted(done)
        assert max(b - a for a, b in pairwise(done)) <= 20
        assert done[0] == 0
        assert done[-1] == reports[-1].total == 140
        np.testing.assert_allclose(run(pair_of(stacks), Frames(), settings)[2], expected, atol=1e-4)


def test_of_many_large_images_some_are_read(monkeypatch):
    read_images = []

    class Counted:
        shape, dtype = (1000, 64, 64), np.dtype("uint8")

        def __getitem__(self, where):
            read_images.append(where[0])
            return np.random.default_rng(where[0]).integers(0, 9, (64, 64), dtype=np.uint8)[
                where[1:]
            ]

    monkeypatch.setattr(_read, "_WINDOWS", 2**12)
    pair = Pair(
        Images("film", Counted()), Images("empty", np.random.default_rng(0).random((64, 64)))
    )
    reading, _ = finish(read(pair, Patches(8, 4), Settings()))
    assert reading.n_used == len(set(read_images)) == 64
    assert (min(read_images), max(read_images)) == (0, 999)
    assert reading.n_images == 1000


@pytest.mark.parametrize("dtype", ["uint8", ">u2", "int16", "float16", "float32"])
def test_every_kind_of_pixel_gives_float32_and_stays_as_it_is(film, dtype):
    stacks = [np.clip(stack, 0, 255).round().astype(dtype) for stack in film]
    before = stacks[0].copy()
    settings = Settings("cpca", n_components=2)
    found = run(pair_of(stacks), Frames(), settings)[2]
    exact = run(pair_of([stack.astype(float) for stack in stacks]), Frames(), settings)[2]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-2)
    np.testing.assert_array_equal(stacks[0], before)


@pytest.mark.parametrize("method", ["automatic", "cpca"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("which", [0, 1])
def test_missing_pixels_are_named_with_layer_and_frame(film, method, bad, which):
    stacks = [stack.copy() for stack in film]
    stacks[which][7, 3, 3] = bad
    name = ("cells", "empty")[which]
    with pytest.raises(InputError, match=rf"'{name}' has empty \(NaN\) .* first in frame 7\. Fill"):
        run(pair_of(stacks), Frames(), Settings(method, n_components=2))


def test_missing_pixels_of_an_image_are_told(fringes):
    image = fringes.image.copy()
    image[150, 3] = np.nan
    with pytest.raises(InputError, match=r"'cells' has empty \(NaN\) or infinite pixels\. Fill"):
        run(Pair(Images("cells", image), mask=fringes.empty), Patches(), Settings())


@pytest.mark.parametrize("method", ["automatic", "cpca"])
def test_a_constant_background_is_told(film, fringes, method):
    constant = Pair(Images("cells", film[0]), Images("empty", np.full((60, 6, 5), 3.0)))
    with pytest.raises(InputError, match=r"background \(.*\) is the same everywhere"):
        run(constant, Frames(), Settings(method, n_components=2))
    image = np.where(fringes.empty, 1.0, fringes.image)
    with pytest.raises(InputError, match=r"is the same everywhere"):
        run(Pair(Images("cells", image), mask=fringes.empty), Patches(), Settings(method))


class Unread:
    """Images whose pixels must not be touched."""

    def __init__(self, *shape, dtype="uint16"):
        self.shape = shape
        self.dtype = np.dtype(dtype)

    def __getitem__(self, index):
        raise AssertionError("pixels were read")


def cells(*shape, **options):
    return Images("cells", Unread(*shape, **options))


def empty(*shape):
    return Images("empty", Unread(*shape))


CPCA_10 = Settings("cpca", n_components=10)


@pytest.mark.parametrize(
    ("pair", "samples", "settings", "message"),
    [
        (Pair(cells(9, 8, 8)), Frames(), Settings(), "Say where the background is alone"),
        (Pair(cells(8, 8), empty(9, 8, 8)), Frames(), Settings(), "'cells' is a single image"),
        (Pair(cells(9, 8, 8), empty(9, 8, 7)), Frames(), Settings(), "8 x 8 pixels, those of"),
        (Pair(cells(9, 8, 8), empty(3, 8, 8)), Frames(), Settings(), "3 of background; at least 4"),
        (
            Pair(cells(9, 60, 60), empty(9, 60, 60)),
            Frames(),
            Settings(),
            "too large to be compared",
        ),
        (Pair(cells(6, 8, 8), empty(9, 8, 8)), Frames(), CPCA_10, "10 patterns .* allows 1 to 5"),
        (Pair(cells(8, 8, dtype="c8"), empty(8, 8)), Patches(8), Settings(), "plain intensities"),
        (Pair(cells(8, 8), empty(9, 8)), Patches(), Settings(), "smaller than a patch of 16 x 16"),
        (Pair(cells(0, 8, 8), empty(9, 8)), Patches(), Settings(), "holds no image"),
        (
            Pair(cells(99, 99), mask=np.zeros((99, 99), bool)),
            Patches(),
            Settings(),
            "marked nowhere",
        ),
        (Pair(cells(99, 99), mask=np.ones((99, 99), bool)), Patches(), Settings(), "everywhere"),
        (
            Pair(cells(99, 99), mask=marked(99, 20)[:, None] & marked(99, 20)),
            Patches(),
            Settings(),
            "20 x 20 pixels, too small for patches",
        ),
        (
            Pair(cells(30, 9, 9), mask=marked(9, 5)[:, None] & marked(9, 5)),
            Frames(),
            Settings(),
            "A drawn area marks pixels",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_a_pixel_is_read(pair, samples, settings, message):
    with pytest.raises(InputError, match=message):
        check(pair, samples, settings)


def test_no_refusal_names_code():
    """In none of the module's messages: a function, a parameter of the core or Python."""
    import ast
    from pathlib import Path

    words = ("numpy", "python", "alpha", "None", "ndarray", "()", "_", "Pipeline", "precision")
    found = []
    for path in Path(_read.__file__).parent.glob("_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError":
                parts = [
                    part.value
                    for part in ast.walk(node)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
                found.append(" ".join(parts))
    assert len(found) > 15
    for text in found:
        assert not [word for word in words if word in text], text


def test_samples_are_preselected_by_shape():
    assert default_samples((500, 28, 28)) == Frames()
    assert default_samples((20, 5, 28, 28)) == Frames()
    for shape in [(512, 512), (54, 512, 512), (3, 28, 28), (28, 28)]:
        assert default_samples(shape) == Patches(16, 2)
    assert default_samples((54, 512, 512), "cpca") == Patches(16, 4)


def test_a_lazy_result_is_not_computed_by_the_run(film, monkeypatch):
    computed = []
    original = Denoised._computed
    monkeypatch.setattr(
        Denoised, "_computed", lambda self, x: computed.append(len(x)) or original(self, x)
    )
    task = Task(pair_of(film), Frames(), Settings("cpca", n_components=2), (3,), 2**33)
    finish(RemovalModel().run(task))
    assert sum(computed) <= 33 < 80


def test_slicing_a_lazy_result_is_slicing_the_whole(film, fringes):
    stack = film[0].reshape(10, 8, 6, 5)
    settings = Settings("cpca", n_components=2)
    pair = Pair(Images("cells", stack), Images("empty", film[1]))
    _, solution, whole = run(pair, Frames(), settings)
    lazy = Denoised(solution, pair.foreground)
    data = as_layer_data(lazy)
    assert data.shape == whole.shape
    assert data.dtype == whole.dtype
    for index in [
        (0, 0),
        (slice(None), 3),
        (-1, slice(1, 7, 2), slice(2, 4)),
        (...,),
        (slice(2, 4), slice(None, None, -3), 1, 2),
        (..., 2),
    ]:
        np.testing.assert_allclose(lazy[index], whole[index], atol=1e-5)
        np.testing.assert_allclose(data[index].compute(), whole[index], atol=1e-5)
    np.testing.assert_allclose(np.asarray(lazy), whole, atol=1e-5)
    pair = Pair(Images("cells", fringes.image), mask=fringes.empty)
    _, solution, whole = run(pair, Patches(16, 4), Settings())
    np.testing.assert_allclose(
        Denoised(solution, pair.foreground)[20:90, 5], whole[20:90, 5], atol=1e-5
    )


def test_missing_pixels_stay_missing_in_a_lazy_result(film):
    pair = pair_of(film)
    _, solution, whole = run(pair, Frames(), Settings("cpca", n_components=2))
    holed = film[0].copy()
    holed[3, 2, 2] = np.nan
    found = Denoised(solution, Images("cells", holed))[2:5]
    assert np.isnan(found[1, 2, 2])
    assert np.isfinite(found).sum() == found.size - 1
    np.testing.assert_allclose(found[0], whole[2], atol=1e-5)


def test_a_reading_is_kept_for_the_same_layers_and_region(film):
    cache, settings = ReadingCache(), Settings("cpca")
    stacks = [stack.copy() for stack in film]
    pair = pair_of(stacks)
    reading, _ = finish(read(pair, Frames(), settings))
    cache.put(pair, Frames(), settings, reading)
    assert cache.get(pair_of(stacks), Frames(), Settings("pcpca", 0.2, 3)) is reading
    assert cache.get(pair, Frames(), Settings()) is None  # which needs the frames
    assert cache.get(pair, Patches(4), settings) is None
    masked = Pair(pair.foreground, mask=marked(80, 9))
    assert cache.get(masked, Frames(), settings) is None
    stacks[0][:, 2:4] += 1
    assert cache.get(pair, Frames(), settings) is None  # painted on
    stacks[0][:, 2:4] -= 1
    small = ReadingCache(most_bytes=1)
    small.put(pair, Frames(), settings, reading)
    small.put(masked, Frames(), settings, reading)
    assert small.get(pair, Frames(), settings) is None
    assert small.get(masked, Frames(), settings) is reading


def test_a_cache_does_not_keep_images_alive(film):
    import gc
    import weakref

    data = film[0].copy()
    watched = weakref.ref(data)
    pair = Pair(Images("cells", data), Images("empty", film[1]))
    cache = ReadingCache()
    reading, _ = finish(read(pair, Frames(), Settings("cpca")))
    cache.put(pair, Frames(), Settings("cpca"), reading)
    del data, pair
    gc.collect()
    assert watched() is None


def test_estimates_grow_with_the_images_and_say_what_is_lazy():
    def of(pair, samples, settings, available=2**33):
        return estimate(pair, samples, settings, available)

    one = of(Pair(cells(512, 512), empty(512, 512)), Patches(), Settings())
    many = of(Pair(cells(54, 512, 512), empty(512, 512)), Patches(), Settings())
    assert many.seconds > 30 * one.seconds
    assert 0.3 < one.seconds < 4
    assert many.memory > 54 * 512 * 512 * 4
    assert not many.lazy
    assert of(Pair(cells(9**6, 64, 64), empty(9, 64, 64)), Patches(), Settings()).lazy
    assert "as you look at it" in of(Pair(cells(9, 9, 9), empty(9, 9, 9)), Frames(), CPCA_10).text()


@pytest.mark.parametrize("method", ["automatic", "cpca", "pcpca", "cpca_star", "pca"])
@pytest.mark.parametrize("samples", [Frames(), Patches(16, 4)])
def test_the_copied_script_gives_the_same(film, fringes, method, samples, monkeypatch):
    import napari

    settings = Settings(method, n_components=3)
    if samples == Frames():
        stack = np.concatenate(film)
        pair = Pair(Images("cells", stack), mask=marked(140, 80, 140))
    else:
        pair = Pair(Images("cells", fringes.image), mask=fringes.empty)
    _, solution, found = run(pair, samples, settings)

    viewer = SimpleNamespace(layers={"cells": pair.foreground})
    monkeypatch.setattr(napari, "current_viewer", lambda: viewer)
    names = {}
    exec(as_python(pair, solution), names)
    np.testing.assert_allclose(names["denoised"], found, rtol=1e-3, atol=1e-3)


def test_the_model_needs_neither_qt_nor_napari():
    code = (
        "import sys\n"
        "from napari_plugin import _apply, _cache, _copy, _estimate, _export, _saved\n"
        "print({'PyQt5', 'PyQt6', 'PySide2', 'PySide6', 'qtpy', 'superqt', 'magicgui', 'napari', "
        "'vispy'} & {name.partition('.')[0] for name in sys.modules})"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr


def test_blocks_of_the_reading_are_of_all_its_frames(film):
    reading, _ = finish(read(pair_of(film), Frames(), Settings("cpca")))
    X = SecondMoments.from_data(film[0].reshape(80, 30))
    assert len(reading.blocks[0]) == 8
    assert sum(block.n_samples for block in reading.blocks[0]) == 80
    np.testing.assert_allclose(reading.foreground.covariance, X.covariance)
