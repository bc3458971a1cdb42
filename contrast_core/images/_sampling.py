"""Common interface of `Frames`, `Patches` and `Channels`, which cut a stack into samples."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import check_unmasked, shown
from contrast_core.feedback import Progress, with_progress
from contrast_core.images._stack_rows import BLOCK_ELEMENTS, StackRows
from contrast_core.images._stacks import Stack
from contrast_core.rows import array_of

_FEW_VALUES = 16  # an array with more distinct values is an image; one with fewer may be a mask

BoolArray: TypeAlias = NDArray[np.bool_]


class Sampling(ABC):
    """Base class of samplings, which cut samples from a stack and put results back in place."""

    @abstractmethod
    def rows(
        self,
        stack: Stack,
        mask: ArrayLike | None = None,
        *,
        name: str = "the stack",
        elements: int | None = None,
    ) -> StackRows:
        """Return the samples of a stack as rows, without reading pixels yet.

        Parameters
        ----------
        stack : array
            Any object with `shape` that slices like a NumPy array. It may be lazy: dask, zarr,
            HDF5, a TIFF file opened as an array. Lists and tensors become NumPy arrays.
        mask : array-like of bool, optional
            Only samples that lie entirely within the mask become rows.
        name : str, default="the stack"
            Name of the stack in error messages.
        elements : int, optional
            Number of values that are read at once.

        Returns
        -------
        StackRows
            Rows that `SecondMoments.from_data`, `fit` and all other functions accept as data.

        Raises
        ------
        ValueError
            If no sample can be cut from a stack of this shape, or the mask has a wrong shape or
            contains no sample.
        TypeError
            If pixels are not real numbers, the mask does not hold truth values, or the stack or the
            mask has masked entries.
        """

    def map(
        self,
        function: Callable[[NDArray[Any]], NDArray[np.floating]],
        stack: Stack,
        *,
        out: Any = None,
        progress: Progress = False,
    ) -> Any:
        """Apply a function to all samples and put the results back in their place.

        Parameters
        ----------
        function : callable
            Function from samples (b, n_features) to results of shape (b, n_features), or (b, 1) for
            one number per sample. Where samples overlap, their results are averaged.
        stack : array
            As for `rows`. Only a part of it is in memory at a time.
        out : array of the stack's shape, optional
            Array to write the result to. A `numpy.memmap`, a zarr array or an HDF5 dataset can hold
            results larger than memory. Results are written in the order of the samples. If samples
            overlap, the result for one whole image is in memory at a time.
        progress : bool or callable, default=False
            Show a progress bar with tqdm, or with a callable that is called as
            ``progress(iterable, total=, desc=)``. An exception that it raises during iteration
            stops the work and is passed on.

        Returns
        -------
        ndarray of the stack's shape, or `out`
            Results in float32, or in float64 if the stack's own type is wider.

        Raises
        ------
        ValueError, TypeError
            As for `rows`. The error is also raised if pixels are NaN or infinite, or if the
            function returns an object of another shape or type.
        """
        if not callable(function):
            raise TypeError(
                f"function={shown(function)} cannot be called; a function of an array of samples "
                "is expected."
            )
        stack = array_of(stack, "the stack")
        rows = self.rows(stack, elements=BLOCK_ELEMENTS)
        if out is not None:
            check_out(out, stack)
        if out is not None and rows.n_apart is not None:
            places = list(np.ndindex(*stack.shape[: rows.n_apart]))
            if len(places) == 1:
                out[...] = self.map(function, stack, progress=progress)
                return out
            for place in with_progress(places, len(places), "map", progress):
                image = tuple(slice(i, i + 1) for i in place)
                out[image] = self.map(function, np.asarray(stack[image]))
            return out
        if out is None:
            out = np.zeros(stack.shape, dtype=np.result_type(rows.dtype, np.float32))
        edges = list(pairwise(rows.edges()))
        for start, stop in with_progress(edges, len(edges), "map", progress):
            results = _results(function(rows.read(start, stop)), stop - start, rows.shape[1])
            rows.put_back(out, start, stop, results)
        return out


def check_out(out: Any, stack: Stack) -> None:
    """Raise ValueError unless `out` has the shape of the stack."""
    if tuple(getattr(out, "shape", ())) != tuple(stack.shape):
        raise ValueError(
            f"out is {type(out).__name__} of shape {getattr(out, 'shape', None)}; expected an "
            f"array of the stack's shape, {tuple(stack.shape)}."
        )


def _results(found: object, n: int, n_features: int) -> NDArray[np.floating]:
    """Check the type and shape of a function's results for n samples, and return them as floats."""
    check_unmasked(found, "what the function returned")
    try:
        results = np.asarray(found)
    except (TypeError, ValueError):  # rows differ in length
        results = np.empty(0, dtype=object)
    if results.dtype.kind not in "biuf" or results.shape not in ((n, n_features), (n, 1)):
        kind = TypeError if results.dtype.kind not in "biuf" else ValueError
        raise kind(
            f"the function returned {type(found).__name__} of shape {results.shape} and type "
            f"{results.dtype} for {n} samples; expected real numbers of shape ({n}, {n_features}), "
            f"or ({n}, 1) for one number per sample."
        )
    return results if results.dtype.kind == "f" else results.astype(np.float64)


def check_mask(mask: ArrayLike, shape: tuple[int, ...], stack: Stack, name: str) -> BoolArray:
    """Return a mask as truth values; raise ValueError unless it has the given shape."""
    marked = truth_values(mask, name)
    if marked.shape != shape:
        raise ValueError(
            f"the mask of {name} has shape {marked.shape}; {name} has shape {tuple(stack.shape)} "
            f"and needs a mask of shape {shape}."
        )
    return marked


def truth_values(mask: ArrayLike, name: str) -> BoolArray:
    """Convert a mask to booleans.

    A mask of integers must hold only 0 and 1, or only 0 and 255.
    """
    check_unmasked(mask, f"the mask of {name}")
    try:
        marked = np.asarray(mask)
    except (TypeError, ValueError):  # rows differ in length
        marked = np.empty(0, dtype=object)
    if marked.dtype == np.bool_:
        return marked
    values = few_values(marked) if marked.dtype.kind in "iu" else None
    if values is None or not (values <= {0, 1} or values <= {0, 255}):
        raise TypeError(
            f"the mask of {name} has dtype {marked.dtype}"
            + (f" and the values {_listed(values)}" if values else "")
            + "; expected truth values, or integers that are 0 and 1 or 0 and 255. Compare with a "
            "number, such as labels > 0."
        )
    return np.asarray(marked != 0)


def few_values(stack: Stack) -> set[float] | None:
    """Return the distinct values of a stack, or None if there are more than sixteen."""
    values: set[float] = set()
    step = max(1, BLOCK_ELEMENTS // max(1, math.prod(stack.shape[1:])))
    for start in range(0, stack.shape[0] if stack.shape else 0, step):
        values.update(np.unique(np.asarray(stack[start : start + step])).tolist())
        if len(values) > _FEW_VALUES:
            return None
    return values


def mask_or_image(background: Stack, mask_shapes: Collection[tuple[int, ...]]) -> BoolArray | None:
    """Return a background as a mask, or None if it is an image.

    An array of booleans is a mask. An array of numbers is a mask if it has the shape of a mask and
    its values are 0 and 1, or 0 and 255. Other integers of that shape with few values are refused,
    because they may be labels or an image.

    Raises
    ------
    ValueError
        If it is unclear whether the background is a mask or an image, or the mask is True
        everywhere.
    """
    dtype = np.dtype(getattr(background, "dtype", np.float64))
    values: set[float] | None = None
    if dtype != np.bool_:
        if tuple(background.shape) in mask_shapes:
            values = few_values(background)
        if values is None or len(values) < 2:
            return None
        if values != {0, 1} and values != {0, 255}:
            if dtype.kind == "f":
                return None
            raise ValueError(
                f"the background has the shape of a mask, dtype {dtype} and only the values "
                f"{_listed(values)}, so it may be a mask, labels or an image. Give a boolean "
                "mask, such as labels == 0, or an image with more than sixteen grey levels."
            )
    mask = np.asarray(background[...], dtype=bool)
    if mask.all():
        raise ValueError(
            "the background's mask is True everywhere, so that no place is left for signal; mark "
            "only the pixels or frames that show background without signal."
        )
    return mask


def _listed(values: set[float]) -> str:
    return ", ".join(f"{value:g}" for value in sorted(values))


def some_rows(rows: StackRows, marked: BoolArray, sample: str) -> StackRows:
    """Return the rows for which `marked` is True; raise ValueError if there are none."""
    if not marked.any():
        raise ValueError(
            f"no {sample} of {rows.name} lies entirely within the mask; draw a larger region."
        )
    return rows.take(marked)
