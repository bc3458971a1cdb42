"""Detection of backgrounds that a simple filter removes better, by simulating the user's case.

The empty area shows whether a background is smooth (haze, illumination) or consists of lines along
an axis (stripes, scan lines, curtains): there are well-known filters for both. The case is then
simulated on a part of the image. The result is taken for the truth, a background with the
covariance of the empty area is drawn over it, and the fitted model and the filters are applied to
the sum. Patterns of other kinds are not simulated, since no simple filter is much better there.

If a method's result serves as the truth, it favours this method, because it lacks everything that
the method mistakes for background. For smooth backgrounds, each method is therefore judged on its
own result. For lines, the transposed result is used as a second truth, because it still contains
all of the image's detail along the lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft2, fftfreq, ifft2
from scipy.ndimage import gaussian_filter, grey_opening, white_tophat

from contrast_core._validation import FloatArray
from contrast_core.images._sampling import BoolArray
from contrast_core.images._stacks import Stack
from contrast_core.images._verdicts import Verdict
from contrast_core.images._window_choice import one_image

SIMULATED_SIDE = 192  # pixels of the part of an image on which a case is simulated
_SMOOTH = 0.6  # share of the variance after a Gaussian filter of 3 pixels; haze has 0.63 and more
_LINES = 0.5  # share of the variance in the means along an axis; stripes have 0.75 and more
_FAILED = 0.36  # remaining share of the error above which a smooth background was not separated
_FINE = 0.27  # least share of the result's variance within 20 pixels; else the objects are smooth
_MULTIPLIED = 0.2  # slope of log contrast over log brightness: 1 for illumination, 0 for haze
_REACH = 0.6  # largest lag that is estimated, as a share of the area's sides
_OPENINGS = (15, 25, 41)  # pixels


def simpler_filters(
    model: Callable[[NDArray[Any]], FloatArray], stack: Stack, source: Stack, mask: BoolArray | None
) -> tuple[bool, tuple[Verdict, ...]]:
    """Return whether a background is smooth, and a verdict if a simple filter suits it better.

    Parameters
    ----------
    model : callable
        Function from an image (height, width) to its signal over a background of zero. The image
        may be transposed, so the windows of the model must fit both ways.
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
        At most one.
    """
    area, inside = one_image(source, mask)
    brightness = float(area[inside].mean())
    area = np.where(inside, area - brightness, 0.0)
    variance = float(area[inside].var())
    if not variance > 0:
        return False, ()
    smooth = bool(gaussian_filter(area, 3)[inside].var() > _SMOOTH * variance)
    lines = [float(_means(area, inside, axis).var()) for axis in (0, 1)]
    if not smooth and max(lines) <= _LINES * variance:
        return False, ()
    image = _middle(stack)
    truth = model(image)
    if not truth.std() > 0:  # nothing was found, so there is nothing that a filter could do better
        return smooth, ()
    scenes = [truth] if smooth else [truth, truth.T]
    disturbed = [each + brightness + _drawn_background(area, inside, each.shape) for each in scenes]
    left = _relative_error(model, scenes, disturbed)
    if smooth:
        return True, tuple(_smooth(left, image, area, truth, disturbed[0] - truth))
    return False, tuple(_lines(left, scenes, disturbed, int(np.argmax(lines))))


def _smooth(
    left: float, image: FloatArray, area: FloatArray, truth: FloatArray, background: FloatArray
) -> Iterator[Verdict]:
    fine = truth - gaussian_filter(truth, 20)
    if fine.var() < _FINE * truth.var():
        return
    slope = _contrast_slope(image, area)
    if slope > _MULTIPLIED:
        yield Verdict(
            "smooth background",
            "The background is smooth and multiplies: it is uneven illumination, of which this "
            "method removes little. Divide the image by a flat field, or by a Gaussian blur of it "
            "that is wider than the objects.",
            slope,
            _MULTIPLIED,
        )
    elif left > _FAILED:
        # The filter is judged on its own result, because ours may hold half of the haze.
        errors = {}
        for side in _OPENINGS:
            opening = partial(white_tophat, size=side)
            alone = opening(truth)
            errors[side] = _relative_error(opening, [alone], [alone + background])
        radius = min(errors, key=lambda side: errors[side]) // 2
        yield Verdict(
            "smooth background",
            "The background is smooth and adds light: it is haze. For bright objects that are "
            f"smaller than it, a top-hat filter of radius {radius} removes it better. In a "
            f"simulation of this image {left:.0%} of the error was left.",
            left,
            _FAILED,
        )


def _lines(
    left: float, scenes: list[FloatArray], disturbed: list[FloatArray], axis: int
) -> Iterator[Verdict]:
    errors = {}
    for width, kept in product((0.3, 1, 2), (0, 4)):
        notch = partial(without_lines, axis=axis, width=width, kept=kept)
        errors[width, kept] = _relative_error(notch, scenes, disturbed)
    best = min(errors, key=lambda each: errors[each])
    if errors[best] < left:
        width, kept = best
        name = ("vertical", "horizontal")[axis]
        but = f" and beyond {kept} across them" if kept else ""
        yield Verdict(
            "simple filter is better",
            f"A Fourier stripe filter removes this better: the background consists of {name} lines "
            f"across the image. In a simulation of it the filter left {errors[best]:.0%} of the "
            f"error, this method {left:.0%}. Damp the frequencies within {width:g} cycles an image "
            f"along the lines{but}.",
            left,
            errors[best],
        )


def without_lines(image: FloatArray, axis: int, width: float, kept: int) -> FloatArray:
    """Remove lines along an axis from an image by a Gaussian notch around their frequencies.

    Parameters
    ----------
    image : ndarray of shape (height, width)
    axis : int
        The axis along which the lines run: 0 for vertical lines.
    width : float
        Standard deviation of the notch, in cycles an image.
    kept : int
        Highest frequency across the lines that is kept.
    """
    grid = np.meshgrid(*(fftfreq(n, 1 / n) for n in image.shape), indexing="ij")
    damped = np.exp(-((grid[axis] / width) ** 2) / 2) * (np.abs(grid[1 - axis]) > kept)
    return np.asarray(ifft2(fft2(image) * (1 - damped)).real)


def _relative_error(
    method: Callable[[FloatArray], FloatArray],
    scenes: list[FloatArray],
    disturbed: list[FloatArray],
) -> float:
    """Return the error of a method's results, divided by the error of the disturbed images.

    The error is the squared error after the best affine fit. The ratio is the geometric mean over
    the scenes.
    """
    logs = []
    for truth, image in zip(scenes, disturbed, strict=True):
        found, start = (
            1 - float(np.corrcoef(each.ravel(), truth.ravel())[0, 1]) ** 2
            for each in (method(image), image)
        )
        if not (found > 0 and start > 0):
            return 0.0
        logs.append(np.log(found / start))
    return float(np.exp(np.mean(logs)))


def _contrast_slope(image: FloatArray, area: FloatArray) -> float:
    """Return the slope of the log contrast of fine detail over the log of the local brightness."""
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
    box = tuple(
        slice(max(0, (n - SIMULATED_SIDE) // 2), max(0, (n - SIMULATED_SIDE) // 2) + SIMULATED_SIDE)
        for n in map(int, stack.shape[-2:])
    )
    return np.asarray(stack[(*(n // 2 for n in map(int, stack.shape[:-2])), *box)], np.float64)


def _means(area: FloatArray, inside: BoolArray, axis: int) -> FloatArray:
    """Return the means over an axis of the pixels inside; zero where there are none."""
    return np.asarray(area.sum(axis=axis) / np.maximum(inside.sum(axis=axis), 1))


def _drawn_background(area: FloatArray, inside: BoolArray, shape: tuple[int, ...]) -> FloatArray:
    """Draw Gaussian noise with the covariance of an area.

    Lines are drawn separately from the rest, because they are longer than the area that shows them.
    """
    rng = np.random.default_rng(0)
    down, across = _means(area, inside, 1)[:, None], _means(area, inside, 0)[None]
    shown = inside.sum(axis=1)[:, None] > 0, inside.sum(axis=0)[None] > 0
    rest = np.where(inside, area - down - across, 0.0)
    lines = _drawn(down, shown[0], (shape[0], 1), rng)
    lines = lines + _drawn(across, shown[1], (1, shape[1]), rng)
    drawn = lines + _drawn(rest, inside, (shape[0], shape[1]), rng)
    drawn -= drawn.mean()
    return np.asarray(drawn * (area[inside].std() / drawn.std()))


def _drawn(
    area: FloatArray, inside: BoolArray, shape: tuple[int, ...], rng: np.random.Generator
) -> FloatArray:
    """Draw Gaussian noise with the autocovariance of an area, tapered towards long lags."""
    reach = [max(1, int(_REACH * n)) for n in area.shape]
    lags = [np.arange(1 - n, n) for n in reach]
    taper = np.outer(
        *(np.cos(np.pi * lag / 2 / n) ** 2 for lag, n in zip(lags, reach, strict=True))
    )
    sums, counts = (
        ifft2(np.abs(fft2(each, [2 * n for n in area.shape])) ** 2).real[np.ix_(*lags)]
        for each in (area, inside.astype(float))
    )
    padded = [n + 2 * r for n, r in zip(shape, reach, strict=True)]
    covariance = np.zeros(padded)
    covariance[np.ix_(*lags)] = sums / np.maximum(counts, 1) * taper
    power = np.maximum(fft2(covariance).real, 0)
    noise = ifft2(np.sqrt(power) * fft2(rng.normal(size=padded))).real
    return np.asarray(noise[: shape[0], : shape[1]])
