"""Sampling by frames and by the channels of pixels, which span some axes of a stack completely."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import check_count
from contrast_core.images._sampling import Sampling, StackRows, check_mask, some_rows
from contrast_core.images._stacks import Stack
from contrast_core.rows import array_of

FrameIndex: TypeAlias = tuple[int | slice, ...]

_MOST_AXES = 64  # of a NumPy array


@dataclass(frozen=True)
class Frames(Sampling):
    """Sampling by whole frames: each frame is a sample, and its pixels are the features.

    The frames lie in the last two axes of a stack; leading axes count them, in C order.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.images import Frames
    >>> Frames().rows(np.zeros((5, 3, 28, 28))).shape
    (15, 784)
    """

    def rows(
        self,
        stack: Stack,
        mask: ArrayLike | None = None,
        *,
        name: str = "the stack",
        elements: int | None = None,
    ) -> StackRows:
        """Return the frames of a stack as rows; nothing is read yet.

        Parameters
        ----------
        stack : array of shape (..., height, width)
            See `Sampling.rows`.
        mask : array-like of bool, of the shape of the leading axes, optional
            True for the frames that become rows.
        name, elements
            See `Sampling.rows`.

        Returns
        -------
        StackRows
            One row per frame and one column per pixel.

        Raises
        ------
        ValueError, TypeError
            See `Sampling.rows`.
        """
        stack = array_of(stack, name)
        n_axes = len(stack.shape)
        if n_axes < 3:
            raise ValueError(
                f"{name} has shape {tuple(stack.shape)}; frames need (..., height, width) with at "
                "least one leading axis. A single image is sampled by Patches()."
            )
        return _whole_axes(stack, (n_axes - 2, n_axes - 1), mask, name, elements, "frame")


@dataclass(frozen=True)
class Channels(Sampling):
    """Sampling by pixels: each pixel is a sample, and its channels are the features.

    Parameters
    ----------
    axis : int, default=0
        The axis of the stack that holds the channels: wavelengths, stains, time points.

    Raises
    ------
    TypeError, ValueError
        If `axis` is not an integer from -64 to 63.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.images import Channels
    >>> Channels(axis=-1).rows(np.zeros((20, 30, 4))).shape
    (600, 4)
    """

    axis: int = 0

    def __post_init__(self) -> None:
        axis = check_count(self.axis, "axis", at_least=-_MOST_AXES, at_most=_MOST_AXES - 1)
        object.__setattr__(self, "axis", axis)

    def rows(
        self,
        stack: Stack,
        mask: ArrayLike | None = None,
        *,
        name: str = "the stack",
        elements: int | None = None,
    ) -> StackRows:
        """Return the pixels of a stack as rows; nothing is read yet.

        Parameters
        ----------
        stack : array
            See `Sampling.rows`.
        mask : array-like of bool, of the stack's shape without the axis of the channels, optional
            True for the pixels that become rows.
        name, elements
            See `Sampling.rows`.

        Returns
        -------
        StackRows
            One row per pixel, in C order, and one column per channel.

        Raises
        ------
        ValueError, TypeError
            See `Sampling.rows`.
        """
        stack = array_of(stack, name)
        n_axes = len(stack.shape)
        if n_axes < 2 or not -n_axes <= self.axis < n_axes:
            raise ValueError(
                f"{name} has shape {tuple(stack.shape)}, but channels are to be in axis="
                f"{self.axis}; expected an axis of it, beside those of the pixels."
            )
        return _whole_axes(stack, (self.axis % n_axes,), mask, name, elements, "pixel")


def _whole_axes(
    stack: Stack,
    axes: tuple[int, ...],
    mask: ArrayLike | None,
    name: str,
    elements: int | None,
    sample: str,
) -> StackRows:
    rows = _WholeAxesRows(stack, axes, name=name, names=None, elements=elements)
    if mask is None:
        return rows
    return some_rows(rows, check_mask(mask, rows.grid, stack, name).ravel(), sample)


class _WholeAxesRows(StackRows):
    """Rows that span some axes completely, one for each position in the other axes (`grid`)."""

    def __init__(self, stack: Stack, axes: tuple[int, ...], **options: Any) -> None:
        shape = tuple(map(int, stack.shape))
        self._axes = self._cut = axes
        self._features = math.prod(shape[axis] for axis in axes)
        self.grid = tuple(n for axis, n in enumerate(shape) if axis not in axes)
        super().__init__(stack, math.prod(self.grid), self._features, **options)

    def _read_whole(self, start: int, stop: int) -> NDArray[Any]:
        parts = [
            self._samples(np.asarray(self._source[where]), where).reshape(-1, self._features)
            for where in self._boxes(start, stop)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def put_back(
        self, out: NDArray[Any], start: int, stop: int, results: NDArray[np.floating]
    ) -> None:
        """Write the results for samples, which do not overlap; see `StackRows.put_back`."""
        whole = np.broadcast_to(results, (stop - start, self._features))
        lengths = [self._source.shape[axis] for axis in self._axes]
        done = 0
        for where in self._boxes(start, stop):
            grid = [
                len(range(n)[entry])
                for axis, (n, entry) in enumerate(zip(self._source.shape, where, strict=True))
                if axis not in self._axes and isinstance(entry, slice)
            ]
            n = math.prod(grid)
            samples = whole[done : done + n].reshape(*grid, *lengths)
            out[where] = np.moveaxis(samples, range(-len(lengths), 0), self._places(where))
            done += n

    def _boxes(self, start: int, stop: int) -> list[FrameIndex]:
        """Return indices of the parts of the stack that hold rows `start` to `stop`, in order."""
        boxes = []
        for index in _boxes(self.grid, start, stop):
            entries = iter(index)
            n_axes = len(self.grid) + len(self._axes)
            boxes.append(
                tuple(
                    slice(None) if axis in self._axes else next(entries) for axis in range(n_axes)
                )
            )
        return boxes

    def _samples(self, part: NDArray[Any], where: FrameIndex) -> NDArray[Any]:
        """Return a view of a part of a stack, with the axes of the features moved to the end."""
        places = self._places(where)
        return np.moveaxis(part, places, range(-len(places), 0))

    def _places(self, where: FrameIndex) -> list[int]:
        """Return where the axes of the features lie in a part of the stack."""
        kept = [axis for axis, entry in enumerate(where) if isinstance(entry, slice)]
        return [kept.index(axis) for axis in self._axes]

    def _whole_place(self, row: int) -> str:
        return f"first at [{', '.join(map(str, np.unravel_index(row, self.grid)))}]"


def _boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[FrameIndex]:
    """Yield indices of boxes that hold entries `start` to `stop` in C order."""
    if len(shape) == 1:
        yield (slice(start, stop),)
        return
    inner = math.prod(shape[1:])
    first, skipped = divmod(start, inner)
    last, left = divmod(stop, inner)
    if first == last:
        yield from ((first, *index) for index in _boxes(shape[1:], skipped, left))
        return
    if skipped:
        yield from ((first, *index) for index in _boxes(shape[1:], skipped, inner))
        first += 1
    if first < last:
        yield (slice(first, last), *(slice(None) for _ in shape[1:]))
    if left:
        yield from ((last, *index) for index in _boxes(shape[1:], 0, left))
