"""Progress bars, for those who want them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Progress: TypeAlias = bool | Callable[..., Iterable[Any]]


def with_progress(
    items: Iterable[T], total: int | None, label: str, progress: Progress
) -> Iterable[T]:
    """`items`, with a progress bar as they are taken: tqdm's, or one called as tqdm is."""
    if progress is False:
        return items
    if progress is True:
        try:
            progress = import_module("tqdm.auto").tqdm
        except ImportError as error:
            raise ImportError(
                "progress=True needs tqdm; install it, or give a callable that takes "
                "(iterable, total=, desc=) and returns an iterable."
            ) from error
    if not callable(progress):
        raise TypeError(f"progress must be True, False or a callable, got {progress!r}.")
    return progress(items, total=total, desc=label)
