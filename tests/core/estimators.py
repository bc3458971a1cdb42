"""Table of all estimators, for tests of the properties that every estimator must have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import contrast_core
from contrast_core.rows import rows_of


@dataclass(frozen=True)
class Case:
    """An estimator, the name of the second dataset that `fit` takes, and its properties."""

    name: str
    # make(n_components) returns an unfitted estimator.
    make: Callable[..., Any]
    other: Literal["background", "positive"] = "background"  # the second dataset that fit takes
    scale_free: bool = True  # scaling both datasets by one factor does not change the subspace
    full_rank_k: bool = True  # n_components may equal the number of features
    constant_other: bool = True  # fit accepts a constant background
    orthonormal: bool = True  # the components are orthonormal
    equivariant: bool = True  # a rotation of the features rotates the subspace
    moments: bool = True  # SecondMoments are accepted in place of data
    # The fit does not change if one dataset gets more rows and keeps its mean and covariance.
    size_free: bool = True
    orthogonal: bool = True  # denoise is an orthogonal projection
    counted: str = "n_components"  # the parameter that sets the number of components
    least: int = 1  # the smallest valid number of components
    missing: bool = False  # the estimator reads NaN as a missing value

    def fit(self, X: Any, other: Any, n_components: int = 2) -> Any:
        return self.make(n_components).fit(X, **{self.other: other})


CASES = [
    Case("CPCA-auto", lambda k: contrast_core.CPCA(k), constant_other=False),
    Case("CPCA-denoise", lambda k: contrast_core.CPCA(k, alpha="denoise"), constant_other=False),
    Case("CPCA-0", lambda k: contrast_core.CPCA(k, alpha=0.0)),
    Case("CPCA-1", lambda k: contrast_core.CPCA(k, alpha=1.0)),
    Case("CPCAStar-auto", lambda k: contrast_core.CPCAStar(k), constant_other=False),
    Case("CPCAStar-0.5", lambda k: contrast_core.CPCAStar(k, beta=0.5), scale_free=False),
    Case("PCPCA-auto", lambda k: contrast_core.PCPCA(k), full_rank_k=False, missing=True),
    Case("PCPCA-0", lambda k: contrast_core.PCPCA(k, gamma=0.0), full_rank_k=False, missing=True),
    Case(
        "CLVM",
        lambda k: contrast_core.CLVM(n_salient=k),
        full_rank_k=False,
        size_free=False,
        orthogonal=False,
        counted="n_salient",
        least=0,
        missing=True,
    ),
    Case(
        "CLVM-salient",
        lambda k: contrast_core.CLVM(n_shared=0, n_salient=k),
        full_rank_k=False,
        size_free=False,
        counted="n_salient",
        missing=True,
    ),
    Case(
        "SparseCPCA",
        lambda k: contrast_core.SparseCPCA(k, alpha=1.0),
        full_rank_k=False,
        orthonormal=False,
        equivariant=False,
    ),
    Case(
        "SparseCPCA-4-features",
        lambda k: contrast_core.SparseCPCA(k, alpha=0.5, n_features_to_select=4),
        full_rank_k=False,
        orthonormal=False,
        equivariant=False,
    ),
    Case("PCAPlus", lambda k: contrast_core.PCAPlus(k), other="positive", moments=False),
    Case(
        "PCAPlus-paper",
        lambda k: contrast_core.PCAPlus(k, exchangeable=False),
        other="positive",
        moments=False,
    ),
    Case("PCAPlusPlus", lambda k: contrast_core.PCAPlusPlus(k), other="positive", moments=False),
    Case(
        "PCAPlusPlus-paper",
        lambda k: contrast_core.PCAPlusPlus(k, exchangeable=False, weighted=False),
        other="positive",
        moments=False,
    ),
]


class ReversedBackground:
    """Mixin for scikit-learn's own checks, which pass no background.

    The background consists of the rows of X in reversed order, multiplied by 0.5.
    """

    def fit(self, X: Any, y: object = None, *, background: Any = None) -> Any:
        rows = rows_of(X, missing=True).load(check=False)
        return super().fit(X, background=rows[::-1] * 0.5)  # type: ignore[misc]

    def fit_transform(self, X: Any, y: object = None) -> Any:
        return self.fit(X).transform(X)


@dataclass(frozen=True)
class StrengthCase:
    """A method with a contrast strength, and valid strengths for data with variances near 1."""

    make: Callable[..., Any]
    parameter: str
    strengths: tuple[float, ...]  # ascending


STRENGTHS = [
    StrengthCase(contrast_core.CPCA, "alpha", (0.0, 0.7, 4.0, 100.0)),
    StrengthCase(contrast_core.CPCAStar, "beta", (0.0, 0.2, 0.7, 1.0)),
    StrengthCase(contrast_core.PCPCA, "gamma", (0.0, 0.1, 0.2, 0.3)),
    StrengthCase(contrast_core.KernelCPCA, "alpha", (0.0, 0.7, 4.0, 100.0)),
    StrengthCase(contrast_core.SparseCPCA, "alpha", (0.0, 0.3, 0.7, 1.5)),
]
