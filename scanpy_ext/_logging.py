"""Messages about what is computed and written, through scanpy's logger where scanpy is in use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])

_written: ContextVar[list[str] | None] = ContextVar("written", default=None)


def wrote(slot: str, names: Iterable[str]) -> None:
    """Note what was written into a slot of the AnnData, for the message at the end."""
    found, quoted = _written.get(), ", ".join(map(repr, names))
    if found is not None and quoted:
        found.append(f"{quoted} (adata.{slot})")


def logged(function: F) -> F:
    """Wrap a function to log when it starts, how long it took and what it wrote.

    Start and duration are logged at `sc.settings.verbosity` 2 and higher, what was written at 3.
    scanpy is not imported for this: whoever has set its verbosity has imported it.
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
