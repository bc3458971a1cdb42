"""Structured background out of images, in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import check_choice, check_unmasked
from contrast_core.images._background_remover import StructuredBackgroundRemover
from contrast_core.images._blocks import block_moments, wide_stride
from contrast_core.images._patches import Patches
from contrast_core.images._sampling import BoolArray
from contrast_core.images._stacks import Stack
from contrast_core.images._verdicts import Verdict, verdicts
from contrast_core.moments import SecondMoments

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
    estimator : StructuredBackgroundRemover
        What was fitted: it can be saved, applied to other images (`Patches.map`) and asked for
        `weight_maps`.
    verdicts : tuple of Verdict
        What speaks against the result; empty if nothing does.
    """

    denoised: NDArray[Any]
    removed: NDArray[Any]
    estimator: StructuredBackgroundRemover
    verdicts: tuple[Verdict, ...]


def suppress_background(
    image: Image,
    background: Image,
    *,
    sampling: Patches | Literal["patches"] = "patches",
    background_strength: Literal["varying", "constant"] = "varying",
) -> SuppressedBackground:
    """Remove a structured background from an image or stack: stripes, fringes, grids, texture.

    What the background shows wherever it is looked at is learnt from where it is alone, by a
    `StructuredBackgroundRemover` on patches. There is nothing to tune.

    Parameters
    ----------
    image : array of shape (..., height, width)
        In memory or stored: dask, zarr, HDF5, a TIFF file opened as an array. All images of a stack
        share one background. Divide by a flat field first: illumination multiplies.
    background : array
        Where the background is alone: a boolean mask of the image's shape, or of (height, width)
        for all images of a stack, True on background without signal (some 100 x 100 pixels of it,
        where the pattern repeats within that); or another image or stack, of any height and width,
        that holds nothing else.
    sampling : Patches or "patches", default="patches"
        The windows that are looked at; "patches" are 16 x 16 pixels, every second one.
    background_strength : {"varying", "constant"}, default="varying"
        Whether the background may be weaker or stronger from place to place, see
        `StructuredBackgroundRemover`.

    Returns
    -------
    SuppressedBackground

    Raises
    ------
    ValueError
        If no window fits into the image or the background, the mask has another shape, is nowhere
        or everywhere True, the background is constant, or a pixel is NaN or infinite.
    TypeError
        If pixels are no real numbers, or entries are masked.

    See Also
    --------
    StructuredBackgroundRemover : The model, and where it comes from.
    verdicts : What is checked.

    Notes
    -----
    How strong the signal is around each pixel is shown by
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
    if not isinstance(sampling, Patches):
        check_choice(sampling, "sampling", ["patches"], "a Patches()")
        sampling = Patches()
    stack, behind = _as_stack(image, "the image"), _as_stack(background, "the background")
    mask = _mask(behind, stack)
    source = behind if mask is None else stack
    estimator = StructuredBackgroundRemover(background_strength=background_strength)
    estimator.fit(
        _moments(sampling, stack, None, "the image"),
        background=_moments(sampling, source, mask, "the background"),
    )
    denoised = sampling.map(estimator.transform, stack)
    found = verdicts(
        block_moments(sampling, stack, name="the image"),
        block_moments(sampling, source, mask, name="the background"),
    )
    removed = np.subtract(np.asarray(stack[...]), denoised, dtype=denoised.dtype)
    return SuppressedBackground(denoised, removed, estimator, found)


def _moments(sampling: Patches, stack: Any, mask: BoolArray | None, name: str) -> SecondMoments:
    """Moments of the patches, and of those between them where they are few."""
    n_pixels = math.prod(stack.shape) if mask is None else int(mask.sum())
    stride = min(sampling.stride, wide_stride(sampling, n_pixels).stride)
    return SecondMoments.from_data(Patches(sampling.size, stride).rows(stack, mask, name=name))


def _as_stack(image: Image, name: str) -> Any:
    check_unmasked(image, name)
    return image if hasattr(image, "shape") else np.asarray(image)


def _mask(background: Any, stack: Any) -> BoolArray | None:
    """The background as a mask, or None if it is an image of its own."""
    if np.dtype(getattr(background, "dtype", np.float64)) != np.bool_:
        return None
    mask = np.asarray(background[...])
    if mask.all():
        raise ValueError(
            "the background's mask is True everywhere, so that no place is left for signal; mark "
            "only where there is background and nothing else."
        )
    return mask
