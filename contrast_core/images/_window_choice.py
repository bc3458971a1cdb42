"""Choice between square windows and strips along the lines of a background.

A strip along a line shows more of the line than a square does. A background consists of lines if it
is not smooth and most of its variance is in the means along one axis. The brightness of the lines
does not matter for this criterion.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from contrast_core._validation import FloatArray
from contrast_core.images._sampling import BoolArray
from contrast_core.images._stacks import Stack
from contrast_core.images._stationary import stationary_part
from contrast_core.moments import SecondMoments

SQUARE = (16, 16)
# A background is smooth if a Gaussian filter of 3 pixels leaves more than this share of its
# variance. Haze has 0.63 and more.
SMOOTH = 0.6
_STRIPS = ((64, 6), (6, 64))
# A background consists of lines if more than this share of its variance is in the means along an
# axis. Curtains (lines that milling leaves in FIB-SEM images) have 0.7, and grids have 0.5.
_LINES = 0.6
# Lines are broad, and need squares, if a Gaussian filter of 3 pixels leaves at least this share of
# the background's variance.
_BROAD = 0.5
_LONGER = 1.25  # least length of the area along a strip, relative to the strip's length
# A background area shows only few of the lines, so their covariance may be too small for the other
# lines of the image. The covariance is multiplied by this factor, so that the other lines are not
# taken for signal.
_FEW_LINES = 1.3
_LARGEST = 512  # largest side of the area that is examined, in pixels


def stationary_moments(moments: SecondMoments, sides: tuple[int, ...]) -> SecondMoments:
    """Return the moments of windows, averaged as if the background were stationary.

    The covariance is averaged over pairs of pixels with the same displacement, and the
    mean is averaged over all pixels. The moments need this averaging because a background area
    holds few long windows. Without it, strips of 96 x 4 pixels leave up to 1.7 times the error.
    If the windows are not square, the covariance is also multiplied by `_FEW_LINES`.

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


def window_size(stack: Stack, mask: BoolArray | None) -> tuple[int, int]:
    """Return the height and width of windows that suit a background.

    Parameters
    ----------
    stack : array of shape (..., height, width)
        Image or stack that shows the background.
    mask : ndarray of bool, optional
        True for pixels that show only background. It has the shape of an image or of the stack.
    """
    area, inside = one_image(stack, mask)
    variance = (area**2).sum()
    for strip in _STRIPS:
        along = int(np.argmax(strip))
        counts = inside.sum(axis=along)
        lines = (area.sum(axis=along) ** 2 / np.maximum(counts, 1)).sum()
        long_enough = inside.any(axis=1 - along).sum() >= _LONGER * max(strip)
        if long_enough and lines > _LINES * variance and smooth_share(area, inside) < _BROAD:
            return strip
    return SQUARE


def smooth_share(area: FloatArray, inside: BoolArray) -> float:
    """Return the share of an area's variance that a Gaussian filter of 3 pixels leaves."""
    variance = float(area[inside].var())
    return float(gaussian_filter(area, 3)[inside].var()) / variance if variance > 0 else 0.0


def one_image(stack: Stack, mask: BoolArray | None) -> tuple[FloatArray, BoolArray]:
    """Return the image with the most background pixels, cropped to the background, and its mask.

    The mean of the background is subtracted, and pixels outside of the background are zero.
    """
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
    area, inside = np.asarray(stack[(*index, *box)], np.float64), masks[box]
    return np.where(inside, area - area[inside].mean(), 0.0), inside
