"""Images and the places that show only their background, and checks of the user's choices."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
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
    progress_of,
)

_MOST_READ = 2**24  # largest number of background pixels that are read
# A tile of the background box differs from the rest if its mean or standard deviation is more than
# this many median absolute deviations from the median over all tiles.
_FAR = 8.0


@dataclass(frozen=True, eq=False)
class Images:
    """Images (..., height, width), in memory or lazy, with a name that messages use.

    Parameters
    ----------
    name : str
    data : array
    code : callable, optional
        Function that returns a Python expression for the array, which scripts use.
    first : tuple of int, optional
        Index of the first pixel of these images within the layer that they come from.
    """

    name: str
    data: Any
    code: Callable[[], str] = str
    first: tuple[int, ...] = ()

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

    def frames(self, mask: BoolArray | None, most: int, report: Report) -> tuple[Any, int | None]:
        """Read frames at even intervals: about `most` pixels in total, and at least eight frames.

        Returns
        -------
        frames : ndarray of shape (n, height, width)
        n_used : int or None
            The number of frames that were read, or None if all frames in the mask were read.
        """
        rows = Frames().rows(self.data, mask, name=repr(self.name))
        n, n_read = rows.shape[0], max(8, most // rows.shape[1])
        if n > n_read:
            rows = rows.take(np.linspace(0, n - 1, n_read).round().astype(int))
            # Frames are read one by one, because larger blocks would also read the frames between.
            rows = rows.replace(elements=1)
        frames = rows.replace(progress=progress_of(report)).load(dense=True)
        return frames.reshape(-1, *self.image_shape), n_read if n > n_read else None


@dataclass(frozen=True, eq=False)
class Pair:
    """Images whose background is to be removed, and the area or images that show only background.

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
    def background_images(self) -> Images:
        """The images that contain the background."""
        return self.background or self.foreground

    @property
    def signal(self) -> BoolArray | None:
        """Mask of the frames with signal, or None if all frames have signal."""
        return ~self.mask if self.mask is not None and self.masks_frames else None

    @property
    def masks_frames(self) -> bool:
        """Whether the mask marks frames rather than pixels."""
        return self.mask is not None and self.mask.shape == self.foreground.shape[:-2]

    def background_alone(self, report: Report) -> tuple[Any, BoolArray | None]:
        """Return images of the background, cropped to the mask, and the cropped mask."""
        mask, data = self.mask, self.background_images.data
        if mask is None:
            return data, None
        if self.masks_frames:
            return self.background_images.frames(mask, _MOST_READ, report)[0], None
        box: Any = (..., *box_of(mask))
        return sliceable(data)[box], mask[box]


@contextmanager
def explained_errors(pair: Pair) -> Iterator[None]:
    """Convert errors of `contrast_core` to input errors that name the layers."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        image, background = pair.foreground.name, pair.background_images.name
        text = re.sub(r"\bthe background\b(?!')", lambda _: repr(background), str(error))
        text = re.sub(r"\bthe (image|stack)\b(?!')", lambda _: repr(image), text)
        raise InputError(text[:1].upper() + text[1:]) from error


def check(pair: Pair, samples: Samples, settings: Settings) -> None:
    """Check the choices without reading pixels.

    `contrast_core` makes all other checks.

    Raises
    ------
    InputError
        If the choices cannot be used. The message says what to do instead.
    """
    images, mask = pair.foreground, pair.mask
    for each in (images, pair.background_images):
        if np.dtype(each.data.dtype).kind not in "biuf":
            raise InputError(
                f"{each.name!r} has pixels that are not plain intensities. Choose a layer of "
                "intensities, such as the magnitude of complex pixels."
            )
    if pair.background is None and mask is None:
        raise InputError(
            "No background is marked. Press Draw a box, and drag a box over an area without "
            "signal. Alternatively choose frames or another layer that show only background."
        )
    if mask is not None and mask.all():
        raise InputError(
            f"All of {images.name!r} is marked as background. Mark only a part of it that "
            "shows background and no signal."
        )
    most = n_pixels(pair, samples) - 1
    if isinstance(samples, Frames):
        if mask is not None and not pair.masks_frames:
            raise InputError(
                "A box marks pixels, but whole frames are compared. Choose frames or another layer "
                "as the background, or compare small patches."
            )
        n_signal = images.n_images if mask is None else int((~mask).sum())
        n_background = pair.background_images.n_images if mask is None else int(mask.sum())
        if min(n_signal, n_background) < 4:
            raise InputError(
                f"There are {n_signal} frames with signal and {n_background} of background; at "
                "least 4 of each are needed, and some hundreds are better. Take more frames, or "
                "choose small patches under Compare."
            )
        most = min(most, images.n_images - 1)
    if settings.method != "automatic" and not 1 <= settings.n_components <= most:
        raise InputError(
            f"{settings.n_components} components are to be kept, but {images.name!r} allows 1 to "
            f"{most}. Choose fewer, or a longer film."
        )


def n_pixels(pair: Pair, samples: Samples) -> int:
    """Return the number of pixels of a sample."""
    if isinstance(samples, Frames):
        return math.prod(pair.foreground.image_shape)
    return math.prod(samples.sides)


def box_of(mask: BoolArray) -> tuple[slice, ...]:
    """Return the smallest box around the marked places, as a slice of each axis."""
    axes = range(mask.ndim)
    others = (tuple(other for other in axes if other != axis) for axis in axes)
    marked = [np.flatnonzero(mask.any(axis=each)) for each in others]
    return tuple(slice(int(each[0]), int(each[-1]) + 1) for each in marked)


def holds_signal(box: NDArray[Any]) -> bool:
    """Return whether one part of the background box differs from the rest, as signal would.

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


def sliceable(data: Any) -> Any:
    """Return a numpy array as it is, and any other array as a dask array.

    Slicing other kinds of arrays may read their pixels. Slicing a dask array does not.
    """
    return data if isinstance(data, np.ndarray) else as_dask(data)


def chunks_of(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Return the shape of chunks that consist of whole images.

    A chunk holds one image or several with at most `most` pixels in total. The chunks follow each
    other in the order of the images.
    """
    left, chunks = max(1, most // math.prod(shape[-2:])), list(shape[-2:])
    for n in reversed(shape[:-2]):
        chunks.insert(0, min(n, left))
        left = max(1, left // n)
    return tuple(chunks)


def as_dask(data: Any, chunks: tuple[int, ...] | None = None) -> Any:
    """Convert an array to a dask array with the given chunks or its own, without reading it."""
    da: Any = import_module("dask.array")  # dask has no type hints
    if isinstance(data, da.Array):
        return data if chunks is None else data.rechunk(chunks)
    own = getattr(data, "chunks", None) or (*(1,) * (len(data.shape) - 2), *data.shape[-2:])
    return da.from_array(data, chunks=chunks or own, name=False)
