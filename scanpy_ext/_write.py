"""Write results into an AnnData: all of them at the end, or none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from anndata import AnnData

from contrast_core.feedback import check_flag

from . import _keys
from ._arguments import check_anndata, is_among
from ._logging import log_written

_DEFAULT_NAME = re.compile(rf"(X|PCs)_({'|'.join(_keys.METHODS)})(_.*)?")
# This key marks the entries of `.uns` that this package wrote. It holds the names that were written
# together with the entry into other slots of the AnnData, such as `.obsm`.
_OWN = "slots"


class Result(NamedTuple):
    """Finished result: its entry in `.uns` and the values of the other slots.

    Attributes
    ----------
    key
        Name of the entry in `.uns`.
    entry
        The entry: numbers, text, arrays and tables, which files can hold.
    slots
        Arrays or tables by slot ("obs", "obsm", "varm", "var", "obsp", "layers") and name.
    adds
        Whether to keep what earlier calls wrote under this key. If False, it is removed.
    """

    key: str
    entry: Mapping[str, Any]
    slots: Mapping[str, dict[str, Any]] = {}
    adds: bool = False


def write(adata: AnnData, *results: Result, copy: bool) -> AnnData | None:
    """Write finished results into a copy, which is returned, or into `adata` itself.

    A view becomes an actual AnnData, with anndata's warning, as in `sc.pp.pca`. Results that an
    earlier call wrote under the same key are removed, unless the new result adds to them.

    Raises
    ------
    ValueError
        If a result would replace something that this package did not write; nothing is written.
    """
    for result in results:
        check_free(adata, copy, result.key, result.slots)
    target = adata.copy() if copy else adata
    for result in results:
        before = target.uns.get(result.key, {})
        written = _written(before)
        if not result.adds:
            for slot, names in written.items():
                for name in names:
                    if name in getattr(target, slot):
                        del getattr(target, slot)[name]
            before, written = {}, {}
        # Slots are looked up again each time, because the first write turns a view into an AnnData.
        for slot, entries in result.slots.items():
            for name, values in entries.items():
                getattr(target, slot)[name] = values
            written[slot] = list(dict.fromkeys([*written.get(slot, []), *entries]))
        own = {slot: np.array(names, dtype=object) for slot, names in written.items() if names}
        target.uns[result.key] = dict(before) | dict(result.entry) | {_OWN: own}
        log_written({**result.slots, "uns": [result.key]})
    return target if copy else None


def check_free(adata: AnnData, copy: bool, key: str, slots: Mapping[str, Any]) -> None:
    """Check that a result can be written into an AnnData, in place or into a copy.

    Entries of `.obsm` and `.varm` with the default name of a method, such as `X_cpca`, may always
    be replaced. They are not always listed in `.uns`, because `anndata.concat` drops `.uns`.

    Raises
    ------
    TypeError
        If `adata` is not an AnnData, or `copy` is neither True nor False.
    ValueError
        If `adata` is backed and `copy` is True, if it is a view of a backed AnnData, or if the
        result would replace a value that this package did not write.
    """
    check_anndata(adata)
    check_flag(copy, "copy")
    if adata.isbacked and copy:
        raise ValueError(
            "copy=True: a backed AnnData cannot be copied in memory. Leave copy out: results are "
            "kept in memory beside the file, which stays as it is."
        )
    if adata.isbacked and adata.is_view:
        raise ValueError(
            "adata is a view of a backed AnnData, into which no results can be written. Choose the "
            "cells by masks instead, or load the view first with adata.to_memory()."
        )
    entry = adata.uns.get(key)
    taken = [f"uns[{key!r}]"] if entry is not None and not is_own(entry) else []
    for slot, names in slots.items():
        by_name = slot in ("obsm", "varm")
        entries = adata.uns.values() if by_name else [entry]
        own = {name for each in entries for name in _written(each).get(slot, ())}
        for name in names:
            known = name in own or (by_name and _DEFAULT_NAME.fullmatch(name))
            if not known and is_among(name, getattr(adata, slot)):
                taken.append(f"{slot}[{name!r}]")
    if taken:
        raise ValueError(
            f"adata.{' and adata.'.join(taken)} would be replaced, but scanpy_ext did not write "
            "these values. Choose another name for the results, or delete these values first."
        )


def reserve(adata: AnnData, copy: bool, method: str, key_added: str | None) -> _keys.Keys:
    """Return the slots of a method's result after checking that they can be written.

    The errors are those of `check_free`, and ValueError if `key_added` is not a valid name.
    """
    keys = _keys.new_keys(method, key_added)
    check_free(adata, copy, keys.uns, {"obsm": [keys.obsm], "varm": [keys.varm, keys.fit]})
    return keys


def is_own(entry: object) -> bool:
    """Return whether this package wrote an entry of `.uns`."""
    return isinstance(entry, Mapping) and _OWN in entry


def _written(entry: Any) -> dict[str, list[str]]:
    """Return, for each slot, the names that were written together with an entry of `.uns`."""
    own = entry[_OWN] if is_own(entry) else {}
    return {slot: [str(name) for name in np.ravel(names)] for slot, names in own.items()}
