"""Checks of arguments, and the text of arguments in error messages."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Container, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from anndata import AnnData


def quoted(name: object) -> str:
    """Return the text of an argument for an error message, shortened if it is long."""
    return repr(name) if isinstance(name, str) else reprlib.repr(name)


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return a list of names for an error message, shortened if there are many."""
    if not names:
        return "(none)"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(str(name)) for name in names[:most]) + more


def text(level: Any) -> str:
    """Return a level of a column as text."""
    # A column of whole numbers with missing values becomes floats, but 1.0 still means "1".
    if isinstance(level, (float, np.floating)) and float(level).is_integer():
        return str(int(level))
    return str(level)


def is_among(name: object, names: Container[Any]) -> bool:
    """Return whether a value is one of these names; False if it is not hashable."""
    try:
        return name in names
    except TypeError:  # it has no hash
        return False


def is_anndata(value: object) -> TypeGuard[AnnData]:
    """Return whether a value is an AnnData, without importing anndata."""
    return hasattr(value, "obs_names") and hasattr(value, "var_names")


def check_anndata(adata: object, name: str = "adata") -> None:
    """Raise TypeError if a value is not an AnnData."""
    # MuData has the attributes of an AnnData and `mod`; pandas tables have `mod` alone.
    if is_anndata(adata) and hasattr(adata, "mod"):
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
    """Return the number of a component, counted from 1.

    Raises TypeError or ValueError if there is no such component.
    """
    if isinstance(component, bool) or not isinstance(component, (int, np.integer)):
        raise TypeError(
            f"{name}={quoted(component)}: expected a whole number from 1 to {n_components}."
        )
    if not 1 <= component <= n_components:
        raise ValueError(f"{name}={component}: expected a number from 1 to {n_components}.")
    return int(component)


def check_count(value: object, name: str, least: int = 1) -> int:
    """Return a whole number of at least `least`; raise TypeError or ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}={quoted(value)}: expected a whole number of {least} or more.")
    if value < least:
        raise ValueError(f"{name}={quoted(value)}: expected {least} or more.")
    return int(value)


def check_flag(value: object, name: str) -> bool:
    """Return True or False; raise TypeError if the value is neither."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {quoted(value)}.")
    return bool(value)


def model_parameters(model: type, given: Mapping[str, Any] | None, *own: str) -> dict[str, Any]:
    """Return `model_kwargs` after a check that they are parameters of a class of the core.

    The parameters in `own` are set by the function itself, so they are not allowed. Raises
    TypeError for anything that is not a further parameter.
    """
    known = [name for name in inspect.signature(model).parameters if name not in own]
    return further(given, "model_kwargs", known, f"parameters of contrast_core.{model.__name__}")


def further(
    given: Mapping[str, Any] | None, argument: str, known: Sequence[str], what: str
) -> dict[str, Any]:
    """Return further parameters by name; raise TypeError if one is not among the known ones."""
    if not isinstance(given, Mapping | None) or set(given or ()) - set(known):
        raise TypeError(
            f"{argument}={quoted(given)}: expected a dict of further {what}, which are "
            f"{listed(known)}."
        )
    return dict(given or {})


def storable_texts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters in a form that files can hold: all but numbers and strings as text."""
    return {
        name: value if isinstance(value, bool | int | float | str | None) else str(value)
        for name, value in parameters.items()
    }
