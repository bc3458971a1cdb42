"""The peers as they are on the package index today, and one way to call all of them."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.metadata import distributions
from io import StringIO
from types import ModuleType
from typing import Any, NamedTuple

import anndata
import numpy as np
import scipy.sparse as sp

from benchmarks.common.peers import installed
from contrast_core import CPCA

# Name on the index, module. contrastive-cv is a fork that kept the name of the module.
NAMES = {
    "contrastive": "contrastive",
    "contrastive-cv": "contrastive",
    "pcpca": "pcpca",
    "generalized_contrastive_PCA": "generalized_contrastive_PCA",
    "rhopca": "rhopca.core",
}
# What docs/coming_from.md describes.
DESCRIBED = {
    "contrastive": "1.2.0",
    "contrastive-cv": "0.2.0",
    "pcpca": "0.4",
    "generalized_contrastive_PCA": "1.0.2",
    "rhopca": "0.1.0",
}

Transform = Callable[[Any], Any]


class Package(NamedTuple):
    name: str
    version: str
    module: ModuleType | None  # None: this suite
    fit: Callable[[Any, Any, int], Transform]


@contextmanager
def packages() -> Iterator[dict[str, Package]]:
    """Every package that can be had; says which cannot, and which is not the one described."""
    found = {"contrast_core": Package("contrast_core", "", None, _fit_ours)}
    for name, module in NAMES.items():
        try:
            with installed(name) as folder:
                [version] = {d.version for d in distributions(path=[folder])}
                loaded = import_module(module)
                found[name] = Package(name, version, loaded, _FITS[name](loaded))
        except subprocess.CalledProcessError:
            print(f"{name}: cannot be had from the index today; left out")
            continue
        note = "" if version == DESCRIBED[name] else f", not {DESCRIBED[name]} as described"
        print(f"{name} {version}{note}")
    yield found


def quietly(call: Callable[[], Any]) -> Any:
    """Without what packages print and warn of."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return call()


def _fit_ours(X: Any, Y: Any, k: int) -> Transform:
    return CPCA(k, alpha=2.0).fit(X, background=Y).transform


def _fit_contrastive(module: ModuleType) -> Callable[[Any, Any, int], Transform]:
    def fit(X: Any, Y: Any, k: int) -> Transform:
        model = module.CPCA(n_components=k, standardize=False)
        model.fit(X, Y)
        return lambda rows: model.transform(rows, alpha_selection="manual", alpha_value=2.0)

    return fit


def _fit_pcpca(module: ModuleType) -> Callable[[Any, Any, int], Transform]:
    def fit(X: Any, Y: Any, k: int) -> Transform:
        model = module.PCPCA(n_components=k, gamma=0.2 * X.shape[0] / Y.shape[0])
        model.fit(X.T, Y.T)
        return lambda rows: model.transform(rows.T, Y.T)[0].T

    return fit


def _fit_generalized(module: ModuleType) -> Callable[[Any, Any, int], Transform]:
    def fit(X: Any, Y: Any, k: int) -> Transform:
        model = module.gcPCA(method="v4", normalize_flag=False)
        model.fit(X, Y)

        def transform(rows: Any) -> Any:
            model.transform(rows, Y)
            return model.Ra_transformed_[:, :k]

        return transform

    return fit


def _fit_rho(module: ModuleType) -> Callable[[Any, Any, int], Transform]:
    def fit(X: Any, Y: Any, k: int) -> Transform:
        adata = anndata.AnnData(sp.csr_matrix(sp.vstack([sp.csr_matrix(X), sp.csr_matrix(Y)])))
        adata.obs["set"] = ["foreground"] * X.shape[0] + ["background"] * Y.shape[0]
        model = module.rhoPCA(adata, "set", "foreground", "background", n_GEs=k)
        model.fit()

        def transform(rows: Any) -> Any:
            # It places only the rows of the fit; with others a caller meets the missing method.
            return model.target_proj if rows is X else model.transform(rows)

        return transform

    return fit


_FITS = {
    "contrastive": _fit_contrastive,
    "contrastive-cv": _fit_contrastive,
    "pcpca": _fit_pcpca,
    "generalized_contrastive_PCA": _fit_generalized,
    "rhopca": _fit_rho,
}
