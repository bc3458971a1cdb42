"""Moments of blocks of a stack. No two blocks share a pixel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
from numpy.typing import ArrayLike

from contrast_core.feedback import Progress, with_progress
from contrast_core.images._excerpt import excerpt
from contrast_core.images._patches import Patches
from contrast_core.images._sampling import BoolArray, Sampling, truth_values
from contrast_core.images._stacks import Stack
from contrast_core.moments import SecondMoments
from contrast_core.rows import array_of

_N_STRETCHES = 8  # largest number of blocks into which samples other than patches are divided
_MOST_TILES = 8  # largest number of tiles along an axis
_WINDOWS = 2**16  # wanted number of windows; more do not improve moments of a few hundred features


def block_moments(
    sampling: Sampling,
    stack: Stack,
    mask: ArrayLike | None = None,
    *,
    name: str = "the stack",
    progress: Progress = False,
) -> list[SecondMoments]:
    """Divide a stack into blocks that share no pixels, and return the moments of each block.

    `verdicts` compares the moments of two halves of the blocks.

    Parameters
    ----------
    sampling : Patches, Frames or Channels
        How samples are cut from the stack. For patches, the images (or their marked part) are
        divided into two to eight tiles along each side. The tiles form four blocks: each block
        holds every second tile along both sides. Patches that cross the border of a tile are left
        out. The stride is chosen so that about 65,000 patches of large images remain. If an odd
        number of blocks has patches, the last one is left out. If there are more than 2**24 pixels,
        only evenly spread parts are read. For `Frames` and `Channels`, the samples are divided into
        eight consecutive blocks, or into fewer blocks with at least two samples each.
    stack : array
        Stack of a shape that `Patches.rows`, `Frames.rows` or `Channels.rows` accepts.
    mask : array-like of bool, optional
        Mask of the samples to use, as for `Patches.rows`, `Frames.rows` or `Channels.rows`.
    name : str, default="the stack"
        Name of the stack in error messages.
    progress : bool or callable, default=False
        Show a progress bar of the blocks with tqdm, or with a callable that is called as
        ``progress(iterable, total=, desc=)``. An exception that it raises during iteration stops
        the work and is passed on.

    Returns
    -------
    list of SecondMoments
        Moments of each block. If the stack is too small for two blocks with two samples each, the
        list holds the moments of the whole stack.

    Raises
    ------
    ValueError, TypeError
        In the cases in which `Patches.rows`, `Frames.rows` or `Channels.rows` raises.
    """
    stack = array_of(stack, name)
    if isinstance(sampling, Patches):
        return _tile_moments(sampling, stack, mask, name, progress)
    rows = sampling.rows(stack, mask, name=name).replace(progress=progress)
    n = rows.shape[0]
    n_blocks = min(_N_STRETCHES, n // 4 * 2) or 1
    edges = np.linspace(0, n, n_blocks + 1).round().astype(int)
    return [SecondMoments.from_data(rows.take(slice(*ends))) for ends in pairwise(edges)]


def wide_stride(sampling: Patches, stack: Stack, mask: ArrayLike | None = None) -> int:
    """Return the stride at which the marked part of a stack holds about 65,000 patches."""
    share = 1.0 if mask is None else float((np.asarray(mask) != 0).mean())
    n_pixels = math.prod(map(int, stack.shape)) * share
    stride = math.ceil(math.pow(n_pixels / _WINDOWS, 1 / len(sampling.sides)))
    return min(max(1, stride), *sampling.sides)


def _tile_moments(
    sampling: Patches, stack: Stack, mask: ArrayLike | None, name: str, progress: Progress
) -> list[SecondMoments]:
    sampling.rows(stack, mask, name=name)  # raises if there are no patches
    image = tuple(stack.shape[-len(sampling.sides) :])
    marked = np.ones(image, dtype=bool) if mask is None else truth_values(mask, name)
    if len(image) == 2:
        stack, part = excerpt(stack, None if mask is None else marked, progress)
        marked = np.ones(stack.shape[-2:], dtype=bool) if part is None else part
        mask = part
    sampling = Patches(sampling.size, wide_stride(sampling, stack, mask))
    found = []
    for tiles in with_progress(_tiles(marked, sampling.sides), 4, "check", progress):
        try:
            rows = sampling.rows(stack, marked & tiles, name=name)
        except ValueError:  # no window fits into these tiles
            continue
        if rows.shape[0] > 1:
            found.append(SecondMoments.from_data(rows))
    n_even = len(found) // 2 * 2  # `verdicts` compares two halves of the blocks
    return found[:n_even] or [SecondMoments.from_data(sampling.rows(stack, mask, name=name))]


def _tiles(marked: BoolArray, sides: tuple[int, ...]) -> Iterator[BoolArray]:
    """Yield four masks (height, width), each True in every second tile along both axes."""
    odd = []
    for axis in (-2, -1):
        others = tuple(other for other in range(marked.ndim) if other != marked.ndim + axis)
        places = np.flatnonzero(marked.any(axis=others))
        first, last = int(places[0]), int(places[-1]) + 1
        n_tiles = min(max(2, (last - first) // (3 * sides[axis])), _MOST_TILES)
        tile = (np.arange(marked.shape[axis]) - first) * n_tiles // (last - first)
        odd.append(tile % 2 == 1)
    down, across = odd
    for i, j in product((down, ~down), (across, ~across)):
        yield i[:, None] & j
