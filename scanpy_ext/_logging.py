"""Log messages through scanpy's logger, if scanpy has been imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])

_written: ContextVar[list[str] | None] = ContextVar("written", default=None)


def wrote(slot: str, names: Iterable[str]) -> None:
    """Record the names that were written into a slot of the AnnData, for the final message."""
    found, quoted = _written.get(), ", ".join(map(repr, names))
    if found is not None and quoted:
        found.append(f"{quoted} (adata.{slot})")


def logged(function: F) -> F:
    """Wrap a function so that it logs its start, its duration and the names that it wrote.

    The start and the duration are logged if `sc.settings.verbosity` is at least 2, and the names if
    it is at least 3. Nothing is logged if scanpy has not been imported: a user who has set the
    verbosity has imported it.
    """

    @wraps(function)
    def told(*args: Any, **kwargs: Any) -> object:
        logging = getattr(sys.modules.get("scanpy"), "logging", None)
        if logging is None:
            return function(*args, **kwargs)
        found: list[str] = []
        token = _written.set(found)
        start = logging.info(f"computing {_name(function)}")
        try:
            result = function(*args, **kwargs)
        finally:
            _written.reset(token)
        logging.info("    finished", time=start, deep="added\n    " + "\n    ".join(found))
        return result

    return cast("F", told)


def _name(function: Callable[..., object]) -> str:
    part = "tl" if ".tl." in function.__module__ else "pp"
    return f"scanpy_ext.{part}.{function.__name__}"
