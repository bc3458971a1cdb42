"""Removal of a structured background from images, in one call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from contrast_core._validation import check_choice, check_count, check_flag
from contrast_core.feedback import Progress
from contrast_core.images._background_remover import STRENGTHS, StructuredBackgroundRemover
from contrast_core.images._blocks import block_moments, wide_stride
from contrast_core.images._excerpt import excerpt
from contrast_core.images._frame_remover import FrameBackgroundRemover
from contrast_core.images._patches import Patches
from contrast_core.images._sampling import BoolArray, check_out, mask_or_image, truth_values
from contrast_core.images._smooth_background import EXAMINED_SIDE, smooth_background
from contrast_core.images._stacks import Stack
from contrast_core.images._verdicts import (
    Verdict,
    background_holds_signal,
    background_too_small,
    library_verdicts,
    too_few_frames,
    verdicts,
)
from contrast_core.images._whole_axes import Frames
from contrast_core.images._window_choice import SQUARE, stationary_moments, window_size
from contrast_core.moments import SecondMoments
from contrast_core.rows import array_of

Image: TypeAlias = Stack | ArrayLike
Estimator: TypeAlias = StructuredBackgroundRemover | FrameBackgroundRemover
Brightness: TypeAlias = Literal["keep", "remove"]

_SOME_WINDOWS = 4096  # number of windows in which brightness and variance are measured
# Lines are constant along their length if the background keeps less than this share of its variance
# when the mean of each line is subtracted.
_CONSTANT_LINES = 0.5
_LONG = 4  # a strip is at least this many times as long as wide
_LARGE_IMAGE = 2**24  # pixels; larger images use squares with stride 4, in a third of the time


@dataclass(frozen=True, eq=False, repr=False)
class SuppressedBackground:
    """Result of `suppress_background`: an image without its background, and reasons to doubt it.

    Parameters
    ----------
    image : array
        The image or stack that the background was removed from; it is not copied.
    denoised : array of the image's shape
        The image without the pattern, in units of the image, or the optical density for
        multiplicative light. The type is float32, or float64 if the image's type is wider.
    estimator : StructuredBackgroundRemover, FrameBackgroundRemover or a tuple of them
        The fitted model, or one for each channel if there are channels. It can be saved, applied to
        other images (``sampling.map(estimator.transform, image) + brightness``) and passed to
        `weight_maps`. If the image was filtered twice, ``denoised`` is better than the result of
        this model; see the notes of `suppress_background`.
    verdicts : tuple of Verdict
        Reasons to doubt the result; empty if there are none.
    sampling : Patches, Frames or a tuple of them
        How the image was cut into samples; a tuple holds one sampling for each channel.
    brightness : float or tuple of float
        Constant that was added to the result of ``estimator.transform`` so that the image is as
        bright as before. With ``brightness="keep"``, it is the mean of the part that the estimator
        removes, which is about the mean of the background. With ``brightness="remove"``, and for
        frames, it is 0. A tuple holds one constant for each channel.
    """

    image: Any
    denoised: Any
    estimator: Estimator | tuple[Estimator, ...]
    verdicts: tuple[Verdict, ...]
    sampling: Patches | Frames | tuple[Patches | Frames, ...]
    brightness: float | tuple[float, ...] = 0.0

    @property
    def removed(self) -> NDArray[Any]:
        """Removed part of the image, ``image - denoised``; it should show no trace of the signal.

        It is computed on every access, and a stored image is read each time. For multiplicative
        light it has no meaning, because ``denoised`` is then an optical density.
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
    background_mask: ArrayLike | None = None,
    sampling: Patches | Frames | Literal["patches", "frames"] = "patches",
    brightness: Brightness = "keep",
    background_strength: Literal["auto", "varying", "constant"] = "auto",
    channel_axis: int | None = None,
    multiplicative: bool = False,
    dark: Image | None = None,
    apply_to: Image | None = None,
    out: Any = None,
    progress: Progress = False,
) -> SuppressedBackground:
    """Remove a structured background from an image or stack: stripes, fringes, grids, texture.

    A `StructuredBackgroundRemover` on patches, or a `FrameBackgroundRemover` on whole frames, is
    fitted to the image and to places that show only background. There is nothing to tune.

    Parameters
    ----------
    image : array of shape (..., height, width)
        Image or stack, in memory or stored (dask, zarr, HDF5, a TIFF file opened as an array). All
        images of a stack share one background. Divide by a flat field first, because uneven
        illumination is multiplicative.
    background : array
        Boolean mask of the image that is True where there is background without signal. Its shape
        is that of the image, or (height, width) for all images of a stack. About 100 x 100 pixels
        are enough if the pattern repeats within them. The background may also be another image or
        stack of any height and width that shows only background. With ``sampling="frames"``, give a
        mask with one value for each frame, which is True for frames without signal, or give another
        stack of such frames.
    background_mask : array-like of bool, optional
        If `background` is another image or stack: the mask that is True where it shows only
        background. The shape of the mask is that of `background`, or (height, width). With
        ``sampling="frames"``, its shape is that of the leading axes of `background`. By default
        all of `background` is used.
    sampling : Patches, Frames, "patches" or "frames", default="patches"
        How samples are cut from the image. "patches" are windows with a stride of 2 pixels (4 for
        squares in images of more than 2**24 pixels). They are squares of 16 x 16 pixels, or strips
        of 6 x 64 pixels along the lines if the background consists of lines along an axis. "frames"
        are whole frames of any size, for a series whose background recurs in the same place.
    brightness : {"keep", "remove"}, default="keep"
        For patches: whether the image stays as bright as it is ("keep"), or the mean of the
        background is subtracted together with its pattern ("remove"). Choose "remove" if the
        background is a dark ground that should become 0, as in fluorescence. Lines are then removed
        with a smaller error. A dark ground and a dark part of a photograph look alike, so this is
        not decided automatically. The result's ``brightness`` is the mean that was kept.
    background_strength : {"auto", "varying", "constant"}, default="auto"
        For patches: whether the strength of the background may differ from place to place; see
        `StructuredBackgroundRemover`. "auto" is "constant" for strips on a dark ground, that is
        with ``brightness="remove"``, and "varying" otherwise. Strips on a dark ground need
        "constant", because a strip shows only a few lines of random brightness, and their
        differences would be mistaken for a change of strength. Photographs need "varying", because
        a constant strength would remove flat areas that differ from the background in brightness
        only.
    channel_axis : int, optional
        Axis of the image that holds channels. Each channel has its own background. A background
        image must have the same channels in the same axis; a mask is shared by all channels.
    multiplicative : bool, default=False
        For frames: whether light is absorbed, as in absorption images, transmission and bright
        field. The result is then the optical density.
    dark : array of shape (height, width) or (..., height, width), optional
        For multiplicative light: frames that the camera recorded without light. Their mean is
        subtracted from all other frames.
    apply_to : array, optional
        Image or stack from which the background is removed in place of `image`, which is then used
        only for fitting. Examples are one frame of a film, or the part of an image on the screen.
    out : array of the shape of the image that the background is removed from, optional
        Array to write the result to. A `numpy.memmap` or a zarr array can hold a result larger than
        memory.
    progress : bool or callable, default=False
        Show progress bars with tqdm, or with a callable that is called as
        ``progress(iterable, total=, desc=)``. An exception that it raises during iteration stops
        the work and is passed on.

    Returns
    -------
    SuppressedBackground

    Raises
    ------
    ValueError
        If no window fits into the image or the background, the mask has a wrong shape or is True
        everywhere or nowhere, the background is constant, a pixel is NaN or infinite, or frames are
        too few, too large or of different shapes.
    TypeError
        If pixels are not real numbers, or entries are masked.

    See Also
    --------
    StructuredBackgroundRemover, FrameBackgroundRemover : The models and their references.
    verdicts : The checks of the result.

    Notes
    -----
    If strips are chosen for an image, it may be filtered twice, because a line is longer than a
    strip. The part that the first filtering removes is averaged along each whole line, and this
    average is subtracted from the image. If the background then has less than half of its variance,
    windows are chosen and fitted again, and ``denoised`` is the second result. Otherwise the lines
    change along their length, and ``denoised`` is the first result. All other attributes describe
    the first fit. A second filtering needs an image or stack of at most 2**24 pixels in all that
    contains the background. It is omitted if `sampling` or `apply_to` is given.

    For patches, a map of the signal's strength around each pixel is computed by
    ``sampling.map(lambda rows: result.estimator.strengths(rows)[:, :1], image)``.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.images import suppress_background
    >>> rng = np.random.default_rng(0)
    >>> clean = np.kron(rng.random((9, 9)) < 0.2, np.full((16, 16), 3.0))
    >>> clean[:, :48] = 0
    >>> y, x = np.mgrid[:144, :144]
    >>> fringes = np.cos(0.6 * x + 0.3 * y)
    >>> image = clean + fringes + 0.1 * rng.normal(size=(144, 144))
    >>> empty = np.zeros((144, 144), dtype=bool)
    >>> empty[:, :48] = True
    >>> result = suppress_background(image, empty)
    >>> bool(((result.denoised - clean) ** 2).mean() < 0.1 * ((image - clean) ** 2).mean())
    True
    >>> result.verdicts
    ()
    """
    if channel_axis is not None:
        for name, given in (("background_mask", background_mask), ("apply_to", apply_to)):
            if given is not None:
                raise ValueError(
                    f"{name} cannot be combined with channel_axis={channel_axis}; call "
                    "suppress_background for each channel."
                )
        return _suppress_by_channel(
            image,
            background,
            channel_axis,
            out,
            sampling=sampling,
            brightness=brightness,
            background_strength=background_strength,
            multiplicative=multiplicative,
            dark=dark,
            progress=progress,
        )
    samples = _samples(sampling)
    check_choice(brightness, "brightness", ("keep", "remove"))
    check_choice(background_strength, "background_strength", ("auto", *STRENGTHS))
    check_flag(multiplicative, "multiplicative")
    stack, reference = array_of(image, "the image"), array_of(background, "the background")
    target = stack if apply_to is None else array_of(apply_to, "apply_to")
    if out is not None:
        check_out(out, target)
    mask: BoolArray | None
    if background_mask is not None:
        mask, source = truth_values(background_mask, "the background"), reference
    else:
        mask = mask_or_image(reference, _mask_shapes(samples, stack))
        source = reference if mask is None else stack
    if isinstance(samples, Frames):
        remover = FrameBackgroundRemover(_frame_shape(stack, source), multiplicative=multiplicative)
        signal = None if mask is None or source is reference else ~mask
        both = (stack, signal, "the image"), (source, mask, "the background")
        return _suppress_by_frames(remover, both, dark, target, out, progress)
    if multiplicative:
        raise ValueError(
            "multiplicative=True needs sampling='frames'. For a single image, take the logarithm "
            "first, or divide the image by a flat field."
        )
    if not isinstance(sampling, Patches):
        samples = _suitable_windows(stack, source, mask, target)
    options = background_strength, brightness, progress
    result = _suppress_by_patches(samples, stack, source, mask, target, out, *options)
    small = math.prod(map(int, stack.shape)) <= _LARGE_IMAGE
    if _are_strips(samples) and sampling == "patches" and source is stack is target and small:
        lines = _whole_lines(result.removed, samples)
        whole = np.asarray(stack[...])
        rest = np.subtract(whole, lines, dtype=result.denoised.dtype)
        if rest[..., mask].var() < _CONSTANT_LINES * whole[..., mask].var():
            windows = _suitable_windows(rest, rest, mask, rest)
            _filtered(windows, rest, rest, mask, rest, result.denoised, *options)
    return result


def _suitable_windows(stack: Any, source: Any, mask: BoolArray | None, target: Any) -> Patches:
    """Return squares, or strips along lines if they suit the background and fit the images."""
    Patches(SQUARE).rows(source, mask, name="the background")  # raises if the mask does not fit
    size = window_size(source, mask)
    if any(side > n for each in (stack, target) for side, n in _window_and_image_sides(size, each)):
        size = SQUARE  # the strips fit into the background, but not into these images
    wide = math.prod(map(int, stack.shape[-2:])) > _LARGE_IMAGE and size[0] == size[1]
    return Patches(size, 4 if wide else Patches.stride)


def _whole_lines(removed: NDArray[Any], strips: Patches) -> NDArray[Any]:
    """Return the removed part of an image averaged along each line, minus the overall mean.

    A line is longer than a strip, so its mean over the whole image has a smaller error.
    """
    along = -1 if strips.sides[1] > strips.sides[0] else -2
    lines = removed.mean(axis=along, keepdims=True)
    return np.asarray(lines - lines.mean(axis=(-2, -1), keepdims=True))


class _Filtered(NamedTuple):
    """A fitted remover, its result, the brightness that was kept, and the signal's variance."""

    remover: StructuredBackgroundRemover
    denoised: Any
    brightness: float
    spread: float


def _filtered(
    samples: Patches,
    stack: Any,
    source: Any,
    mask: BoolArray | None,
    target: Any,
    out: Any,
    strength: str,
    brightness: Brightness,
    progress: Progress,
) -> _Filtered:
    """Fit a remover to patches of the image and of the background, and apply it to `target`.

    `stack` is the image, and `source` is the image that shows the background where `mask` is True.
    """
    if strength == "auto":
        lines_on_dark = _are_strips(samples) and brightness == "remove"
        strength = "constant" if lines_on_dark else "varying"
    moments = _moments(samples, source, mask, "the background", progress)
    remover = StructuredBackgroundRemover(background_strength=strength)  # type: ignore[arg-type]
    remover.fit(
        _moments(samples, stack, None, "the image", progress),
        background=stationary_moments(moments, samples.sides),
    )
    removed, spread = _removed_and_spread(remover, samples, stack, None)
    kept = removed if brightness == "keep" else 0.0
    denoised = samples.map(
        lambda rows: remover.transform(rows) + kept, target, out=out, progress=progress
    )
    return _Filtered(remover, denoised, kept, spread)


def _suppress_by_patches(
    samples: Patches,
    stack: Any,
    source: Any,
    mask: BoolArray | None,
    target: Any,
    out: Any,
    strength: str,
    brightness: Brightness,
    progress: Progress,
) -> SuppressedBackground:
    n_pixels = math.prod(map(int, source.shape)) if mask is None else _n_marked(mask, source)
    part = stack
    if len(samples.sides) == 2:  # a part of a large stack is enough for fitting
        part, _ = excerpt(stack, None, progress)
        source, mask = excerpt(source, mask, progress)
    options = strength, brightness, progress
    filtered = _filtered(samples, part, source, mask, target, out, *options)
    remover = filtered.remover
    found = verdicts(
        block_moments(samples, part, name="the image", progress=progress),
        block_moments(samples, source, mask, name="the background", progress=progress),
    )
    found = (*found, *background_too_small(n_pixels, samples.sides))
    smooth = False
    shortest = min(EXAMINED_SIDE, *part.shape[-2:])
    if len(samples.sides) == 2 and max(samples.sides) <= shortest:
        smooth, better = smooth_background(
            lambda image: samples.map(remover.transform, image), part, source, mask
        )
        if better:  # a smooth background is not also reported as camera noise
            found = tuple(each for each in found if each.kind != "unstructured background")
        found = (*found, *better)
    if not smooth and not found:
        within = _removed_and_spread(remover, samples, source, mask)[1]
        found = tuple(background_holds_signal(within / filtered.spread if filtered.spread else 0.0))
    return SuppressedBackground(
        target, filtered.denoised, remover, found, samples, filtered.brightness
    )


def _removed_and_spread(
    remover: StructuredBackgroundRemover, sampling: Patches, stack: Any, mask: BoolArray | None
) -> tuple[float, float]:
    """Return the mean of the removed part and the variance of the signal, from some windows."""
    rows = sampling.rows(stack, mask)
    n = rows.shape[0]
    windows = rows.take(np.unique(np.linspace(0, n - 1, _SOME_WINDOWS).round().astype(int))).load()
    signal = remover.transform(windows)
    return float((windows - signal).mean()), float(signal.var())


def _suppress_by_channel(
    image: Image, background: Image, axis: int, out: Any, **options: Any
) -> SuppressedBackground:
    """Remove the background of each channel separately."""
    stack, reference = array_of(image, "the image"), array_of(background, "the background")
    n_axes = len(stack.shape)
    check_count(axis, "channel_axis", at_least=-n_axes, at_most=n_axes - 1)
    axis %= n_axes
    if out is None:
        dtype = np.dtype(getattr(stack, "dtype", np.float64))
        out = np.empty(stack.shape, np.result_type(dtype, np.float32))
    check_out(out, stack)
    has_channels = len(reference.shape) == n_axes
    results = []
    for channel in range(int(stack.shape[axis])):
        where = (*(slice(None),) * axis, channel)
        behind = reference[where] if has_channels else reference
        result = suppress_background(stack[where], behind, **options)
        out[where] = result.denoised
        results.append(result)
    said = tuple(
        replace(verdict, sentence=f"Channel {channel}: {verdict.sentence}")
        for channel, result in enumerate(results)
        for verdict in result.verdicts
    )
    estimators, samplings, brightness = zip(
        *((result.estimator, result.sampling, result.brightness) for result in results), strict=True
    )
    return SuppressedBackground(stack, out, estimators, said, samplings, brightness)


def _suppress_by_frames(
    remover: FrameBackgroundRemover,
    both: Sequence[tuple[Any, BoolArray | None, str]],
    dark: Image | None,
    target: Any,
    out: Any,
    progress: Progress,
) -> SuppressedBackground:
    """Remove the background of frames; `both` is (stack, mask, name) of signal and background."""
    frames, others = (Frames().rows(stack, mask, name=name) for stack, mask, name in both)
    others = others.replace(progress=progress)
    dark_frame = None if dark is None else _mean_frame(dark)
    remover.fit(frames, background=others, dark=dark_frame)
    denoised = Frames().map(remover.transform, target, out=out, progress=progress)
    if remover.method_ == "library":
        found = library_verdicts(remover, frames, others)
    else:
        blocks = [
            block_moments(Frames(), stack, mask, name=name, progress=progress)
            for stack, mask, name in both
        ]
        found = verdicts(*blocks)
        if not remover.n_components_ and "layers probably swapped" not in {v.kind for v in found}:
            found = (*found, too_few_frames(_components_exchanged(remover, frames, others)))
    return SuppressedBackground(target, denoised, remover, found, Frames())


def _window_and_image_sides(size: tuple[int, int], stack: Any) -> Iterator[tuple[int, int]]:
    """Yield, for each axis, the side of the windows and the side of the images."""
    return zip(size, map(int, stack.shape[-2:]), strict=True)


def _components_exchanged(remover: FrameBackgroundRemover, frames: Any, others: Any) -> int:
    """Return how many components are detected if foreground and background are exchanged."""
    try:
        return int(clone(remover).fit(others, background=frames).n_components_)
    except ValueError:  # the frames with signal are fewer than four, or constant
        return 0


def _samples(sampling: object) -> Patches | Frames:
    if isinstance(sampling, Patches | Frames):
        return sampling
    known: dict[str, Patches | Frames] = {"patches": Patches(), "frames": Frames()}
    return known[check_choice(sampling, "sampling", known, "Patches() or Frames()")]


def _are_strips(sampling: Patches) -> bool:
    sides = sampling.sides
    return len(sides) == 2 and max(sides) >= _LONG * min(sides)


def _n_marked(mask: BoolArray, stack: Stack) -> int:
    """Return the number of pixels of a stack for which a mask is True."""
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
            f"the background's frames have {other[0]} x {other[1]} pixels, but the image's frames "
            f"have {shape[0]} x {shape[1]}; give frames of the same height and width."
        )
    # If the stack has too few axes, reading its frames will raise an error.
    return (shape[0], shape[1]) if len(shape) == 2 else (1, 1)


def _mean_frame(dark: Image) -> NDArray[np.float64]:
    frames = np.asarray(array_of(dark, "dark")[...], np.float64)
    return np.asarray(frames.mean(axis=tuple(range(frames.ndim - 2))))


def _moments(
    sampling: Patches, stack: Any, mask: BoolArray | None, name: str, progress: Progress
) -> SecondMoments:
    """Return the moments of the patches; the stride is smaller if there are few patches."""
    stride = min(sampling.stride, wide_stride(sampling, stack, mask))
    rows = Patches(sampling.size, stride).rows(stack, mask, name=name)
    return SecondMoments.from_data(rows.replace(progress=progress))
