"""The names of the AnnData slots, in one place."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import count, takewhile


@dataclass(frozen=True)
class Keys:
    """The slots that one function writes, in `.obsm`, `.varm` and `.uns`."""

    obsm: str
    varm: str
    uns: str

    def added(self, key_added: str | None) -> Keys:
        """These keys, or `key_added` for all three, as `sc.pp.pca` does it."""
        if key_added is None:
            return self
        if not isinstance(key_added, str) or not key_added or "/" in key_added:
            raise ValueError(
                f"key_added={key_added!r}: expected a non-empty string without '/', "
                "which h5ad and zarr files take for a folder."
            )
        return Keys(key_added, key_added, key_added)

    def numbered(self, index: int) -> Keys:
        """The slots of one of several results; `.uns` has one entry for all of them."""
        return Keys(f"{self.obsm}_{index}", f"{self.varm}_{index}", self.uns)

    def numbered_in(self, obsm: Collection[str], *, start: int) -> list[Keys]:
        """The numbered slots that `obsm` holds, from `start` on."""
        slots = map(self.numbered, count(start))
        return list(takewhile(lambda slot: slot.obsm in obsm, slots))


CPCA = Keys(obsm="X_cpca", varm="cPCs", uns="cpca")
CPCA_PATH = Keys(obsm="X_cpca_path", varm="cPCs_path", uns="cpca_path")
