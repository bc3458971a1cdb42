"""Cut images and stacks into samples, remove structured background and show weights as maps.

Names are imported on first use, so that importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contrast_core.images._background_remover import StructuredBackgroundRemover
    from contrast_core.images._blocks import block_moments
    from contrast_core.images._frame_remover import FrameBackgroundRemover
    from contrast_core.images._patches import Patches
    from contrast_core.images._stacks import weight_maps
    from contrast_core.images._suppress import SuppressedBackground, suppress_background
    from contrast_core.images._verdicts import Verdict, verdicts
    from contrast_core.images._whole_axes import Channels, Frames

_HOME = {
    "Channels": "_whole_axes",
    "FrameBackgroundRemover": "_frame_remover",
    "Frames": "_whole_axes",
    "Patches": "_patches",
    "StructuredBackgroundRemover": "_background_remover",
    "SuppressedBackground": "_suppress",
    "Verdict": "_verdicts",
    "block_moments": "_blocks",
    "suppress_background": "_suppress",
    "verdicts": "_verdicts",
    "weight_maps": "_stacks",
}

__all__ = [
    "Channels",
    "FrameBackgroundRemover",
    "Frames",
    "Patches",
    "StructuredBackgroundRemover",
    "SuppressedBackground",
    "Verdict",
    "block_moments",
    "suppress_background",
    "verdicts",
    "weight_maps",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
