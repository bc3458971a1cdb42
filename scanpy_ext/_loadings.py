"""The loadings of a result, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from . import _keys
from ._arguments import check_anndata, is_among, listed, quoted, text

if TYPE_CHECKING:
    from anndata import AnnData


def loadings_of(adata: AnnData, key: str, level: object = None) -> pd.DataFrame:
    """Loadings of genes, or of the dimensions of an embedding, on components counted from 1.

    Parameters
    ----------
    key
        Name of the result in `.uns`.
    level
        Of a result with several sets of loadings: which.

    Raises
    ------
    ValueError
        If there is no such result, it has no loadings, or `level` is not one of its sets.
    """
    check_anndata(adata)
    result = adata.uns[key] if isinstance(key, str) and is_among(key, adata.uns) else None
    if not isinstance(result, Mapping):
        known = [str(name) for name, value in adata.uns.items() if isinstance(value, Mapping)]
        raise ValueError(
            f"adata.uns has no result {quoted(key)} with loadings; it has {listed(known)}. Run "
            "scanpy_ext.tl.cpca first, or name the result with key=: the method's name or its "
            "key_added."
        )
    sets = _sets(adata, _keys.linear(key), result)
    chosen = None if level is None else text(level)
    if chosen not in sets:
        named = [each for each in sets if each is not None]
        what = f"it has {listed(named)}" if named else "it has one set of loadings: leave level out"
        raise ValueError(f"level={quoted(level)} of adata.uns[{key!r}]: {what}.")
    table, names = sets[chosen], list(adata.var_names)
    if "obsm" in result.get("params", {}) and table is not None:
        names = _keys.dimensions(str(result["params"]["obsm"]), len(table))
    if table is None:
        raise ValueError(
            f"adata.uns[{key!r}] has no loadings in adata.varm, which has "
            f"{listed(list(adata.varm))}. A kernel has none."
        )
    columns = pd.RangeIndex(1, np.shape(table)[1] + 1, name="component")
    return pd.DataFrame(np.asarray(table), pd.Index(names), columns)


def _sets(adata: AnnData, keys: _keys.Keys, result: Mapping[str, Any]) -> dict[str | None, Any]:
    """Every set of loadings by its level, those of the only one by None; None if not there."""
    of_embedding = "obsm" in result.get("params", {})
    stored = result.get("loadings") if of_embedding else None
    if _keys.LEVELS in result:
        slots = {str(level): keys.of_level(str(level)).varm for level in result[_keys.LEVELS]}
        tables: Any = stored if of_embedding else adata.varm
        return {level: tables.get(slot) for level, slot in slots.items()}
    if "representatives" in result:
        number = range(len(result["representatives"]))
        if of_embedding:
            return {str(i): stored[i] for i in number}  # type: ignore[index]
        return {str(i): adata.varm.get(keys.numbered(i).varm) for i in number}
    if of_embedding:
        found = {None: stored, "shared": result.get("shared_loadings")}
    else:
        found = {None: adata.varm.get(keys.varm), "shared": adata.varm.get(keys.shared().varm)}
    return {level: table for level, table in found.items() if level is None or table is not None}
