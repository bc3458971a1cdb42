"""Images and the place of their background, with checks that need no pixels."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import Frames
from napari_plugin._settings import BoolArray, InputError, Report, Samples, Settings

_EVERYWHERE = slice(None), slice(None)
_FEWEST_WINDOWS = 64
_MOST_READ = 2**24  # largest number of background pixels that are read
_FAR = 8.0  # a tile differs if it is further from the median than this many median deviations


@dataclass(frozen=True, eq=False)
class Images:
    """Images (..., height, width), in memory or lazy, with a name that messages use."""

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
    def size(self) -> str:
        """Size of an image, in words."""
        return "{} x {} pixels".format(*self.image_shape)

    def read(
        self,
        numbers: NDArray[np.intp],
        report: Report,
        box: tuple[slice, slice] = _EVERYWHERE,
    ) -> NDArray[Any]:
        """Read a box from the images with the given numbers, as an array (n, height, width).

        The numbers count the images over all leading axes.

        Raises
        ------
        InputError
            If pixels are NaN or infinite.
        """
        found = []
        for done, number in enumerate(numbers):
            report(done, len(numbers), f"Reading {self.name}")
            place = map(int, np.unravel_index(number, self.shape[:-2]))
            found.append(np.asarray(self.data[(*place, *box)]))
            if not np.isfinite(found[-1]).all():
                raise self.missing(str(number))
        return np.stack(found)

    def missing(self, frame: str | None) -> InputError:
        """Return the error for pixels that are NaN or infinite."""
        where = f", first in frame {frame}" if frame and self.n_images > 1 else ""
        return InputError(
            f"{self.name!r} has empty (NaN) or infinite pixels{where}. Fill them with the value "
            "of empty background, or crop them away."
        )


@dataclass(frozen=True, eq=False)
class Pair:
    """Images, with the images or the area in which the background is seen without signal.

    Parameters
    ----------
    foreground : Images
        The images whose background is to be removed.
    background : Images, optional
        Images of the background alone, or None if `mask` marks it in the same images.
    mask : ndarray of bool, optional
        Marks the background in the same images. It marks pixels if it has the shape
        (height, width) or the shape of the stack, and frames if it has the shape of the leading
        axes.
    """

    foreground: Images
    background: Images | None = None
    mask: BoolArray | None = None

    @property
    def behind(self) -> Images:
        """The images that contain the background."""
        return self.background or self.foreground

    @property
    def masks_frames(self) -> bool:
        """Whether the mask marks frames rather than pixels."""
        return self.mask is not None and self.mask.shape == self.foreground.shape[:-2]

    def numbers(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the numbers of the frames with signal, and of the frames of background."""
        if self.mask is None:
            return np.arange(self.foreground.n_images), np.arange(self.behind.n_images)
        return np.flatnonzero(~self.mask), np.flatnonzero(self.mask)

    def background_alone(self, report: Report) -> tuple[Any, BoolArray | None]:
        """Return images of the background, cropped to the mask, and the cropped mask."""
        mask, images = self.mask, self.foreground
        if mask is None:
            return self.behind.data, None
        if self.masks_frames:
            most = max(1, _MOST_READ // math.prod(images.image_shape))
            return images.read(spread(self.numbers()[1], most), report), None
        box, numbers = box_of(mask), np.arange(images.n_images)
        inside = mask[(..., *box)]
        if mask.ndim > 2:
            inside = inside.reshape(-1, *inside.shape[-2:])
            numbers = np.flatnonzero(inside.any(axis=(1, 2)))
        numbers = spread(numbers, max(1, _MOST_READ // math.prod(inside.shape[-2:])))
        return images.read(numbers, report, box), inside[numbers] if mask.ndim > 2 else inside


def spread(numbers: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return at most `most` of the numbers, evenly spaced."""
    if len(numbers) <= most:
        return numbers
    return np.asarray(numbers[np.linspace(0, len(numbers) - 1, most).round().astype(int)])


@contextmanager
def in_words(pair: Pair) -> Iterator[None]:
    """Replace errors of `contrast_core` about pixels by errors that are worded for the user."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        text = str(error)
        if "NaN or infinite" in text:
            images = pair.behind if "the background has NaN" in text else pair.foreground
            frame = re.search(r"(?:at \[|of image )([\d, ]+)", text)
            raise images.missing(frame and frame[1]) from error
        if "constant" in text and "background" in text:
            where = f" ({pair.background.name!r})" if pair.background else ""
            raise InputError(
                f"The background{where} is the same everywhere, so that it has no pattern to be "
                "learnt. Choose one in which the disturbance can be seen."
            ) from error
        if "lies in the mask" in text:
            raise InputError(
                "No patch lies in the background area. Draw a larger one; about 100 x 100 pixels "
                "are enough."
            ) from error
        raise


def check(pair: Pair, samples: Samples, settings: Settings) -> None:
    """Check the choices without reading a pixel.

    Raises
    ------
    InputError
        If the choices cannot work; the message says what to do instead.
    """
    for images in (pair.foreground, pair.behind):
        if len(images.shape) < 2 or not math.prod(images.shape):
            raise InputError(f"{images.name!r} holds no image. Choose a layer with one.")
        if np.dtype(images.data.dtype).kind not in "biuf":
            raise InputError(
                f"{images.name!r} has pixels that are not plain intensities. Choose a layer of "
                "intensities, such as the magnitude of complex pixels."
            )
    if pair.background is None and pair.mask is None:
        raise InputError(
            "It is not known where the background is alone. Press Draw a box and draw one over an "
            "area without signal, or choose frames or another layer that show background only."
        )
    if pair.mask is not None and (pair.mask.all() or not pair.mask.any()):
        where = "everywhere" if pair.mask.all() else "nowhere"
        raise InputError(
            f"The background is marked {where} in {pair.foreground.name!r}. Mark only a part of it "
            "that shows background and no signal."
        )
    most = n_pixels(pair, samples) - 1
    if isinstance(samples, Frames):
        _check_frames(pair)
        most = min(most, pair.foreground.n_images - 1)
    else:
        _check_patches(pair, samples.sides[-1])
    if settings.method != "automatic" and not 1 <= settings.n_components <= most:
        raise InputError(
            f"{settings.n_components} components are to be kept, but {pair.foreground.name!r} "
            f"allows 1 to {most}. Choose fewer, or a longer film."
        )


def _check_frames(pair: Pair) -> None:
    foreground, behind = pair.foreground, pair.behind
    for images in (foreground, behind):
        if images.n_images < 2:
            raise InputError(
                f"{images.name!r} is a single image. Whole frames are compared over a film or "
                "stack; for a single image choose small patches under Compare."
            )
    if foreground.image_shape != behind.image_shape:
        raise InputError(
            f"Frames of {foreground.name!r} are {foreground.size}, those of {behind.name!r} "
            f"{behind.size}. Choose layers with frames of the same size, or crop one of them."
        )
    if pair.mask is not None and not pair.masks_frames:
        raise InputError(
            "A box marks pixels, but whole frames are compared. Choose frames or another layer as "
            "the background, or compare small patches."
        )
    n_frames, n_background = map(len, pair.numbers())
    if min(n_frames, n_background) < 4:
        raise InputError(
            f"There are {n_frames} frames with signal and {n_background} of background; at least 4 "
            "of each are needed, and some hundreds are better. Compare small patches instead, or "
            "take more frames."
        )


def _check_patches(pair: Pair, side: int) -> None:
    for images in (pair.foreground, pair.behind):
        if min(images.image_shape) < side:
            raise InputError(
                f"Images of {images.name!r} are {images.size}, smaller than a patch of {side} x "
                f"{side}. Choose a smaller patch under Method, or compare whole frames."
            )
    if pair.mask is None or pair.masks_frames:
        return
    if not is_large_enough(box_of(pair.mask), side):
        raise InputError(
            f"The background area is {sides_of(box_of(pair.mask))} pixels, too small for patches "
            f"of {side} x {side}. Draw a larger one; about 100 x 100 pixels are enough."
        )


def n_pixels(pair: Pair, samples: Samples) -> int:
    """Return the number of pixels of a sample."""
    if isinstance(samples, Frames):
        return math.prod(pair.foreground.image_shape)
    return math.prod(samples.sides)


def n_windows(shape: tuple[int, ...], side: int, stride: int) -> int:
    """Return the number of patches of an image."""
    return math.prod(-(-(n - side) // stride) + 1 for n in shape)


def box_of(mask: BoolArray) -> tuple[slice, slice]:
    """Return the rows and columns of the smallest box around the marked pixels."""
    planes = mask.reshape(-1, *mask.shape[-2:])
    rows, columns = (np.flatnonzero(planes.any(axis=axes)) for axes in ((0, 2), (0, 1)))
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def sides_of(box: tuple[slice, slice]) -> str:
    """Return the height and width of a box as text."""
    return " x ".join(str(side.stop - side.start) for side in box)


def is_large_enough(box: tuple[slice, slice], side: int) -> bool:
    """Return whether a box contains enough patches of this side length to fit a model."""
    sides = tuple(each.stop - each.start for each in box)
    return min(sides) >= side and n_windows(sides, side, 1) >= _FEWEST_WINDOWS


def holds_signal(box: NDArray[Any]) -> bool:
    """Return whether one part of a box of background differs from the rest, as signal would.

    A background pattern covers the whole box, so that small tiles have similar means and standard
    deviations.
    """
    side = max(4, min(box.shape) // 12)
    n = [length // side for length in box.shape]
    tiles = np.asarray(box[: n[0] * side, : n[1] * side], dtype=np.float64)
    tiles = tiles.reshape(n[0], side, n[1], side).swapaxes(1, 2).reshape(-1, side * side)
    for values in (tiles.mean(axis=1), tiles.std(axis=1)):
        far = np.abs(values - np.median(values))
        if far.max() > _FAR * max(np.median(far), 1e-300):
            return True
    return False


def as_dask(data: Any, chunks: tuple[int, ...] | None = None) -> Any:
    """Convert an array to a dask array with the given chunks or its own, without reading it."""
    da: Any = import_module("dask.array")  # has no type hints
    if isinstance(data, da.Array):
        return data if chunks is None else data.rechunk(chunks)
    own = getattr(data, "chunks", None) or (*(1,) * (len(data.shape) - 2), *data.shape[-2:])
    return da.from_array(data, chunks=chunks or own, name=False)
