"""Tests that frames, patches and channels convert stacks to rows, and rows back to stacks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

from contrast_core import CPCA
from contrast_core.images import Channels, Frames, Patches
from tests.core.kinds import KINDS

STACKS = [
    (Patches(size=4, stride=1), (9, 11)),
    (Patches(size=4, stride=2), (9, 12)),  # the last windows do not lie on the regular grid
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
    """Return the rows in plain NumPy, and the indices of their features in the flattened stack."""
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


each_sampling = pytest.mark.parametrize(("sampling", "shape"), STACKS)


def unmasked_axes(sampling: Any, n_axes: int) -> tuple[int, ...]:
    """Return the axes of a stack that its masks do not have."""
    if isinstance(sampling, Patches):
        return tuple(range(n_axes - len(sampling.sides)))
    return (-2, -1) if isinstance(sampling, Frames) else (sampling.axis,)


def mask_shape(sampling: Any, shape: Any) -> Any:
    return tuple(np.delete(shape, unmasked_axes(sampling, len(shape))))


def chosen(sampling: Any, stack: Any, mask: Any) -> Any:
    """Return which samples lie entirely inside the mask."""
    marked = np.expand_dims(mask, unmasked_axes(sampling, stack.ndim))
    return samples_of(sampling, np.broadcast_to(marked, stack.shape))[0].all(axis=1)


@each_sampling
@pytest.mark.parametrize("elements", [1, 100, None])
def test_rows_are_the_samples_in_c_order_and_results_go_back_to_their_place(
    sampling: Any, shape: Any, elements: Any
) -> None:
    """Check that a mask selects the rows inside it, and that overlapping results are averaged."""
    stack = numbers(shape)
    samples, places = samples_of(sampling, stack)
    mask = np.ones(mask_shape(sampling, shape), dtype=bool)
    mask.ravel()[:: mask.size // 3 + 1] = False
    for given, expected in ((None, samples), (mask, samples[chosen(sampling, stack, mask)])):
        rows = sampling.rows(stack, given, elements=elements)
        assert rows.shape == expected.shape
        np.testing.assert_array_equal(np.concatenate(list(rows.blocks())), expected)
        n = len(expected)
        for start, stop in [(0, n), (min(1, n - 1), 2), (n // 3, n - 1)]:
            np.testing.assert_array_equal(rows.read(start, stop), expected[start:stop])
        np.testing.assert_array_equal(rows.columns([0, 2]).load(), expected[:, [0, 2]])
        np.testing.assert_array_equal(rows.take(slice(1, None)).load(), expected[1:])
    results = numbers(samples.shape, seed=1)
    for given in (results, np.asfortranarray(results), results[:, :1]):
        counts = np.bincount(places.ravel(), minlength=stack.size)
        weights = np.broadcast_to(given, places.shape).ravel()
        sums = np.bincount(places.ravel(), weights=weights, minlength=stack.size)
        rows, out = sampling.rows(stack, elements=elements), np.zeros(shape)
        for start, stop in pairwise(rows.edges()):
            rows.put_back(out, start, stop, given[start:stop])
        np.testing.assert_allclose(out, (sums / counts).reshape(shape), rtol=1e-12, atol=1e-14)


def as_zarr(stack: Any, folder: Any) -> Any:
    chunks = tuple(min(n, 11) for n in stack.shape)
    return zarr.create_array(folder / "z", data=stack, chunks=chunks)


LAZY = {
    "dask": lambda stack, _: da.from_array(stack, chunks=11),
    "zarr": as_zarr,
    "HDF5": KINDS["HDF5"],
    "memory map": KINDS["memory map"],
    "view": lambda stack, _: np.repeat(stack, 2, axis=-1)[..., ::2],
}


@each_sampling
@pytest.mark.parametrize("kind", LAZY)
def test_stacks_that_are_read_lazily_give_the_same_rows(
    sampling: Any, shape: Any, kind: str, tmp_path: Any
) -> None:
    stack = numbers(shape).astype("f4")
    lazy = LAZY[kind](stack, tmp_path)  # type: ignore[no-untyped-call]
    np.testing.assert_array_equal(sampling.rows(lazy).load(), sampling.rows(stack).load())
    doubled = sampling.map(lambda rows: 2 * rows, lazy)
    np.testing.assert_array_equal(doubled, sampling.map(lambda rows: 2 * rows, stack))
    np.testing.assert_allclose(doubled, 2 * stack, atol=1e-5)
    assert doubled.dtype == np.float32
    for dtype, expected in (("u1", np.float32), ("i4", np.float64)):
        mapped = sampling.map(lambda rows: rows.astype(float), stack.astype(dtype))
        assert mapped.dtype == expected


def test_a_mask_may_differ_from_image_to_image() -> None:
    stack, mask = numbers((2, 8, 8)), np.zeros((2, 8, 8), dtype=bool)
    mask[1, 2:7, 1:6] = True
    rows = Patches(size=4, stride=1).rows(stack, mask)
    expected = np.lib.stride_tricks.sliding_window_view(stack[1, 2:7, 1:6], (4, 4))
    np.testing.assert_array_equal(rows.load(), expected.reshape(4, 16))


class Counting:
    """Stack that records the size of each part that is read."""

    def __init__(self, stack: Any) -> None:
        self.stack, self.shape, self.dtype = stack, stack.shape, stack.dtype
        self.read: list[int] = []
        self.chunks: tuple[int, ...] | None = None

    def __getitem__(self, index: Any) -> Any:
        part = self.stack[index]
        self.read.append(part.size)
        return part


def test_images_are_read_once_and_only_where_samples_are_needed() -> None:
    image, mask = numbers((3, 40, 50)), np.zeros((3, 40, 50), dtype=bool)
    mask[1, :20, :20] = True
    mapped, masked, film = Counting(image), Counting(image), Counting(numbers((90, 300, 300)))
    Patches(size=8).map(lambda rows: rows, mapped)
    assert mapped.read == [2000] * 3
    Patches(size=8).rows(masked, mask).load()
    assert masked.read == [2000]
    rows = Frames().rows(film).take([3, 40, 41, 88])
    np.testing.assert_array_equal(rows.load(), film.stack[[3, 40, 41, 88]].reshape(4, -1))
    assert sum(film.read) == 4 * 300 * 300


@pytest.mark.parametrize(("chunk", "n_read"), [(None, 30), (1, 30), (3, 30), (4, 88)])
def test_unused_frames_are_read_only_if_they_share_a_chunk_with_used_frames(
    chunk: int | None, n_read: int
) -> None:
    film = Counting(numbers((90, 6, 5)))
    if chunk is not None:
        film.chunks = (chunk, 6, 5)
    rows = Frames().rows(film).take(range(0, 90, 3))
    np.testing.assert_array_equal(rows.load(), film.stack[::3].reshape(30, 30))
    assert sum(film.read) == n_read * 30


def test_a_large_image_is_read_in_bands_that_overlap_by_at_most_a_window() -> None:
    counting = Counting(np.broadcast_to(np.uint8(1), (6000, 3000)))
    for _ in Patches(size=16, stride=16).rows(counting, elements=2**20).blocks():
        pass
    assert max(counting.read) < 2**20 + 2 * 16 * 3000
    assert sum(counting.read) < 1.1 * 6000 * 3000


@each_sampling
def test_nan_pixels_are_refused_unless_the_mask_leaves_them_out(sampling: Any, shape: Any) -> None:
    stack = numbers(shape)
    stack.ravel()[0] = np.nan
    with pytest.raises(ValueError, match=r"the film has NaN or infinite pixels, first"):
        sampling.rows(stack, name="the film").load()
    with pytest.raises(ValueError, match=r"nan_to_num\), or leave them out by a mask or a crop"):
        sampling.map(lambda rows: rows, stack)
    mask = np.ones(mask_shape(sampling, shape), dtype=bool)
    mask.ravel()[0] = False
    if chosen(sampling, stack, mask).any():
        assert np.isfinite(sampling.rows(stack, mask).load()).all()


def test_errors_say_where_the_nan_pixels_are() -> None:
    image = numbers((2, 40, 40))
    image[1, 25, 3] = np.inf
    with pytest.raises(ValueError, match=r"first in \[1, 24:32, 0:8\]"):
        Patches(size=8, stride=8).rows(image, elements=700).load()
    with pytest.raises(ValueError, match=r"first in \[1, 0:40, 0:40\]"):
        Frames().rows(image, elements=1).load()


IMAGE = numbers((30, 40))


@pytest.mark.parametrize(
    ("sampling", "stack", "mask", "words"),
    [
        (Patches(), numbers((30, 40, 3)), None, r"no window of 16 x 16 fits; .*colours or"),
        (Patches(), numbers(40), None, r"shape \(40,\); windows of 16 x 16"),
        (Frames(), IMAGE, None, r"shape \(30, 40\); .*sampled by Patches"),
        (Channels(2), IMAGE, None, r"shape \(30, 40\).* axis=2"),
        (Channels(), numbers(7), None, r"shape \(7,\)"),
        (Patches(), IMAGE, np.ones((30, 41), bool), r"\(30, 41\); .* mask of shape \(30, 40\)"),
        (Frames(), IMAGE[None], np.ones((1, 30, 40), bool), r"needs a mask of shape \(1,\)"),
        (Patches(), IMAGE, IMAGE > 1, r"lies entirely within the mask; draw a larger"),
        (Frames(), IMAGE[None], np.zeros(1, bool), r"no frame of the stack lies entirely"),
    ],
)
def test_stacks_and_masks_of_wrong_shapes_are_refused(
    sampling: Any, stack: Any, mask: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        sampling.rows(stack, mask)


@pytest.mark.parametrize("strides", [(1, 3), (3, 1), (2, 3)])
def test_rows_of_one_stack_at_two_strides_are_different_data(strides: tuple[int, int]) -> None:
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
