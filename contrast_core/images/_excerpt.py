"""Selection of parts of a large stack for fitting, with few reads of stored chunks."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core.feedback import Progress, with_progress
from contrast_core.images._sampling import BoolArray
from contrast_core.images._stacks import Stack, chunk_side

_PIXELS = 2**24  # largest number of pixels that are returned
_SIDE = 512  # side of a tile in pixels


def excerpt(
    stack: Stack, mask: BoolArray | None, progress: Progress = False
) -> tuple[Any, BoolArray | None]:
    """Return a small stack, or at most 2**24 pixels of a larger one, and their mask.

    A stack of at most 2**24 pixels is returned as it is. From a larger one, tiles of at most 512 x
    512 pixels are chosen. If there is a mask, the tiles with the most marked pixels are chosen.
    Among tiles with equally many marked pixels, and if there is no mask, the chosen tiles are
    evenly spread. If no tile holds a marked pixel, the whole stack is returned. If stored chunks
    are at least as long as a tile and shorter than the image, tiles begin where chunks begin. Then
    no chunk is read twice, unless it holds parts of several images.

    Parameters
    ----------
    stack : array of shape (..., height, width)
    mask : ndarray of bool of shape (height, width) or of the stack's shape, optional
    progress : bool or callable, default=False
        As for `Sampling.map`.

    Returns
    -------
    stack : array
        The stack itself if it is small, else an ndarray of shape (n_tiles, h, w).
    mask : ndarray of bool or None
        Mask of the returned stack.
    """
    shape = tuple(map(int, stack.shape))
    if math.prod(shape) <= _PIXELS:
        return stack, mask
    sides = [min(_SIDE, n) for n in shape[-2:]]
    starts = [_starts(stack, axis, side) for axis, side in zip((-2, -1), sides, strict=True)]
    places = list(product(*map(range, shape[:-2]), *starts))
    most = max(1, _PIXELS // math.prod(sides))
    marked = np.ones(len(places))
    if mask is not None:
        marked = np.array([_tile(mask, place, sides).sum() for place in places])
    chosen = _largest(marked, most)
    chosen = chosen[marked[chosen] > 0]
    if not len(chosen):  # nothing is marked; the caller raises an error when it cuts windows
        return stack, mask
    shown = with_progress(chosen, len(chosen), "read", progress)
    tiles = np.stack([np.asarray(_tile(stack, places[i], sides)) for i in shown])
    if mask is None:
        return tiles, None
    return tiles, np.stack([_tile(mask, places[i], sides) for i in chosen])


def _largest(counts: NDArray[Any], n: int) -> NDArray[np.intp]:
    """Return the sorted positions of the n largest counts, evenly spread among equal counts."""
    least = np.sort(counts)[-n:][0]
    more, equal = np.flatnonzero(counts > least), np.flatnonzero(counts == least)
    some = np.linspace(0, len(equal) - 1, n - len(more)).round().astype(int)
    return np.unique(np.concatenate([more, equal[some]]))


def _starts(stack: Stack, axis: int, side: int) -> list[int]:
    """Return where tiles begin along an axis.

    Tiles begin where stored chunks begin if the chunks are at least as long as a tile and shorter
    than the axis. Otherwise the tiles adjoin each other.
    """
    n, step = int(stack.shape[axis]), side
    chunk = chunk_side(stack, axis)
    if chunk is not None and side <= chunk < n:
        step = chunk
    return [start for start in range(0, n, step) if start + side <= n]


def _tile(stack: Any, place: tuple[int, ...], sides: list[int]) -> Any:
    box = tuple(slice(start, start + side) for start, side in zip(place[-2:], sides, strict=True))
    leading = place[:-2] if len(stack.shape) == len(place) else ()
    return stack[(*leading, *box)]
