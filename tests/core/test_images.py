"""Stacks and matrices, weight maps, and denoising of stacks."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from contrast_core import CPCA
from contrast_core.images import (
    denoise_stack,
    iter_rows,
    rows_to_stack,
    stack_to_rows,
    weight_maps,
)

SHAPES = [(7, 4, 5), (3, 4, 2, 3), (2, 3, 2, 4, 5), (1, 6, 4, 5)]


def numbered(shape):
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    foreground = rng.normal(size=(60, 4, 5)) + 3.0
    foreground[:, 1:3, 1:3] += 4 * rng.normal(size=(60, 1, 1))
    background = rng.normal(size=(50, 4, 5)) + 2.0
    cpca = CPCA(2, alpha=1.0).fit(stack_to_rows(foreground), background=stack_to_rows(background))
    return cpca, foreground


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_and_stacks_are_inverse(shape):
    stack = numbered(shape)
    rows = stack_to_rows(stack)
    assert rows.shape == (np.prod(shape[:-2]), shape[-2] * shape[-1])
    np.testing.assert_array_equal(rows_to_stack(rows, shape), stack)
    np.testing.assert_array_equal(rows_to_stack(rows, shape[-2:]), stack.reshape(-1, *shape[-2:]))


def test_rows_share_memory_with_a_contiguous_stack():
    stack = numbered((5, 3, 4))
    assert np.shares_memory(stack_to_rows(stack), stack)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 100, None])
def test_blocks_are_the_rows_in_order_and_fit_their_place(shape, block_size):
    stack = numbered(shape)
    written = np.full(shape, np.nan)
    blocks = []
    for index, rows in iter_rows(stack, block_size=block_size):
        assert block_size is None or len(rows) <= block_size
        blocks.append(rows)
        written[index] = rows.reshape(written[index].shape)
    np.testing.assert_array_equal(np.concatenate(blocks), stack_to_rows(stack))
    np.testing.assert_array_equal(written, stack)


def test_default_blocks_bound_the_memory():
    frames = np.broadcast_to(np.uint8(1), (40, 512, 512))
    assert max(rows.nbytes for _, rows in iter_rows(frames)) <= 2**20


def test_one_block_at_a_time_is_read_from_lazy_stacks():
    class Lazy:
        shape = (6, 2, 2)

        def __init__(self):
            self.read = []

        def __getitem__(self, index):
            self.read.append(index)
            return numbered(self.shape)[index]

    lazy = Lazy()
    blocks = iter_rows(lazy, block_size=2)
    assert lazy.read == []
    next(blocks)
    assert lazy.read == [(slice(0, 2),)]


@pytest.mark.parametrize("dtype", ["bool", "uint8", ">u2", "float16", "float32"])
def test_blocks_keep_the_dtype(dtype):
    (_, rows), *_ = iter_rows(np.zeros((3, 2, 2), dtype=dtype))
    assert rows.dtype == np.dtype(dtype)


@pytest.mark.parametrize("shape", [(60, 4, 5), (6, 10, 4, 5)])
def test_denoised_stack_is_the_estimators_denoising(fitted, shape):
    cpca, foreground = fitted
    stack = foreground.reshape(shape)
    for offset in ("difference", "foreground", "none"):
        denoised = denoise_stack(cpca, stack, offset=offset)
        assert denoised.dtype == np.float32
        assert denoised.shape == shape
        expected = cpca.denoise(stack_to_rows(stack), offset=offset)
        np.testing.assert_allclose(stack_to_rows(denoised), expected, rtol=1e-6, atol=1e-6)


def test_static_background_goes_with_the_difference(fitted):
    cpca, foreground = fitted
    kept = denoise_stack(cpca, foreground, offset="foreground")
    default = denoise_stack(cpca, foreground)
    static = rows_to_stack(cpca.background_mean_[None], (4, 5))
    np.testing.assert_allclose(kept - default, np.broadcast_to(static, kept.shape), atol=1e-5)


def test_lazy_stacks_denoise_alike(fitted, tmp_path):
    cpca, foreground = fitted
    on_disk = np.memmap(tmp_path / "frames", dtype="float64", mode="w+", shape=foreground.shape)
    on_disk[:] = foreground
    np.testing.assert_array_equal(denoise_stack(cpca, on_disk), denoise_stack(cpca, foreground))


def test_weight_maps_are_squared_loadings_with_maximum_one(fitted):
    cpca, _ = fitted
    maps = weight_maps(cpca, (4, 5))
    assert maps.shape == (2, 4, 5)
    np.testing.assert_array_equal(maps.max(axis=(1, 2)), 1.0)
    squared = cpca.components_.reshape(2, 4, 5) ** 2
    np.testing.assert_allclose(maps / squared, (maps / squared)[:, :1, :1] * np.ones((4, 5)))
    assert maps[0, 1:3, 1:3].sum() > 0.9 * maps[0].sum()  # where the foreground was made to vary


def test_errors_say_what_came_and_what_to_do(fitted):
    cpca, _ = fitted
    frame = np.zeros((4, 5))
    for function in (stack_to_rows, iter_rows, lambda stack: denoise_stack(cpca, stack)):
        with pytest.raises(ValueError, match=r"got \(4, 5\); a single frame is frame\[None\]"):
            function(frame)
    with pytest.raises(ValueError, match=r"block_size=0 is out of range: it must be at least 1"):
        iter_rows(np.zeros((2, 4, 5)), block_size=0)
    with pytest.raises(
        ValueError, match=r"rows have shape \(3, 20\), but .* needs rows .*\(3, 12\)"
    ):
        rows_to_stack(np.zeros((3, 20)), (3, 4))
    with pytest.raises(ValueError, match=r"shape=\(60,\) has 1 axes; expected"):
        rows_to_stack(np.zeros((3, 20)), (60,))
    with pytest.raises(ValueError, match=r"frame_shape=\(2, 5\) has 10 pixels, .* rows of 20"):
        weight_maps(cpca, (2, 5))


def test_import_is_light():
    code = (
        "import sys, contrast_core.images; "
        "print({'sklearn', 'dask', 'torch', 'napari', 'qtpy', 'matplotlib'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr
