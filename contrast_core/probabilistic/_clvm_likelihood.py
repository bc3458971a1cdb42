"""The likelihood of the contrastive latent variable model, from moments or from rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.moments import Moments
from contrast_core.probabilistic._clvm_em import (
    Fit,
    Means,
    Problem,
    first_model,
    fit_em,
    likelihood_problem,
    random_model,
    rotated,
)
from contrast_core.probabilistic._clvm_horseshoe import shrunk_probability
from contrast_core.probabilistic._clvm_priors import LIKELIHOOD_ALONE, Prior, PriorSettings
from contrast_core.probabilistic._clvm_rows import StandardisedRows, fit_rows
from contrast_core.probabilistic._row_posterior import Model, Tails
from contrast_core.solve import contrast_index, contrast_moments

_START_TOL = 1e-3


class Search(NamedTuple):
    """Settings of the search for a maximum.

    n_salient : int
        Number of salient latent variables, t.
    n_init : int
        Number of starts. All but the first are random and drawn with `rng`.
    tol, max_iter
        Tolerance and largest number of evaluations, as for `fit_em` or `fit_rows`.
    priors : PriorSettings
    """

    n_salient: int
    n_init: int
    rng: np.random.Generator
    tol: float
    max_iter: int
    priors: PriorSettings = PriorSettings()


class Selected(NamedTuple):
    """The fit after selection: the rows of W and columns of S that are left, and the penalty.

    `shrunk` is the probability that the horseshoe shrinks a feature's salient loadings away.
    """

    fit: Fit
    n_shared: int
    penalty: float | None = None
    shrunk: FloatArray | None = None


@dataclass(frozen=True)
class Likelihood(ABC):
    """Base class of the likelihood per row as a function of the parameters.

    Parameters
    ----------
    n_shared : int
        Number of shared latent variables, k.
    search : Search
    n_features : int
        Number of features that vary.
    n_rows : float
        Number of rows of both datasets.
    unit : float
        Unit of the loadings, in the units of the data.
    size : int
        Number of coordinates of the loadings.
    """

    n_shared: int
    search: Search
    n_features: int
    n_rows: float
    unit: float
    size: int

    roughly: ClassVar[dict[str, Any]]  # limits of a search whose result only starts another one

    @property
    def groups(self) -> NDArray[np.intp]:
        """Feature group of each coordinate, (size,); defined if the coordinates are features."""
        return self.search.priors.groups_of(np.ones(self.size, dtype=bool))

    @abstractmethod
    def first(self) -> Model:
        """Return the model at the first start."""

    @abstractmethod
    def maximise(self, start: Fit, prior: Prior, tol: float, max_iter: int) -> Fit:
        """Return the maximum of the likelihood times a prior."""

    @abstractmethod
    def horseshoe(self, dense: Fit) -> FloatArray:
        """Return the probability that a feature's salient loadings are shrunk away, (size,)."""

    @abstractmethod
    def described(self, found: Selected) -> dict[str, Any]:
        """Return fitted attributes."""

    def with_shared(self, n_shared: int) -> Self:
        """Return the likelihood of a model with another number of shared variables."""
        return replace(self, n_shared=n_shared)

    def most_likely(self) -> Fit:
        """Climb from the first model and from random models, and return the highest maximum."""
        search, n_latent = self.search, self.n_shared + self.search.n_salient
        models = [self.first()]
        models += [random_model(self.size, n_latent, search.rng) for _ in range(search.n_init - 1)]
        fits = [self.climb(Fit(model, np.empty(0), False)) for model in models]
        return max(fits, key=lambda fit: fit.log_likelihoods[-1])

    def climb(self, start: Fit, prior: Prior = LIKELIHOOD_ALONE, *, roughly: bool = False) -> Fit:
        """Return the maximum of the likelihood times a prior."""
        limits = {"tol": self.search.tol, "max_iter": self.search.max_iter}
        return self.maximise(start, prior, **(self.roughly if roughly else limits))


@dataclass(frozen=True)
class MomentLikelihood(Likelihood):
    """Likelihood of the features that vary in either dataset, computed from second moments."""

    x: Moments
    y: Moments

    roughly: ClassVar[dict[str, Any]] = {"tol": 1e-5, "max_iter": 500}

    @classmethod
    def of(cls, x: Moments, y: Moments, n_shared: int, search: Search) -> Self:
        """Return the likelihood of rows with these moments."""
        problem = likelihood_problem(x, y, n_shared)
        return cls(n_shared, search, problem.n_features, problem.n_rows, problem.unit, x.size, x, y)

    @property
    def problem(self) -> Problem:
        """Data and dimensions for `fit_em`."""
        return likelihood_problem(self.x, self.y, self.n_shared)

    def first(self) -> Model:
        return first_model(self.x, self.y, self.problem, self.search.n_salient)

    def maximise(self, start: Fit, prior: Prior, tol: float, max_iter: int) -> Fit:
        return fit_em(self.problem, start.model, prior, tol=tol, max_iter=max_iter)

    def horseshoe(self, dense: Fit) -> FloatArray:
        return shrunk_probability(self.problem, dense.model, self.search.priors)

    def described(self, found: Selected) -> dict[str, Any]:
        x, y, best = self.x, self.y, found.fit
        attributes = described_model(
            best.model.loadings * self.unit, 0.0, Means(x.mean, y.mean), found.n_shared, x
        )
        inside = x.coordinates_of(attributes["components_"])
        along = x.along(inside), y.along(inside)
        return attributes | {
            "noise_variance_": best.model.noise * self.unit**2,
            "log_likelihoods_": self.problem.log_likelihoods(best.log_likelihoods),
            "foreground_variance_": along[0],
            "background_variance_": along[1],
            "contrast_index_": contrast_index(*along),
            "foreground_moments_": x,
            "background_moments_": y,
        }


@dataclass(frozen=True)
class RowLikelihood(Likelihood):
    """Likelihood computed from the observed values of rows."""

    rows: StandardisedRows
    tails: Tails

    roughly: ClassVar[dict[str, Any]] = {"tol": 1e-3, "max_iter": 200}

    @classmethod
    def of(cls, rows: StandardisedRows, tails: Tails, n_shared: int, search: Search) -> Self:
        """Return the likelihood of rows."""
        n_features, n_rows = int(rows.varies.sum()), len(rows.x) + len(rows.y)
        return cls(n_shared, search, n_features, n_rows, rows.unit, n_features, rows, tails)

    @property
    def groups(self) -> NDArray[np.intp]:
        return self.search.priors.groups_of(self.rows.varies)

    def first(self) -> Model:
        """Fit a model with normal noise to the clipped rows, and return it."""
        x, y, _ = contrast_moments(*self.rows.clipped, products=False)
        problem = likelihood_problem(x, y, self.n_shared)
        start = first_model(x, y, problem, self.search.n_salient)
        clipped = fit_em(problem, start, tol=_START_TOL, max_iter=500).model
        loadings = x.lift(clipped.loadings.T).T * problem.unit
        return Model(loadings, clipped.noise * problem.unit**2)

    def maximise(self, start: Fit, prior: Prior, tol: float, max_iter: int) -> Fit:
        zeros = np.zeros(self.n_features)
        means = start.means or Means(zeros, zeros)
        found = fit_rows(
            *(self.rows.x, self.rows.y, start.model, means, self.n_shared, prior),
            weights=start.weights,
            tails=self.tails,
            degrees=self.search.priors.degrees_of_freedom,
            tol=tol,
            max_iter=max_iter,
        )
        return found._replace(log_likelihoods=found.log_likelihoods / self.n_rows)

    def horseshoe(self, dense: Fit) -> FloatArray:
        """Raise ValueError, because the horseshoe prior has no closed form for incomplete rows."""
        raise ValueError(
            "sparsity='horseshoe' with missing values (NaN) or robust needs inference='vi': give "
            "that as well, or sparsity='auto'."
        )

    def whole(self, found: Fit) -> tuple[Model, Means]:
        """Return the model in the units and features of the data."""
        rows, varies = self.rows, self.rows.varies
        loadings = np.zeros((len(varies), found.model.loadings.shape[1]))
        loadings[varies] = rows.unit * found.model.loadings
        means = [median.copy() for median in rows.medians]
        for mean, part in zip(means, found.means or (), strict=True):
            mean[varies] += rows.unit * part
        return Model(loadings, found.model.noise * rows.unit**2), Means(*means)

    def described(self, found: Selected) -> dict[str, Any]:
        (model, means), values = self.whole(found.fit), found.fit.log_likelihoods
        n_values = sum(int((~np.isnan(part)).sum()) for part in (self.rows.x, self.rows.y))
        return described_model(*model, means, found.n_shared) | {
            "noise_variance_": model.noise,
            "log_likelihoods_": self.n_rows * values - n_values * np.log(self.rows.unit),
        }


def described_model(
    loadings: FloatArray, noise: float, means: Means, n_shared: int, x: Moments | None = None
) -> dict[str, Any]:
    """Return fitted attributes, including the variances of the model along the components.

    The loadings are in the coordinates of the moments `x` if these are given, else in the features.
    """
    lift = np.asarray if x is None else x.lift
    (shared, _), (salient, components) = (
        rotated(lift, part) for part in np.split(loadings, [n_shared], axis=1)
    )
    background = noise + ((components @ shared) ** 2).sum(axis=1)
    foreground = background + (salient**2).sum(axis=0)
    return {
        "mean_": means.x,
        "background_mean_": means.y,
        "components_": components,
        "shared_loadings_": shared,
        "salient_loadings_": salient,
        "selected_": salient.any(axis=1),
        "foreground_variance_": foreground,
        "background_variance_": background,
        "contrast_index_": contrast_index(foreground, background),
    }
