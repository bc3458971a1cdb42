"""Reading images once, into moments or rows, in blocks of milliseconds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core import SecondMoments
from contrast_core.images import Frames, Patches
from napari_plugin._pair import Images, Pair
from napari_plugin._read_patches import read_patches
from napari_plugin._reading import ELEMENTS, Reading, add, constant, merge_all, missing, spread
from napari_plugin._settings import Progress, Samples, Settings, Steps

LARGEST_MATRIX = 4096
"""Most pixels of a frame whose covariances are held: 128 MiB each."""
_MOST_VALUES = 2**24  # of frames that are held in memory
_MOST_PRODUCTS = 2e10  # of values with frames, for large frames: half a second
_STRETCHES = 8


def reads_frames(pair: Pair, samples: Samples, settings: Settings) -> bool:
    """Whether frames are held in memory: for background removal, and where they are large."""
    if not isinstance(samples, Frames):
        return False
    return settings.method == "automatic" or math.prod(pair.foreground.image_shape) > LARGEST_MATRIX


def read(pair: Pair, samples: Samples, settings: Settings) -> Steps[Reading]:
    """Read foreground and background; a generator that may be dropped between any two blocks.

    Raises
    ------
    InputError
        If pixels are missing, or the background does not vary.
    """
    if isinstance(samples, Patches):
        return (yield from read_patches(pair, samples))
    return (yield from _read_frames(pair, reads_frames(pair, samples, settings)))


def _read_frames(pair: Pair, hold: bool) -> Steps[Reading]:
    sides = _chosen_frames(pair, hold)
    total, done = sum(len(chosen) for _, chosen in sides), 0
    found: list[Any] = []
    blocks: list[tuple[SecondMoments, ...]] = []
    for images, chosen in sides:
        doing = f"Reading {images.name}"
        yield Progress(done, total, doing)
        if hold:
            frames = np.empty((len(chosen), math.prod(images.image_shape)), _dtype(images))
            for start, rows in _frame_blocks(images, chosen):
                frames[start : start + len(rows)] = rows
                yield Progress(done + start + len(rows), total, doing)
            _check_varies(frames, images.name, pair.behind is images and len(found) == 1)
            found.append(frames)
        else:
            parts: list[Any] = []
            n_parts = min(_STRETCHES, len(chosen) // 4 * 2) or 1
            for stretch in np.array_split(chosen, n_parts):
                merged: SecondMoments | None = None
                for start, rows in _frame_blocks(images, stretch):
                    merged = add(merged, rows)
                    yield Progress(done + start + len(rows), total, doing)
                done += len(stretch)
                parts.append(merged)
            blocks.append(tuple(parts))
            found.append(merge_all(parts))
            done -= len(chosen)
        done += len(chosen)
    if not hold and not found[1].varies.any():
        raise constant(pair.behind.name)
    return Reading(
        Frames(),
        pair.foreground.image_shape,
        found[0],
        found[1],
        (blocks[0], blocks[1]) if blocks else ((), ()),
        len(sides[0][1]),
        pair.foreground.n_images,
    )


def _chosen_frames(pair: Pair, hold: bool) -> list[tuple[Images, NDArray[np.intp]]]:
    """Which frames are read, counted over all leading axes."""
    if pair.mask is not None:
        marked = pair.mask.ravel()
        sides = [
            (pair.foreground, np.flatnonzero(~marked)),
            (pair.foreground, np.flatnonzero(marked)),
        ]
    else:
        sides = [(each, np.arange(each.n_images)) for each in (pair.foreground, pair.behind)]
    if not hold:
        return sides
    pixels = math.prod(pair.foreground.image_shape)
    n = sum(len(chosen) for _, chosen in sides)
    most = max(16, int(_MOST_VALUES / pixels))
    if pixels > LARGEST_MATRIX:
        most = max(16, int(math.sqrt(_MOST_PRODUCTS / pixels)))
    return [
        (images, spread(chosen, max(8, min(len(chosen), len(chosen) * most // n))))
        for images, chosen in sides
    ]


def _frame_blocks(
    images: Images, chosen: NDArray[np.intp]
) -> Iterator[tuple[int, NDArray[np.floating]]]:
    rows = Frames().rows(images.data, name=images.name, elements=ELEMENTS)
    step = max(1, ELEMENTS // rows.shape[1])
    n_blocks = max(1, len(chosen) // max(2, step))
    start = 0
    for part in np.array_split(chosen, n_blocks):
        block = _picked(rows, part)
        bad = ~np.isfinite(block).all(axis=-1)
        if bad.any():
            raise missing(images, int(part[int(bad.argmax())]))
        yield start, block
        start += len(part)


def _picked(rows: Any, wanted: NDArray[np.intp]) -> NDArray[Any]:
    """Rows in ascending order, reading no more than about what is wanted."""
    if len(wanted) * 2 >= wanted[-1] + 1 - wanted[0]:
        block = rows.read(int(wanted[0]), int(wanted[-1]) + 1, check=False)
        return np.asarray(block[wanted - wanted[0]])
    return np.concatenate([rows.read(int(i), int(i) + 1, check=False) for i in wanted])


def _dtype(images: Images) -> np.dtype[Any]:
    """Integers are held as float32 where that is exact."""
    dtype = np.dtype(images.data.dtype)
    small = dtype.kind in "biu" and dtype.itemsize <= 2
    return np.dtype(np.float32) if small or dtype.itemsize <= 4 else np.dtype(np.float64)


def _check_varies(frames: NDArray[Any], name: str, background: bool) -> None:
    if background and (frames == frames[0]).all():
        raise constant(name)
