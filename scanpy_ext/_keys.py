"""Names of the AnnData slots, in one place."""

from __future__ import annotations

from dataclasses import dataclass

METHODS = (
    "cpca",
    "cpca_star",
    "pcpca",
    "clvm",
    "cvae",
    "kernel_cpca",
    "cpca_path",
    "pca_plus",
    "pca_pp",
)


@dataclass(frozen=True)
class Keys:
    """The slots that one function writes, in `.obsm`, `.varm` and `.uns`."""

    obsm: str
    varm: str
    uns: str

    @property
    def fit(self) -> str:
        """The slot in `.varm` of the table that `tl.project` and `tl.denoise` use."""
        return f"{self.varm}_fit"

    def part(self, name: object) -> Keys:
        """Return the slots of one of several results, which share their entry in `.uns`."""
        text = str(name).replace("/", "_")  # files would interpret "/" as a folder
        return Keys(f"{self.obsm}_{text}", f"{self.varm}_{text}", self.uns)


def keys_of(method: str, key_added: str | None = None) -> Keys:
    """Return the slots of a method; all three are `key_added` if that is given, as in scanpy."""
    if key_added is None or checked(key_added) == method:
        return Keys(f"X_{method}", f"PCs_{method}", method)
    if key_added in METHODS:
        raise ValueError(
            f"key_added={key_added!r} is the name of the results of scanpy_ext.tl.{key_added}. "
            "Choose another name."
        )
    return Keys(key_added, key_added, key_added)


def stored_keys(key: str) -> Keys:
    """Return the slots of a result, given its name in `.uns` (the method's or `key_added`)."""
    return keys_of(key) if key in METHODS else Keys(key, key, key)


def distances_of(pairs: str) -> str:
    """Return the slot in `.obsp` of the distances of pairs."""
    return f"{pairs}_distances"


def dimensions(obsm: str, number: int) -> list[str]:
    """Return names of the dimensions of an embedding: pca1, pca2, ... of X_pca."""
    return [f"{obsm.removeprefix('X_')}{i}" for i in range(1, number + 1)]


def checked(key: str, argument: str = "key_added") -> str:
    """Return the name; raise ValueError if h5ad and zarr files cannot hold it."""
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(
            f"{argument}={key!r}: expected a non-empty string without '/', "
            "which h5ad and zarr files take for a folder."
        )
    return key
