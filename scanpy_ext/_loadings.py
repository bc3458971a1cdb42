"""Find the loadings of a result by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from . import _keys
from ._arguments import listed, quoted, text
from ._result import stored_result


def loadings_of(adata: AnnData, key: str, level: object = None) -> pd.DataFrame:
    """Return loadings of genes or dimensions of an embedding; components are counted from 1.

    Parameters
    ----------
    key
        Name of the result in `.uns`.
    level
        The set of loadings, for a result that has several.

    Raises
    ------
    ValueError
        If there is no such result, it has no loadings, or `level` is not one of its sets.
    """
    result = stored_result(adata, key, "tl with loadings", "params")
    sets = _sets(adata, _keys.stored_keys(key), result)
    chosen = None if level is None else text(level)
    if chosen not in sets:
        named = [each for each in sets if each is not None]
        what = f"it has {listed(named)}" if named else "it has one set of loadings: leave level out"
        raise ValueError(f"level={quoted(level)} of adata.uns[{key!r}]: {what}.")
    table, names = sets[chosen], list(adata.var_names)
    if table is None:
        raise ValueError(
            f"adata.uns[{key!r}] has no loadings in adata.varm, which has "
            f"{listed(list(adata.varm))}. A kernel has none."
        )
    if "obsm" in result["params"]:
        names = _keys.dimensions(str(result["params"]["obsm"]), len(table))
    columns = pd.RangeIndex(1, np.shape(table)[1] + 1, name="component")
    return pd.DataFrame(np.asarray(table), pd.Index(names), columns)


def _sets(adata: AnnData, keys: _keys.Keys, result: Mapping[str, Any]) -> dict[str | None, Any]:
    """Return every set of loadings by its level, with None for a set that is missing.

    If a result has one set only, its level is None.
    """
    stored = result.get("loadings")  # present only for the dimensions of an embedding
    if "representatives" in result:
        numbers = range(len(result["representatives"]))
        if stored is not None:
            return {str(i): stored[i] for i in numbers}
        return {str(i): adata.varm.get(keys.part(i).varm) for i in numbers}
    found: dict[str | None, Any] = {None: adata.varm.get(keys.varm) if stored is None else stored}
    shared = adata.varm.get(keys.part("shared").varm)
    return found if shared is None else found | {"shared": shared}
