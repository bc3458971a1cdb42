"""What `scanpy_ext.tl` or `pp` wrote, checked to be there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._select import check_anndata, check_component, is_among, quoted

if TYPE_CHECKING:
    from anndata import AnnData


def stored_result(adata: AnnData, name: str, entry: str, function: str, key: str | None) -> Any:
    """An entry of `adata.uns`, checked to be what `function` wrote."""
    check_anndata(adata)
    result = adata.uns[name] if is_among(name, adata.uns) else None
    if not isinstance(result, Mapping) or entry not in result:
        raise ValueError(
            f"adata.uns has no result {quoted(name)} of {function}: run it first"
            f"{'' if key is None else f' with key_added={key!r}'}."
        )
    return result


def chosen_components(components: object, n_components: int) -> list[int]:
    """Components counted from 1, as a list, one number, or text with commas.

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
