"""Log messages through scanpy's logger, if scanpy has been imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])


def log_written(slots: Mapping[str, Iterable[str]]) -> None:
    """Log the names that were written into each slot, if `sc.settings.verbosity` is at least 3."""
    if logging := _logging():
        lines = [f"    {', '.join(map(repr, slots[slot]))} (adata.{slot})" for slot in slots]
        logging.hint("added\n" + "\n".join(lines))


def logged(function: F) -> F:
    """Wrap a function so that it logs its start and duration, at a verbosity of at least 2.

    Nothing is logged if scanpy has not been imported, because the verbosity is a setting of scanpy.
    """
    part = "tl" if ".tl." in function.__module__ else "pp"

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> object:
        if not (logging := _logging()):
            return function(*args, **kwargs)
        start = logging.info(f"computing scanpy_ext.{part}.{function.__name__}")
        result = function(*args, **kwargs)
        logging.info("    finished", time=start)
        return result

    return cast("F", wrapper)


def _logging() -> Any:
    return getattr(sys.modules.get("scanpy"), "logging", None)
