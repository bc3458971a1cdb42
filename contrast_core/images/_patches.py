"""Small windows of every image as samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import NO_NUMBERS, shown
from contrast_core.feedback import Progress, with_progress
from contrast_core.images._sampling import (
    BoolArray,
    Sampling,
    StackRows,
    check_mask,
    check_out,
    some_rows,
    truth_values,
)
from contrast_core.images._stacks import Stack, chunk_side
from contrast_core.rows import array_of

_LARGEST_SIDE = 2**31
_WHOLE_IMAGE = 2**24  # pixels: a smaller image is read once and kept until the next image


@dataclass(frozen=True)
class Patches(Sampling):
    """Sampling by small windows: each window is a sample, and its pixels are the features.

    Parameters
    ----------
    size : int or tuple of int, default=16
        Side of the windows in pixels. An integer gives squares in the last two axes of a stack. A
        tuple of two or more integers gives boxes in as many last axes. Leading axes count images.
    stride : int, default=2
        Step between neighbouring windows along every axis, from 1 to the shortest side. The last
        window of an axis always ends at the border. If the stride is half the side or more, blocks
        are visible in reassembled images; a quarter of the side is small enough.

    Raises
    ------
    TypeError, ValueError
        If `size` or `stride` has a wrong type or is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.images import Patches
    >>> image = np.arange(600.0).reshape(20, 30)
    >>> patches = Patches(size=8, stride=2)
    >>> patches.rows(image).shape
    (84, 64)
    >>> bool(np.allclose(patches.map(lambda rows: rows, image), image))
    True
    """

    size: int | tuple[int, ...] = 16
    stride: int = 2

    def __post_init__(self) -> None:
        sides = self.sides
        if len(sides) < 2 or not all(_is_count(side) for side in sides):
            raise TypeError(
                f"size={shown(self.size)}; an integer of at least 1 is expected, or a tuple of two "
                "or more of them."
            )
        # Plain integers are stored, because NumPy's integers overflow.
        whole = tuple(map(int, sides)) if isinstance(self.size, tuple) else int(self.size)
        object.__setattr__(self, "size", whole)
        if not _is_count(self.stride) or self.stride > min(sides):
            raise ValueError(
                f"stride={shown(self.stride)} is out of range: for windows of {_times(sides)} "
                f"pixels it must be an integer from 1 to {min(sides)}, so that no pixel is left "
                "out."
            )
        object.__setattr__(self, "stride", int(self.stride))

    @property
    def sides(self) -> tuple[int, ...]:
        """Length of the windows along each of their axes."""
        return self.size if isinstance(self.size, tuple) else (self.size, self.size)

    def rows(
        self,
        stack: Stack,
        mask: ArrayLike | None = None,
        *,
        name: str = "the stack",
        elements: int | None = None,
    ) -> StackRows:
        """Return the windows of a stack as rows; nothing is read yet.

        Parameters
        ----------
        stack : array of shape (..., height, width)
            See `Sampling.rows`.
        mask : array-like of bool of shape (height, width), or of the stack's, optional
            Mask for all images, or one for each image. Only windows that lie entirely within the
            mask become rows.
        name, elements
            See `Sampling.rows`.

        Returns
        -------
        StackRows
            One row per window, in C order of the windows' places, and one column per pixel.

        Raises
        ------
        ValueError, TypeError
            See `Sampling.rows`.
        """
        stack = array_of(stack, name)
        rows = _WindowRows(stack, self.sides, self.stride, name=name, names=None, elements=elements)
        if mask is None:
            return rows
        shape = tuple(stack.shape)
        image = shape[len(shape) - len(self.sides) :]
        counts = truth_values(mask, name)
        check_mask(counts, shape if counts.ndim == len(shape) else image, stack, name)
        inside = rows.inside(counts)
        leading = shape[: len(shape) - len(self.sides)]
        if counts.ndim < len(shape):
            inside = np.broadcast_to(inside, (*leading, *inside.shape))
        window = f"window of {_times(self.sides)} pixels"
        return some_rows(rows, inside.ravel(), window)

    def map(
        self,
        function: Callable[[NDArray[Any]], NDArray[np.floating]],
        stack: Stack,
        *,
        out: Any = None,
        progress: Progress = False,
    ) -> Any:
        """Apply a function to all windows and average the results where they overlap.

        Parameters
        ----------
        function, stack, out, progress
            See `Sampling.map`. If `out` is given, one whole image is in memory at a time.

        Returns
        -------
        ndarray of the stack's shape, or `out`

        Raises
        ------
        ValueError, TypeError
            See `Sampling.map`.
        """
        if out is None:
            return super().map(function, stack, progress=progress)
        stack = array_of(stack, "the stack")
        check_out(out, stack)
        images = list(np.ndindex(*stack.shape[: len(stack.shape) - len(self.sides)]))
        if len(images) == 1:
            out[...] = super().map(function, stack, progress=progress)
            return out
        for index in with_progress(images, len(images), "map", progress):
            out[index] = super().map(function, np.asarray(stack[index]))
        return out


class _Band(NamedTuple):
    """Consecutive lines of windows over the whole width of an image.

    `outer` holds the indices of the image and of the windows' first axes. `lines` is the range of
    windows along the next axis.
    """

    outer: tuple[int, ...]
    lines: range


class _Slab(NamedTuple):
    """Lines `first` to `last` of an image, over their whole width."""

    image: tuple[Any, ...]
    first: int
    last: int
    pixels: NDArray[Any]


class _WindowRows(StackRows):
    """Rows that are windows of the given sides, one every `stride` pixels; see `Patches`."""

    def __init__(self, stack: Stack, sides: tuple[int, ...], stride: int, **options: Any) -> None:
        shape = tuple(stack.shape)
        self._leading, self._image = shape[: len(shape) - len(sides)], shape[-len(sides) :]
        if len(shape) < len(sides):
            raise ValueError(
                f"{options['name']} has shape {shape}; windows of {_times(sides)} pixels need at "
                f"least {len(sides)} axes."
            )
        if any(map(int.__lt__, map(int, self._image), sides)):
            raise ValueError(
                f"{options['name']} has images of {_times(self._image)} pixels, in which no window "
                f"of {_times(sides)} fits; use larger images or smaller windows. Colours or "
                "channels in the last axis: move them to the front, or take one at a time."
            )
        self._sides, self._stride = self._cut = sides, stride
        self._starts = [
            _starts(n, side, stride) for n, side in zip(self._image, sides, strict=True)
        ]
        self._grid = (*self._leading, *map(len, self._starts))
        self._kept: tuple[tuple[int, ...], NDArray[Any]] | None = None
        self._slab: _Slab | None = None
        super().__init__(stack, math.prod(self._grid), math.prod(sides), **options)

    def edges(self, elements: int | None = None) -> list[int]:
        """Return where blocks of whole lines of windows begin and end: 0, ..., n."""
        line = self._grid[-1]
        lines = max(1, (elements or self.elements) // (line * math.prod(self._sides)))
        ends = [*range(0, self._n_source, line * lines), self._n_source]
        if self._rows is None:
            return ends
        return list(np.unique(np.searchsorted(self._rows, ends)).tolist())

    def inside(self, mask: BoolArray) -> BoolArray:
        """Return which windows lie entirely within the mask, for each of its images."""
        for axis in range(-len(self._sides), 0):  # axis by axis, which needs fewer comparisons
            windows = sliding_window_view(mask, self._sides[axis], axis=axis).all(axis=-1)
            mask = np.take(windows, self._starts[axis], axis=axis)
        return mask

    def _bands(self, start: int, stop: int) -> Iterator[_Band]:
        """Yield the bands that hold rows `start` to `stop`."""
        n_lines = self._grid[-2]
        line, end = start // self._grid[-1], -(-stop // self._grid[-1])
        while line < end:
            outer, first = divmod(line, n_lines)
            last = min(n_lines, first + end - line)
            index = np.unravel_index(outer, self._grid[:-2]) if self._grid[:-2] else ()
            yield _Band(tuple(map(int, index)), range(first, last))
            line += last - first

    def _box(self, band: _Band) -> tuple[tuple[int, ...], tuple[slice, ...]]:
        """Return the image that a band lies in, and the pixels that it covers."""
        leading, outer = band.outer[: len(self._leading)], band.outer[len(self._leading) :]
        spans = [(i, i + 1) for i in outer] + [
            (band.lines.start, band.lines.stop),
            (0, self._grid[-1]),
        ]
        box = tuple(
            slice(int(starts[first]), int(starts[last - 1]) + side)
            for starts, side, (first, last) in zip(self._starts, self._sides, spans, strict=True)
        )
        return leading, box

    def _read_whole(self, start: int, stop: int) -> NDArray[Any]:
        parts = [np.empty((0, math.prod(self._sides)), self.dtype)]
        for band in self._bands(start, stop):
            leading, box = self._box(band)
            windows = sliding_window_view(self._pixels(leading, box), self._sides)
            down, across = self._starts[-2][band.lines], self._starts[-1]
            # Windows are counted from the band's first pixel; the first axes hold one window each.
            places = windows[(0,) * (len(self._sides) - 2)][np.ix_(down - down[0], across)]
            parts.append(places.reshape(-1, math.prod(self._sides)))
        rows = np.concatenate(parts) if len(parts) > 2 else parts[-1]
        first = start // self._grid[-1] * self._grid[-1]
        return rows[start - first : stop - first]

    def _pixels(self, leading: tuple[int, ...], box: tuple[slice, ...]) -> NDArray[Any]:
        if math.prod(self._image) > _WHOLE_IMAGE:
            return self._from_slab(leading, box)
        if self._kept is None or self._kept[0] != leading:
            self._kept = leading, np.asarray(self._source[leading])
        return self._kept[1][box]

    def _from_slab(self, leading: tuple[int, ...], box: tuple[slice, ...]) -> NDArray[Any]:
        """Return pixels of a large image, which is read in whole rows of chunks.

        Successive boxes move down the image. Chunks that were read for the last box are kept, and
        are not read again if this box needs them too.
        """
        index, lines = (*leading, *box[:-2]), box[-2]
        side = min(chunk_side(self._source, -2) or 1, max(1, _WHOLE_IMAGE // self._image[-1]))
        first = lines.start // side * side
        last = min(-(-lines.stop // side) * side, self._image[-2])
        kept = self._slab
        if kept is not None and kept.image == index and kept.first <= first <= kept.last:
            pixels = kept.pixels[..., first - kept.first :, :]
            if last > kept.last:
                more = np.asarray(self._source[(*index, slice(kept.last, last))])
                pixels = np.concatenate([pixels, more], axis=-2)
        else:
            pixels = np.asarray(self._source[(*index, slice(first, last))])
        self._slab = _Slab(index, first, first + pixels.shape[-2], pixels)
        return pixels[..., lines.start - first : lines.stop - first, box[-1]]

    def put_back(
        self, out: NDArray[Any], start: int, stop: int, results: NDArray[np.floating]
    ) -> None:
        """Add the results for whole lines of windows; see `StackRows.put_back`."""
        whole = np.broadcast_to(results, (stop - start, math.prod(self._sides)))
        done = 0
        for band in self._bands(start, stop):
            leading, box = self._box(band)
            n = len(band.lines) * self._grid[-1]
            results_of_band = whole[done : done + n].reshape(len(band.lines), -1, *self._sides)
            place: Any = (*leading, *box)
            out[place] += self._overlapping(results_of_band, band, box)
            done += n

    def _overlapping(
        self, results: NDArray[np.floating], band: _Band, box: tuple[slice, ...]
    ) -> NDArray[np.floating]:
        """Return the sum of a band's results, divided by the number of windows over each pixel."""
        stride = self._stride
        down = self._starts[-2][band.lines] - box[-2].start
        total = np.zeros(tuple(side.stop - side.start for side in box), dtype=results.dtype)
        for lines, columns in product(_runs(down, stride), _runs(self._starts[-1], stride)):
            # If the columns of the results are contiguous, the slices below are too: this is fast.
            part = results[lines, columns]
            corner = down[lines.start], self._starts[-1][columns.start]
            for offset in np.ndindex(*self._sides):
                grid = tuple(
                    slice(first + shift, first + shift + stride * (n - 1) + 1, stride)
                    for first, shift, n in zip(corner, offset[-2:], part.shape[:2], strict=True)
                )
                place: Any = (*offset[:-2], *grid)
                total[place] += part[(..., *offset)]
        for axis, (side, length, span) in enumerate(
            zip(self._sides, self._image, box, strict=True)
        ):
            cover = _cover(length, side, stride)[span]
            total /= cover.reshape(-1, *(1,) * (len(box) - axis - 1))
        return total

    def _whole_place(self, row: int) -> str:
        leading, box = self._box(next(self._bands(row, row + 1)))
        image = f" of image {', '.join(map(str, leading))}" if leading else ""
        return f"first in rows {box[-2].start} to {box[-2].stop - 1}{image}"


def _is_count(value: object) -> bool:
    return (
        isinstance(value, Integral)
        and not isinstance(value, NO_NUMBERS)
        and 1 <= int(value) < _LARGEST_SIDE
    )


def _times(numbers: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in numbers)


def _starts(n: int, side: int, stride: int) -> NDArray[np.intp]:
    """Return where windows begin along an axis: every `stride` pixels; the last ends with it."""
    return np.unique(np.append(np.arange(0, n - side + 1, stride), n - side))


def _runs(starts: NDArray[np.intp], stride: int) -> list[slice]:
    """Return slices of windows with a regular step; the last window may have its own slice."""
    n = len(starts)
    if n > 1 and starts[-1] - starts[-2] != stride:
        return [slice(0, n - 1), slice(n - 1, n)]
    return [slice(0, n)]


@lru_cache
def _cover(n: int, side: int, stride: int) -> NDArray[np.float64]:
    """Return how many windows lie over each pixel of an axis."""
    places = _starts(n, side, stride)[:, None] + np.arange(side)
    return np.bincount(places.ravel(), minlength=n).astype(np.float64)
