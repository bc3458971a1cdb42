"""The contrastive latent variable model of rows with missing values, or with outliers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._clvm_em import (
    Fit,
    Means,
    first_model,
    fit_em,
    likelihood_problem,
    random_model,
    rotated,
)
from contrast_core.probabilistic._clvm_priors import LIKELIHOOD_ALONE, Prior
from contrast_core.probabilistic._clvm_rows import fit_rows
from contrast_core.probabilistic._clvm_selection import Search, Selected
from contrast_core.probabilistic._incomplete import observed_part
from contrast_core.probabilistic._row_posterior import Model, Tails
from contrast_core.rows import Rows
from contrast_core.solve import contrast_index, contrast_moments

_CLIPPED_AT = 4.5  # median absolute deviations: where the rows that give a start are cut off
_START_TOL = 1e-3
_ROUGHLY: dict[str, Any] = {"tol": 1e-3, "max_iter": 200}


class StandardisedRows(NamedTuple):
    """Foreground and background about their medians, in units in which features vary by about 1.

    x, y : ndarrays of shape (n, size) and (m, size)
        Of the features that vary in either; NaN where nothing was observed.
    clipped : tuple of ndarrays
        The same without outliers, and with 0 for what is missing.
    varies : ndarray of bool of shape (n_features,)
        Which features these are.
    medians : Means
        In the units of the data, of all features.
    unit : float
        Of the data, what counts as 1.
    names : tuple of str, optional
        Of all features.
    """

    x: FloatArray
    y: FloatArray
    clipped: tuple[FloatArray, FloatArray]
    varies: NDArray[np.bool_]
    medians: Means
    unit: float
    names: tuple[str, ...] | None


def observed_rows(foreground: Rows, background: Rows) -> StandardisedRows:
    """Read both datasets.

    Raises
    ------
    ValueError
        If fewer than two rows have a value, a feature is never observed, or the values leave the
        range in which squares can be computed with.
    """
    values = [observed_part(part)[0] for part in (foreground, background)]
    varies = np.any([np.nanmax(v, axis=0) > np.nanmin(v, axis=0) for v in values], axis=0)
    medians = Means(*(np.nanmedian(v, axis=0) for v in values))
    left = [(v - m)[:, varies] for v, m in zip(values, medians, strict=True)]
    clipped = [_clipped(v) for v in left]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = [float((c**2).sum()) for c in clipped]
    unit = float(np.sqrt(sum(squares) / max(1, sum(int((~np.isnan(v)).sum()) for v in left))))
    if varies.any() and not 1e-150 < unit < 1e150:
        raise ValueError(
            f"the values vary by {unit:.3g}, beyond what can be squared; rescale both datasets."
        )
    unit = unit or 1.0
    x, y = (v / unit for v in left)
    cut = (clipped[0] / unit, clipped[1] / unit)
    names = foreground.names or background.names
    return StandardisedRows(x, y, cut, varies, medians, unit, names)


def _clipped(left: FloatArray) -> FloatArray:
    """Rows with entries of some deviations at most, the longest made as long as the median."""
    if not left.size:
        return left
    deviations = np.nanmedian(np.abs(left), axis=0)
    # Where most values are the same, none is an outlier by this.
    most = np.where(deviations > 0, _CLIPPED_AT * deviations, np.inf)
    cut = np.clip(np.where(np.isnan(left), 0.0, left), -most, most)
    lengths = np.sqrt((cut**2).mean(axis=1))
    return np.asarray(cut / np.maximum(1.0, lengths / (np.median(lengths) or np.inf))[:, None])


@dataclass(frozen=True)
class RowLikelihood:
    """Likelihood computed from the observed values of rows.

    The first start is the normal model of the clipped rows.
    """

    rows: StandardisedRows
    tails: Tails
    n_shared: int
    search: Search

    @property
    def n_features(self) -> int:
        """Number of features that vary."""
        return int(self.rows.varies.sum())

    @property
    def n_rows(self) -> float:
        """Number of rows of both datasets."""
        return len(self.rows.x) + len(self.rows.y)

    def with_shared(self, n_shared: int) -> Self:
        """Return the likelihood of a model with another number of shared variables."""
        return replace(self, n_shared=n_shared)

    def starts(self) -> list[Fit]:
        """The normal model of the clipped rows first, then random ones."""
        rows, t, rng = self.rows, self.search.n_salient, self.search.rng
        x, y, _ = contrast_moments(rows.clipped[0], rows.clipped[1], products=False)
        problem = likelihood_problem(x, y, self.n_shared)
        clipped = fit_em(problem, first_model(x, y, problem, t), tol=_START_TOL, max_iter=500).model
        loadings = x.lift(clipped.loadings.T).T * problem.unit
        models = [Model(loadings, clipped.noise * problem.unit**2)]
        n_latent = self.n_shared + t
        models += [
            random_model(self.n_features, n_latent, rng) for _ in range(self.search.n_init - 1)
        ]
        return [Fit(model, np.empty(0), False) for model in models]

    def climb(self, start: Fit, prior: Prior = LIKELIHOOD_ALONE, *, roughly: bool = False) -> Fit:
        """The maximum together with a prior."""
        limits = {"tol": self.search.tol, "max_iter": self.search.max_iter}
        zeros = np.zeros(self.n_features)
        means = start.means or Means(zeros, zeros)
        found = fit_rows(
            *(self.rows.x, self.rows.y, start.model, means, self.n_shared, prior),
            weights=start.weights,
            tails=self.tails,
            **(_ROUGHLY if roughly else limits),
        )
        return found._replace(log_likelihoods=found.log_likelihoods / self.n_rows)

    def horseshoe(self, dense: Fit) -> NDArray[np.bool_]:
        """Refuse the horseshoe prior, which has no closed form for incomplete rows."""
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
        """Fitted attributes."""
        (model, means), values = self.whole(found.fit), found.fit.log_likelihoods
        n_values = sum(int((~np.isnan(part)).sum()) for part in (self.rows.x, self.rows.y))
        return described_model(*model, means, found.n_shared) | {
            "noise_variance_": model.noise,
            "log_likelihoods_": self.n_rows * values - n_values * np.log(self.rows.unit),
            "n_iter_": len(values) - 1,
            "converged_": found.fit.converged,
        }


def described_model(
    loadings: FloatArray, noise: float, means: Means, n_shared: int
) -> dict[str, Any]:
    """Return fitted attributes, with the model's variances along the components."""
    (shared, _), (salient, components) = (
        rotated(np.asarray, part) for part in np.split(loadings, [n_shared], axis=1)
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
