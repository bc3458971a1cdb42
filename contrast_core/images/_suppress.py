"""Structured background out of images, in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import check_choice, check_flag
from contrast_core.images._background_remover import STRENGTHS, StructuredBackgroundRemover
from contrast_core.images._blocks import block_moments, wide_stride
from contrast_core.images._frame_remover import FrameBackgroundRemover
from contrast_core.images._patches import Patches
from contrast_core.images._sampling import BoolArray, mask_or_image
from contrast_core.images._stacks import Stack
from contrast_core.images._verdicts import (
    Verdict,
    background_too_small,
    too_few_frames,
    verdicts,
)
from contrast_core.images._whole_axes import Frames
from contrast_core.moments import SecondMoments
from contrast_core.rows import array_of

Image: TypeAlias = Stack | ArrayLike


@dataclass(frozen=True, eq=False)
class SuppressedBackground:
    """An image without its background, and what to think of it; made by `suppress_background`.

    Parameters
    ----------
    denoised : ndarray of the image's shape
        The signal over a background of zero, in units of the image; float32, or float64 where the
        image's type is wider than that.
    removed : ndarray of the image's shape
        ``image - denoised``: no trace of the signal should be seen in it.
    estimator : StructuredBackgroundRemover or FrameBackgroundRemover
        What was fitted: it can be saved, applied to other images (`Patches.map`, `Frames.map`) and
        asked for `weight_maps`.
    verdicts : tuple of Verdict
        What speaks against the result; empty if nothing does.
    """

    denoised: NDArray[Any]
    removed: NDArray[Any]
    estimator: StructuredBackgroundRemover | FrameBackgroundRemover
    verdicts: tuple[Verdict, ...]


def suppress_background(
    image: Image,
    background: Image,
    *,
    sampling: Patches | Frames | Literal["patches", "frames"] = "patches",
    background_strength: Literal["varying", "constant"] = "varying",
    stationary_signal: bool = False,
) -> SuppressedBackground:
    """Remove a structured background from an image or stack: stripes, fringes, grids, texture.

    What the background shows wherever it is looked at is learnt from where it is alone, by a
    `StructuredBackgroundRemover` on patches or a `FrameBackgroundRemover` on whole frames. There is
    nothing to tune.

    Parameters
    ----------
    image : array of shape (..., height, width)
        In memory or stored: dask, zarr, HDF5, a TIFF file opened as an array. All images of a stack
        share one background. Divide by a flat field first: illumination multiplies.
    background : array
        Where the background is alone: a boolean mask of the image's shape, or of (height, width)
        for all images of a stack, True on background without signal (some 100 x 100 pixels of it,
        where the pattern repeats within that); or another image or stack, of any height and width,
        that holds nothing else. For frames, a mask of the shape of the leading axes, True on frames
        without signal, or another stack of such frames.
    sampling : Patches, Frames, "patches" or "frames", default="patches"
        What is looked at: windows, of 16 x 16 pixels at every second place by default, or whole
        frames of at most 2048 pixels, whose signal returns to the same place.
    background_strength : {"varying", "constant"}, default="varying"
        For patches: whether the background may be weaker or stronger from place to place, see
        `StructuredBackgroundRemover`.
    stationary_signal : bool, default=False
        For frames: whether the signal may be anywhere in the frame, see `FrameBackgroundRemover`.

    Returns
    -------
    SuppressedBackground

    Raises
    ------
    ValueError
        If no window fits into the image or the background, the mask has another shape, is nowhere
        or everywhere True, the background is constant, a pixel is NaN or infinite, or frames are
        too few, too large or of different shapes.
    TypeError
        If pixels are no real numbers, or entries are masked.

    See Also
    --------
    StructuredBackgroundRemover, FrameBackgroundRemover : The models, and where they come from.
    verdicts : What is checked.

    Notes
    -----
    On patches, how strong the signal is around each pixel is shown by
    ``sampling.map(lambda rows: result.estimator.strengths(rows)[:, :1], image)``.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.images import suppress_background
    >>> rng = np.random.default_rng(0)
    >>> clean = np.kron(rng.random((9, 9)) < 0.2, np.full((16, 16), 3.0))
    >>> clean[:, :48] = 0
    >>> image = clean + rng.normal(size=(144, 1)) + 0.1 * rng.normal(size=(144, 144))  # stripes
    >>> empty = np.zeros((144, 144), dtype=bool)
    >>> empty[:, :48] = True
    >>> result = suppress_background(image, empty)
    >>> bool(((result.denoised - clean) ** 2).mean() < 0.1 * ((image - clean) ** 2).mean())
    True
    >>> result.verdicts
    ()
    """
    samples = _samples(sampling)
    check_choice(background_strength, "background_strength", STRENGTHS)
    check_flag(stationary_signal, "stationary_signal")
    stack, reference = array_of(image, "the image"), array_of(background, "the background")
    mask = mask_or_image(reference, _mask_shapes(samples, stack))
    source = reference if mask is None else stack
    estimator: StructuredBackgroundRemover | FrameBackgroundRemover
    signal = None
    if isinstance(samples, Patches):
        estimator = StructuredBackgroundRemover(background_strength=background_strength)
        estimator.fit(
            _moments(samples, stack, None, "the image"),
            background=_moments(samples, source, mask, "the background"),
        )
    else:
        signal = None if mask is None else ~mask
        estimator = _fitted_on_frames(stack, signal, source, mask, stationary_signal)
    denoised = samples.map(estimator.transform, stack)
    found = verdicts(
        block_moments(samples, stack, signal, name="the image"),
        block_moments(samples, source, mask, name="the background"),
    )
    if isinstance(estimator, FrameBackgroundRemover) and not estimator.n_components_:
        found = (*found, too_few_frames())
    if isinstance(samples, Patches):
        n_pixels = math.prod(map(int, source.shape)) if mask is None else _marked(mask, stack)
        found = (*found, *background_too_small(n_pixels, samples.sides))
    removed = np.subtract(np.asarray(stack[...]), denoised, dtype=denoised.dtype)
    return SuppressedBackground(denoised, removed, estimator, found)


def _samples(sampling: object) -> Patches | Frames:
    if isinstance(sampling, Patches | Frames):
        return sampling
    known: dict[str, Patches | Frames] = {"patches": Patches(), "frames": Frames()}
    return known[check_choice(sampling, "sampling", known, "Patches() or Frames()")]


def _marked(mask: BoolArray, stack: Stack) -> int:
    """Return how many pixels of a stack a mask marks."""
    return int(mask.sum()) * (math.prod(map(int, stack.shape)) // mask.size)


def _mask_shapes(sampling: Patches | Frames, stack: Stack) -> set[tuple[int, ...]]:
    """Return the shapes that a mask of the background may have."""
    shape = tuple(map(int, stack.shape))
    if isinstance(sampling, Frames):
        return {shape[:-2]}
    return {shape, shape[-len(sampling.sides) :], shape[-2:]}


def _fitted_on_frames(
    stack: Any, signal: BoolArray | None, source: Any, mask: BoolArray | None, stationary: bool
) -> FrameBackgroundRemover:
    frames = Frames().rows(stack, signal, name="the image")
    others = Frames().rows(source, mask, name="the background")
    shape, other = (tuple(map(int, each.shape[-2:])) for each in (stack, source))
    if shape != other:
        raise ValueError(
            f"the background's frames are of {other[0]} x {other[1]} pixels, the image's of "
            f"{shape[0]} x {shape[1]}; both need the same."
        )
    remover = FrameBackgroundRemover((shape[0], shape[1]), stationary_signal=stationary)
    return remover.fit(frames, background=others)


def _moments(sampling: Patches, stack: Any, mask: BoolArray | None, name: str) -> SecondMoments:
    """Moments of the patches, and of those between them where they are few."""
    stride = min(sampling.stride, wide_stride(sampling, stack, mask))
    return SecondMoments.from_data(Patches(sampling.size, stride).rows(stack, mask, name=name))
