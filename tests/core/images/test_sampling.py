"""Frames, patches and channels: rows of a stack, and back into their place."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pytest
import zarr

from contrast_core import CPCA, SecondMoments
from contrast_core.images import Channels, Frames, Patches

STACKS = [
    (Patches(size=4, stride=1), (9, 11)),
    (Patches(size=4, stride=2), (9, 12)),  # the last windows are off the regular step
    (Patches(size=7, stride=7), (7, 30)),
    (Patches(size=16), (2, 3, 40, 37)),
    (Patches(size=(5, 4), stride=3), (3, 20, 31)),
    (Patches(size=(2, 5, 4), stride=2), (3, 20, 31)),
    (Patches(size=(3, 4, 5), stride=3), (2, 7, 8, 9)),
    (Frames(), (5, 6, 7)),
    (Frames(), (2, 3, 4, 5)),
    (Channels(0), (3, 6, 7)),
    (Channels(1), (2, 3, 4, 5)),
    (Channels(-1), (6, 7, 3)),
]


def samples_of(sampling: Any, stack: Any) -> Any:
    """The rows in plain NumPy, and where in the flattened stack their features lie."""
    places = np.arange(stack.size).reshape(stack.shape)
    if isinstance(sampling, Patches):
        d = len(sampling.sides)
        places = np.lib.stride_tricks.sliding_window_view(
            places, sampling.sides, axis=tuple(range(-d, 0))
        )
        for axis, (n, side) in enumerate(zip(stack.shape[-d:], sampling.sides, strict=True)):
            starts = sorted({*range(0, n - side + 1, sampling.stride), n - side})
            places = np.take(places, starts, axis=stack.ndim - d + axis)
        n_features = np.prod(sampling.sides)
    elif isinstance(sampling, Frames):
        n_features = np.prod(stack.shape[-2:])
    else:
        places = np.moveaxis(places, sampling.axis, -1)
        n_features = places.shape[-1]
    places = places.reshape(-1, n_features)
    return stack.ravel()[places], places


def numbers(shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def test_frames_far_from_each_other_are_read_alone() -> None:
    film = numbers((90, 300, 300))
    counting = Counting(film)
    rows = Frames().rows(counting).take([3, 40, 41, 88])
    np.testing.assert_array_equal(rows.load(), film[[3, 40, 41, 88]].reshape(4, -1))
    assert sum(counting.read) == 4 * 300 * 300


@pytest.mark.parametrize(("sampling", "shape"), STACKS)
@pytest.mark.parametrize("elements", [1, 50, 1000, None])
def test_rows_are_the_samples_in_c_order(sampling: Any, shape: Any, elements: Any) -> None:
    stack = numbers(shape)
    expected, _ = samples_of(sampling, stack)
    rows = sampling.rows(stack, elements=elements)
    assert rows.shape == expected.shape
    np.testing.assert_array_equal(np.concatenate(list(rows.blocks())), expected)
    for start, stop in [(0, len(expected)), (1, 2), (len(expected) // 3, len(expected) - 1)]:
        np.testing.assert_array_equal(rows.read(start, stop), expected[start:stop])


@pytest.mark.parametrize(("sampling", "shape"), STACKS)
@pytest.mark.parametrize("elements", [1, 100, None])
@pytest.mark.parametrize("order", ["C", "F"])
def test_results_go_back_to_their_place_and_overlaps_are_averaged(
    sampling: Any, shape: Any, elements: Any, order: Any
) -> None:
    stack = numbers(shape)
    samples, places = samples_of(sampling, stack)
    results = numbers(samples.shape, seed=1)
    one_each = results[:, :1]
    for given in (results, one_each):
        counts = np.bincount(places.ravel(), minlength=stack.size)
        sums = np.bincount(
            places.ravel(),
            weights=np.broadcast_to(given, places.shape).ravel(),
            minlength=stack.size,
        )
        rows, out = sampling.rows(stack, elements=elements), np.zeros(shape)
        for start, stop in pairwise(rows.edges()):
            rows.put_back(out, start, stop, np.array(given[start:stop], order=order))
        np.testing.assert_allclose(out, (sums / counts).reshape(shape), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("sampling", "shape"), STACKS)
def test_mapping_the_identity_gives_the_stack(sampling: Any, shape: Any) -> None:
    stack = numbers(shape)
    np.testing.assert_allclose(sampling.map(lambda rows: rows, stack), stack, atol=1e-14)
    assert sampling.map(lambda rows: rows, stack.astype("f4")).dtype == np.float32
    assert sampling.map(lambda rows: rows.astype(float), stack.astype("u1")).dtype == np.float32
    assert sampling.map(lambda rows: rows.astype(float), stack.astype("i4")).dtype == np.float64


@pytest.mark.parametrize(("sampling", "shape"), STACKS)
@pytest.mark.parametrize("kind", ["dask", "zarr", "hdf5", "memmap", "readonly view"])
def test_stacks_that_are_read_lazily_give_the_same(
    sampling: Any, shape: Any, kind: str, tmp_path: Any
) -> None:
    stack = numbers(shape).astype("f4")
    lazy: Any
    match kind:
        case "dask":
            lazy = da.from_array(stack, chunks=11)
        case "zarr":
            lazy = zarr.create_array(
                tmp_path / "z", shape=shape, chunks=tuple(min(n, 11) for n in shape), dtype="f4"
            )
            lazy[:] = stack
        case "hdf5":
            lazy = h5py.File(tmp_path / "h", "w").create_dataset("stack", data=stack, chunks=True)
        case "memmap":
            lazy = np.memmap(tmp_path / "m", dtype="f4", mode="w+", shape=shape)
            lazy[:] = stack
        case _:
            lazy = np.repeat(stack, 2, axis=-1)[..., ::2]
            lazy.flags.writeable = False
    mask = numbers(masks_shape(sampling, shape), seed=2) < 1.5
    np.testing.assert_array_equal(sampling.rows(lazy).load(), sampling.rows(stack).load())
    np.testing.assert_array_equal(
        sampling.map(lambda rows: 2 * rows, lazy), sampling.map(lambda rows: 2 * rows, stack)
    )
    if chosen(sampling, stack, mask).any():
        np.testing.assert_array_equal(
            sampling.rows(lazy, mask).load(), sampling.rows(stack, mask).load()
        )


def masks_shape(sampling: Any, shape: Any) -> Any:
    if isinstance(sampling, Patches):
        return shape[-len(sampling.sides) :]
    if isinstance(sampling, Frames):
        return shape[:-2]
    return tuple(np.delete(shape, sampling.axis))


def chosen(sampling: Any, stack: Any, mask: Any) -> Any:
    """Which samples lie in the mask whole."""
    if isinstance(sampling, Patches):
        counts = np.broadcast_to(mask, stack.shape)
    elif isinstance(sampling, Frames):
        counts = np.broadcast_to(mask[..., None, None], stack.shape)
    else:
        counts = np.broadcast_to(np.expand_dims(mask, sampling.axis), stack.shape)
    return samples_of(sampling, np.ascontiguousarray(counts))[0].all(axis=1)


@pytest.mark.parametrize(("sampling", "shape"), STACKS)
@pytest.mark.parametrize("elements", [1, 100, None])
def test_a_mask_lets_whole_samples_through(sampling: Any, shape: Any, elements: Any) -> None:
    stack = numbers(shape)
    mask = np.ones(masks_shape(sampling, shape), dtype=bool)
    mask.ravel()[:: mask.size // 3 + 1] = False
    counts = chosen(sampling, stack, mask)
    expected = samples_of(sampling, stack)[0][counts]
    rows = sampling.rows(stack, mask, elements=elements)
    assert rows.shape == expected.shape
    np.testing.assert_array_equal(rows.load(), expected)
    np.testing.assert_array_equal(np.concatenate(list(rows.blocks())), expected)
    np.testing.assert_array_equal(rows.columns([0, 2]).load(), expected[:, [0, 2]])
    np.testing.assert_array_equal(rows.take(slice(1, None)).load(), expected[1:])


def test_a_mask_may_differ_from_image_to_image() -> None:
    stack, mask = numbers((2, 8, 8)), np.zeros((2, 8, 8), dtype=bool)
    mask[1, 2:7, 1:6] = True
    rows = Patches(size=4, stride=1).rows(stack, mask)
    expected = np.lib.stride_tricks.sliding_window_view(stack[1, 2:7, 1:6], (4, 4))
    np.testing.assert_array_equal(rows.load(), expected.reshape(4, 16))


def test_moments_and_estimators_take_the_rows() -> None:
    stack = numbers((30, 5, 6))
    rows = Frames().rows(stack)
    moments = SecondMoments.from_chunks(rows.blocks())
    reference = SecondMoments.from_data(stack.reshape(30, 30))
    np.testing.assert_allclose(moments.covariance, reference.covariance, atol=1e-12)
    model = CPCA(2, alpha=0.5).fit(reference, background=moments)
    denoised = Frames().map(model.denoise, stack)
    np.testing.assert_allclose(denoised.reshape(30, 30), model.denoise(rows.load()), atol=1e-12)


class Counting:
    """A stack that remembers what was read of it."""

    def __init__(self, stack: Any) -> None:
        self.stack, self.shape, self.dtype = stack, stack.shape, stack.dtype
        self.read: list[int] = []

    def __getitem__(self, index: Any) -> Any:
        part = self.stack[index]
        self.read.append(part.size)
        return part


def test_an_image_is_read_once_and_alone() -> None:
    counting = Counting(numbers((3, 40, 50)))
    Patches(size=8).map(lambda rows: rows, counting)
    assert counting.read == [2000] * 3


def test_a_large_image_is_read_in_bands_which_overlap_by_a_window_at_most() -> None:
    counting = Counting(np.broadcast_to(np.uint8(1), (6000, 3000)))
    for _ in Patches(size=16, stride=16).rows(counting, elements=2**20).blocks():
        pass
    assert max(counting.read) < 2**20 + 2 * 16 * 3000
    assert sum(counting.read) < 1.1 * 6000 * 3000


def test_nothing_is_read_where_nothing_counts() -> None:
    counting = Counting(numbers((3, 40, 50)))
    mask = np.zeros((3, 40, 50), dtype=bool)
    mask[1, :20, :20] = True
    Patches(size=8).rows(counting, mask).load()
    assert counting.read == [2000]


@pytest.mark.parametrize(("sampling", "shape"), STACKS)
def test_pixels_that_are_no_numbers_are_refused_where_they_count(sampling: Any, shape: Any) -> None:
    stack = numbers(shape)
    stack.ravel()[0] = np.nan
    with pytest.raises(ValueError, match=r"the film has NaN or infinite pixels, first"):
        sampling.rows(stack, name="the film").load()
    with pytest.raises(ValueError, match=r"nan_to_num\), or leave them out by a mask or a crop"):
        sampling.map(lambda rows: rows, stack)
    mask = np.ones(masks_shape(sampling, shape), dtype=bool)
    mask.ravel()[0] = False
    if isinstance(sampling, Patches) and stack.ndim > len(sampling.sides):
        return  # the mask of all images lies over the other images' first pixels too
    if chosen(sampling, stack, mask).any():
        assert np.isfinite(sampling.rows(stack, mask).load()).all()


def test_errors_say_where_the_pixels_are() -> None:
    image = numbers((2, 40, 40))
    image[1, 25, 3] = np.inf
    with pytest.raises(ValueError, match=r"first in rows 24 to 31 of image 1"):
        Patches(size=8, stride=8).rows(image, elements=700).load()
    with pytest.raises(ValueError, match=r"first at \[1\]"):
        Frames().rows(image, elements=1).load()


def test_errors_say_what_came_and_what_to_do() -> None:
    image = numbers((30, 40))
    for make, error, message in [
        (lambda: Patches(size=0), TypeError, r"size=0; an integer of at least 1 is expected"),
        (lambda: Patches(size=(8,)), TypeError, r"size=\(8,\); .* tuple of two or more"),
        (lambda: Patches(size=2.0), TypeError, r"size=2.0; an integer"),  # type: ignore[arg-type]
        (lambda: Patches(size=True), TypeError, r"size=True; an integer"),
        (lambda: Patches(stride=0), ValueError, r"stride=0 .* 16 x 16 .* from 1 to 16"),
        (lambda: Patches((4, 9), 5), ValueError, r"stride=5 .* 4 x 9 .* from 1 to 4"),
        (
            lambda: Patches().rows(numbers((30, 40, 3))),
            ValueError,
            r"40 x 3 pixels, in which no window of 16 x 16 fits; .*Colours or channels",
        ),
        (lambda: Patches().rows(numbers(40)), ValueError, r"shape \(40,\); windows of 16 x 16"),
        (lambda: Frames().rows(image), ValueError, r"shape \(30, 40\); .*sampled by Patches"),
        (lambda: Channels(2).rows(image), ValueError, r"shape \(30, 40\).* axis=2"),
        (lambda: Channels().rows(numbers(7)), ValueError, r"shape \(7,\)"),
        (
            lambda: Patches().rows(image + 1j),
            TypeError,
            r"the stack has pixels of type complex128; .* magnitude",
        ),
        (
            lambda: Patches().rows(image, np.ones((30, 41), bool)),
            ValueError,
            r"the mask of the stack has shape \(30, 41\); .* needs a mask of shape \(30, 40\)",
        ),
        (
            lambda: Frames().rows(image[None], np.ones((1, 30, 40), bool)),
            ValueError,
            r"needs a mask of shape \(1,\)",
        ),
        (
            lambda: Patches().rows(image, np.full((30, 40), 3)),
            TypeError,
            r"has dtype int64 and the values 3; expected truth values, .* such as labels > 0",
        ),
        (
            lambda: Patches().rows(image, image > 1),
            ValueError,
            r"no window of 16 x 16 pixels of the stack lies in the mask whole; draw a larger",
        ),
        (
            lambda: Frames().rows(image[None], np.zeros(1, bool)),
            ValueError,
            r"no frame of the stack lies in the mask",
        ),
    ]:
        with pytest.raises(error, match=message):
            make()


@pytest.mark.parametrize("strides", [(1, 3), (3, 1), (2, 3)])
def test_rows_of_one_stack_at_two_strides_are_told_apart(strides: tuple[int, int]) -> None:
    stack = np.random.default_rng(0).normal(size=(3, 20, 24)) + np.arange(24)
    mask = np.zeros((20, 24), dtype=bool)
    mask[:, :12] = True
    x = Patches(4, strides[0]).rows(stack)
    y = Patches(4, strides[1]).rows(stack, mask)
    found = CPCA(2, alpha=1.5).fit(x, background=y)
    expected = CPCA(2, alpha=1.5).fit(
        np.asarray(x.read(0, x.shape[0])), background=y.read(0, y.shape[0])
    )
    np.testing.assert_allclose(found.contrastive_eigenvalues_, expected.contrastive_eigenvalues_)
