"""Choice of the windows' shape for a background: squares, or strips along its lines.

A line is long, and a square window shows little of it: a strip along the lines shows more. The
shape is chosen under which held-out background pixels are most likely. The background area is cut
across the lines into two halves. The covariance of the windows in one half gives the log-likelihood
per pixel of the windows in the other half. The strength of the background is fitted in each window.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.feedback import Progress, with_progress
from contrast_core.images._patches import Patches
from contrast_core.images._sampling import BoolArray
from contrast_core.images._scale_mixture import RIDGE
from contrast_core.images._stacks import Stack
from contrast_core.images._stationary import Eigenbasis, log_likelihood, stationary_part
from contrast_core.moments import SecondMoments

_SQUARE = (16, 16)
_STRIPS = ((64, 6), (6, 64))
_GAIN = 0.065  # nats per pixel; a smaller gain does not lower the error of the image
_LONGER = 1.25  # least length of the area along a strip, relative to the strip's length
_FEW_LINES = 1.3  # an area shows few lines: this factor keeps their variance out of the signal
_LARGEST = 512  # largest side of the area that is examined, in pixels
_WINDOWS = 4096  # number of evenly spread windows whose likelihood is computed


def stationary_moments(moments: SecondMoments, sides: tuple[int, ...]) -> SecondMoments:
    """Return moments of windows in which the background is stationary.

    The covariance is averaged over pairs of pixels with the same displacement, and the mean over
    all pixels. A background area holds few long windows, so their moments need this averaging:
    without it, strips of 96 x 4 pixels leave up to 1.7 times the error.

    Parameters
    ----------
    moments : SecondMoments
        Moments of the windows of a background.
    sides : tuple of int
        Height and width of the windows. The moments of boxes with more axes are not changed.
    """
    if len(sides) != 2:
        return moments
    covariance = stationary_part(moments.matrix(), (sides[0], sides[1])).matrix()
    if sides[0] != sides[1]:
        covariance *= _FEW_LINES
    mean = np.full(moments.n_features, moments.mean.mean())
    return SecondMoments(moments.n_samples, mean, covariance)


def window_size(
    stack: Stack, mask: BoolArray | None, progress: Progress = False
) -> tuple[int, int]:
    """Return the height and width of windows that suit a background.

    Parameters
    ----------
    stack : array of shape (..., height, width)
        Image or stack that shows the background.
    mask : ndarray of bool, optional
        True for pixels that show only background, in all images or in each.
    progress : bool or callable, default=False
        As for `Sampling.map`.
    """
    image, inside = one_image(stack, mask)
    gains = {size: _gain(image, inside, size, progress) for size in _STRIPS}
    best = max(gains, key=lambda size: gains[size])
    return best if gains[best] > _GAIN else _SQUARE


def one_image(stack: Stack, mask: BoolArray | None) -> tuple[FloatArray, BoolArray]:
    """Return the image with most background, cropped to the background, and its mask."""
    height, width = (int(n) for n in stack.shape[-2:])
    leading = tuple(int(n) for n in stack.shape[:-2])
    masks = np.ones((height, width), dtype=bool) if mask is None else mask
    index: tuple[int, ...] = (0,) * len(leading)
    if masks.ndim > 2:
        index = tuple(int(i) for i in np.unravel_index(masks.sum(axis=(-2, -1)).argmax(), leading))
        masks = masks[index]
    rows, columns = (np.flatnonzero(masks.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return np.zeros((0, 0)), np.zeros((0, 0), dtype=bool)
    box = (
        slice(rows[0], min(rows[-1] + 1, rows[0] + _LARGEST)),
        slice(columns[0], min(columns[-1] + 1, columns[0] + _LARGEST)),
    )
    return np.asarray(stack[(*index, *box)], np.float64), masks[box]


class _Half(NamedTuple):
    """Centred windows of one half of an area, and their stationary covariance."""

    windows: NDArray[np.floating]
    covariance: Eigenbasis


def _gain(
    image: FloatArray, inside: BoolArray, strip: tuple[int, int], progress: Progress
) -> float:
    """Return the gain in log-likelihood per held-out pixel of strips over squares, in nats.

    The smaller gain of the two halves is returned, since a single gain may be due to chance. If the
    area is hardly longer than a strip, it holds too few strips to compare, and the gain is -inf.
    """
    across = 0 if strip[0] < strip[1] else 1
    if inside.any(axis=across).sum() < _LONGER * max(strip):
        return -np.inf
    places = np.flatnonzero(inside.any(axis=1 - across))
    if not len(places):
        return -np.inf
    middle = (places[0] + places[-1] + 1) // 2
    first = np.arange(inside.shape[across]) < middle
    sides = [
        inside & (first if across else first[:, None]),
        inside & ~(first if across else first[:, None]),
    ]
    parts = list(product((strip, _SQUARE), sides))
    halves = []
    for size, side in with_progress(parts, len(parts), "choose windows", progress):
        try:
            halves.append(_half(image, side, size))
        except ValueError:  # no window fits
            return -np.inf
    pairs = [(halves[i], halves[j]) for i, j in ((0, 1), (1, 0), (2, 3), (3, 2))]
    shown = with_progress(pairs, len(pairs), "choose windows", progress)
    long, other_long, square, other_square = (_log_likelihood(*pair) for pair in shown)
    return float(min(long - square, other_long - other_square))


def _half(image: FloatArray, inside: BoolArray, size: tuple[int, int]) -> _Half:
    rows = Patches(size, 1).rows(image, inside)
    step = max(1, rows.shape[0] // _WINDOWS)
    windows = rows.take(np.arange(0, rows.shape[0], step)).load()
    windows = windows - windows.mean()
    return _Half(windows, stationary_part(windows.T @ windows / len(windows), size))


def _log_likelihood(fitted: _Half, judged: _Half) -> float:
    """Return the log-likelihood per pixel of one half under the covariance of the other half."""
    values, vectors = fitted.covariance
    power = (judged.windows @ vectors) ** 2
    return log_likelihood(power, values + RIDGE * values.mean()) / power.size
