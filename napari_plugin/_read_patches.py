"""Reading images by patches: moments of all, and of tiles that share no pixels."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core import SecondMoments
from contrast_core.images import Patches
from napari_plugin._pair import BoolArray, Images, Pair
from napari_plugin._reading import ELEMENTS, Reading, add, constant, missing, spread
from napari_plugin._settings import InputError, Progress, Steps

_WINDOWS = 2**16  # more make moments of a few hundred pixels no better
_FEW_IMAGES = 64  # of a stack, evenly spread: they show what its background looks like
_MOST_TILES = 8


def strides(pair: Pair, samples: Patches) -> tuple[int, int]:
    """The strides at which foreground and background are read by patches."""
    plans = [part.plan(samples) for part in _parts(pair)]
    return plans[0].sampling.stride, plans[1].sampling.stride


def _parts(pair: Pair) -> list[_Part]:
    if pair.mask is None or not pair.masks_frames:
        return [_Part(pair.foreground, None), _Part(pair.behind, pair.mask)]
    frames = np.flatnonzero(pair.mask.ravel())
    return [_Part(pair.foreground, None), _Part(pair.foreground, None, frames)]


def read_patches(pair: Pair, samples: Patches) -> Steps[Reading]:
    """Moments of the patches of foreground and background; a generator that may be dropped."""
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
        raise constant(pair.background.name if pair.background else "")
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
            raise missing(self._images, self._index)
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
        found = add(found, rows.read(start, stop, check=False))
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
