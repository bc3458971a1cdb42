"""Contrastive dimension reduction, which shows what varies in a foreground but not in a background.

Names are loaded on first use, so that the import of the package takes little time.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from contrast_core import datasets as datasets
    from contrast_core import images as images
    from contrast_core import pairing as pairing
    from contrast_core._by_label import ContrastByLabel as ContrastByLabel
    from contrast_core._model_files import load as load
    from contrast_core._model_files import save as save
    from contrast_core._validation import ContrastWarning as ContrastWarning
    from contrast_core.deep import CVAE as CVAE
    from contrast_core.moments import SecondMoments as SecondMoments
    from contrast_core.path import contrast_path as contrast_path
    from contrast_core.probabilistic import CLVM as CLVM
    from contrast_core.probabilistic import PCPCA as PCPCA
    from contrast_core.significance import bootstrap_stability as bootstrap_stability
    from contrast_core.significance import condition_shift as condition_shift
    from contrast_core.significance import condition_test as condition_test
    from contrast_core.significance import contrast_dimension as contrast_dimension
    from contrast_core.significance import contrast_report as contrast_report
    from contrast_core.significance import cross_fitted_ratio as cross_fitted_ratio
    from contrast_core.significance import permutation_test as permutation_test
    from contrast_core.significance import responders as responders
    from contrast_core.spectral import CPCA as CPCA
    from contrast_core.spectral import CPCAStar as CPCAStar
    from contrast_core.spectral import KernelCPCA as KernelCPCA
    from contrast_core.spectral import OnlineCPCAStar as OnlineCPCAStar
    from contrast_core.spectral import PCAPlus as PCAPlus
    from contrast_core.spectral import PCAPlusPlus as PCAPlusPlus
    from contrast_core.spectral import SparseCPCA as SparseCPCA
    from contrast_core.spectral import cross_validated_penalty as cross_validated_penalty

_HOME = {
    "CLVM": "contrast_core.probabilistic",
    "CPCA": "contrast_core.spectral",
    "CPCAStar": "contrast_core.spectral",
    "CVAE": "contrast_core.deep",
    "ContrastByLabel": "contrast_core._by_label",
    "ContrastWarning": "contrast_core._validation",
    "KernelCPCA": "contrast_core.spectral",
    "OnlineCPCAStar": "contrast_core.spectral",
    "PCAPlus": "contrast_core.spectral",
    "PCAPlusPlus": "contrast_core.spectral",
    "PCPCA": "contrast_core.probabilistic",
    "SecondMoments": "contrast_core.moments",
    "SparseCPCA": "contrast_core.spectral",
    "bootstrap_stability": "contrast_core.significance",
    "condition_shift": "contrast_core.significance",
    "condition_test": "contrast_core.significance",
    "contrast_dimension": "contrast_core.significance",
    "contrast_path": "contrast_core.path",
    "contrast_report": "contrast_core.significance",
    "cross_fitted_ratio": "contrast_core.significance",
    "cross_validated_penalty": "contrast_core.spectral",
    "load": "contrast_core._model_files",
    "permutation_test": "contrast_core.significance",
    "responders": "contrast_core.significance",
    "save": "contrast_core._model_files",
}

__all__ = [*_HOME, "datasets", "images", "pairing"]


def __getattr__(name: str) -> Any:
    home = f"contrast_core.{name}"
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif not name.startswith("_") and find_spec(home) is not None:
        value = import_module(home)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
