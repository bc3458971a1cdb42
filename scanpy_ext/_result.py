"""Find results in an AnnData by their name in `.uns`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anndata import AnnData

from ._arguments import check_anndata, is_among, listed, quoted
from ._write import is_own


def stored_result(
    adata: AnnData, key: str, function: str, *needed: str, name: str = "adata"
) -> Mapping[str, Any]:
    """Return an entry of `adata.uns`, after checking that it is a result of `function`.

    Parameters
    ----------
    key
        Name of the entry.
    function
        The functions that write such a result. The error message recommends them.
    needed
        Names of the fields that the entry must have.
    name
        Name of the AnnData in error messages.

    Raises
    ------
    TypeError
        If `adata` is not an AnnData.
    ValueError
        If there is no such result.
    """
    check_anndata(adata, name)
    result = adata.uns[key] if isinstance(key, str) and is_among(key, adata.uns) else None
    if not isinstance(result, Mapping) or not all(entry in result for entry in needed):
        known = [str(each) for each, entry in adata.uns.items() if is_own(entry)]
        raise ValueError(
            f"{name}.uns has no result {quoted(key)} of scanpy_ext.{function}; its results are "
            f"{listed(known)}. Run the function first, or give with key= the name it was given "
            "as key_added=."
        )
    return result
