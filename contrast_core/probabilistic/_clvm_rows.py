"""Maximum likelihood of the contrastive latent variable model from rows, by one weighted EM.

What second moments cannot tell: rows of which values are missing, and noise with heavy tails.
"""

from __future__ import annotations

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._ascent import Evaluation, ascend
from contrast_core.probabilistic._clvm_em import Fit, Means
from contrast_core.probabilistic._clvm_priors import LIKELIHOOD_ALONE, Prior
from contrast_core.probabilistic._row_posterior import (
    Model,
    RowPosteriors,
    Tails,
    expected,
    outer_products,
)

_LEAST_NOISE = 1e-13  # of the mean variance, where that is 1
_LARGEST = 300.0  # logarithm of a weight, or of its inverse


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
    tol: float = 1e-5,
    max_iter: int = 2000,
) -> Fit:
    r"""Maximise the likelihood of the values observed, and a prior's.

    Every value observed has a weight: 1 with normal noise; with Student's t of `DOF` degrees of
    freedom, for each entry on its own or for each row together (noise and latent variables of a row
    then share its scale), the expectation of what divides the variance,

    .. math:: u_{ij} = \frac{\nu + 1}{\nu + \operatorname{E} r_{ij}^2 / \sigma^2}
        \quad\text{or}\quad u_i = \frac{\nu + D_i}{\nu + x_i^\top \Sigma_i^{-1} x_i} .

    Given the weights an iteration is weighted least squares, feature by feature. With entries the
    posterior of z and of the weights are taken to be independent; the others are exact. Steps are
    extrapolated as `ascend` says.

    Parameters
    ----------
    x, y : ndarrays of shape (n, n_features) and (m, n_features)
        Rows; NaN is missing. Each feature is observed in both, and varies by about 1.
    start, means
        Where to begin, in the units of the data.
    n_shared : int
        How many of the loadings are shared, k.
    prior : Prior
        What is maximised beside the likelihood.
    weights : list of ndarrays, optional
        Of the values of both datasets to begin with, of ``"entries"``; by default 1.
    tails : {"normal", "entries", "rows"}, default="normal"
    tol : float
        Length of a step to end at, of the loadings in standard deviations of the first noise, and
        of the logarithm of its variance.
    max_iter : int
        Evaluations, at most.

    Returns
    -------
    Fit
        Its values are of all rows, not per row; of ``"entries"`` they are the variational bound.

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
        if tails == "entries":  # each posterior given the other: the weights are unknowns as well
            parts += [np.log(w[s > 0]) for w, s in zip(weights, seen, strict=True)]
        return np.concatenate(parts)

    def parted(point: FloatArray) -> tuple[Model, Means, list[FloatArray]]:
        loadings, log_noise, of_x, of_y, logarithms = np.split(point, ends)
        # Where an extrapolation went astray the likelihood is to be low, not out of range.
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
            sides.append(expected(left, seen[i], weights[i], part, tails))
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
    # Where there is no gradient, what is extrapolated need not be zero.
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
    """Means given the loadings, loadings given the means, then the noise."""
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
    loadings = prior.maximised(cross, second, model.loadings, model.noise)
    left_over = 0.0
    for rows, side, mean in zip(filled, sides, means, strict=True):
        part = loadings[:, : side.latent.shape[1]]
        around = (rows - mean - side.latent @ part.T) ** 2
        around += side.covariance @ outer_products(part).T
        left_over += float((side.weights * around).sum())
    return Model(loadings, left_over / sum(float(s.sum()) for s in seen)), Means(*means)
