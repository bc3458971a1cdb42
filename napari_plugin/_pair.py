"""The images to work on and where their background is alone, checked before a pixel is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import Frames
from napari_plugin._settings import (
    BoolArray,
    InputError,
    Report,
    Samples,
    Settings,
    no_report,
)

_FEWEST_WINDOWS = 64
_MOST_READ = 2**24  # pixels of background, which are enough to learn from
_FAR = 8.0  # times the median deviation of tiles


@dataclass(frozen=True, eq=False)
class Images:
    """Images (..., height, width), in memory or lazy, and the name that messages use."""

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
    def dtype(self) -> np.dtype[Any]:
        """Type of the pixels."""
        return np.dtype(getattr(self.data, "dtype", np.float64))

    def plane(
        self, number: int, box: tuple[slice, slice] = (slice(None), slice(None))
    ) -> NDArray[Any]:
        """Return a box of one image, by its number over all leading axes."""
        place = map(int, np.unravel_index(number, self.shape[:-2]))
        return np.asarray(self.data[(*place, *box)])

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
        The images whose background is to be removed.
    background : Images, optional
        Images of the background alone, or None where it is in the same images.
    mask : ndarray of bool, optional
        Where in the same images the background is alone: pixels, of shape (height, width) or of
        the stack's shape; or frames, of the shape of the leading axes.
    """

    foreground: Images
    background: Images | None = None
    mask: BoolArray | None = None

    @property
    def behind(self) -> Images:
        """The images that hold the background."""
        return self.background or self.foreground

    def numbers(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the numbers of the frames with signal, and of those of the background."""
        if self.mask is None:
            return np.arange(self.foreground.n_images), np.arange(self.behind.n_images)
        return np.flatnonzero(~self.mask), np.flatnonzero(self.mask)

    def background_alone(self, report: Report, *, crop: bool) -> tuple[Any, BoolArray | None]:
        """Return a stack that shows the background, and where in it.

        With `crop`, or where the mask marks frames, the marked part of some images is read.
        """
        mask = self.mask
        if mask is None or not (crop or self.masks_frames):
            return self.behind.data, mask
        box, inside, shape = (slice(None), slice(None)), None, self.foreground.image_shape
        numbers = np.arange(self.foreground.n_images)
        if self.masks_frames:
            numbers = self.numbers()[1]
        else:
            box = box_of(mask)
            inside = mask[..., *box]
            shape = inside.shape[-2:]
            if mask.ndim > 2:
                inside = inside.reshape(-1, *shape)
                numbers = np.flatnonzero(inside.any(axis=(1, 2)))
        numbers = spread(numbers, max(1, _MOST_READ // math.prod(shape)))
        stack = load(self.foreground, numbers, report, "Reading", box)
        return stack, inside[numbers] if inside is not None and inside.ndim > 2 else inside

    @property
    def masks_frames(self) -> bool:
        """Whether the mask marks frames rather than pixels."""
        mask = self.mask
        return mask is not None and mask.shape == self.foreground.shape[:-2]


def load(
    images: Images,
    numbers: NDArray[np.intp],
    report: Report,
    doing: str,
    box: tuple[slice, slice] = (slice(None), slice(None)),
) -> NDArray[Any]:
    """Return a box of some images of a stack in memory, (n, height, width)."""
    found = []
    for done, number in enumerate(numbers):
        report(done, len(numbers), f"{doing} {images.name}")
        found.append(images.plane(int(number), box))
    return np.stack(found)


def spread(numbers: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return at most so many of the numbers, evenly spread."""
    if len(numbers) <= most:
        return numbers
    return np.asarray(numbers[np.linspace(0, len(numbers) - 1, most).round().astype(int)])


def missing(images: Images, number: int) -> InputError:
    """Return the error for pixels that are NaN or infinite."""
    where = f", first in frame {number}" if images.n_images > 1 else ""
    return InputError(
        f"{images.name!r} has empty (NaN) or infinite pixels{where}. Fill them with the value of "
        "empty background, or crop them away."
    )


@contextmanager
def in_words(pair: Pair, report: Report = no_report) -> Iterator[None]:
    """Raise errors of the core about pixels as errors for the user."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        text = str(error)
        if "NaN or infinite" in text:
            images = pair.behind if "the background has NaN" in text else pair.foreground
            raise _first_missing(images, report) from error
        if "constant" in text and "background" in text:
            raise _constant(pair) from error
        if "lies in the mask" in text:
            raise InputError(
                "No patch lies in the background area. Draw a larger one; about 100 x 100 pixels "
                "are enough."
            ) from error
        raise


def _first_missing(images: Images, report: Report) -> InputError:
    for number in range(images.n_images - 1):
        report(number, images.n_images, "Looking for missing pixels")
        if not np.isfinite(images.plane(number)).all():
            return missing(images, number)
    return missing(images, images.n_images - 1)


def _constant(pair: Pair) -> InputError:
    where = f" ({pair.background.name!r})" if pair.background else ""
    return InputError(
        f"The background{where} is the same everywhere, so that it has no pattern to be learnt. "
        "Choose an area, frames or a layer in which the disturbance can be seen."
    )


def check(pair: Pair, samples: Samples, settings: Settings) -> None:
    """Refuse choices that cannot work, without reading a pixel.

    Raises
    ------
    InputError
        With what to do instead.
    """
    for images in (pair.foreground, pair.behind):
        if len(images.shape) < 2 or not math.prod(images.shape):
            raise InputError(f"{images.name!r} holds no image. Choose a layer with one.")
        if images.dtype.kind not in "biuf":
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
    if isinstance(samples, Frames):
        _check_frames(pair)
    else:
        _check_patches(pair, samples)
    if settings.method == "automatic":
        return
    most = n_pixels(pair, samples) - 1
    if isinstance(samples, Frames):
        most = min(most, pair.foreground.n_images - 1)
    if not 1 <= settings.n_components <= most:
        raise InputError(
            f"{settings.n_components} components are to be kept, but {pair.foreground.name!r} "
            f"allows 1 to {most}. Choose fewer, or a longer film."
        )


def n_pixels(pair: Pair, samples: Samples) -> int:
    """Return the number of pixels of a sample."""
    if isinstance(samples, Frames):
        return math.prod(pair.foreground.image_shape)
    return math.prod(samples.sides)


def n_windows(shape: tuple[int, int], side: int, stride: int) -> int:
    """Return the number of patches of an image."""
    return math.prod(-(-(n - side) // stride) + 1 for n in shape)


def _check_frames(pair: Pair) -> None:
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


def _check_patches(pair: Pair, samples: Any) -> None:
    side = samples.sides[-1]
    for images in (pair.foreground, pair.behind):
        if min(images.image_shape) < side:
            raise InputError(
                f"Images of {images.name!r} are {images.pixels}, smaller than a patch of {side} x "
                f"{side}. Choose a smaller patch under Method, or compare whole frames."
            )
    if pair.mask is None:
        return
    if pair.masks_frames:
        if len(pair.foreground.shape) == 2:
            raise InputError("A single image has no range of frames. Draw a box instead.")
        return
    height, width = (side.stop - side.start for side in box_of(pair.mask))
    if not is_large_enough((height, width), side):
        raise InputError(
            f"The background area is {height} x {width} pixels, too small for patches of {side} x "
            f"{side}. Draw a larger one; about 100 x 100 pixels are enough."
        )


def box_of(mask: BoolArray) -> tuple[slice, slice]:
    """Return rows and columns of the smallest box around the marked pixels."""
    planes = mask.reshape(-1, *mask.shape[-2:])
    rows, columns = (np.flatnonzero(planes.any(axis=axes)) for axes in ((0, 2), (0, 1)))
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def is_large_enough(box: tuple[int, int], side: int) -> bool:
    """Return whether a box holds enough patches of a side to learn anything from."""
    return min(box) >= side and n_windows(box, side, 1) >= _FEWEST_WINDOWS


def holds_signal(box: NDArray[Any]) -> bool:
    """Return whether a part of a box of background differs from the rest of it.

    A pattern covers the whole box, so that small tiles of it have similar means and deviations.
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
    """Return an array as a dask array, of these chunks or its own; nothing is read."""
    da: Any = import_module("dask.array")  # without types
    if isinstance(data, da.Array):
        return data if chunks is None else data.rechunk(chunks)
    own = getattr(data, "chunks", None) or (*(1,) * (len(data.shape) - 2), *data.shape[-2:])
    return da.from_array(data, chunks=chunks or own, name=False)
