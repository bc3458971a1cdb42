"""Table of all estimators, for tests of the properties that every estimator must have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from sklearn.base import clone

import contrast_core as cc
from contrast_core.rows import rows_of


@dataclass(frozen=True)
class Case:
    """An estimator, the name of the second dataset that `fit` takes, and its properties."""

    name: str
    model: Any  # unfitted
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

    def make(self, n_components: int) -> Any:
        """Return an unfitted estimator with the given number of components."""
        return clone(self.model).set_params(**{self.counted: n_components})

    def fit(self, X: Any, other: Any, n_components: int = 2) -> Any:
        return self.make(n_components).fit(X, **{self.other: other})


PROBABILISTIC: dict[str, Any] = {"full_rank_k": False, "missing": True}
LATENT = PROBABILISTIC | {"size_free": False, "counted": "n_salient"}
SPARSE: dict[str, Any] = {"full_rank_k": False, "orthonormal": False, "equivariant": False}
PAIRS: dict[str, Any] = {"other": "positive", "moments": False}
CASES = [
    Case("CPCA-auto", cc.CPCA(), constant_other=False),
    Case("CPCA-denoise", cc.CPCA(alpha="denoise"), constant_other=False),
    Case("CPCA-0", cc.CPCA(alpha=0.0)),
    Case("CPCA-1", cc.CPCA(alpha=1.0)),
    Case("CPCAStar-auto", cc.CPCAStar(), constant_other=False),
    Case("CPCAStar-0.5", cc.CPCAStar(beta=0.5), scale_free=False),
    Case("PCPCA-auto", cc.PCPCA(), **PROBABILISTIC),
    Case("PCPCA-0", cc.PCPCA(gamma=0.0), **PROBABILISTIC),
    Case("CLVM", cc.CLVM(), orthogonal=False, least=0, **LATENT),
    Case("CLVM-salient", cc.CLVM(n_shared=0), **LATENT),
    Case("SparseCPCA", cc.SparseCPCA(alpha=1.0), **SPARSE),
    Case("SparseCPCA-4-features", cc.SparseCPCA(alpha=0.5, n_features_to_select=4), **SPARSE),
    Case("PCAPlus", cc.PCAPlus(), **PAIRS),
    Case("PCAPlus-paper", cc.PCAPlus(exchangeable=False), **PAIRS),
    Case("PCAPlusPlus", cc.PCAPlusPlus(), **PAIRS),
    Case("PCAPlusPlus-paper", cc.PCAPlusPlus(exchangeable=False, weighted=False), **PAIRS),
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
    StrengthCase(cc.CPCA, "alpha", (0.0, 0.7, 4.0, 100.0)),
    StrengthCase(cc.CPCAStar, "beta", (0.0, 0.2, 0.7, 1.0)),
    StrengthCase(cc.PCPCA, "gamma", (0.0, 0.1, 0.2, 0.3)),
    StrengthCase(cc.KernelCPCA, "alpha", (0.0, 0.7, 4.0, 100.0)),
    StrengthCase(cc.SparseCPCA, "alpha", (0.0, 0.3, 0.7, 1.5)),
]
