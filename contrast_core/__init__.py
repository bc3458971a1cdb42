"""Contrastive dimension reduction: what varies in a foreground but not in a background.

Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from contrast_core import datasets, images, pairing
    from contrast_core._by_label import ContrastByLabel
    from contrast_core._model_files import load, save
    from contrast_core._validation import ContrastWarning
    from contrast_core.deep import CVAE
    from contrast_core.moments import SecondMoments
    from contrast_core.path import contrast_path
    from contrast_core.probabilistic import CLVM, PCPCA
    from contrast_core.significance import (
        bootstrap_stability,
        condition_shift,
        condition_test,
        contrast_dimension,
        contrast_report,
        cross_fitted_ratio,
        permutation_test,
        responders,
    )
    from contrast_core.spectral import (
        CPCA,
        CPCAStar,
        KernelCPCA,
        OnlineCPCAStar,
        PCAPlus,
        PCAPlusPlus,
        SparseCPCA,
        cross_validated_penalty,
    )

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
_SUBPACKAGES = (
    "contrast",
    "datasets",
    "images",
    "linalg",
    "moments",
    "pairing",
    "path",
    "significance",
    "spectral",
)

__all__ = [
    "CLVM",
    "CPCA",
    "CVAE",
    "PCPCA",
    "CPCAStar",
    "ContrastByLabel",
    "ContrastWarning",
    "KernelCPCA",
    "OnlineCPCAStar",
    "PCAPlus",
    "PCAPlusPlus",
    "SecondMoments",
    "SparseCPCA",
    "bootstrap_stability",
    "condition_shift",
    "condition_test",
    "contrast_dimension",
    "contrast_path",
    "contrast_report",
    "cross_fitted_ratio",
    "cross_validated_penalty",
    "datasets",
    "images",
    "load",
    "pairing",
    "permutation_test",
    "responders",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _SUBPACKAGES:
        value = import_module(f"contrast_core.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
