"""Structured background out of images, in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import check_choice, check_flag
from contrast_core.feedback import Progress
from contrast_core.images._background_remover import STRENGTHS, StructuredBackgroundRemover
from contrast_core.images._blocks import block_moments, wide_stride
from contrast_core.images._frame_remover import FrameBackgroundRemover
from contrast_core.images._patches import Patches
from contrast_core.images._sampling import BoolArray, check_out, mask_or_image
from contrast_core.images._stacks import Stack
from contrast_core.images._verdicts import (
    Verdict,
    background_too_small,
    library_verdicts,
    too_few_frames,
    verdicts,
)
from contrast_core.images._whole_axes import Frames
from contrast_core.moments import SecondMoments
from contrast_core.rows import array_of

Image: TypeAlias = Stack | ArrayLike


@dataclass(frozen=True, eq=False, repr=False)
class SuppressedBackground:
    """An image without its background, and what to think of it; made by `suppress_background`.

    Parameters
    ----------
    image : array
        The image or stack that was given; it is not copied.
    denoised : array of the image's shape
        The signal over a background of zero, in units of the image; float32, or float64 where the
        image's type is wider than that. For multiplicative light the optical density.
    estimator : StructuredBackgroundRemover or FrameBackgroundRemover
        The fitted model: it can be saved, applied to other images (`Patches.map`, `Frames.map`) and
        asked for `weight_maps`.
    verdicts : tuple of Verdict
        Reasons to doubt the result; empty if there are none.
    """

    image: Any
    denoised: Any
    estimator: StructuredBackgroundRemover | FrameBackgroundRemover
    verdicts: tuple[Verdict, ...]

    @property
    def removed(self) -> NDArray[Any]:
        """What was removed, ``image - denoised``: no trace of the signal should be seen in it.

        It is computed, and a stored image read, on every access.
        """
        denoised = np.asarray(self.denoised[...])
        return np.asarray(np.subtract(np.asarray(self.image[...]), denoised, dtype=denoised.dtype))

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.denoised.shape))
        kinds = [verdict.kind for verdict in self.verdicts]
        return f"SuppressedBackground({shape} pixels, {self.estimator}, verdicts: {kinds})"


def suppress_background(
    image: Image,
    background: Image,
    *,
    sampling: Patches | Frames | Literal["patches", "frames"] = "patches",
    background_strength: Literal["varying", "constant"] = "varying",
    stationary_signal: bool = False,
    multiplicative: bool = False,
    dark: Image | None = None,
    out: Any = None,
    progress: Progress = False,
) -> SuppressedBackground:
    """Remove a structured background from an image or stack: stripes, fringes, grids, texture.

    The background is learnt where it is alone, by a `StructuredBackgroundRemover` on patches or a
    `FrameBackgroundRemover` on whole frames. There is nothing to tune.

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
        frames of any size, for a series whose background returns to the same place.
    background_strength : {"varying", "constant"}, default="varying"
        For patches: whether the background may be weaker or stronger from place to place, see
        `StructuredBackgroundRemover`.
    stationary_signal : bool, default=False
        For frames of at most 2048 pixels: whether the signal may be anywhere in the frame, see
        `FrameBackgroundRemover`.
    multiplicative : bool, default=False
        For frames: whether light is absorbed, as in absorption images, transmission and bright
        field; the result then is the optical density.
    dark : array of shape (height, width) or (..., height, width), optional
        For multiplicative light: frames that the camera gave without light; their mean is
        subtracted.
    out : array of the image's shape, optional
        Where to write the result, such as a `numpy.memmap` or a zarr array for one that is larger
        than memory.
    progress : bool or callable, default=False
        Show progress bars: tqdm's, or what is called as ``progress(iterable, total=, desc=)``. An
        exception that it raises while it is iterated stops the work and is passed on.

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
    check_flag(multiplicative, "multiplicative")
    stack, reference = array_of(image, "the image"), array_of(background, "the background")
    if out is not None:
        check_out(out, stack)
    mask = mask_or_image(reference, _mask_shapes(samples, stack))
    source = reference if mask is None else stack
    if isinstance(samples, Frames):
        remover = FrameBackgroundRemover(
            _frame_shape(stack, source),
            stationary_signal=stationary_signal,
            multiplicative=multiplicative,
        )
        return _from_frames(remover, stack, source, mask, dark, out, progress)
    if multiplicative:
        raise ValueError(
            "multiplicative=True is for sampling='frames'; of a single image take the logarithm "
            "first, or divide it by a flat field."
        )
    return _from_patches(samples, background_strength, stack, source, mask, out, progress)


def _from_patches(
    samples: Patches,
    background_strength: Literal["varying", "constant"],
    stack: Any,
    source: Any,
    mask: BoolArray | None,
    out: Any,
    progress: Progress,
) -> SuppressedBackground:
    remover = StructuredBackgroundRemover(background_strength=background_strength)
    remover.fit(
        _moments(samples, stack, None, "the image", progress),
        background=_moments(samples, source, mask, "the background", progress),
    )
    denoised = samples.map(remover.transform, stack, out=out, progress=progress)
    n_pixels = math.prod(map(int, source.shape)) if mask is None else _marked(mask, stack)
    found = verdicts(
        block_moments(samples, stack, name="the image", progress=progress),
        block_moments(samples, source, mask, name="the background", progress=progress),
    )
    found = (*found, *background_too_small(n_pixels, samples.sides))
    return SuppressedBackground(stack, denoised, remover, found)


def _from_frames(
    remover: FrameBackgroundRemover,
    stack: Any,
    source: Any,
    mask: BoolArray | None,
    dark: Image | None,
    out: Any,
    progress: Progress,
) -> SuppressedBackground:
    signal = None if mask is None else ~mask
    frames = Frames().rows(stack, signal, name="the image")
    others = Frames().rows(source, mask, name="the background")
    others = others.replace(progress=progress)
    dark_frame = None if dark is None else _mean_frame(dark)
    remover.fit(frames, background=others, dark=dark_frame)
    denoised = Frames().map(remover.transform, stack, out=out, progress=progress)
    if remover.method_ == "library":
        found = library_verdicts(remover, frames, others)
    else:
        found = verdicts(
            block_moments(Frames(), stack, signal, name="the image", progress=progress),
            block_moments(Frames(), source, mask, name="the background", progress=progress),
        )
        if not remover.n_components_ and "layers probably swapped" not in {v.kind for v in found}:
            found = (*found, too_few_frames())
    return SuppressedBackground(stack, denoised, remover, found)


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


def _frame_shape(stack: Any, source: Any) -> tuple[int, int]:
    shape, other = (tuple(map(int, each.shape[-2:])) for each in (stack, source))
    if len(shape) == len(other) == 2 and shape != other:
        raise ValueError(
            f"the background's frames are of {other[0]} x {other[1]} pixels, the image's of "
            f"{shape[0]} x {shape[1]}; both need the same."
        )
    return (shape[0], shape[1]) if len(shape) == 2 else (1, 1)  # refused where frames are read


def _mean_frame(dark: Image) -> NDArray[np.float64]:
    frames = np.asarray(array_of(dark, "dark")[...], np.float64)
    return np.asarray(frames.mean(axis=tuple(range(frames.ndim - 2))))


def _moments(
    sampling: Patches, stack: Any, mask: BoolArray | None, name: str, progress: Progress
) -> SecondMoments:
    """Return the moments of the patches, and of those between them where they are few."""
    stride = min(sampling.stride, wide_stride(sampling, stack, mask))
    rows = Patches(sampling.size, stride).rows(stack, mask, name=name)
    return SecondMoments.from_data(rows.replace(progress=progress))
