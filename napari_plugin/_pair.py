"""The images to work on and where their background is alone: checked before a pixel is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_plugin._settings import (
    LARGEST_AUTOMATIC_FRAME,
    InputError,
    Samples,
    Settings,
    is_frames,
)

BoolArray = NDArray[np.bool_]

_FEWEST_WINDOWS = 64


@dataclass(frozen=True, eq=False)
class Images:
    """Images (..., height, width), in memory or lazy, and the name that messages call them by."""

    name: str
    data: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stack."""
        return tuple(map(int, self.data.shape))

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of an image."""
        return self.shape[-2], self.shape[-1]

    @property
    def n_images(self) -> int:
        """Number of images over all leading axes."""
        return math.prod(self.shape[:-2])

    @property
    def pixels(self) -> str:
        """Size of an image, in words."""
        return "{} x {} pixels".format(*self.image_shape)


@dataclass(frozen=True, eq=False)
class Pair:
    """Images, and where their background is alone.

    Parameters
    ----------
    foreground : Images
        What is to be freed of its background.
    background : Images, optional
        Images of the background alone, or None where it is in the same images.
    mask : ndarray of bool, optional
        Where in the same images the background is alone: of their height and width, or of the whole
        stack's shape; or which frames, of the shape of the leading axes.
    """

    foreground: Images
    background: Images | None = None
    mask: BoolArray | None = None

    @property
    def behind(self) -> Images:
        """The images that hold the background."""
        return self.background or self.foreground

    @property
    def masks_frames(self) -> bool:
        """Whether the mask says which frames are background, rather than which pixels."""
        return self.mask is not None and self.mask.shape == self.foreground.shape[:-2]


def check(pair: Pair, samples: Samples, settings: Settings) -> None:
    """Refuse, before any pixel is read, what cannot work.

    Raises
    ------
    InputError
        With what to do instead.
    """
    for images in (pair.foreground, pair.background):
        if images is not None:
            _check_images(images)
    if pair.background is None and pair.mask is None:
        raise InputError(
            "Say where the background is alone: press Draw background and draw a rectangle over an "
            "area without signal, or choose another layer that shows the background only."
        )
    if pair.mask is not None and (pair.mask.all() or not pair.mask.any()):
        where = "everywhere" if pair.mask.all() else "nowhere"
        raise InputError(
            f"The background is marked {where} in {pair.foreground.name!r}. Mark only a part of it "
            "that shows background and no signal."
        )
    if is_frames(samples):
        _check_frames(pair, settings)
    else:
        _check_patches(pair, samples)
    _check_components(pair, samples, settings)


def n_pixels(pair: Pair, samples: Samples) -> int:
    """Pixels of a sample."""
    if is_frames(samples):
        return math.prod(pair.foreground.image_shape)
    return math.prod(samples.sides)  # type: ignore[union-attr]


def n_windows(shape: tuple[int, int], side: int, stride: int) -> int:
    """How many patches an image has."""
    return math.prod(-(-(n - side) // stride) + 1 for n in shape)


def _check_images(images: Images) -> None:
    shape = images.shape
    if len(shape) < 2 or not math.prod(shape):
        raise InputError(f"{images.name!r} holds no image. Choose a layer with one.")
    dtype = np.dtype(getattr(images.data, "dtype", float))
    if dtype.kind not in "biuf":
        raise InputError(
            f"{images.name!r} has pixels that are not plain intensities. Choose a layer of "
            "intensities, such as the magnitude of complex pixels."
        )


def _check_frames(pair: Pair, settings: Settings) -> None:
    foreground, behind = pair.foreground, pair.behind
    for images in (foreground, behind):
        if len(images.shape) < 3 or images.n_images < 2:
            raise InputError(
                f"{images.name!r} is a single image. Whole frames are compared over a film or "
                "stack; for a single image choose small patches under Compare."
            )
    if foreground.image_shape != behind.image_shape:
        raise InputError(
            f"Frames of {foreground.name!r} are {foreground.pixels}, those of {behind.name!r} "
            f"{behind.pixels}. Choose layers with frames of the same size, or crop one of them."
        )
    if pair.mask is not None and not pair.masks_frames:
        raise InputError(
            "A drawn area marks pixels, but whole frames are compared: choose a range of frames "
            "without signal or another layer as the background, or compare small patches."
        )
    pixels = math.prod(foreground.image_shape)
    if settings.method == "automatic" and pixels > LARGEST_AUTOMATIC_FRAME:
        raise InputError(
            f"Frames of {foreground.pixels} are too large to be compared whole by background "
            "removal. Compare small patches, or choose contrastive PCA, which takes large frames."
        )
    n_background = int(pair.mask.sum()) if pair.mask is not None else behind.n_images
    n_frames = foreground.n_images - (n_background if pair.mask is not None else 0)
    if min(n_frames, n_background) < 4:
        raise InputError(
            f"There are {n_frames} frames with signal and {n_background} of background; at least 4 "
            "of each are needed, and some hundreds are better. Compare small patches instead, or "
            "take more frames."
        )


def _check_patches(pair: Pair, samples: Any) -> None:
    side = samples.sides[-1]
    for images in (pair.foreground, pair.behind):
        if min(images.image_shape) < side:
            raise InputError(
                f"Images of {images.name!r} are {images.pixels}, smaller than a patch of {side} x "
                f"{side}. Choose a smaller patch under Advanced, or compare whole frames."
            )
    if pair.mask is None:
        return
    if pair.masks_frames and len(pair.foreground.shape) == 2:
        raise InputError("A single image has no range of frames. Draw a rectangle instead.")
    if pair.masks_frames:
        return
    ys, xs = (np.flatnonzero(pair.mask.any(axis=tuple(axes))) for axes in _other_axes(pair.mask))
    height, width = int(ys[-1] - ys[0]) + 1, int(xs[-1] - xs[0]) + 1
    if min(height, width) < side or n_windows((height, width), side, 1) < _FEWEST_WINDOWS:
        raise InputError(
            f"The background area is {height} x {width} pixels, too small for patches of {side} x "
            f"{side}. Draw a larger one; about 100 x 100 pixels are enough."
        )


def _other_axes(mask: BoolArray) -> list[list[int]]:
    return [[axis for axis in range(mask.ndim) if axis != mask.ndim + kept] for kept in (-2, -1)]


def _check_components(pair: Pair, samples: Samples, settings: Settings) -> None:
    if settings.method == "automatic":
        return
    most = n_pixels(pair, samples) - 1
    if is_frames(samples):
        most = min(most, pair.foreground.n_images - 1)
    if not 1 <= settings.n_components <= most:
        raise InputError(
            f"{settings.n_components} patterns are to be kept, but {pair.foreground.name!r} allows "
            f"1 to {most}. Choose fewer, or a longer film."
        )
