"""Where stochastic variational inference begins: at what expectation maximisation finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.moments._feature_moments import FeatureMoments
from contrast_core.probabilistic._clvm_counts import checked_counts
from contrast_core.probabilistic._clvm_em import first_model, fit_em, likelihood_problem
from contrast_core.probabilistic._clvm_observed import described_model, fit_observed, observed_rows
from contrast_core.probabilistic._clvm_posterior import Tails
from contrast_core.probabilistic._clvm_rows import Means
from contrast_core.rows import ELEMENTS, Rows, rows_of
from contrast_core.solve import contrast_moments

_LEAST_ROWS = 500  # that are held to find a start, if there are as many
_TOL, _STEPS = 1e-3, 300
_EXACT_TOL, _EXACT_STEPS = 1e-6, 3000
_DISPERSION = 10.0
_MOST_STRETCH = 4.0
_NEVER = -100.0  # logarithm of the share of a feature that was never counted
_POISSON = 1e6  # a dispersion that is as good as none


class Start(NamedTuple):
    """Where to begin: of the features that vary in either dataset.

    loadings : ndarray of shape (size, k + t)
        The shared ones first; in `unit`s.
    means : ndarray of shape (2, size)
        Of foreground and background, in the units of the data; of counts logarithms of shares.
    log_scale : ndarray of shape (1,) or (size,)
        Logarithm of the noise variance in `unit`s squared; of counts those of the dispersions.
    unit : float
        In the units of the data, the noise's standard deviation; of counts 1.
    spread : float
        Standard deviation of features, on average, in `unit`s; of counts 1.
    varies : ndarray of bool of shape (n_features,)
        Which features these are.
    all_means : ndarray of shape (2, n_features)
        Of all features.
    total : float
        Of counts the mean total of a row of the foreground.
    """

    loadings: FloatArray
    means: FloatArray
    log_scale: FloatArray
    unit: float
    spread: float
    varies: NDArray[np.bool_]
    all_means: FloatArray
    total: float = 1.0


class VariationalFit(NamedTuple):
    """Loadings, means and log_scale as in the start; the bound at the start and after each pass."""

    loadings: FloatArray
    means: FloatArray
    log_scale: FloatArray
    n_shared: int
    elbo: FloatArray
    converged: bool

    def described(self, start: Start, tails: Tails) -> dict[str, Any]:
        """Fitted attributes."""
        whole = np.zeros((len(start.varies), self.loadings.shape[1]))
        whole[start.varies] = start.unit * self.loadings
        means, variance = start.all_means.copy(), 0.0
        means[:, start.varies] = self.means
        of_rows: dict[str, Any] = {"elbo_": self.elbo, "converged_": self.converged}
        if tails == "counts":
            dispersions = np.full(len(start.varies), _POISSON)
            dispersions[start.varies] = np.exp(self.log_scale)
            of_rows |= {"dispersions_": dispersions, "library_size_": start.total}
        else:
            variance = of_rows["noise_variance_"] = float(np.exp(self.log_scale[0])) * start.unit**2
        of_model = described_model(whole, variance, Means(*means), self.n_shared)
        return of_model | of_rows | {"n_iter_": len(self.elbo) - 2}


def varying(parts: Sequence[Rows]) -> NDArray[np.bool_]:
    """Features that vary in foreground or background, (n_features,)."""
    if any(part.any_missing() for part in parts):
        return observed_rows(*parts).varies
    return np.asarray(np.any([FeatureMoments.from_data(part).varies for part in parts], axis=0))


def starting_point(
    parts: Sequence[Rows],
    varies: NDArray[np.bool_],
    n_shared: int,
    n_salient: int,
    tails: Tails,
    rng: np.random.Generator,
) -> Start:
    """The most likely model, of normal noise and complete rows; else of rows that fit in memory."""
    if tails == "counts":
        return _of_counts(parts, varies, n_shared, n_salient, rng)
    if tails == "normal" and not any(part.any_missing() for part in parts):
        x, y, _ = contrast_moments(*parts, products=False)
        problem = likelihood_problem(x, y, n_shared)
        model = fit_em(
            problem, first_model(x, y, problem, n_salient), tol=_EXACT_TOL, max_iter=_EXACT_STEPS
        ).model
        loadings = x.lift(model.loadings.T).T * problem.unit
        means, unit, noise = np.array([x.mean, y.mean]), problem.unit, model.noise * problem.unit**2
    else:
        rows = observed_rows(*(_some(part, rng) for part in parts))
        found = fit_observed(rows, n_shared, n_salient, tails, [], tol=_TOL, max_iter=_STEPS)
        (loadings, noise), means, unit = found.model, np.array(found.means), rows.unit
    scale = float(noise**0.5)
    inside = loadings[varies] / scale, means[:, varies]
    return Start(*inside, np.zeros(1), scale, float(unit / scale), varies, means)


def _of_counts(
    parts: Sequence[Rows],
    varies: NDArray[np.bool_],
    n_shared: int,
    n_salient: int,
    rng: np.random.Generator,
) -> Start:
    """By normal noise of logarithms of counts, at the same total for all rows."""
    some = [checked_counts(_some(part, rng).load(dense=True))[:, varies] for part in parts]
    totals = [np.maximum(rows.sum(axis=1, keepdims=True), 1.0) for rows in some]
    typical = np.mean([total.mean() for total in totals])
    level = [rows * (typical / total) for rows, total in zip(some, totals, strict=True)]
    rows = observed_rows(*(rows_of(np.log1p(each)) for each in level))
    found = fit_observed(rows, n_shared, n_salient, "normal", [], tol=_TOL, max_iter=_STEPS)
    # The slope of log(1 + y) is less than that of log(y) where counts are few.
    average = np.mean([each.mean(axis=0) for each in level], axis=0)
    stretch = np.minimum((1 + average) / np.maximum(average, 1e-9), _MOST_STRETCH)
    loadings = found.model.loadings * stretch[:, None]
    sums = [FeatureMoments.from_data(part).mean for part in parts]
    shares = np.array(
        [np.log(mean + 0.5 / part.shape[0]) for mean, part in zip(sums, parts, strict=True)]
    )
    shares -= np.log([[mean.sum()] for mean in sums])
    shares[:, ~varies & (np.sum(sums, axis=0) == 0)] = _NEVER
    means = shares[:, varies]
    means[0] -= (loadings[:, n_shared:] ** 2).sum(axis=1) / 2
    means -= (loadings[:, :n_shared] ** 2).sum(axis=1) / 2
    dispersions = np.full(len(loadings), np.log(_DISPERSION))
    return Start(loadings, means, dispersions, 1.0, 1.0, varies, shares, float(sums[0].sum()))


def _some(part: Rows, rng: np.random.Generator) -> Rows:
    """Random rows, as many as are held at once; all where values may be missing."""
    n, most = part.shape[0], max(_LEAST_ROWS, ELEMENTS // part.shape[1])
    if n <= most or part.any_missing():
        return part
    return part.take(np.sort(rng.choice(n, most, replace=False)))
