"""What functions are given, checked; and how errors name it."""

from __future__ import annotations

import reprlib
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

if TYPE_CHECKING:
    from anndata import AnnData


def quoted(name: object) -> str:
    """A name in an error, and what was given in the place of one, cut short."""
    return repr(name) if isinstance(name, str) else reprlib.repr(name)


def listed(names: Sequence[str], most: int = 20) -> str:
    """Names for an error message, cut short when there are many."""
    if not names:
        return "(none)"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(str(name)) for name in names[:most]) + more


def text(level: Any) -> str:
    """A level as it is written."""
    # A column of whole numbers turns to floats when it has gaps: 1.0 still stands for "1".
    if isinstance(level, (float, np.floating)) and float(level).is_integer():
        return str(int(level))
    return str(level)


def is_among(name: object, names: Container[Any]) -> bool:
    """Whether a name is one of these; what can be no name is none."""
    try:
        return name in names
    except TypeError:  # it has no hash
        return False


def is_word(value: object, word: str) -> bool:
    """Whether it is this word; an array of words is none."""
    return isinstance(value, str) and value == word


def is_anndata(value: object) -> TypeGuard[AnnData]:
    """Whether it is an AnnData; anndata is not imported for it."""
    return hasattr(value, "obs_names") and hasattr(value, "var_names")


def check_anndata(adata: object, name: str = "adata") -> None:
    """Raises TypeError if it is something else."""
    if is_anndata(adata) and hasattr(adata, "mod"):  # a table has a `mod` too
        raise TypeError(
            f"{name} is {type(adata).__name__}; expected one AnnData of it. Give a modality, such "
            "as mdata['rna']: results are written into it, and so into the whole."
        )
    if not is_anndata(adata):
        raise TypeError(
            f"{name} is {type(adata).__name__}; expected an AnnData. Make one with "
            "anndata.AnnData(table), a row for each cell."
        )


def check_component(component: object, n_components: int, name: str = "component") -> int:
    """A component, counted from 1.

    Raises TypeError or ValueError if there is none of that number.
    """
    if isinstance(component, bool) or not isinstance(component, (int, np.integer)):
        raise TypeError(
            f"{name}={quoted(component)}: expected a whole number from 1 to {n_components}."
        )
    if not 1 <= component <= n_components:
        raise ValueError(f"{name}={component}: expected a number from 1 to {n_components}.")
    return int(component)


def check_count(value: object, name: str, least: int = 1) -> int:
    """A whole number of `least` or more.

    Raises TypeError or ValueError if it is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={quoted(value)}: expected a whole number of {least} or more.")
    if value < least:
        raise ValueError(f"{name}={quoted(value)}: expected {least} or more.")
    return int(value)


def check_flag(value: object, name: str) -> bool:
    """True or False; raises TypeError if it is neither."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {quoted(value)}.")
    return bool(value)


def check_seed(value: int | None) -> None:
    """Raises TypeError or ValueError if it is neither None nor a whole number of 0 or more."""
    if value is not None:
        check_count(value, "random_state", least=0)
