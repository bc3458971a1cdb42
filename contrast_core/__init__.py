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
    from contrast_core._linear_map import LinearMap
    from contrast_core._model_files import load, save
    from contrast_core._validation import ContrastWarning
    from contrast_core.contrast import (
        detectable_spike,
        effective_n_pairs,
        expected_subspace_error,
    )
    from contrast_core.deep import CVAE
    from contrast_core.linalg import principal_angles, subspace_error
    from contrast_core.moments import PairMoments, SecondMoments, grouped_moments
    from contrast_core.path import ContrastPath, contrast_path
    from contrast_core.probabilistic import CLVM, PCPCA
    from contrast_core.significance import (
        BootstrapStability,
        ConditionShift,
        ContrastDimension,
        ContrastReport,
        CrossFittedRatio,
        PermutationTest,
        Responders,
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
        PenaltyChoice,
        SparseCPCA,
        cross_validated_penalty,
    )

_HOME = {
    "BootstrapStability": "contrast_core.significance",
    "CLVM": "contrast_core.probabilistic",
    "CPCA": "contrast_core.spectral",
    "CPCAStar": "contrast_core.spectral",
    "CVAE": "contrast_core.deep",
    "ConditionShift": "contrast_core.significance",
    "ContrastByLabel": "contrast_core._by_label",
    "ContrastDimension": "contrast_core.significance",
    "ContrastPath": "contrast_core.path",
    "ContrastReport": "contrast_core.significance",
    "ContrastWarning": "contrast_core._validation",
    "CrossFittedRatio": "contrast_core.significance",
    "KernelCPCA": "contrast_core.spectral",
    "LinearMap": "contrast_core._linear_map",
    "OnlineCPCAStar": "contrast_core.spectral",
    "PCAPlus": "contrast_core.spectral",
    "PCAPlusPlus": "contrast_core.spectral",
    "PairMoments": "contrast_core.moments",
    "PermutationTest": "contrast_core.significance",
    "PCPCA": "contrast_core.probabilistic",
    "PenaltyChoice": "contrast_core.spectral",
    "Responders": "contrast_core.significance",
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
    "detectable_spike": "contrast_core.contrast",
    "effective_n_pairs": "contrast_core.contrast",
    "expected_subspace_error": "contrast_core.contrast",
    "grouped_moments": "contrast_core.moments",
    "load": "contrast_core._model_files",
    "permutation_test": "contrast_core.significance",
    "responders": "contrast_core.significance",
    "principal_angles": "contrast_core.linalg",
    "save": "contrast_core._model_files",
    "subspace_error": "contrast_core.linalg",
}
_SUBPACKAGES = ("datasets", "images", "pairing")

__all__ = [
    "CLVM",
    "CPCA",
    "CVAE",
    "PCPCA",
    "BootstrapStability",
    "CPCAStar",
    "ConditionShift",
    "ContrastByLabel",
    "ContrastDimension",
    "ContrastPath",
    "ContrastReport",
    "ContrastWarning",
    "CrossFittedRatio",
    "KernelCPCA",
    "LinearMap",
    "OnlineCPCAStar",
    "PCAPlus",
    "PCAPlusPlus",
    "PairMoments",
    "PenaltyChoice",
    "PermutationTest",
    "Responders",
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
    "detectable_spike",
    "effective_n_pairs",
    "expected_subspace_error",
    "grouped_moments",
    "images",
    "load",
    "pairing",
    "permutation_test",
    "principal_angles",
    "responders",
    "save",
    "subspace_error",
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
