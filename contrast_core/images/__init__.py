"""Images and stacks: samples cut from them, structured background removed, weight maps.

Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contrast_core.images._background_remover import StructuredBackgroundRemover
    from contrast_core.images._patches import Patches
    from contrast_core.images._sampling import Sampling
    from contrast_core.images._stacks import (
        Stack,
        denoise_stack,
        iter_rows,
        rows_to_stack,
        stack_to_rows,
        weight_maps,
    )
    from contrast_core.images._whole_axes import Channels, Frames

_HOME = {
    "Channels": "_whole_axes",
    "Frames": "_whole_axes",
    "Patches": "_patches",
    "Sampling": "_sampling",
    "Stack": "_stacks",
    "StructuredBackgroundRemover": "_background_remover",
    "denoise_stack": "_stacks",
    "iter_rows": "_stacks",
    "rows_to_stack": "_stacks",
    "stack_to_rows": "_stacks",
    "weight_maps": "_stacks",
}

__all__ = [
    "Channels",
    "Frames",
    "Patches",
    "Sampling",
    "Stack",
    "StructuredBackgroundRemover",
    "denoise_stack",
    "iter_rows",
    "rows_to_stack",
    "stack_to_rows",
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
