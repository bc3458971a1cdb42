"""The model under the widget: numbers, shapes, dtypes, steps and refusals, all without a window."""

from __future__ import annotations

import subprocess
import sys

import dask.array as da
import numpy as np
import pytest

from contrast_core import CPCA
from contrast_core.datasets import digits_on_photos
from contrast_core.images import stack_to_rows
from napari_plugin import _model
from napari_plugin._model import MAX_PIXELS, DenoisingModel, FrameStack, InputError
from napari_plugin._sample_data import digits_on_photographs


def run(model, foreground, background, names=("cells", "empty"), **options):
    """Drive the steps to their end; returns the progress reports and the result."""
    stacks = FrameStack(names[0], foreground), FrameStack(names[1], background)
    steps = model.steps(*stacks, **options)
    progress = []
    while True:
        try:
            progress.append(next(steps))
        except StopIteration as stop:
            return progress, stop.value


def error_to_clean(frames, clean):
    """Mean squared error after the best affine intensity fit of each frame."""
    frames, clean = (x - x.mean(axis=1, keepdims=True) for x in (frames, clean))
    slope = (frames * clean).sum(axis=1) / (frames**2).sum(axis=1)
    return np.mean((clean - slope[:, None] * frames) ** 2)


@pytest.fixture(scope="module")
def small():
    """A blinking square on frames of 6 x 5 pixels, and frames without it."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(1, 6, 5))
    foreground = 40 + 10 * rng.normal(size=(80, 1, 1)) * common + rng.normal(size=(80, 6, 5))
    foreground[:, 1:3, 1:3] += 6 * rng.random(size=(80, 1, 1))
    background = 30 + 10 * rng.normal(size=(60, 1, 1)) * common + rng.normal(size=(60, 6, 5))
    return foreground, background


def test_sample_is_denoised_where_pca_makes_it_worse():
    (photographs, _, _), (digits, _, _) = digits_on_photographs()
    clean = digits_on_photos(len(digits)).clean
    noisy_error = error_to_clean(stack_to_rows(digits), clean)
    _, automatic = run(DenoisingModel(), digits, photographs)
    _, pca = run(DenoisingModel(alpha=0.0), digits, photographs)
    assert error_to_clean(stack_to_rows(automatic.stack), clean) <= 0.78 * noisy_error
    assert error_to_clean(stack_to_rows(pca.stack), clean) > noisy_error
    support = clean.mean(axis=0).reshape(28, 28) > 0.05 * clean.max()
    first = automatic.weight_maps[0]
    assert first[support].sum() > 0.8 * first.sum()


def test_result_is_that_of_the_core(small):
    foreground, background = small
    _, result = run(DenoisingModel(3), foreground, background)
    cpca = CPCA(3, alpha="denoise").fit(
        stack_to_rows(foreground), background=stack_to_rows(background)
    )
    assert result.alpha == pytest.approx(cpca.alpha_, rel=1e-9)
    expected = cpca.denoise(stack_to_rows(foreground), offset="difference")
    np.testing.assert_allclose(stack_to_rows(result.stack), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        result.weight_maps.reshape(3, -1), cpca.feature_weights(), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(result.eigenvalues, cpca.contrastive_eigenvalues_)


def test_every_frame_of_a_stack_with_more_axes_is_a_sample(small):
    foreground, background = small
    _, flat = run(DenoisingModel(2), foreground, background)
    _, deep = run(
        DenoisingModel(2), foreground.reshape(20, 4, 6, 5), background.reshape(3, 5, 4, 6, 5)
    )
    assert deep.stack.shape == (20, 4, 6, 5)
    assert deep.alpha == pytest.approx(flat.alpha, rel=1e-9)
    np.testing.assert_allclose(deep.stack.reshape(80, 6, 5), flat.stack, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", ">u2", "int16", "float16", "float32"])
def test_every_real_dtype_gives_float32_in_the_units_of_the_data(small, dtype):
    foreground, background = (np.clip(stack, 0, 255).round().astype(dtype) for stack in small)
    before = foreground.copy()
    _, result = run(DenoisingModel(2), foreground, background)
    _, exact = run(DenoisingModel(2), foreground.astype(float), background.astype(float))
    assert result.stack.dtype == result.weight_maps.dtype == np.float32
    np.testing.assert_allclose(result.stack, exact.stack, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(foreground, before)


def test_lazy_stacks_are_read_block_by_block(small):
    foreground, background = small
    _, expected = run(DenoisingModel(2), foreground, background)
    lazy = (da.from_array(stack, chunks=(10, 6, 5)) for stack in small)
    progress, result = run(DenoisingModel(2), *lazy, elements=16 * 30)
    assert isinstance(result.stack, np.ndarray)
    np.testing.assert_allclose(result.stack, expected.stack, rtol=1e-5, atol=1e-5)
    done = [report.done for report in progress]
    assert max(np.diff(done)) == 16  # frames in a block
    assert len(progress) > 5 + 4 + 5  # a report after every block


def test_progress_counts_every_frame_read(small):
    progress, _ = run(DenoisingModel(2), *small)
    done = [report.done for report in progress]
    assert done == sorted(done)
    assert {report.total for report in progress} == {80 + 60 + 80}
    assert done[0] == 0
    assert done[-1] == 220
    assert [p.next for p in progress[:1] + progress[-1:]] == ["Reading cells", "Denoising"]


def test_dropping_the_steps_reads_no_further(small, monkeypatch):
    foreground, background = small
    monkeypatch.setattr(_model, "CPCA", None)  # never reached
    steps = DenoisingModel(2).steps(FrameStack("a", foreground), FrameStack("b", background))
    next(steps)
    next(steps)
    steps.close()


def test_what_the_core_warns_of_reaches_the_result(small):
    foreground, background = small
    _, result = run(DenoisingModel(20, alpha=5.0), foreground, background)
    (message,) = result.warnings
    assert "negative contrast at alpha=5" in message
    assert run(DenoisingModel(1), foreground, background)[1].warnings == ()


class Unread:
    """A stack whose pixels must not be touched."""

    dtype = np.dtype("uint16")

    def __init__(self, *shape, dtype="uint16"):
        self.shape = shape
        self.dtype = np.dtype(dtype)

    def __getitem__(self, index):
        raise AssertionError("pixels were read")


@pytest.mark.parametrize(
    ("foreground", "background", "n_components", "message"),
    [
        (
            Unread(9, 8, 8),
            Unread(9, 8, 7),
            2,
            r"'cells' are 8 x 8, those of 'empty' 8 x 7\. Choose stacks with frames of the same",
        ),
        (Unread(8, 8), Unread(9, 8, 8), 2, r"'cells' has shape \(8, 8\): a single frame\. Choose"),
        (Unread(1, 8, 8), Unread(9, 8, 8), 2, r"'cells' has shape \(1, 8, 8\): a single frame"),
        (Unread(9, 8, 8), Unread(1, 1, 8, 8), 2, r"'empty' has shape .*: a single frame"),
        (
            Unread(9, 512, 512),
            Unread(9, 512, 512),
            2,
            r"512 x 512 have 262,144 pixels, .* 1,024\.0 GiB .* Crop or bin both stacks to at most",
        ),
        (
            Unread(5, 8, 8),
            Unread(9, 8, 8),
            10,
            r"10 components .* 5 frames of 64 pixels in 'cells' have at most 4\. Choose 1 to 4",
        ),
        (Unread(99, 3, 3), Unread(9, 3, 3), 10, r"99 frames of 9 pixels .* have at most 9"),
        (Unread(99, 3, 3), Unread(9, 3, 3), 0, r"Choose 1 to 9 components"),
        (
            Unread(9, 8, 8, dtype="complex64"),
            Unread(9, 8, 8),
            2,
            r"'cells' has pixels of type complex64\. Choose a stack of real numbers",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_a_pixel_is_read(
    foreground, background, n_components, message
):
    stacks = FrameStack("cells", foreground), FrameStack("empty", background)
    with pytest.raises(InputError, match=message):
        DenoisingModel(n_components).check(*stacks)
    with pytest.raises(InputError, match=message):
        next(DenoisingModel(n_components).steps(*stacks))


def test_the_largest_frames_are_accepted():
    side = int(MAX_PIXELS**0.5)
    assert side * side == MAX_PIXELS
    stack = FrameStack("cells", Unread(20, side, side))
    DenoisingModel().check(stack, FrameStack("empty", Unread(20, side, side)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("which", [0, 1])
def test_missing_pixels_are_named_with_stack_and_frame(small, bad, which):
    stacks = [stack.copy() for stack in small]
    stacks[which][7, 3, 3] = bad
    name = ("cells", "empty")[which]
    with pytest.raises(InputError, match=rf"'{name}' has NaN or infinite .* in frame 7\. Fill"):
        run(DenoisingModel(2), *stacks)


def test_a_constant_background_is_refused_with_the_remedy(small):
    foreground, background = small
    with pytest.raises(ValueError, match=r"background is constant .* as a number"):
        run(DenoisingModel(2), foreground, np.full_like(background, 3.0))
    _, result = run(DenoisingModel(2, alpha=1.0), foreground, np.full_like(background, 3.0))
    assert np.isfinite(result.stack).all()


def test_a_constant_result_still_has_a_range_to_show(small):
    _, background = small
    constant = np.full((5, 6, 5), 2.0)
    _, result = run(DenoisingModel(1, alpha=1.0), constant, background)
    low, high = result.display_range
    assert low < high


def test_import_needs_neither_qt_nor_napari():
    code = (
        "import sys, napari_plugin._model; "
        "print({'PyQt5', 'PyQt6', 'PySide2', 'PySide6', 'qtpy', 'superqt', 'magicgui', 'napari', "
        "'vispy'} & {name.partition('.')[0] for name in sys.modules})"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr
