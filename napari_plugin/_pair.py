"""The images to work on and where their background is alone, checked before a pixel is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import Frames
from napari_plugin._settings import (
    InputError,
    Report,
    Samples,
    Settings,
    no_report,
)

BoolArray = NDArray[np.bool_]

_FEWEST_WINDOWS = 64
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

    @property
    def masks_frames(self) -> bool:
        """Whether the mask marks frames rather than pixels."""
        mask = self.mask
        return mask is not None and mask.shape == self.foreground.shape[:-2]


class Watched:
    """Some images of a stack, (n, height, width), that report whenever they are sliced.

    The core slices a stack block by block, so that `report` can show progress and stop the work.

    Parameters
    ----------
    images : Images
    report : callable, optional
        Called before each block with the pixels that were read.
    doing : str
        Passed to `report`.
    chosen : ndarray of int, optional
        Numbers of the images over all leading axes; all by default.
    box : pair of range, optional
        Rows and columns of the images; all by default.

    Raises
    ------
    InputError
        When pixels are NaN or infinite, with the frame's number.
    """

    def __init__(
        self,
        images: Images,
        report: Report = no_report,
        doing: str = "Reading",
        chosen: NDArray[np.intp] | None = None,
        box: tuple[range, range] | None = None,
    ) -> None:
        self._images, self._report, self._doing = images, report, doing
        self._chosen = np.arange(images.n_images) if chosen is None else chosen
        height, width = images.image_shape
        self._box = box or (range(height), range(width))
        self.shape = (len(self._chosen), *map(len, self._box))
        self.dtype = np.dtype(getattr(images.data, "dtype", np.float64))
        self._done = 0

    def __getitem__(self, index: Any) -> NDArray[Any]:
        total = math.prod(self.shape)
        self._report(min(self._done, total), total, self._doing)
        where: list[Any] = list(index) if isinstance(index, tuple) else [index]
        if Ellipsis in where:
            at = where.index(Ellipsis)
            where[at : at + 1] = [slice(None)] * (4 - len(where))
        where += [slice(None)] * (3 - len(where))
        numbers = self._chosen[where[0]]
        within = [each[along] for each, along in zip(self._box, where[1:], strict=True)]
        block = self._read(
            np.atleast_1d(numbers),
            tuple(slice(r.start, r.stop, r.step) if isinstance(r, range) else r for r in within),
        )
        if block.dtype.kind == "f" and not np.isfinite(block).all():
            bad = ~np.isfinite(block).reshape(len(block), -1).all(axis=1)
            raise missing(self._images, int(np.atleast_1d(numbers)[bad.argmax()]))
        self._done += block.size
        return block if np.ndim(numbers) else np.asarray(block[0])

    def _read(self, numbers: NDArray[np.intp], rest: tuple[Any, ...]) -> NDArray[Any]:
        data, leading = self._images.data, self._images.shape[:-2]
        if len(leading) == 1 and np.ptp(numbers) + 1 == len(numbers):
            return np.asarray(data[(slice(int(numbers[0]), int(numbers[-1]) + 1), *rest)])
        places = [np.unravel_index(i, leading) if leading else () for i in numbers]
        return np.stack([np.asarray(data[(*map(int, place), *rest)]) for place in places])


def missing(images: Images, number: int) -> InputError:
    """Return the error for pixels that are NaN or infinite."""
    where = f", first in frame {number}" if images.n_images > 1 else ""
    return InputError(
        f"{images.name!r} has empty (NaN) or infinite pixels{where}. Fill them with the value of "
        "empty background, or crop them away."
    )


def check(pair: Pair, samples: Samples, settings: Settings) -> None:
    """Refuse choices that cannot work, without reading a pixel.

    Raises
    ------
    InputError
        With what to do instead.
    """
    for images in (pair.foreground, pair.behind):
        _check_images(images)
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
                f"{side}. Choose a smaller patch under Method, or compare whole frames."
            )
    if pair.mask is None:
        return
    if pair.masks_frames:
        if len(pair.foreground.shape) == 2:
            raise InputError("A single image has no range of frames. Draw a box instead.")
        return
    height, width = map(len, box_of(pair.mask))
    if not is_large_enough((height, width), side):
        raise InputError(
            f"The background area is {height} x {width} pixels, too small for patches of {side} x "
            f"{side}. Draw a larger one; about 100 x 100 pixels are enough."
        )


def box_of(mask: BoolArray) -> tuple[range, range]:
    """Return rows and columns of the smallest box around the marked pixels."""
    planes = mask.reshape(-1, *mask.shape[-2:])
    rows, columns = (np.flatnonzero(planes.any(axis=axes)) for axes in ((0, 2), (0, 1)))
    return range(int(rows[0]), int(rows[-1]) + 1), range(int(columns[0]), int(columns[-1]) + 1)


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
