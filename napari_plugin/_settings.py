"""Settings that a user chooses, and types and exceptions that several modules use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import Frames, Patches

Method: TypeAlias = Literal["automatic", "cpca", "pcpca", "pca", "cpca_star"]
Samples: TypeAlias = Patches | Frames
FloatImage: TypeAlias = NDArray[np.float32]
BoolArray: TypeAlias = NDArray[np.bool_]
Remark: TypeAlias = tuple[str, Literal["doubtful", "instead"]]
"""Sentence about a result, and whether it makes the result doubtful or names a better method."""
Report: TypeAlias = Callable[[int, int, str], None]
"""Function of the work done, the total work and the step's name; it raises `Cancelled` to stop."""

METHODS: dict[Method, str] = {
    "automatic": "Automatic",
    "cpca": "Contrastive PCA",
    "pcpca": "Probabilistic contrastive PCA",
    "pca": "PCA, for comparison",
    "cpca_star": "Generalised PCA (cPCA*)",
}
# Methods whose contrast strength is set by the slider.
WITH_SLIDER = ("cpca", "pcpca", "cpca_star")
AUTOMATIC = 0.5
"""Position of the slider at which the strength is the automatically chosen one."""
_STRONGEST = 0.99  # position of the slider above which the strength no longer grows
SMALL_FRAME = 2048
"""Largest number of pixels of a frame for which a covariance of all pixels is estimated."""
# Texts of the status line for the steps that `contrast_core` reports.
_DOING = {
    "map": "Removing",
    "check": "Checking",
    "choose windows": "Choosing patches",
    "read": "Reading",
}


class InputError(ValueError):
    """Error of a setting or layer that cannot be used; the dock shows its message to the user."""


class Cancelled(Exception):
    """Exception that ends a run after the user pressed Cancel or closed the dock."""


def no_report(done: int, total: int, doing: str) -> None:
    """Ignore progress."""


def progress_of(report: Report, doing: str = "") -> Callable[..., Iterator[Any]]:
    """Return a function that calls `report`; `contrast_core` accepts it as `progress`."""

    def progress(items: Iterable[Any], total: int | None = None, desc: str = "") -> Iterator[Any]:
        for done, item in enumerate(items):
            report(done, total or 0, doing or _DOING.get(desc, f"Reading {desc}"))
            yield item

    return progress


@dataclass(frozen=True)
class Settings:
    """Settings of the background removal.

    Every method except the automatic one is called a projection, because it projects on components.

    Parameters
    ----------
    method : {"automatic", "cpca", "pcpca", "pca", "cpca_star"}, default="automatic"
        Method that removes the background. The automatic one needs no parameters.
    suppression : float, default=0.5
        Position of the slider from 0 (no contrast) to 1. At 0.5, a projection has its automatic
        contrast strength.
    n_components : int, default=10
        Number of components that a projection keeps.
    raw_strength : float, optional
        Contrast strength as the papers define it (alpha, gamma or beta). It replaces `suppression`.
    constant_strength : bool, default=False
        Whether the background is equally strong everywhere (automatic method on patches).
    absorbed : bool, default=False
        Whether the objects absorb light (automatic method on frames). The result is then an optical
        density.
    brightness : {"keep", "remove"}, default="keep"
        Whether the mean of the background is kept (automatic method on patches).
    """

    method: Method = "automatic"
    suppression: float = AUTOMATIC
    n_components: int = 10
    raw_strength: float | None = None
    constant_strength: bool = False
    absorbed: bool = False
    brightness: Literal["keep", "remove"] = "keep"

    def options(self, samples: Samples) -> dict[str, Any]:
        """Return the options of `suppress_background` for the automatic method."""
        if isinstance(samples, Frames):
            return {"sampling": "frames", "multiplicative": self.absorbed}
        # Instead of the default size of patches, the core may choose a size that suits the
        # background.
        return {
            "sampling": "patches" if samples == Patches() else samples,
            "brightness": self.brightness,
            "background_strength": "constant" if self.constant_strength else "auto",
        }


def strength(automatic: float, suppression: float, *, largest: float = math.inf) -> float:
    """Return the contrast strength at a position of the slider.

    Let a be the automatic strength and s the suppression. Without an upper bound, the strength is
    a times the odds s / (1 - s). With the upper bound b = `largest`, the strength x is below b and
    solves x / (b - x) = a / (b - a) s / (1 - s).

    Examples
    --------
    >>> [strength(4.0, s) for s in (0.0, 0.5, 0.75)]
    [0.0, 4.0, 12.0]
    >>> [strength(0.9, s, largest=1.0) for s in (0.0, 0.5)]
    [0.0, 0.9]
    """
    s = min(max(suppression, 0.0), _STRONGEST)
    odds = s / (1 - s)
    if math.isinf(largest):
        return automatic * odds
    rest = max(largest - automatic, 1e-3 * largest)
    return largest * automatic * odds / (automatic * odds + rest)


def default_samples(
    shape: tuple[int, ...], method: Method, background_shape: tuple[int, ...] | None
) -> Samples:
    """Return the default samples, which are whole frames or patches.

    Whole frames are used if the background is a stack of frames of the same size and both stacks
    have enough frames. `background_shape` is the shape of the background stack. It is None if the
    background is an area of the images, which requires patches. Projections use patches for large
    frames.
    """
    if (
        len(shape) < 3
        or background_shape is None
        or len(background_shape) < 3
        or background_shape[-2:] != shape[-2:]
    ):
        return default_patches(method)
    small = math.prod(shape[-2:]) <= SMALL_FRAME
    enough = min(math.prod(shape[:-2]), math.prod(background_shape[:-2])) >= (4 if small else 8)
    return Frames() if enough and (small or method == "automatic") else default_patches(method)


def default_patches(method: Method) -> Patches:
    """Return the default size and step of patches.

    For the automatic method this is `Patches()`, which lets `contrast_core` choose the patches.
    """
    return Patches() if method == "automatic" else Patches(16, 4)
