"""The likelihood of the contrastive latent variable model, computed from the values of rows.

It handles missing values and noise with heavy tails, for which moments are not enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._clvm_likelihood import (
    Fit,
    Likelihood,
    Search,
    Selected,
    Step,
    described_model,
)
from contrast_core.probabilistic._clvm_moments import MomentLikelihood
from contrast_core.probabilistic._clvm_priors import LIKELIHOOD_ALONE, Prior, Sums
from contrast_core.probabilistic._incomplete import observed_part
from contrast_core.probabilistic._row_posterior import (
    Model,
    RowPosteriors,
    Tails,
    outer_products,
    run_e_step,
)
from contrast_core.rows import Rows
from contrast_core.solve import contrast_moments

# The likelihood is maximised from a model that is fitted to clipped values (`RowLikelihood.first`).
_CLIPPED_AT = 4.5  # number of median absolute deviations at which these values are clipped
_START_TOL, _START_STEPS = 1e-3, 500  # limits of the search for this model


class StandardisedRows(NamedTuple):
    """Foreground and background, centred by their medians and scaled to a mean variance of about 1.

    values : tuple of two ndarrays
        Values of the features that vary in either dataset, (n, n_varying); missing values are 0.
    seen : tuple of two ndarrays
        1 where a value was observed, else 0, (n, n_varying).
    clipped : tuple of two ndarrays
        `values` with outliers clipped.
    varies : ndarray of bool of shape (n_features,)
        Which features vary.
    medians : tuple of two ndarrays
        Medians of all features, in the units of the data.
    unit : float
        Divisor of the centred values, in the units of the data.
    names : tuple of str, optional
        Names of all features.
    """

    values: tuple[FloatArray, ...]
    seen: tuple[FloatArray, ...]
    clipped: tuple[FloatArray, ...]
    varies: NDArray[np.bool_]
    medians: tuple[FloatArray, ...]
    unit: float
    names: tuple[str, ...] | None


def observed_rows(foreground: Rows, background: Rows) -> StandardisedRows:
    """Read both datasets, and centre and scale them robustly.

    Raises
    ------
    ValueError
        If fewer than two rows of a dataset have a value, if a feature is never observed, or if the
        squares of the values overflow or underflow.
    """
    values = [observed_part(part)[0] for part in (foreground, background)]
    varies = np.any([np.nanmax(v, axis=0) > np.nanmin(v, axis=0) for v in values], axis=0)
    medians = tuple(np.nanmedian(v, axis=0) for v in values)
    left = [(v - m)[:, varies] for v, m in zip(values, medians, strict=True)]
    clipped = [_clipped(v) for v in left]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = [float((c**2).sum()) for c in clipped]
    unit = float(np.sqrt(sum(squares) / max(1, sum(int((~np.isnan(v)).sum()) for v in left))))
    if varies.any() and not 1e-150 < unit < 1e150:
        raise ValueError(
            f"the values have a standard deviation of {unit:.3g}. Its square is out of range in "
            "double precision. Rescale both datasets."
        )
    unit = unit or 1.0
    seen = tuple((~np.isnan(v)).astype(np.float64) for v in left)
    x, y, *cut = (np.nan_to_num(v / unit) for v in (*left, *clipped))
    names = foreground.names or background.names
    return StandardisedRows((x, y), seen, tuple(cut), varies, medians, unit, names)


def _clipped(left: FloatArray) -> FloatArray:
    """Clip outlying entries, then scale long rows down to the median length of the rows."""
    if not left.size:
        return left
    deviations = np.nanmedian(np.abs(left), axis=0)
    # A feature whose median absolute deviation is zero is not clipped.
    most = np.where(deviations > 0, _CLIPPED_AT * deviations, np.inf)
    cut = np.clip(np.where(np.isnan(left), 0.0, left), -most, most)
    lengths = np.sqrt((cut**2).mean(axis=1))
    return np.asarray(cut / np.maximum(1.0, lengths / (np.median(lengths) or np.inf))[:, None])


@dataclass(frozen=True)
class RowLikelihood(Likelihood):
    r"""Likelihood of the observed values of rows.

    Every observed value has a weight, which is 1 if the noise is normal. Student's t, with nu
    degrees of freedom, is a normal distribution whose variance is divided by a random number. The
    weight is the posterior expectation of that number. `tails` says which values have a weight in
    common. With ``"entries"`` each value has its own weight :math:`u_{ij}`. With ``"rows"`` one
    weight :math:`u_i` applies to all noise and latent variables of a row:

    .. math:: u_{ij} = \frac{\nu + 1}{\nu + \operatorname{E} r_{ij}^2 / \sigma^2}
        \quad\text{or}\quad u_i = \frac{\nu + D_i}{\nu + x_i^\top \Sigma_i^{-1} x_i} .

    Here :math:`r_{ij}` is the residual of a value, :math:`\sigma^2` is the noise variance, and
    :math:`x_i` are the :math:`D_i` observed values of a row, centred. :math:`\Sigma_i` is their
    covariance under the model with normal noise.

    Given the weights, a step of EM solves weighted least squares for each feature. With
    ``"entries"`` the posteriors of latent variables and weights are assumed to be independent, and
    the objective is the variational bound. With ``"rows"`` and with normal noise the posteriors are
    exact.

    References
    ----------
    Severson, Ghosh and Ng, arXiv:1811.06094, Sec. 2.3 (robust variant). Archambeau, Delannay and
    Verleysen, "Robust probabilistic projections", ICML 2006 (for ``"rows"``).
    """

    rows: StandardisedRows
    tails: Tails

    roughly: ClassVar[dict[str, Any]] = {"tol": 1e-3, "max_iter": 200}
    has_gradient: ClassVar[bool] = False

    @classmethod
    def from_rows(cls, rows: StandardisedRows, tails: Tails, n_shared: int, search: Search) -> Self:
        """Return the likelihood of rows."""
        n_features, n_rows = int(rows.varies.sum()), sum(map(len, rows.values))
        return cls(n_shared, search, n_features, n_rows, rows.unit, n_features, rows, tails)

    @property
    def groups(self) -> NDArray[np.intp]:
        return self.search.priors.groups_of(self.rows.varies)

    def first(self) -> Model:
        """Fit a model with normal noise to the clipped rows, and return it."""
        x, y, _ = contrast_moments(*self.rows.clipped, products=False)
        search = self.search._replace(tol=_START_TOL, max_iter=_START_STEPS)
        clipped = MomentLikelihood.from_moments(x, y, self.n_shared, search)
        loadings, noise = clipped.climb(Fit(clipped.first())).model
        return Model(x.lift(loadings.T).T * clipped.unit, noise * clipped.unit**2)

    def start_at(self, model: Model) -> Fit:
        zeros = np.zeros(self.n_features)
        weights = self.rows.seen if self.tails == "entries" else ()
        return Fit(model, means=(zeros, zeros), weights=weights)

    def evaluate(self, at: Fit, prior: Prior = LIKELIHOOD_ALONE) -> Step:
        rows, model, posteriors = self.rows, at.model, []
        widths = model.loadings.shape[1], self.n_shared
        datasets = zip(rows.values, rows.seen, at.means, at.weights or rows.seen, strict=True)
        for width, (values, seen, mean, weights) in zip(widths, datasets, strict=True):
            part = Model(model.loadings[:, :width], model.noise)
            degrees, left = self.search.priors.degrees_of_freedom, seen * (values - mean)
            posteriors.append(run_e_step(left, seen, weights, part, self.tails, degrees=degrees))
        value = prior.value(model.loadings)
        value += sum(float(found.log_density.sum()) for found in posteriors)
        return Step(value / self.n_rows, None, self._maximised(posteriors, model, prior))

    def _maximised(self, posteriors: list[RowPosteriors], model: Model, prior: Prior) -> Fit:
        """Run the M-step, which updates the means, then the loadings, then the noise variance.

        `posteriors` are the results of the E-step for foreground and background. With ``"entries"``
        each E-step starts from the weights that the E-step before it computed. The weights are
        therefore among the parameters that are returned.
        """
        d, k = model.loadings.shape
        means, cross, second = [], np.zeros((d, k)), np.zeros((d, k, k))
        for rows, found in zip(self.rows.values, posteriors, strict=True):
            width = found.latent.shape[1]
            left = rows - found.latent @ model.loadings[:, :width].T
            means.append((found.weights * left).sum(axis=0) / found.weights.sum(axis=0))
            weighted = found.weights * (rows - means[-1])
            cross[:, :width] += weighted.T @ found.latent
            moments = outer_products(found.latent) + found.covariance
            second[:, :width, :width] += (found.weights.T @ moments).reshape(d, width, width)
        loadings = prior.maximised(Sums(cross, second, model.noise), model.loadings)
        left_over = 0.0
        for rows, found, mean in zip(self.rows.values, posteriors, means, strict=True):
            part = loadings[:, : found.latent.shape[1]]
            around = (rows - mean - found.latent @ part.T) ** 2
            around += found.covariance @ outer_products(part).T
            left_over += float((found.weights * around).sum())
        keeps_weights = self.tails == "entries"
        weights = tuple(found.weights for found in posteriors) if keeps_weights else ()
        return Fit(Model(loadings, left_over / self._n_values), means=tuple(means), weights=weights)

    @property
    def _n_values(self) -> float:
        return sum(float(seen.sum()) for seen in self.rows.seen)

    def horseshoe(self, dense: Fit) -> FloatArray:
        """Raise ValueError, because closed-form updates of the horseshoe need second moments."""
        raise ValueError(
            "sparsity='horseshoe' with missing values (NaN) or with robust= needs "
            "inference='vi': give inference='vi', or sparsity='auto'."
        )

    def whole(self, found: Fit) -> tuple[Model, list[FloatArray]]:
        """Return the model and the means in the units of the data, for all features."""
        rows, varies = self.rows, self.rows.varies
        loadings = np.zeros((len(varies), found.model.loadings.shape[1]))
        loadings[varies] = rows.unit * found.model.loadings
        means = [median.copy() for median in rows.medians]
        for mean, part in zip(means, found.means, strict=True):
            mean[varies] += rows.unit * part
        return Model(loadings, found.model.noise * rows.unit**2), means

    def described(self, found: Selected) -> dict[str, Any]:
        (model, means), values = self.whole(found.fit), found.fit.log_likelihoods
        return described_model(*model, means, found.n_shared) | {
            "noise_variance_": model.noise,
            "log_likelihoods_": self.n_rows * values - self._n_values * np.log(self.rows.unit),
        }
