"""Progress bars, warnings, and checks of arguments that scanpy_ext and napari_plugin use too."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from contrast_core._validation import ContrastWarning
from contrast_core._validation import check_choice as check_choice
from contrast_core._validation import check_count as check_count
from contrast_core._validation import check_flag as check_flag
from contrast_core._validation import check_number as check_number
from contrast_core._validation import check_path as check_path
from contrast_core._validation import numbers_of as numbers_of
from contrast_core._validation import shown as shown

__all__ = ["Progress", "muted", "warn", "with_progress"]

T = TypeVar("T")
Progress: TypeAlias = bool | Callable[..., Iterable[Any]]

# Warnings are never attributed to lines of the packages of this distribution. The same holds for
# scikit-learn, because its pipelines and wrappers call the estimators.
_NOT_THE_CALLER = ("contrast_core", "scanpy_ext", "napari_plugin", "sklearn")
_muted: ContextVar[str | None] = ContextVar("muted", default=None)


def warn(message: str) -> None:
    """Warn about a result that is probably not what the user wanted.

    Parameters
    ----------
    message : str
        Text of the `contrast_core.ContrastWarning`. The warning is attributed to the innermost line
        of the call stack that belongs neither to this distribution nor to scikit-learn.
    """
    pattern = _muted.get()
    if pattern is not None and re.search(pattern, message):
        return
    frame = sys._getframe(1)
    while frame.f_back is not None and _package(frame.f_globals) in _NOT_THE_CALLER:
        frame = frame.f_back
    warnings.warn_explicit(
        message,
        ContrastWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


@contextmanager
def muted(pattern: str = "") -> Iterator[None]:
    """Suppress expected warnings: all warnings, or only the warnings that match a pattern.

    This affects the current thread only. Python's own filters belong to the whole process, and
    could end up wrong if two threads changed and restored them at the same time.
    """
    token = _muted.set(pattern)
    try:
        yield
    finally:
        _muted.reset(token)


def _package(names: dict[str, Any]) -> str:
    """Return the top-level package of a module, given its global names."""
    return str(names.get("__name__", "")).partition(".")[0]


def with_progress(
    items: Iterable[T], total: int | None, label: str, progress: Progress
) -> Iterable[T]:
    """Iterate over `items` with a progress bar of tqdm or of the callable `progress`."""
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
