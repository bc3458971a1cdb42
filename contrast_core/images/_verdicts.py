"""Detection of problems when images are compared with a background, from moments of blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from contrast_core._validation import FloatArray
from contrast_core.contrast import held_out_ratio
from contrast_core.images._frame_library import BISQUARE, MAD, fitted_pixels, most_components
from contrast_core.images._frame_remover import FrameBackgroundRemover
from contrast_core.moments import SecondMoments
from contrast_core.rows import Rows

VerdictKind: TypeAlias = Literal[
    "nothing found",
    "unstructured background",
    "smooth background",
    "too few frames",
    "background too small",
    "background holds signal",
    "layers probably swapped",
]
Blocks: TypeAlias = Sequence[SecondMoments]

_INSTEAD = ("unstructured background", "smooth background")
# There is signal if the foreground has at least this many times the background's variance, along
# directions that were chosen on other blocks (see `verdicts`).
_FOUND = 1.5
# Foreground and background are probably swapped if exchanging them gives a ratio of at least this
# number, and of at least this multiple of the original ratio.
_SWAPPED = 2.0
# Threshold for the participation ratio (see `verdicts`). Camera noise has 0.88 and more, and
# structured backgrounds have at most 0.07.
_UNSTRUCTURED = 0.5
# Least number of windows in a background area. Areas of 4 and 14 windows leave 2.6 and 1.5 times
# the error that an area of 39 windows leaves.
_FEWEST_WINDOWS = 16
# Threshold for the variance of the denoised image in the background area, divided by its variance
# in the whole image. A larger ratio means that the area holds signal.
_SIGNAL_IN_AREA = 0.12
# Frames, and background frames, hold signal if outliers make up at least these shares of their
# squared residuals (see `library_verdicts`).
_LEAST_OUTLYING, _SIGNAL_BEHIND = 0.005, 0.02
_SOME_FRAMES = 16  # number of frames of each kind that are tested
# A library is a set of background frames whose principal components are fitted to large frames.
_HALF_LIBRARY = 64  # largest number of frames in the library that is used for the test
_FEWEST_FRAMES = 4  # least number of frames in a library
_ENOUGH_FRAMES = 40  # more background frames do not reduce the error on images of cold atoms
_SPLITS = 10  # largest number of splits of the blocks into halves
_DIRECTIONS = 2  # number of directions in which foreground and background are compared


@dataclass(frozen=True)
class Verdict:
    """Problem that `verdicts` detected in a foreground and its background.

    Parameters
    ----------
    kind : {"nothing found", "unstructured background", "smooth background", "too few frames", \
            "background too small", "background holds signal", "layers probably swapped"}
        Kind of the problem.
    sentence : str
        Description of the problem, with advice for the user.
    value, threshold : float
        Measured value, and the threshold that it was compared with.
    """

    kind: VerdictKind
    sentence: str
    value: float
    threshold: float

    @property
    def severity(self) -> Literal["doubtful", "instead"]:
        """Return "instead" if another method suits the images better, else "doubtful"."""
        return "instead" if self.kind in _INSTEAD else "doubtful"


def verdicts(foreground: Blocks, background: Blocks) -> tuple[Verdict, ...]:
    r"""Return the problems that the moments of foreground and background blocks show.

    - *Nothing found*: one half of the blocks chooses the two directions in which the foreground
      varies most relative to the background. In the other half, the foreground has less than 1.5
      times the background's variance in these directions. This ratio is the median over at most ten
      splits, and each half of a split chooses the directions once. Foreground and background are
      not rescaled to equal total variances first, because the foreground is the background with
      something added.
    - *Layers probably swapped*: with foreground and background exchanged, the same ratio is at
      least 2, and at least twice the original ratio.
    - *Unstructured background*: the participation ratio
      :math:`\operatorname{tr}^2(C) / ((D - 1) \operatorname{tr} C^2)` is above one half, where C is
      the covariance of the background samples after the mean of each sample was subtracted, and D
      is the number of features. With several blocks, :math:`C^2` is replaced by the product of the
      covariances of two halves, which is unbiased for few rows.

    Parameters
    ----------
    foreground, background : sequence of SecondMoments
        Moments of blocks that share no pixels, such as stretches of a film or parts of an image;
        `block_moments` computes them. With only one block of each, only the last check is made.

    Returns
    -------
    tuple of Verdict
        Empty if no problem is detected. The verdict that the layers are probably swapped takes
        precedence over the verdict that no signal was found.

    Raises
    ------
    ValueError
        If the background is constant, or there is no block.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core.images import Frames, block_moments, verdicts
    >>> film, empty = np.random.default_rng(0).normal(size=(2, 80, 5, 6))
    >>> blocks = block_moments(Frames(), film), block_moments(Frames(), empty)
    >>> [verdict.kind for verdict in verdicts(*blocks)]
    ['nothing found', 'unstructured background']
    """
    if not foreground or not background:
        raise ValueError("verdicts need the moments of at least one block of each dataset.")
    if not _merged(background).varies.any():
        raise ValueError("the background is constant: no pixel of it varies; check what it holds.")
    return (*_contrast_verdicts(foreground, background), *_background_verdicts(background))


def too_few_frames(n_exchanged: int) -> Verdict:
    """Return the verdict for frames in which no component of the signal was detected.

    Parameters
    ----------
    n_exchanged : int
        Number of components that are detected if foreground and background are exchanged.
    """
    if n_exchanged:
        return Verdict(
            "layers probably swapped",
            f"The background frames hold {n_exchanged} components that the frames with signal do "
            "not show, and the frames with signal hold no component of their own. The two are "
            "probably swapped.",
            n_exchanged,
            1.0,
        )
    return Verdict(
        "too few frames",
        "There are too few frames: no component of the signal exceeds their noise, and the result "
        "is little more than the mean signal with the background's texture suppressed. Take more "
        "frames; some hundreds are enough for a faint signal.",
        0.0,
        1.0,
    )


def library_verdicts(
    remover: FrameBackgroundRemover, frames: Rows, others: Rows
) -> tuple[Verdict, ...]:
    """Return the problems that are detected when the background of large frames is removed.

    A library of half of the background frames is fitted to frames with signal and to the other half
    of the background frames. With fewer than eight background frames, the library of the remover is
    used instead. Noise around the fitted background has no outliers. The share of the
    squared residual beyond the fit's cutoff, 4.7 robust standard deviations, is therefore due to
    signal. It is 0.6 to 0.9 in frames with signal and below 0.001 in frames without.

    Parameters
    ----------
    remover : FrameBackgroundRemover
        Remover that was fitted to large frames.
    frames, others : Rows
        Frames with signal and background frames. At most 64 frames of the first half of the
        background frames are read for the library, and at most 16 frames of the second half and of
        the frames with signal are tested. They are evenly spread.
    """
    n = others.shape[0]
    # Neighbouring frames are alike, so each half consists of consecutive frames.
    first, second = np.split(np.arange(n), [n // 2])
    half = remover
    if n >= 2 * _FEWEST_FRAMES:
        library = others.take(_spread(first, _HALF_LIBRARY))
        half = clone(remover).fit(frames, background=library, dark=getattr(remover, "dark_", None))
    found, behind = (_outlying_share(half, each) for each in (frames, others.take(second)))
    said = []
    if behind >= max(_SIGNAL_BEHIND, found / 2):
        said.append(
            Verdict(
                "layers probably swapped",
                f"The background frames hold signal: outliers make up {behind:.1%} of their "
                f"residual, and {found:.1%} in the frames with signal. The two are probably "
                "swapped, or some background frames show signal too.",
                behind,
                max(_SIGNAL_BEHIND, found / 2),
            )
        )
    elif found < max(_LEAST_OUTLYING, 2 * behind):
        said.append(
            Verdict(
                "nothing found",
                "Nothing was found. After the background is removed, the frames with signal have "
                "hardly more outliers than the background frames. Either there is no signal, it is "
                "weaker than the noise in each pixel, or the background frames show it too.",
                found,
                max(_LEAST_OUTLYING, 2 * behind),
            )
        )
    if n < _ENOUGH_FRAMES and remover.n_components_ == most_components(n):
        said.append(
            Verdict(
                "too few frames",
                f"There are too few background frames: {n} were given, and more would leave less "
                f"of the background in the result. Take {_ENOUGH_FRAMES} or more.",
                n,
                _ENOUGH_FRAMES,
            )
        )
    return tuple(said)


def _outlying_share(remover: FrameBackgroundRemover, rows: Rows) -> float:
    some = rows.take(_spread(np.arange(rows.shape[0]), _SOME_FRAMES))
    squares = outlying = 0.0
    for block in some.blocks():
        left = remover.transform(block)[:, fitted_pixels(rows.shape[1])]
        scale = MAD * np.median(np.abs(left), axis=1, keepdims=True)
        power = left**2 / np.maximum(scale, np.finfo(float).tiny) ** 2
        squares += float(power.sum())
        outlying += float(power[power > BISQUARE**2].sum())
    return outlying / squares if squares > 0 else 0.0


def _spread(indices: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return at most `most` of the indices, evenly spread."""
    places = np.linspace(0, len(indices) - 1, min(most, len(indices))).round().astype(int)
    return np.asarray(indices[np.unique(places)])


def background_too_small(n_pixels: int, sides: tuple[int, ...]) -> Iterator[Verdict]:
    """Yield a verdict if fewer than sixteen windows fit into an area without overlap.

    Parameters
    ----------
    n_pixels : int
        Number of pixels of the background.
    sides : tuple of int
        Sides of the windows.
    """
    held = n_pixels / math.prod(sides)
    if held < _FEWEST_WINDOWS:
        window = " x ".join(map(str, sides))
        yield Verdict(
            "background too small",
            f"The background is too small: its {n_pixels} pixels have room for only {held:.1f} "
            f"windows of {window} pixels without overlap, and {_FEWEST_WINDOWS} are needed to "
            "learn the pattern. Mark a larger area, or use smaller windows.",
            held,
            _FEWEST_WINDOWS,
        )


def background_holds_signal(share: float) -> Iterator[Verdict]:
    """Yield a verdict if the denoised image varies within the background area too.

    Parameters
    ----------
    share : float
        Variance of the denoised image within the background area, divided by its variance in the
        whole image. It is at most 0.08 for stripes, grids, fringes and noise, and 0.2 if the area
        lies over cells.
    """
    if share > _SIGNAL_IN_AREA:
        yield Verdict(
            "background holds signal",
            "The background area seems to hold signal: the variance of the result there is "
            f"{share:.0%} of its variance in the whole image. Mark an area that shows the "
            "background alone, or a larger one if the background differs from place to place.",
            share,
            _SIGNAL_IN_AREA,
        )


def _contrast_verdicts(foreground: Blocks, background: Blocks) -> Iterator[Verdict]:
    found, exchanged = _cross_fitted(foreground, background)
    if exchanged >= max(_SWAPPED, _SWAPPED * found):
        yield Verdict(
            "layers probably swapped",
            f"In the directions in which the background stands out, it has {exchanged:.2g} times "
            "the variance of the foreground. In the directions in which the foreground stands out, "
            f"it has only {found:.2g} times the variance of the background. The two are probably "
            "swapped, or the background region lies over the signal.",
            exchanged,
            max(_SWAPPED, _SWAPPED * found),
        )
    elif found < _FOUND:
        yield Verdict(
            "nothing found",
            "Nothing was found. The directions in which the foreground stands out were chosen on "
            f"one half of the data. In the other half, it has only {found:.2g} times the "
            "background's variance in these directions; with a signal, it has at least "
            f"{_FOUND} times. Either there is no signal, or the background contains it too. Choose "
            "a region or frames without signal as the background.",
            found,
            _FOUND,
        )


def _background_verdicts(background: Blocks) -> Iterator[Verdict]:
    spread = participation_ratio(background)
    if spread > _UNSTRUCTURED:
        yield Verdict(
            "unstructured background",
            "The background has no structure, because its variance is spread over "
            f"{min(spread, 1):.0%} of all directions. It is probably camera noise. Use Noise2Void "
            "or BM3D, which are made for such noise.",
            spread,
            _UNSTRUCTURED,
        )


def participation_ratio(blocks: Blocks) -> float:
    """Return the participation ratio of the samples' covariance, relative to its maximum."""
    halves = [_without_means(_merged(blocks[i::2]).covariance) for i in range(min(2, len(blocks)))]
    traces = [float(np.trace(half)) for half in halves]
    product = float(np.vdot(halves[0], halves[-1]))
    if product <= 0 or len(halves[0]) < 2:
        return 0.0
    return traces[0] * traces[-1] / ((len(halves[0]) - 1) * product)


def _without_means(covariance: FloatArray) -> FloatArray:
    """Return the covariance that the samples have after each sample's mean is subtracted."""
    rows = covariance - covariance.mean(axis=0)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def _cross_fitted(foreground: Blocks, background: Blocks) -> tuple[float, float]:
    """Return the median held-out ratio (see `verdicts`), and the same with the datasets exchanged.

    The median is over splits of the blocks into halves. If no split has halves that vary, infinity
    and zero are returned, which give no verdict.
    """
    pairs = list(zip(foreground, background, strict=False))  # the same number of blocks of each
    k = min(_DIRECTIONS, background[0].n_features)
    ratios, exchanged = [], []
    for first, second in _half_splits(len(pairs)):
        halves = [
            (_merged([pairs[i][0] for i in half]), _merged([pairs[i][1] for i in half]))
            for half in (first, second)
        ]
        if not all(moments.varies.any() for half in halves for moments in half):
            continue
        for fitted, measured in (halves, halves[::-1]):
            ratios.append(held_out_ratio(fitted, measured, k))
            swapped = fitted[::-1], measured[::-1]
            exchanged.append(held_out_ratio(*swapped, k))
    if not ratios:
        return np.inf, 0.0
    return float(np.median(ratios)), float(np.median(exchanged))


def _half_splits(n_blocks: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return all splits of the blocks into halves, or ten evenly spread ones of them."""
    everything = range(n_blocks)
    splits = []
    for others in combinations(everything[1:], n_blocks // 2 - 1) if n_blocks > 1 else ():
        half = (0, *others)
        splits.append((half, tuple(i for i in everything if i not in half)))
    chosen = np.unique(np.linspace(0, len(splits) - 1, _SPLITS).round().astype(int))
    return [splits[i] for i in chosen] if splits else []


def _merged(blocks: Blocks) -> SecondMoments:
    return reduce(SecondMoments.merge, blocks)
