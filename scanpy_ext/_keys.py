"""Names of the AnnData slots that the functions write."""

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
    """Names of the slots that one function writes, in `.obsm`, `.varm` and `.uns`."""

    obsm: str
    varm: str
    uns: str

    @property
    def fit(self) -> str:
        """Name of the table in `.varm` that `tl.project` and `tl.denoise` use."""
        return f"{self.varm}_fit"

    def part(self, name: object) -> Keys:
        """Return the slots of a named part of a result; all parts share the entry in `.uns`."""
        text = str(name).replace("/", "_")  # files would interpret "/" as a folder
        return Keys(f"{self.obsm}_{text}", f"{self.varm}_{text}", self.uns)


def keys_of(name: str) -> Keys:
    """Return the slots of a result from the name of its method, or from its `key_added`.

    If `key_added` was given, it is the name of all three slots, as in scanpy.
    """
    return Keys(f"X_{name}", f"PCs_{name}", name) if name in METHODS else Keys(name, name, name)


def new_keys(method: str, key_added: str | None) -> Keys:
    """Return the slots of a new result.

    ValueError is raised if `key_added` is the name of another method.
    """
    name = method if key_added is None else checked(key_added)
    if name in METHODS and name != method:
        raise ValueError(
            f"key_added={name!r} is the name of the results of scanpy_ext.tl.{name}. "
            "Choose another name."
        )
    return keys_of(name)


def distances_of(pairs: str) -> str:
    """Return the name of the matrix in `.obsp` that holds the distances of pairs."""
    return f"{pairs}_distances"


def dimensions(obsm: str, number: int) -> list[str]:
    """Return the names of an embedding's dimensions, such as pca1, pca2, ... for X_pca."""
    return [f"{obsm.removeprefix('X_')}{i}" for i in range(1, number + 1)]


def checked(key: str, argument: str = "key_added") -> str:
    """Return the name; raise ValueError if h5ad and zarr files cannot hold it."""
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(
            f"{argument}={key!r}: expected a non-empty string without '/', "
            "which h5ad and zarr files take for a folder."
        )
    return key
