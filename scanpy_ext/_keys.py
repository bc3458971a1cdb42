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
        checked(key_added)
        return Keys(key_added, key_added, key_added)

    def shared(self) -> Keys:
        """The slots of what foreground and background have in common, beside these."""
        return Keys(f"{self.obsm}_shared", f"{self.varm}_shared", self.uns)

    def numbered(self, index: int) -> Keys:
        """The slots of one of several results; `.uns` has one entry for all of them."""
        return Keys(f"{self.obsm}_{index}", f"{self.varm}_{index}", self.uns)

    def of_level(self, level: str) -> Keys:
        """The slots of one level's contrast; `.uns` has one entry for all levels."""
        name = level.replace("/", "_")  # which files take for a folder
        return Keys(f"{self.obsm}_{name}", f"{self.varm}_{name}", self.uns)

    def numbered_in(self, obsm: Collection[str], *, start: int) -> list[Keys]:
        """The numbered slots that `obsm` holds, from `start` on."""
        slots = map(self.numbered, count(start))
        return list(takewhile(lambda slot: slot.obsm in obsm, slots))


CPCA = Keys(obsm="X_cpca", varm="cPCs", uns="cpca")
PCPCA = Keys(obsm="X_pcpca", varm="PCs_pcpca", uns="pcpca")
CLVM = Keys(obsm="X_clvm", varm="PCs_clvm", uns="clvm")
CVAE = Keys(obsm="X_cvae", varm="", uns="cvae")
CPCA_STAR = Keys(obsm="X_cpca_star", varm="PCs_cpca_star", uns="cpca_star")
KERNEL_CPCA = Keys(obsm="X_kernel_cpca", varm="PCs_kernel_cpca", uns="kernel_cpca")
CPCA_PATH = Keys(obsm="X_cpca_path", varm="cPCs_path", uns="cpca_path")
PCA_PP = Keys(obsm="X_pca_pp", varm="PCs_pca_pp", uns="pca_pp")
PCA_PLUS = Keys(obsm="X_pca_plus", varm="PCs_pca_plus", uns="pca_plus")

LINEAR = (CPCA, PCPCA, CLVM, CPCA_STAR, CPCA_PATH, PCA_PP, PCA_PLUS)


def linear(key: str) -> Keys:
    """The slots of a result with loadings, by its name in `.uns`: the default one or added."""
    return next((keys for keys in LINEAR if keys.uns == key), Keys(key, key, key))


@dataclass(frozen=True)
class PairKeys:
    """The slots of positive pairs, in `.obsp` and `.uns`."""

    pairs: str
    distances: str
    uns: str


def pairs(key: str | None = None) -> PairKeys:
    """The slots of pairs that are stored as `key`, by default `pairs`."""
    name = checked("pairs" if key is None else key)
    return PairKeys(name, f"{name}_distances", name)


def filters(keys: Keys) -> str:
    """The slot in `.varm` of what turns log counts into scores, beside that of the loadings."""
    return f"{keys.varm}_filters"


IMPUTED = "impute"  # in .uns: the layers that tl.impute wrote
DENOISED = "denoised_layers"  # in `.uns`: the layers that `tl.denoise` wrote, and from what

LEVELS = "levels"  # in the result of several contrasts: that of each
IN_USE = "in_use"
# What a method may have with a value per gene.
VECTORS = ("mean", "background_mean", "cap", "dispersion")


def vector(keys: Keys, name: str) -> str:
    """The column of `.var` of one of these, or of the genes in use: there it follows the genes."""
    return f"{keys.uns}_{name}"


def vectors(keys: Keys) -> list[str]:
    """All columns of `.var` that a linear method may have."""
    return [vector(keys, name) for name in (IN_USE, *VECTORS)]


def dimensions(obsm: str, number: int) -> list[str]:
    """Names of the dimensions of an embedding: pca1, pca2, ... of X_pca."""
    return [f"{obsm.removeprefix('X_')}{i}" for i in range(1, number + 1)]


def checked(key: str, argument: str = "key_added") -> str:
    """A name that h5ad and zarr files can hold."""
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(
            f"{argument}={key!r}: expected a non-empty string without '/', "
            "which h5ad and zarr files take for a folder."
        )
    return key
