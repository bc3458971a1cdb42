"""What `scanpy_ext.tl` or `pp` wrote, checked to be there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._arguments import check_anndata, check_component, is_among, quoted

if TYPE_CHECKING:
    from anndata import AnnData


def stored_result(adata: AnnData, key: str, entry: str, function: str) -> Any:
    """An entry of `adata.uns`, checked to be what `function` wrote."""
    check_anndata(adata)
    result = adata.uns[key] if isinstance(key, str) and is_among(key, adata.uns) else None
    if not isinstance(result, Mapping) or entry not in result:
        raise ValueError(
            f"adata.uns has no result {quoted(key)} of {function}: run it first, or name its "
            "key_added with key=."
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


def titled(alpha: float) -> str:
    """A contrast strength as it is written beside or above what it gave."""
    return f"alpha = {float(f'{alpha:.3g}'):g}"  # 1000 rather than 1e+03
