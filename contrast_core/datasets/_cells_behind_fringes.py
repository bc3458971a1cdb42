"""Simulated image of cells behind interference fringes, with known cells and an empty corner."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import check_count, check_generator, numbers_of, shown

_SMALLEST = 96  # smallest side in pixels; an empty corner and cells around it still fit
_EMPTY = 0.3  # side of the empty corner divided by the side of the image
_CELL = 1800  # area of the image per cell, in pixels
_PERIOD = 13.0  # period of the fringes in pixels
_ANGLE = 0.6  # direction across the fringes in radians
_NOISE = 0.3  # standard deviation of the camera noise, divided by that of the cells


class CellsBehindFringes(NamedTuple):
    """Simulated image with its true signal and its empty area.

    Parameters
    ----------
    image : ndarray of shape (height, width), float32
        The sum of cells, fringes and camera noise.
    clean : ndarray of shape (height, width), float32
        The cells alone, with values from 0 to about 1.
    empty : ndarray of shape (height, width), bool
        True in the corner without cells.
    """

    image: NDArray[np.float32]
    clean: NDArray[np.float32]
    empty: NDArray[np.bool_]


def cells_behind_fringes(
    shape: tuple[int, int] = (512, 512), *, random_state: int | np.random.Generator | None = 0
) -> CellsBehindFringes:
    """Simulate cells behind interference fringes, with an empty corner of fringes alone.

    The cells are bright blurred ellipses with brighter nuclei. They lie all over the field except
    in its upper left corner, whose sides are 0.3 times the sides of the field. The fringes are
    slanted and bent, and have a period of 13 pixels. Their mean is 0, and their standard deviation
    equals that of the cells. The standard deviation of the camera noise is 0.3 times that of the
    cells.

    Parameters
    ----------
    shape : (int, int), default=(512, 512)
        Height and width in pixels, at least 96 each.
    random_state : int, Generator or None, default=0
        Seed of the draw. The same integer gives the same image on every machine, up to rounding.

    Returns
    -------
    CellsBehindFringes
        `image`, `clean` and `empty`, each of `shape`.

    Raises
    ------
    TypeError, ValueError
        If `shape` is not two integers of at least 96, or `random_state` is not a seed.

    Examples
    --------
    >>> from contrast_core.datasets import cells_behind_fringes
    >>> from contrast_core.images import suppress_background
    >>> data = cells_behind_fringes((128, 128))
    >>> result = suppress_background(data.image, data.empty)
    >>> result.denoised.shape
    (128, 128)
    """
    sides = [check_count(side, "shape", at_least=_SMALLEST) for side in numbers_of(shape, "shape")]
    if len(sides) != 2:
        raise ValueError(f"shape={shown(shape)} has {len(sides)} entries; expected two.")
    height, width = sides
    rng = check_generator(random_state)
    clean = _cells(height, width, rng)
    empty = np.zeros((height, width), dtype=bool)
    empty[: int(height * _EMPTY), : int(width * _EMPTY)] = True
    noise = _NOISE * rng.normal(size=clean.shape)
    image = clean + clean.std() * (_fringes(height, width, rng) + noise)
    return CellsBehindFringes(image.astype(np.float32), clean.astype(np.float32), empty)


def _cells(height: int, width: int, rng: np.random.Generator) -> NDArray[np.float64]:
    field = np.zeros((height, width))
    for _ in range(max(12, height * width // _CELL)):
        cy, cx = rng.uniform(0, (height, width))
        long = rng.uniform(6.0, 14.0)
        short, turn, bright = long * rng.uniform(0.5, 0.9), rng.uniform(0, np.pi), rng.random()
        if cy < height * _EMPTY + 2 * long and cx < width * _EMPTY + 2 * long:
            continue
        reach = math.ceil(1.5 * long)
        y, x = np.ogrid[
            max(0, int(cy) - reach) : min(height, int(cy) + reach + 1),
            max(0, int(cx) - reach) : min(width, int(cx) + reach + 1),
        ]
        along = ((x - cx) * np.cos(turn) + (y - cy) * np.sin(turn)) / long
        across = ((y - cy) * np.cos(turn) - (x - cx) * np.sin(turn)) / short
        distance = np.sqrt(along**2 + across**2)
        body = 1 / (1 + np.exp((distance - 1) * 10))
        nucleus = 1 / (1 + np.exp((distance - 0.45) * 14))
        cell = (0.25 + 0.35 * bright) * body + (0.25 + 0.15 * bright) * nucleus
        here = field[y.min() : y.max() + 1, x.min() : x.max() + 1]
        np.maximum(here, cell * (distance < 1.5), out=here)
    return field


def _fringes(height: int, width: int, rng: np.random.Generator) -> NDArray[np.float64]:
    y, x = np.mgrid[:height, :width]
    wave = (y * np.sin(_ANGLE) + x * np.cos(_ANGLE)) * (2 * np.pi / _PERIOD)
    fringes = np.cos(wave + 1.2 * _smooth(height, width, rng, over=30.0))
    return np.asarray((fringes - fringes.mean()) / fringes.std())


def _smooth(height: int, width: int, rng: np.random.Generator, over: float) -> NDArray[np.float64]:
    """Return a smooth random field (height, width) of standard deviation 1.

    White noise is smoothed by a Gaussian filter with a standard deviation of `over` pixels.
    """
    frequencies = np.fft.fftfreq(height)[:, None] ** 2 + np.fft.rfftfreq(width) ** 2
    spectrum = np.fft.rfft2(rng.normal(size=(height, width)))
    spectrum *= np.exp(-2 * (np.pi * over) ** 2 * frequencies)
    field = np.fft.irfft2(spectrum, s=(height, width))
    return np.asarray(field / field.std())
