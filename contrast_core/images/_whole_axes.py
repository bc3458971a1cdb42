"""Sampling by whole frames, and by pixels with all of their channels."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from contrast_core._validation import check_count
from contrast_core.images._sampling import Sampling, check_mask, some_rows
from contrast_core.images._stack_rows import StackRows
from contrast_core.images._stacks import Stack
from contrast_core.rows import array_of

_MOST_AXES = 64  # largest number of axes of a NumPy array


@dataclass(frozen=True)
class Frames(Sampling):
    """Sampling by whole frames: each frame is a sample, and its pixels are the features.

    The last two axes of a stack hold the frames. The leading axes number them, in C order.

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
        """Return the frames of a stack as rows, without reading pixels yet.

        Parameters
        ----------
        stack : array of shape (..., height, width)
            Any object with `shape` that slices like a NumPy array, in memory or lazy (dask, zarr,
            HDF5, a TIFF file opened as an array).
        mask : array-like of bool, of the shape of the leading axes, optional
            True for the frames that become rows.
        name : str, default="the stack"
            Name of the stack in error messages.
        elements : int, optional
            Number of values that are read at once.

        Returns
        -------
        StackRows
            One row per frame and one column per pixel.

        Raises
        ------
        ValueError
            If the stack has fewer than three axes, if its frames have no pixels, or if the mask has
            a wrong shape or marks no frame.
        TypeError
            If pixels are not real numbers, the mask does not hold truth values, or the stack or the
            mask has masked entries.
        """
        stack = array_of(stack, name)
        n_axes = len(stack.shape)
        if n_axes < 3:
            raise ValueError(
                f"{name} has shape {tuple(stack.shape)}; frames need (..., height, width) with at "
                "least one leading axis. A single image is sampled by Patches()."
            )
        leading, frame = tuple(stack.shape[:-2]), map(int, stack.shape[-2:])
        sides = (*(1 for _ in leading), *frame)
        rows = StackRows(stack, sides, n_axes - 3, name=name, elements=elements)
        if mask is None:
            return rows
        return some_rows(rows, check_mask(mask, leading, stack, name).ravel(), "frame")


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
        """Return the pixels of a stack as rows, without reading them yet.

        Parameters
        ----------
        stack : array
            Any object with `shape` that slices like a NumPy array, in memory or lazy (dask, zarr,
            HDF5, a TIFF file opened as an array).
        mask : array-like of bool, of the stack's shape without the axis of the channels, optional
            True for the pixels that become rows.
        name : str, default="the stack"
            Name of the stack in error messages.
        elements : int, optional
            Number of values that are read at once.

        Returns
        -------
        StackRows
            One row per pixel, in C order, and one column per channel.

        Raises
        ------
        ValueError
            If the stack has fewer than two axes, if it has no such axis of channels or this axis is
            empty, or if the mask has a wrong shape or marks no pixel.
        TypeError
            If pixels are not real numbers, the mask does not hold truth values, or the stack or the
            mask has masked entries.
        """
        stack = array_of(stack, name)
        n_axes = len(stack.shape)
        if n_axes < 2 or not -n_axes <= self.axis < n_axes:
            raise ValueError(
                f"{name} has shape {tuple(stack.shape)}, but channels should be in axis="
                f"{self.axis}; expected an axis of the stack and at least one more axis for pixels."
            )
        axis = self.axis % n_axes
        sides = tuple(int(n) if i == axis else 1 for i, n in enumerate(stack.shape))
        others = [i for i in range(n_axes) if i != axis]
        rows = StackRows(stack, sides, others[-2:][0], name=name, elements=elements)
        if mask is None:
            return rows
        pixels = tuple(stack.shape[i] for i in others)
        return some_rows(rows, check_mask(mask, pixels, stack, name).ravel(), "pixel")
