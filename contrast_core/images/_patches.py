"""Sampling by small windows of images."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from contrast_core._validation import check_count, shown
from contrast_core.images._sampling import (
    Sampling,
    check_mask,
    some_rows,
    truth_values,
)
from contrast_core.images._stack_rows import StackRows
from contrast_core.images._stacks import Stack
from contrast_core.rows import array_of


@dataclass(frozen=True)
class Patches(Sampling):
    """Sampling by small windows: each window is a sample, and its pixels are the features.

    Parameters
    ----------
    size : int or tuple of int, default=16
        Side of the windows in pixels. An integer gives squares in the last two axes of a stack. A
        tuple of two or more integers gives boxes, with one axis for each integer, in the last axes.
        All other axes number the images.
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
        # Plain integers are stored, because NumPy's integers overflow.
        sides = tuple(check_count(side, "size") for side in self.sides)
        if len(sides) < 2:
            raise ValueError(
                f"size={shown(self.size)} has {len(sides)} sides; expected an integer or at least "
                "two sides."
            )
        reason = f"for windows of {_times(sides)} pixels, so that no pixel is left out,"
        stride = check_count(self.stride, "stride", at_most=min(sides), reason=reason)
        object.__setattr__(self, "size", sides if isinstance(self.size, tuple) else sides[0])
        object.__setattr__(self, "stride", stride)

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
        """Return the windows of a stack as rows, without reading pixels yet.

        Parameters
        ----------
        stack : array of shape (..., height, width)
            Any object with `shape` that slices like a NumPy array, in memory or lazy (dask, zarr,
            HDF5, a TIFF file opened as an array).
        mask : array-like of bool of shape (height, width), or of the stack's shape, optional
            Mask for all images, or one for each image. For windows of three or more sides, the mask
            for all images has as many axes as a window. Only windows that lie entirely within the
            mask become rows.
        name : str, default="the stack"
            Name of the stack in error messages.
        elements : int, optional
            Number of values that are read at once.

        Returns
        -------
        StackRows
            One row per window, in C order of the windows' places, and one column per pixel.

        Raises
        ------
        ValueError
            If a stack of this shape has no such samples, or the mask has a wrong shape or contains
            no sample.
        TypeError
            If pixels are not real numbers, the mask does not hold truth values, or the stack or the
            mask has masked entries.
        """
        stack = array_of(stack, name)
        shape, sides = tuple(map(int, stack.shape)), self.sides
        leading, image = shape[: len(shape) - len(sides)], shape[-len(sides) :]
        if len(shape) < len(sides):
            raise ValueError(
                f"{name} has shape {shape}; windows of {_times(sides)} pixels need at least "
                f"{len(sides)} axes."
            )
        if any(map(int.__lt__, image, sides)):
            raise ValueError(
                f"{name} has images of {_times(image)} pixels, in which no window of "
                f"{_times(sides)} fits; use larger images or smaller windows. If colours "
                "or channels are in the last axis, move that axis to the front."
            )
        rows = StackRows(
            stack,
            (*(1,) * len(leading), *sides),
            len(shape) - 2,
            stride=self.stride,
            name=name,
            elements=elements,
        )
        if mask is None:
            return rows
        marked = truth_values(mask, name)
        check_mask(marked, shape if marked.ndim == len(shape) else image, stack, name)
        return some_rows(rows, rows.are_inside(marked).ravel(), f"window of {_times(sides)} pixels")


def _times(numbers: tuple[int, ...]) -> str:
    return " x ".join(str(n) for n in numbers)
