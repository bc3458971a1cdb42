"""Checks of arguments, and conversions of values to text for error messages and files."""

from __future__ import annotations

import inspect
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
from anndata import AnnData

from contrast_core.feedback import shown


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return a list of names for an error message, shortened if there are many."""
    if not names:
        return "(none)"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(str(name)) for name in names[:most]) + more


def text(level: Any) -> str:
    """Return as text a value of a column, such as a condition or a donor."""
    # pandas stores whole numbers as floats if values are missing, but 1.0 still means "1".
    if isinstance(level, (float, np.floating)) and float(level).is_integer():
        return str(int(level))
    return str(level)


def is_among(name: object, names: Container[Any]) -> bool:
    """Return whether a value is one of these names; False if it is not hashable."""
    try:
        return name in names
    except TypeError:  # the value is not hashable
        return False


def check_anndata(adata: object, name: str = "adata") -> None:
    """Raise TypeError if a value is not an AnnData."""
    if not isinstance(adata, AnnData):
        advice = "Make one with anndata.AnnData(table), from a table with a row for each cell."
        if hasattr(adata, "obs_names"):  # a MuData
            advice = (
                "Give one of its modalities, such as mdata['rna']. Results are written into this "
                "modality, and so into the MuData."
            )
        raise TypeError(f"{name} is {type(adata).__name__}; expected an AnnData. {advice}")


def model_parameters(model: type, given: Mapping[str, Any] | None, *own: str) -> dict[str, Any]:
    """Return `given`, the argument `model_kwargs`, after checking its names against a class.

    The parameters in `own` are set by the calling function, so they are not allowed. TypeError is
    raised for these and for names that are not parameters of the class `model`.
    """
    known = [name for name in inspect.signature(model).parameters if name not in own]
    return further_parameters(
        given, "model_kwargs", known, f"parameters of contrast_core.{model.__name__}"
    )


def further_parameters(
    given: Mapping[str, Any] | None, argument: str, known: Sequence[str], what: str
) -> dict[str, Any]:
    """Return `given` as a dict; raise TypeError if it is not a dict or has an unknown name."""
    if not isinstance(given, Mapping | None) or set(given or ()) - set(known):
        raise TypeError(
            f"{argument}={shown(given)}: expected a dict of further {what}, which are "
            f"{listed(known)}."
        )
    return dict(given or {})


def storable(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that are not None, as values that h5ad and zarr files can hold.

    Numbers, strings and arrays stay as they are. All other values become text.
    """
    kept = bool | int | float | str | np.generic | np.ndarray
    return {
        name: value if isinstance(value, kept) else str(value)
        for name, value in arguments.items()
        if value is not None
    }
