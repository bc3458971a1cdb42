"""Results into an AnnData: all of them at the end, or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from . import _keys
from ._arguments import check_anndata, check_flag
from ._logging import wrote

if TYPE_CHECKING:
    from anndata import AnnData

    from ._keys import Keys


class Slots(TypedDict):
    """What `write` is given, beside the AnnData."""

    obsm: dict[str, NDArray[np.floating]]
    varm: dict[str, NDArray[np.floating] | None]
    var: dict[str, NDArray[Any] | None]
    uns: dict[str, dict[str, Any]]


def write(
    adata: AnnData,
    *,
    uns: Mapping[str, Mapping[str, Any]],
    copy: bool,
    obsm: Mapping[str, NDArray[np.floating]] = MappingProxyType({}),
    varm: Mapping[str, NDArray[np.floating] | None] = MappingProxyType({}),
    var: Mapping[str, NDArray[Any] | None] = MappingProxyType({}),
    obsp: Mapping[str, sp.csr_matrix] = MappingProxyType({}),
    layers: Mapping[str, NDArray[np.floating]] = MappingProxyType({}),
    stale: Iterable[Keys] = (),
) -> AnnData | None:
    """Write finished results, into a copy (returned) or into `adata` itself (None is returned).

    A view becomes an AnnData of its own, with anndata's warning, as under `sc.pp.pca`.
    The `stale` slots of an earlier call are removed, those of levels among them, and what is None
    in `varm` and `var`.
    """
    check_writable(adata, copy)
    target = adata.copy() if copy else adata
    stale = [*stale, *(keys for key in uns for keys in _of_levels(target.uns.get(key), key))]
    stale = [keys for keys in stale if keys.obsm not in obsm]
    # Looked up anew for each entry: the first one written turns a view into a new object.
    for key, array in obsm.items():
        target.obsm[key] = array
    for key, table in varm.items():
        if table is not None:
            target.varm[key] = table
        elif key in target.varm:
            del target.varm[key]
    for key, column in var.items():
        if column is not None:
            target.var[key] = column
        elif key in target.var:
            del target.var[key]
    for key, array in obsp.items():
        target.obsp[key] = array
    for key, array in layers.items():
        target.layers[key] = array
    for key, entry in uns.items():
        target.uns[key] = dict(entry)
    for keys in stale:
        target.obsm.pop(keys.obsm, None)
        target.varm.pop(keys.varm, None)
    wrote("obsm", obsm)
    wrote("varm", (name for name, table in varm.items() if table is not None))
    wrote("var", (name for name, column in var.items() if column is not None))
    wrote("obsp", obsp)
    wrote("layers", layers)
    wrote("uns", uns)
    return target if copy else None


def _of_levels(result: object, key: str) -> list[_keys.Keys]:
    """The slots of an earlier result with a contrast for each level of a column."""
    if not isinstance(result, Mapping) or _keys.LEVELS not in result:
        return []
    return [_keys.linear(key).of_level(str(level)) for level in result[_keys.LEVELS]]


def storable(**arguments: Any) -> dict[str, Any]:
    """The arguments that an h5ad or zarr file can hold: those that are not None."""
    return {name: value for name, value in arguments.items() if value is not None}


def check_writable(adata: AnnData, copy: bool) -> None:
    """That results can be written into it, in place or into a copy.

    Raises
    ------
    TypeError
        If it is no AnnData, or copy no truth value.
    ValueError
        If it is backed and a copy was asked for, or a view of a backed one.
    """
    check_anndata(adata)
    check_flag(copy, "copy")
    if not adata.isbacked:
        return
    if copy:
        raise ValueError(
            "copy=True: a backed AnnData cannot be copied in memory. Leave copy out: results are "
            "kept in memory beside the file, which stays as it is."
        )
    if adata.is_view:
        raise ValueError(
            "adata is a view of a backed AnnData, which takes no results. Choose the cells by "
            "masks instead, or load the view first with adata.to_memory()."
        )
