"""Samples of a stack as rows, and results of samples put back into a stack.

Each sample is a window of pixels, which has a side along every axis of the stack. A frame spans the
last two axes, and its other sides are 1. A pixel with its channels spans the axis of the channels.
A patch is short along the axes of the image, and neighbouring patches overlap.

Windows are read in bands, and a band consists of neighbouring lines of windows. A line holds all
windows that begin at the same place along one chosen axis and along all axes before it. In an
image, for example, a line holds all patches that begin in the same row of pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from contrast_core._validation import check_count
from contrast_core.images._stacks import Stack, chunk_side
from contrast_core.rows import Place, Rows, check_finite

_READ_ELEMENTS = 2**22  # default size of a block: 32 MB of float64
BLOCK_ELEMENTS = 2**20  # 8 MB of float64: such a block stays in the cache while it is processed
_WHOLE_IMAGE = 2**24  # pixels: a smaller image is read once and kept until the next image


class _Band(NamedTuple):
    """Consecutive lines of windows, as slices of the grid of windows and slices of the stack."""

    grid: tuple[slice, ...]
    box: tuple[slice, ...]


class StackRows(Rows):
    """Rows that are windows of a stack. They are sliced from the stack when they are read.

    Parameters
    ----------
    stack : array
        Anything with `shape` that slices like a NumPy array.
    sides : tuple of int
        Side of the windows along each axis of the stack; no window is larger than the stack.
    axis : int
        Axis along which the lines of a band follow each other.
    stride : int, default=1
        Step between neighbouring windows along the axes on which a side is longer than 1.
    name, elements
        As for `Sampling.rows`.

    Attributes
    ----------
    n_apart : int or None
        Number of leading axes along which windows share no pixels; None if no windows overlap.
    """

    place: Place = "stored"
    reads_columns = False
    _any_order = False

    def __init__(
        self,
        stack: Stack,
        sides: tuple[int, ...],
        axis: int,
        *,
        stride: int = 1,
        name: str,
        elements: int | None,
    ) -> None:
        self._lengths, self._sides, self._axis = tuple(map(int, stack.shape)), sides, axis
        self._strides = tuple(min(stride, side) for side in sides)
        self._n_pixels = math.prod(sides)
        if not self._n_pixels:
            raise ValueError(
                f"{name} has shape {tuple(stack.shape)}, so its samples have no pixels; give a "
                "stack without axes of length zero."
            )
        self._starts = list(map(_starts, self._lengths, sides, self._strides))
        self._grid = tuple(map(len, self._starts))
        self._line = math.prod(self._grid[axis + 1 :])
        overlap = [n > 1 and side > 1 for n, side in zip(self._grid, sides, strict=True)]
        self.n_apart = overlap.index(True) if any(overlap) else None
        self._kept: dict[tuple[tuple[int, int], ...], NDArray[Any]] = {}
        super().__init__(
            stack,
            (math.prod(self._grid), self._n_pixels),
            np.dtype(getattr(stack, "dtype", np.float64)),
            name=name,
            names=None,
            elements=_READ_ELEMENTS if elements is None else check_count(elements, "elements"),
        )

    def edges(self, elements: int | None = None) -> list[int]:
        """Return the row numbers at which blocks of whole lines of windows begin and end."""
        line = max(1, self._line)
        lines = max(1, (elements or self.elements) // (line * self._n_pixels))
        ends = [*range(0, self._n_source, line * lines), self._n_source]
        if self._rows is None:
            return ends
        return list(np.unique(np.searchsorted(self._rows, ends)).tolist())

    def read(self, start: int, stop: int, *, dense: bool = False, check: bool = True) -> Any:
        """Return the selected rows `start` to `stop`, checked to be finite."""
        block = self._read(start, stop)
        if check and block.dtype.kind == "f" and not np.isfinite(block).all():
            first = start + int((~np.isfinite(block).all(axis=1)).argmax())
            raise ValueError(
                f"{self.name} has NaN or infinite pixels, first in {self._place_of(first)}; fill "
                "them (such as by numpy.nan_to_num), or leave them out by a mask or a crop."
            )
        if check and block.dtype.kind != "f":
            check_finite(block, self.name)  # whole numbers must be exact in float64
        return block

    def are_inside(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return, for each window, whether it lies entirely within a mask of the last axes."""
        for axis in range(-mask.ndim, 0):  # axis by axis, which needs fewer comparisons
            windows = sliding_window_view(mask, self._sides[axis], axis=axis).all(axis=-1)
            mask = np.take(windows, self._starts[axis], axis=axis)
        return np.broadcast_to(mask, self._grid)

    def put_back(
        self, out: NDArray[Any], start: int, stop: int, results: NDArray[np.floating]
    ) -> None:
        """Write the results for rows `start` to `stop` to their place in a stack.

        Parameters
        ----------
        out : ndarray of the stack's shape
            Array to write to. Where windows overlap, their results are averaged. In that case the
            array must hold zeros at first, and it is complete when the results of all rows have
            been added.
        start, stop : int
            Two consecutive values of `edges()`. The method can be used only if no window of the
            stack was left out by a mask.
        results : ndarray of shape (stop - start, n_features) or (stop - start, 1)
            One number for each feature of each sample, or one number for each sample.
        """
        whole = np.broadcast_to(results, (stop - start, self._n_pixels))
        done = 0
        for band in self._bands(start, stop):
            counts = [part.stop - part.start for part in band.grid]
            n = math.prod(counts)
            found = self._averaged(whole[done : done + n].reshape(*counts, *self._sides), band)
            out[band.box] = out[band.box] + found if self.n_apart is not None else found
            done += n

    def _averaged(self, results: NDArray[np.floating], band: _Band) -> NDArray[np.floating]:
        """Return the sum of a band's results, divided by the number of windows at each pixel.

        The number counts the windows of all bands, so that the sum over bands is the average.
        """
        n_axes = len(self._sides)
        # If the columns of the results are contiguous, the slices below are contiguous too, and
        # they are added fast.
        paired = results.transpose([i + j for i in range(n_axes) for j in (0, n_axes)])
        total = np.zeros([part.stop - part.start for part in band.box], dtype=results.dtype)
        steps = [
            list(_steps(starts[part] - box.start, side, stride))
            for starts, part, box, side, stride in zip(
                self._starts, *band, self._sides, self._strides, strict=True
            )
        ]
        for step in product(*steps):
            total[tuple(place for place, _ in step)] += paired[
                tuple(index for _, which in step for index in which)
            ]
        for axis, box in enumerate(band.box):
            if self._sides[axis] > 1:
                cover = _cover(self._lengths[axis], self._sides[axis], self._strides[axis])[box]
                total /= cover.reshape(-1, *(1,) * (n_axes - axis - 1))
        return total

    def _is_read_with(self, other: Rows) -> bool:
        # With another stride, the same row number means another sample.
        return (
            isinstance(other, StackRows)
            and (self._sides, self._strides) == (other._sides, other._strides)
            and super()._is_read_with(other)
        )

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the selected rows `start` to `stop`.

        Lines of windows between the selected rows are not read, unless they may be in a stored
        chunk that is read anyway.
        """
        if self._rows is None:
            block = self._read_whole(start, stop)
        elif start == stop:
            block = np.empty((0, self._n_pixels), self.dtype)
        else:
            wanted = self._rows[start:stop]
            chunk = chunk_side(self._source, self._axis) or 1
            gaps = np.diff(wanted // self._line) > max(1, chunk - 1)
            parts = [
                self._read_whole(run[0], run[-1] + 1)[run - run[0]]
                for run in np.split(wanted, np.flatnonzero(gaps) + 1)
            ]
            block = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return block if self._columns is None else block[:, self._columns]

    def _read_whole(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows `start` to `stop` of the whole stack, with all columns."""
        parts = [np.empty((0, self._n_pixels), self.dtype)]
        for band in self._bands(start, stop):
            windows = sliding_window_view(self._pixels(band.box), self._sides, writeable=True)
            places = [
                starts[part] - box.start
                for starts, part, box in zip(self._starts, *band, strict=True)
            ]
            runs = list(map(_runs, places, self._strides))
            if all(len(each) == 1 for each in runs):  # slices need no copy
                windows = windows[tuple(slice(None, None, step) for step in self._strides)]
            else:
                windows = windows[np.ix_(*places)]
            parts.append(windows.reshape(-1, self._n_pixels))
        rows = np.concatenate(parts) if len(parts) > 2 else parts[-1]
        first = start // max(1, self._line) * self._line
        return rows[start - first : stop - first]

    def _bands(self, start: int, stop: int) -> Iterator[_Band]:
        """Yield the bands that hold rows `start` to `stop`."""
        if start == stop:
            return
        n_lines = self._grid[self._axis]
        line, end = start // self._line, -(-stop // self._line)
        while line < end:
            outer, first = divmod(line, n_lines)
            last = min(n_lines, first + end - line)
            index = np.unravel_index(outer, self._grid[: self._axis]) if self._axis else ()
            grid = (
                *(slice(int(i), int(i) + 1) for i in index),
                slice(first, last),
                *(slice(0, n) for n in self._grid[self._axis + 1 :]),
            )
            box = tuple(
                slice(int(starts[part.start]), int(starts[part.stop - 1]) + side)
                for starts, part, side in zip(self._starts, grid, self._sides, strict=True)
            )
            yield _Band(grid, box)
            line += last - first

    def _pixels(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return the pixels of a band, and keep the pixels that the next band also needs.

        A small image is read whole. A large one is read in whole rows of chunks.
        """
        axis, lines = self._axis, box[self._axis]
        if self._sides[axis] == 1:  # bands share no pixels
            return np.asarray(self._source[box])
        wide = tuple(
            slice(0, n) if side > 1 else part
            for n, side, part in zip(self._lengths, self._sides, box, strict=True)
        )
        step = self._lengths[axis]
        if _size(wide) > _WHOLE_IMAGE:
            width = _size(box) // (lines.stop - lines.start)
            step = min(chunk_side(self._source, axis) or 1, max(1, _WHOLE_IMAGE // width))
            wide = box
        kept, parts = {}, []
        for first in range(lines.start // step * step, lines.stop, step):
            last = min(first + step, self._lengths[axis])
            whole = (*wide[:axis], slice(first, last), *wide[axis + 1 :])
            key = tuple((part.start, part.stop) for part in whole)
            kept[key] = self._kept[key] if key in self._kept else np.asarray(self._source[whole])
            within = (*box[:axis], slice(max(first, lines.start), lines.stop), *box[axis + 1 :])
            inner = zip(within, whole, strict=True)
            parts.append(
                kept[key][tuple(slice(p.start - w.start, p.stop - w.start) for p, w in inner)]
            )
        self._kept = kept
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis)

    def _place_of(self, row: int) -> str:
        """Return the place of a selected row as an index of the stack."""
        index = np.unravel_index(row if self._rows is None else self._rows[row], self._grid)
        corner = [int(starts[i]) for starts, i in zip(self._starts, index, strict=True)]
        parts = (
            f"{first}:{first + side}" if side > 1 else f"{first}"
            for first, side in zip(corner, self._sides, strict=True)
        )
        return f"[{', '.join(parts)}]"


def _size(box: tuple[slice, ...]) -> int:
    return math.prod(part.stop - part.start for part in box)


def _starts(n: int, side: int, stride: int) -> NDArray[np.intp]:
    """Return where windows begin: at every `stride` pixels, and at the last possible place."""
    regular = np.arange(0, n - side + 1, stride)
    return np.unique(np.append(regular, n - side)) if n else regular


def _runs(starts: NDArray[np.intp], stride: int) -> list[slice]:
    """Return slices of windows with a regular step; the last window may need its own slice."""
    n = len(starts)
    if n > 1 and starts[-1] - starts[-2] != stride:
        return [slice(0, n - 1), slice(n - 1, n)]
    return [slice(0, n)]


def _steps(
    starts: NDArray[np.intp], side: int, stride: int
) -> Iterator[tuple[slice, tuple[Any, Any]]]:
    """Yield slices of an axis, each with an index of windows and an index within these windows.

    The two indices select the values of the slice's pixels from the results of windows. A slice
    holds one pixel of each of several windows, or all pixels of a single window. No pixel occurs
    twice in a slice, so that all of its pixels can be added at once.
    """
    if len(starts) == 1:
        yield slice(0, side), (0, slice(None))
        return
    for run in _runs(starts, stride):
        n = run.stop - run.start
        for shift in range(side):
            first = int(starts[run.start]) + shift
            yield slice(first, first + stride * (n - 1) + 1, stride), (run, shift)


@lru_cache
def _cover(n: int, side: int, stride: int) -> NDArray[np.float64]:
    """Return how many windows cover each pixel of an axis."""
    places = _starts(n, side, stride)[:, None] + np.arange(side)
    return np.bincount(places.ravel(), minlength=n).astype(np.float64)
