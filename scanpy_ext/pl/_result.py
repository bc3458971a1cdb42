"""What `scanpy_ext.tl` or `pp` wrote, checked to be there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anndata import AnnData


def stored_result(adata: AnnData, name: str, entry: str, function: str, key: str | None) -> Any:
    """An entry of `adata.uns`, checked to be what `function` wrote."""
    result = adata.uns.get(name)
    if not isinstance(result, Mapping) or entry not in result:
        raise ValueError(
            f"adata.uns has no result {name!r} of {function}: run it first"
            f"{'' if key is None else f' with key_added={key!r}'}."
        )
    return result
