"""The likelihood of the contrastive latent variable model, from moments; what its maximum tells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from contrast_core.moments import Moments
from contrast_core.probabilistic._clvm_em import (
    Fit,
    Problem,
    first_model,
    fit_em,
    likelihood_problem,
    random_model,
    rotated,
)
from contrast_core.probabilistic._clvm_horseshoe import horseshoe_support
from contrast_core.probabilistic._clvm_priors import LIKELIHOOD_ALONE, Prior
from contrast_core.probabilistic._clvm_selection import Search, Selected
from contrast_core.solve import contrast_index

_ROUGHLY: dict[str, Any] = {"tol": 1e-5, "max_iter": 500}


@dataclass(frozen=True)
class MomentLikelihood:
    """Likelihood computed from second moments."""

    x: Moments
    y: Moments
    problem: Problem
    search: Search

    @classmethod
    def of(cls, x: Moments, y: Moments, n_shared: int, search: Search) -> Self:
        """Over the features that vary in either dataset."""
        return cls(x, y, likelihood_problem(x, y, n_shared), search)

    @property
    def n_shared(self) -> int:
        """Number of shared latent variables, k."""
        return self.problem.n_shared

    @property
    def n_features(self) -> int:
        """Number of features that vary."""
        return self.problem.n_features

    @property
    def n_rows(self) -> float:
        """Number of rows of both datasets."""
        return self.problem.n_rows

    def with_shared(self, n_shared: int) -> Self:
        """Return the likelihood of a model with another number of shared variables."""
        return replace(self, problem=self.problem._replace(n_shared=n_shared))

    def starts(self) -> list[Fit]:
        """The leading components first, then random ones."""
        t, rng = self.search.n_salient, self.search.rng
        models = [first_model(self.x, self.y, self.problem, t)]
        n_latent = self.n_shared + t
        models += [random_model(self.x.size, n_latent, rng) for _ in range(self.search.n_init - 1)]
        return [Fit(model, np.empty(0), False) for model in models]

    def climb(self, start: Fit, prior: Prior = LIKELIHOOD_ALONE, *, roughly: bool = False) -> Fit:
        """The maximum together with a prior."""
        limits = {"tol": self.search.tol, "max_iter": self.search.max_iter}
        return fit_em(self.problem, start.model, prior, **(_ROUGHLY if roughly else limits))

    def horseshoe(self, dense: Fit) -> NDArray[np.bool_]:
        """Features whose salient loadings the horseshoe prior does not shrink away."""
        return horseshoe_support(self.problem, dense.model)

    def described(self, found: Selected) -> dict[str, Any]:
        """Fitted attributes."""
        x, y, (best, k, _) = self.x, self.y, found
        loadings = best.model.loadings * self.problem.unit
        (shared, _), (salient, components) = (
            rotated(x.lift, part) for part in np.split(loadings, [k], axis=1)
        )
        inside = x.coordinates_of(components)
        along = x.along(inside), y.along(inside)
        return {
            "mean_": x.mean,
            "background_mean_": y.mean,
            "components_": components,
            "shared_loadings_": shared,
            "salient_loadings_": salient,
            "selected_": salient.any(axis=1),
            "noise_variance_": best.model.noise * self.problem.unit**2,
            "log_likelihoods_": self.problem.log_likelihoods(best.log_likelihoods),
            "n_iter_": len(best.log_likelihoods) - 1,
            "converged_": best.converged,
            "foreground_variance_": along[0],
            "background_variance_": along[1],
            "contrast_index_": contrast_index(*along),
            "foreground_moments_": x,
            "background_moments_": y,
        }
