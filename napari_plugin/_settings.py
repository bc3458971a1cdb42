"""The user's choices, and the types that the modules of the model share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import Frames, Patches

Method: TypeAlias = Literal["automatic", "cpca", "pcpca", "pca", "cpca_star"]
Brightness: TypeAlias = Literal["auto", "keep", "remove"]
Samples: TypeAlias = Patches | Frames
FloatImage: TypeAlias = NDArray[np.float32]
BoolArray: TypeAlias = NDArray[np.bool_]
Report: TypeAlias = Callable[[int, int, str], None]
"""Called with the work done, the total and what is being done; raises `Cancelled` to stop."""

METHODS: dict[Method, str] = {
    "automatic": "Automatic",
    "cpca": "Contrastive PCA",
    "pcpca": "Probabilistic contrastive PCA",
    "pca": "PCA, for comparison",
    "cpca_star": "Generalised PCA (cPCA*)",
}
WITH_SLIDER = ("cpca", "pcpca", "cpca_star")
AUTOMATIC = 0.5
"""Suppression at which a projection has the strength that is chosen automatically."""
STRONGEST = 0.99
SMALL_FRAME = 2048
"""Most pixels of frames whose covariances are estimated."""
_DOING = {
    "map": "Removing",
    "check": "Checking",
    "choose windows": "Choosing windows",
    "read": "Reading",
}


class InputError(ValueError):
    """A choice that cannot work; the message is written for the user of the window."""


class Cancelled(Exception):
    """The user pressed Cancel, or closed the dock."""


def no_report(done: int, total: int, doing: str) -> None:
    """Ignore progress."""


def progress_of(report: Report, doing: str = "") -> Callable[..., Iterator[Any]]:
    """Return a progress bar for the core that passes progress on to `report`."""

    def progress(items: Iterable[Any], total: int | None = None, desc: str = "") -> Iterator[Any]:
        for done, item in enumerate(items):
            report(done, total or 0, doing or _DOING.get(desc, f"Reading {desc}"))
            yield item

    return progress


@dataclass(frozen=True)
class Settings:
    """How the background is removed.

    Parameters
    ----------
    method : {"automatic", "cpca", "pcpca", "pca", "cpca_star"}, default="automatic"
        Background removal without parameters, or a projection.
    suppression : float, default=0.5
        Strength of a projection's contrast from 0 (none) to 1; 0.5 is the automatic strength.
    n_components : int, default=10
        Components that a projection keeps.
    raw_strength : float, optional
        Replaces the suppression: alpha, gamma or beta as the papers define them.
    constant_strength : bool, default=False
        For the automatic method on patches: the background is equally strong everywhere.
    signal_anywhere : bool, default=False
        For the automatic method on small frames: the signal may be anywhere in the frame.
    absorbed : bool, default=False
        For the automatic method on frames: light is absorbed; the result is the optical density.
    brightness : {"auto", "keep", "remove"}, default="auto"
        For the automatic method on patches: whether the mean of the background is kept.
    """

    method: Method = "automatic"
    suppression: float = AUTOMATIC
    n_components: int = 10
    raw_strength: float | None = None
    constant_strength: bool = False
    signal_anywhere: bool = False
    absorbed: bool = False
    brightness: Brightness = "auto"


def strength(automatic: float, suppression: float, *, largest: float = math.inf) -> float:
    """Return the contrast strength that belongs to a position of the slider.

    The odds of the suppression, s / (1 - s), multiply the automatic strength, or its odds where
    the strength has a largest value.

    Examples
    --------
    >>> [strength(4.0, s) for s in (0.0, 0.5, 0.75)]
    [0.0, 4.0, 12.0]
    >>> [strength(0.9, s, largest=1.0) for s in (0.0, 0.5)]
    [0.0, 0.9]
    """
    s = min(max(suppression, 0.0), STRONGEST)
    odds = s / (1 - s)
    if math.isinf(largest):
        return automatic * odds
    rest = max(largest - automatic, 1e-3 * largest)
    return largest * automatic * odds / (automatic * odds + rest)


def default_samples(
    shape: tuple[int, ...], method: Method, behind: tuple[int, ...] | None
) -> Samples:
    """Return whole frames for stacks whose background is a stack of such frames, or patches.

    `behind` is the shape of the background's images, or None for an area of the images, which only
    patches can use. Projections compare large frames by patches.
    """
    if len(shape) < 3 or behind is None or len(behind) < 3 or behind[-2:] != shape[-2:]:
        return default_patches(method)
    small = math.prod(shape[-2:]) <= SMALL_FRAME
    enough = min(math.prod(shape[:-2]), math.prod(behind[:-2])) >= (4 if small else 8)
    return Frames() if enough and (small or method == "automatic") else default_patches(method)


def default_patches(method: Method) -> Patches:
    """Return the patches that are used where the user has chosen none.

    For the automatic method they are the core's default, and stand for its own choice of windows.
    """
    return Patches() if method == "automatic" else Patches(16, 4)
