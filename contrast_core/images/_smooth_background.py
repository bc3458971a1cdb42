"""Detection of haze and uneven illumination, which simple filters remove better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, grey_opening

from contrast_core._validation import FloatArray
from contrast_core.images._sampling import BoolArray
from contrast_core.images._stacks import Stack
from contrast_core.images._verdicts import Verdict
from contrast_core.images._window_choice import SMOOTH, one_image, smooth_share

EXAMINED_SIDE = 192  # largest side, in pixels, of the part of an image that is examined
# Objects are smooth if at most this share of the result's variance is in detail finer than 20
# pixels.
_FINE = 0.27
# Threshold for the slope of log contrast over log brightness, which is 1 for uneven illumination
# and 0 for haze.
_MULTIPLIED = 0.2


def smooth_background(
    model: Callable[[NDArray[Any]], FloatArray], stack: Stack, source: Stack, mask: BoolArray | None
) -> tuple[bool, tuple[Verdict, ...]]:
    """Return whether a background is smooth, and a verdict if a simple filter suits it better.

    There is no verdict if the objects are as smooth as the background, because the filters would
    remove them too.

    Parameters
    ----------
    model : callable
        Function from an image (height, width) to its signal, from which the background is removed.
    stack : array of shape (..., height, width)
        Image or stack that the background was removed from. At most 192 x 192 pixels are read.
    source : array of shape (..., height, width)
        Image or stack that shows the background.
    mask : ndarray of bool, optional
        True for the pixels of `source` that show only background.

    Returns
    -------
    smooth : bool
    verdicts : tuple of Verdict
        At most one verdict.
    """
    area, inside = one_image(source, mask)
    share = smooth_share(area, inside)
    if share <= SMOOTH:
        return False, ()
    image = _middle(stack)
    signal = model(image)
    fine = signal - gaussian_filter(signal, 20)
    if not fine.var() > _FINE * signal.var():
        return True, ()
    slope = _contrast_slope(image, area)
    if slope > _MULTIPLIED:
        verdict = Verdict(
            "smooth background",
            "The background is smooth and multiplies the image: it is uneven illumination. This "
            "method removes little of it. Divide the image by a flat field, or by a Gaussian blur "
            "of the image that is wider than the objects.",
            slope,
            _MULTIPLIED,
        )
    else:
        verdict = Verdict(
            "smooth background",
            "The background is smooth and adds light: it is haze. If the objects are bright and "
            "smaller than the haze, a top-hat filter that is a little wider than the objects "
            "removes the haze better.",
            share,
            SMOOTH,
        )
    return True, (verdict,)


def _contrast_slope(image: FloatArray, area: FloatArray) -> float:
    """Return the slope of log contrast over log brightness, both measured around each pixel."""
    fine = image - gaussian_filter(image, 2)
    contrast = np.sqrt(gaussian_filter(fine**2, 10))
    noise = float((area - gaussian_filter(area, 2)).std())
    envelope = gaussian_filter(grey_opening(gaussian_filter(image, 1), 25), 10)
    shown = (contrast > 2 * noise) & (envelope > 0)
    if shown.sum() < 500 or np.ptp(envelope[shown]) == 0:
        return 0.0
    return float(np.polyfit(np.log(envelope[shown]), np.log(contrast[shown]), 1)[0])


def _middle(stack: Stack) -> FloatArray:
    """Return the middle of the middle image of a stack."""
    starts = [max(0, (int(n) - EXAMINED_SIDE) // 2) for n in stack.shape[-2:]]
    box = tuple(slice(start, start + EXAMINED_SIDE) for start in starts)
    return np.asarray(stack[(*(int(n) // 2 for n in stack.shape[:-2]), *box)], np.float64)
