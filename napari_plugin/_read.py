"""Reading images once, into moments or rows, in blocks of milliseconds."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core import SecondMoments
from contrast_core.images import Frames, Patches
from napari_plugin._pair import BoolArray, Images, Pair
from napari_plugin._settings import InputError, Progress, Samples, Settings, Steps

ELEMENTS = 2**20
"""Values in a block: 8 MB as float64, read and used in milliseconds."""
LARGEST_MATRIX = 4096
"""Most pixels of a frame whose covariances are held: 128 MiB each."""
_WINDOWS = 2**16  # more make moments of a few hundred pixels no better
_FEW_IMAGES = 64  # of a stack, evenly spread: they show what its background looks like
_MOST_VALUES = 2**24  # of frames that are held in memory
_MOST_PRODUCTS = 2e10  # of values with frames, for large frames: half a second
_STRETCHES = 8
_MOST_TILES = 8


@dataclass(frozen=True, eq=False)
class Reading:
    """What the data were reduced to: all that `solve` needs.

    Parameters
    ----------
    samples : Patches or Frames
        What a sample is; for patches with the stride at which results are put together.
    image_shape : (int, int)
        Height and width of the images.
    foreground, background : SecondMoments or ndarray of shape (n, pixels)
        Moments; frames themselves for background removal and where frames are large.
    blocks : pair of tuples of SecondMoments
        Of parts that share no pixels, by which the result is judged; empty where frames are held.
    n_used, n_images : int
        How many of the foreground's images were read to learn from, and how many there are.
    """

    samples: Samples
    image_shape: tuple[int, int]
    foreground: Any
    background: Any
    blocks: tuple[tuple[SecondMoments, ...], tuple[SecondMoments, ...]]
    n_used: int
    n_images: int

    @property
    def holds_frames(self) -> bool:
        """Whether frames are held rather than moments."""
        return not isinstance(self.foreground, SecondMoments)

    @property
    def nbytes(self) -> int:
        """Memory that it takes, about."""
        if self.holds_frames:
            return int(self.foreground.nbytes + self.background.nbytes)
        n_matrices = 2 + sum(len(each) for each in self.blocks)
        return int(8 * self.foreground.n_features**2 * n_matrices)


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
        return (yield from _read_patches(pair, samples))
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
                    merged = _add(merged, rows)
                    yield Progress(done + start + len(rows), total, doing)
                done += len(stretch)
                parts.append(merged)
            blocks.append(tuple(parts))
            found.append(_merged(parts))
            done -= len(chosen)
        done += len(chosen)
    if not hold and not found[1].varies.any():
        raise _constant(pair.behind.name)
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
            raise _missing(images, int(part[int(bad.argmax())]))
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
        raise _constant(name)


def strides(pair: Pair, samples: Patches) -> tuple[int, int]:
    """The strides at which foreground and background are read by patches."""
    plans = [part.plan(samples) for part in _parts(pair)]
    return plans[0].sampling.stride, plans[1].sampling.stride


def _parts(pair: Pair) -> list[_Part]:
    if pair.mask is None or not pair.masks_frames:
        return [_Part(pair.foreground, None), _Part(pair.behind, pair.mask)]
    frames = np.flatnonzero(pair.mask.ravel())
    return [_Part(pair.foreground, None), _Part(pair.foreground, None, frames)]


def _read_patches(pair: Pair, samples: Patches) -> Steps[Reading]:
    jobs = [part.plan(samples) for part in _parts(pair)]
    total, done = sum(job.n_steps for job in jobs), 0
    moments, blocks = [], []
    for job in jobs:
        doing = f"Reading {job.images.name}"
        steps = _patch_moments(job)
        yield Progress(done, total, doing)
        while True:
            try:
                yield Progress(min(done + next(steps), total), total, doing)
            except StopIteration as stop:
                found, tiles = stop.value
                break
        done += job.n_steps
        moments.append(found)
        blocks.append(tiles)
    if not moments[1].varies.any():
        raise _constant("the background")
    return Reading(
        samples,
        pair.foreground.image_shape,
        moments[0],
        moments[1],
        (blocks[0], blocks[1]),
        len(jobs[0].chosen),
        pair.foreground.n_images,
    )


@dataclass(frozen=True, eq=False)
class _Job:
    images: Images
    mask: BoolArray | None
    chosen: NDArray[np.intp]
    sampling: Patches  # of the moments
    tiled: Patches  # of the tiles' moments
    n_steps: int


@dataclass(frozen=True, eq=False)
class _Part:
    images: Images
    mask: BoolArray | None
    frames: NDArray[np.intp] | None = None

    def plan(self, samples: Patches) -> _Job:
        """Some images, and the stride that leaves enough patches of them, as the core does."""
        everything = np.arange(self.images.n_images) if self.frames is None else self.frames
        if self.mask is not None and self.mask.ndim > 2:
            images: BoolArray = self.mask.reshape(-1, *self.images.image_shape)
            marked = np.asarray(images.any(axis=(1, 2)))
            everything = everything[marked[everything]]
        pixels = math.prod(self.images.image_shape)
        chosen = spread(everything, max(_FEW_IMAGES, 4 * _WINDOWS // pixels))
        share = 1.0
        if self.mask is not None:
            share = float(self.mask.mean()) * self.images.n_images / max(1, len(everything))
            share = share if self.mask.ndim > 2 else float(self.mask.mean())
        wide = math.ceil(math.sqrt(len(chosen) * pixels * share / _WINDOWS))
        wide = min(max(1, wide), *samples.sides)
        sampling = Patches(samples.size, min(samples.stride, wide))
        if len(chosen) > 1:  # of many images a few windows each
            sampling = Patches(samples.size, wide)
        return _Job(
            self.images,
            self.mask,
            chosen,
            sampling,
            Patches(samples.size, wide),
            5 * len(chosen),
        )


def _patch_moments(
    job: _Job,
) -> Generator[int, None, tuple[SecondMoments, tuple[SecondMoments, ...]]]:
    """Moments of all windows, and of four sets of tiles that share no pixels."""
    total: SecondMoments | None = None
    tiles: list[SecondMoments | None] = [None] * 4
    shape, side = job.images.image_shape, job.sampling.sides[-1]
    for count, index in enumerate(job.chosen):
        image = _Image(job.images, int(index))
        counts = np.ones(shape, dtype=bool)
        if job.mask is not None:
            mask = job.mask if job.mask.ndim == 2 else job.mask.reshape(-1, *shape)[int(index)]
            counts = mask
        total = yield from _windows(total, image, job.sampling, counts, count * 5)
        for i, tile in enumerate(_tiles(counts, side)):
            tiles[i] = yield from _windows(
                tiles[i], image, job.tiled, counts & tile, count * 5 + i + 1
            )
    if total is None:
        raise InputError(
            f"No patch of {side} x {side} pixels lies in the background area of "
            f"{job.images.name!r} whole. Draw a larger one; about 100 x 100 pixels are enough."
        )
    kept = [tile for tile in tiles if tile is not None]
    n_even = len(kept) // 2 * 2
    return total, tuple(kept[:n_even]) or (total,)


class _Image:
    """One image of a stack, read when it is sliced."""

    def __init__(self, images: Images, index: int) -> None:
        leading = images.shape[:-2]
        self._where = tuple(map(int, np.unravel_index(index, leading))) if leading else ()
        self._images, self._index = images, index
        self.shape, self.dtype = images.image_shape, np.dtype(images.data.dtype)

    def __getitem__(self, where: Any) -> NDArray[Any]:
        where = where if isinstance(where, tuple) else (where,)
        if where == (Ellipsis,):
            where = ()
        pixels = np.asarray(self._images.data[(*self._where, *where)])
        if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
            raise _missing(self._images, self._index)
        return pixels


def _windows(
    found: SecondMoments | None, image: _Image, sampling: Patches, counts: BoolArray, done: int
) -> Generator[int, None, SecondMoments | None]:
    try:
        mask = None if counts.all() else counts
        rows = sampling.rows(image, mask, name="the image", elements=ELEMENTS)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        return found  # no window lies in these pixels whole
    for start, stop in pairwise(rows.edges()):
        found = _add(found, rows.read(start, stop, check=False))
        yield done
    return found


def _tiles(counts: BoolArray, side: int) -> Iterator[BoolArray]:
    """Every second tile of what counts, along both axes: four masks."""
    odd = []
    for axis in (0, 1):
        places = np.flatnonzero(counts.any(axis=1 - axis))
        if not len(places):
            return
        first, last = int(places[0]), int(places[-1]) + 1
        n_tiles = min(max(2, (last - first) // (3 * side)), _MOST_TILES)
        odd.append((np.arange(counts.shape[axis]) - first) * n_tiles // (last - first) % 2 == 1)
    for down, across in product((odd[0], ~odd[0]), (odd[1], ~odd[1])):
        yield down[:, None] & across


def spread(choice: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """So many of them, evenly spread."""
    if len(choice) <= most:
        return choice
    kept: NDArray[np.intp] = choice[np.linspace(0, len(choice) - 1, most).round().astype(int)]
    return kept


def _add(found: SecondMoments | None, block: NDArray[Any]) -> SecondMoments:
    part = SecondMoments.from_data(block)
    return part if found is None else found.merge(part)


def _merged(parts: list[Any]) -> SecondMoments:
    found: SecondMoments = parts[0]
    for part in parts[1:]:
        found = found.merge(part)
    return found


def _missing(images: Images, index: int) -> InputError:
    where = f", first in frame {index}" if images.n_images > 1 else ""
    return InputError(
        f"{images.name!r} has empty (NaN) or infinite pixels{where}. Fill them with the value of "
        "empty background, or crop them away."
    )


def _constant(name: str) -> InputError:
    return InputError(
        f"The background ({name}) is the same everywhere, so that it has no pattern to be learnt. "
        "Choose an area, frames or a layer in which the disturbance can be seen."
    )
