"""Components and strengths as plots take and name them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._arguments import check_component


def chosen_components(components: object, n_components: int) -> list[int]:
    """Return components counted from 1, given as a list, one number, or text with commas.

    Raises TypeError or ValueError if one is not there, or none is named.
    """
    asked: Any = components
    if isinstance(asked, str):
        parts = [part.strip() for part in asked.split(",")]
        asked = [int(part) if part.isdecimal() else part for part in parts]
    elif not isinstance(asked, Iterable):
        asked = [asked]
    found = [check_component(component, n_components, "components") for component in asked]
    if not found:
        raise ValueError(f"components is empty: expected numbers from 1 to {n_components}.")
    return found


def titled(alpha: float) -> str:
    """Return a contrast strength as text."""
    return f"alpha = {float(f'{alpha:.3g}'):g}"  # 1000 rather than 1e+03
