"""Maximum likelihood of the contrastive latent variable model from rows, by a weighted EM.

It handles missing values and noise with heavy tails, for which moments are not enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._ascent import Evaluation, ascend
from contrast_core.probabilistic._clvm_em import Fit, Means
from contrast_core.probabilistic._clvm_priors import LIKELIHOOD_ALONE, Prior, Sums
from contrast_core.probabilistic._incomplete import observed_part
from contrast_core.probabilistic._row_posterior import (
    DEGREES,
    Model,
    RowPosteriors,
    Tails,
    expected,
    outer_products,
)
from contrast_core.rows import Rows

_CLIPPED_AT = 4.5  # values are clipped at this many median absolute deviations for the start
_LEAST_NOISE = 1e-13  # least noise variance; the mean variance of the features is about 1
_LARGEST = 300.0  # largest absolute logarithm of a weight


class StandardisedRows(NamedTuple):
    """Foreground and background, centred by their medians and scaled to a mean variance of about 1.

    x, y : ndarrays of shape (n, size) and (m, size)
        Values of the features that vary in either dataset; NaN where nothing was observed.
    clipped : tuple of ndarrays
        These values with outliers clipped, and with 0 for missing values.
    varies : ndarray of bool of shape (n_features,)
        Which features vary.
    medians : Means
        Medians of all features, in the units of the data.
    unit : float
        Divisor of the centred values, in the units of the data.
    names : tuple of str, optional
        Names of all features.
    """

    x: FloatArray
    y: FloatArray
    clipped: tuple[FloatArray, FloatArray]
    varies: NDArray[np.bool_]
    medians: Means
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
    """Return rows with clipped entries; rows longer than the median are shortened to it."""
    if not left.size:
        return left
    deviations = np.nanmedian(np.abs(left), axis=0)
    # A feature whose median absolute deviation is zero is not clipped.
    most = np.where(deviations > 0, _CLIPPED_AT * deviations, np.inf)
    cut = np.clip(np.where(np.isnan(left), 0.0, left), -most, most)
    lengths = np.sqrt((cut**2).mean(axis=1))
    return np.asarray(cut / np.maximum(1.0, lengths / (np.median(lengths) or np.inf))[:, None])


def fit_rows(
    x: FloatArray,
    y: FloatArray,
    start: Model,
    means: Means,
    n_shared: int,
    prior: Prior = LIKELIHOOD_ALONE,
    *,
    weights: list[FloatArray] | None = None,
    tails: Tails = "normal",
    degrees: float = DEGREES,
    tol: float = 1e-5,
    max_iter: int = 2000,
) -> Fit:
    r"""Maximise the likelihood of the observed values times a prior.

    Every observed value has a weight. It is 1 with normal noise. Student's t, with nu degrees of
    freedom, is a normal distribution whose variance is divided by a random number, and the weight
    is the expectation of that number. It belongs to each entry, or to each row, in which case noise
    and latent variables of the row share it:

    .. math:: u_{ij} = \frac{\nu + 1}{\nu + \operatorname{E} r_{ij}^2 / \sigma^2}
        \quad\text{or}\quad u_i = \frac{\nu + D_i}{\nu + x_i^\top \Sigma_i^{-1} x_i} .

    Given the weights, an iteration solves weighted least squares for each feature. With
    ``"entries"`` the posteriors of z and of the weights are assumed to be independent. With the
    other tails the posteriors are exact. `ascend` extrapolates the steps.

    Parameters
    ----------
    x, y : ndarrays of shape (n, n_features) and (m, n_features)
        Rows, with NaN for missing values. Each feature is observed in both datasets and has a
        variance of about 1.
    start, means
        Model and means at the start, in the units of the rows.
    n_shared : int
        Number of shared latent variables, k.
    prior : Prior
        Prior or penalty that is added to the log-likelihood.
    weights : list of ndarrays, optional
        Weights of the values of both datasets at the start, for ``"entries"``; by default 1.
    tails : {"normal", "entries", "rows"}, default="normal"
    degrees : float
        Degrees of freedom of Student's t.
    tol : float
        Length of a step at which the iteration ends. The step is that of the loadings, in standard
        deviations of the first noise, and of the logarithm of the noise variance.
    max_iter : int
        Largest number of evaluations.

    Returns
    -------
    Fit
        The fit. Its objective is a sum over rows; for ``"entries"`` it is the variational bound.

    Raises
    ------
    ValueError
        If the likelihood is unbounded: the noise variance goes to zero.

    References
    ----------
    Severson, Ghosh and Ng, arXiv:1811.06094, Sec. 2.3 (robust variant). Archambeau, Delannay and
    Verleysen, "Robust probabilistic projections", ICML 2006, for whole rows.
    """
    filled = [np.nan_to_num(rows) for rows in (x, y)]
    seen = [(~np.isnan(rows)).astype(np.float64) for rows in (x, y)]
    (d, k), unit = start.loadings.shape, start.noise**0.5
    ends = np.cumsum([d * k, 1, d, d])

    def pointed(model: Model, means: Means, weights: list[FloatArray]) -> FloatArray:
        parts = [model.loadings.ravel() / unit, [np.log(model.noise)], *(m / unit for m in means)]
        if tails == "entries":  # the E-step alternates, so the weights are unknowns as well
            parts += [np.log(w[s > 0]) for w, s in zip(weights, seen, strict=True)]
        return np.concatenate(parts)

    def parted(point: FloatArray) -> tuple[Model, Means, list[FloatArray]]:
        loadings, log_noise, of_x, of_y, logarithms = np.split(point, ends)
        # An extrapolated noise is clipped, so that the likelihood is low rather than out of range.
        noise = float(np.exp(np.clip(log_noise[0], *np.log([_LEAST_NOISE, 1 / _LEAST_NOISE]))))
        weights = [s.copy() for s in seen]
        if tails == "entries":
            of_rows = np.split(logarithms, [int(seen[0].sum())])
            for w, s, part in zip(weights, seen, of_rows, strict=True):
                w[s > 0] = np.exp(np.clip(part, -_LARGEST, _LARGEST))
        return Model(unit * loadings.reshape(d, k), noise), Means(unit * of_x, unit * of_y), weights

    def at(point: FloatArray) -> Evaluation:
        model, means, weights = parted(point)
        sides = []
        for i, width in enumerate((k, n_shared)):
            part = Model(model.loadings[:, :width], model.noise)
            left = seen[i] * (filled[i] - means[i])
            sides.append(expected(left, seen[i], weights[i], part, tails, degrees=degrees))
        update, new_means = _maximised(filled, seen, sides, model, prior)
        if not update.noise > _LEAST_NOISE:
            raise ValueError(
                f"{n_shared} shared and {k - n_shared} salient latent "
                "variables explain all that varies, or all but what counts as outliers, to working "
                "precision: nothing is left to estimate the noise from. Use fewer of them, more "
                "rows, or another `robust`."
            )
        new = pointed(update, new_means, [side.weights for side in sides])
        value = prior.value(model.loadings)
        value += sum(float(side.log_density.sum()) for side in sides)
        return Evaluation(value, (new - point)[: ends[1]], new)

    first = pointed(start, means, weights or seen)
    try:
        found = ascend(at, first, tol=tol, max_iter=max_iter, smooth=False)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "values lie so far apart that the loadings of some are beyond double precision beside "
            "the noise of the others. Remove the outliers, or give robust='entries' or 'rows'."
        ) from error
    # A prior that is not smooth sets rows to exactly zero, which extrapolation undoes.
    end = found.point if prior.smooth else at(found.point).update
    model, means, weights = parted(end)
    return Fit(model, found.values, found.converged, means, weights)


def _maximised(
    filled: list[FloatArray],
    seen: list[FloatArray],
    sides: list[RowPosteriors],
    model: Model,
    prior: Prior,
) -> tuple[Model, Means]:
    """Return the M-step, which updates the means, then the loadings, then the noise variance."""
    d, k = model.loadings.shape
    means, cross, second = [], np.zeros((d, k)), np.zeros((d, k, k))
    for rows, side in zip(filled, sides, strict=True):
        width = side.latent.shape[1]
        left = rows - side.latent @ model.loadings[:, :width].T
        means.append((side.weights * left).sum(axis=0) / side.weights.sum(axis=0))
        weighted = side.weights * (rows - means[-1])
        cross[:, :width] += weighted.T @ side.latent
        moments = outer_products(side.latent) + side.covariance
        second[:, :width, :width] += (side.weights.T @ moments).reshape(d, width, width)
    loadings = prior.maximised(Sums(cross, second, model.noise), model.loadings)
    left_over = 0.0
    for rows, side, mean in zip(filled, sides, means, strict=True):
        part = loadings[:, : side.latent.shape[1]]
        around = (rows - mean - side.latent @ part.T) ** 2
        around += side.covariance @ outer_products(part).T
        left_over += float((side.weights * around).sum())
    return Model(loadings, left_over / sum(float(s.sum()) for s in seen)), Means(*means)
