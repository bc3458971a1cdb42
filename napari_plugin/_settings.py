"""What a user chooses, in the user's words, and what the core calls it."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from contrast_core.images import Frames, Patches

Method: TypeAlias = Literal["automatic", "cpca", "pcpca", "pca", "cpca_star"]
Samples: TypeAlias = Patches | Frames
Result = TypeVar("Result")
Steps: TypeAlias = Generator["Progress", None, Result]

METHODS: dict[Method, str] = {
    "automatic": "Background removal (automatic)",
    "cpca": "Contrastive PCA",
    "pcpca": "Probabilistic contrastive PCA",
    "pca": "PCA (for comparison)",
    "cpca_star": "Generalised contrastive PCA (cPCA*)",
}
PROJECTIONS = ("cpca", "pcpca", "pca", "cpca_star")
WITH_SLIDER = ("cpca", "pcpca", "cpca_star")
AUTOMATIC = 0.5
"""Suppression at which a projection is as strong as it is chosen automatically."""
STRONGEST = 0.99
LARGEST_AUTOMATIC_FRAME = 2048
"""Most pixels of whole frames that background removal takes."""


class InputError(ValueError):
    """A choice that cannot work, in words for whoever looks at the images."""


@dataclass(frozen=True)
class Progress:
    """How much of the work is done, and what is being done."""

    done: int
    total: int
    doing: str


@dataclass(frozen=True)
class Settings:
    """How the background is removed, once what it looks like has been read.

    Parameters
    ----------
    method : {"automatic", "cpca", "pcpca", "pca", "cpca_star"}
        Background removal, or a projection.
    suppression : float, default=0.5
        Of a projection, from 0 (none: PCA) to 1; at one half it is chosen automatically.
    n_components : int, default=10
        Patterns that a projection keeps.
    raw_strength : float, optional
        Of a projection, instead of the suppression: the strength as the papers write it.
    constant_strength : bool, default=False
        Of background removal by patches: the background is as strong everywhere.
    signal_anywhere : bool, default=False
        Of background removal by frames: the signal may be anywhere in the frame.
    """

    method: Method = "automatic"
    suppression: float = AUTOMATIC
    n_components: int = 10
    raw_strength: float | None = None
    constant_strength: bool = False
    signal_anywhere: bool = False


def strength(automatic: float, suppression: float, *, largest: float = math.inf) -> float:
    """A contrast strength: none at 0, the automatic one at 0.5, towards the largest at 1.

    The odds of the suppression, s / (1 - s), multiply the automatic strength, or its odds where
    strengths end.

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


def is_frames(samples: Samples) -> bool:
    """Whether whole frames are compared."""
    return isinstance(samples, Frames)


def default_samples(shape: tuple[int, ...], method: Method = "automatic") -> Samples:
    """Small frames of a film count whole; large images, and single ones, by patches."""
    n_images, pixels = math.prod(shape[:-2]), math.prod(shape[-2:])
    if len(shape) > 2 and n_images >= 8 and pixels <= LARGEST_AUTOMATIC_FRAME:
        return Frames()
    return default_patches(method)


def default_patches(method: Method, side: int = 16) -> Patches:
    """Every second place where that is worth its time; a projection is live at every fourth."""
    return Patches(side, max(1, side // 8 if method == "automatic" else side // 4))


def parameters(settings: Settings, samples: Samples) -> dict[str, Any]:
    """What result layers say of how they were made."""
    kept: dict[str, Any] = {"method": settings.method, "samples": repr(samples)}
    if settings.method == "automatic":
        return kept
    kept["components"] = settings.n_components
    return kept if settings.method == "pca" else kept | {"suppression": settings.suppression}
