"""Maximum likelihood of the contrastive latent variable model from rows, by one weighted EM.

What second moments cannot tell: rows of which values are missing, and noise with heavy tails.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._clvm_em import Model
from contrast_core.probabilistic._clvm_posterior import DOF, Side, Tails, expected, outer_products

_LEAST_NOISE = 1e-13  # of the mean variance, where that is 1


class Means(NamedTuple):
    """Of foreground and background, (n_features,) each."""

    x: FloatArray
    y: FloatArray


class RowFit(NamedTuple):
    """Where the iteration ended.

    model, means
        Loadings in the units of the data, the shared ones first; noise variance; means.
    log_likelihoods : ndarray of shape (steps + 1,)
        Of what is observed of all rows, before each step; of ``"entries"`` the variational bound.
    converged : bool
    """

    model: Model
    means: Means
    log_likelihoods: FloatArray
    converged: bool


def fit_rows(
    x: FloatArray,
    y: FloatArray,
    start: Model,
    means: Means,
    n_shared: int,
    *,
    tails: Tails = "normal",
    dof: float = DOF,
    tol: float = 1e-5,
    max_iter: int = 2000,
) -> RowFit:
    r"""Maximise the likelihood of the values observed.

    Every value observed has a weight: 1 with normal noise; with Student's t of so many degrees of
    freedom, for each entry on its own or for each row together (noise and latent variables of a row
    then share its scale), the expectation of what divides the variance,

    .. math:: u_{ij} = \frac{\nu + 1}{\nu + \operatorname{E} r_{ij}^2 / \sigma^2}
        \quad\text{or}\quad u_i = \frac{\nu + D_i}{\nu + x_i^\top \Sigma_i^{-1} x_i} .

    Given the weights an iteration is weighted least squares, feature by feature. With entries the
    posterior of z and of the weights are taken to be independent; the others are exact.

    Parameters
    ----------
    x, y : ndarrays of shape (n, n_features) and (m, n_features)
        Rows; NaN is missing. Each feature is observed in both, and varies by about 1.
    start, means
        Where to begin, in the units of the data.
    n_shared : int
        How many of the loadings are shared, k.
    tails : {"normal", "entries", "rows"}, default="normal"
    dof : float, default=4
        nu.
    tol : float
        Largest change of a loading, in standard deviations of the noise, and of the logarithm of
        its variance, to end at.
    max_iter : int
        Steps, at most.

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
    seen = weights = [(~np.isnan(rows)).astype(np.float64) for rows in (x, y)]
    model, values, converged = start, [], False
    for _ in range(max_iter):
        sides = []
        for i, width in enumerate((model.loadings.shape[1], n_shared)):
            part = Model(model.loadings[:, :width], model.noise)
            left = seen[i] * (filled[i] - means[i])
            sides.append(expected(left, seen[i], weights[i], part, tails, dof))
        values.append(sum(float(side.log_density.sum()) for side in sides))
        if converged:
            break
        weights = [side.weights for side in sides]
        update, means = _maximised(filled, seen, sides, model)
        if not update.noise > _LEAST_NOISE:
            raise ValueError(
                f"{n_shared} shared and {model.loadings.shape[1] - n_shared} salient latent "
                "variables explain all that varies, or all but what counts as outliers, to working "
                "precision: nothing is left to estimate the noise from. Use fewer of them, more "
                "rows, or another `robust`."
            )
        change = np.abs(update.loadings - model.loadings).max(initial=0.0)
        settled = abs(np.log(update.noise / model.noise)) <= tol
        model, converged = update, bool(settled and change <= tol * update.noise**0.5)
    return RowFit(model, means, np.array(values), converged)


def _maximised(
    filled: list[FloatArray], seen: list[FloatArray], sides: list[Side], model: Model
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
    loadings = np.asarray(np.linalg.solve(second, cross[:, :, None])[:, :, 0], np.float64)
    left_over = 0.0
    for rows, side, mean in zip(filled, sides, means, strict=True):
        part = loadings[:, : side.latent.shape[1]]
        around = (rows - mean - side.latent @ part.T) ** 2
        around += side.covariance @ outer_products(part).T
        left_over += float((side.weights * around).sum())
    return Model(loadings, left_over / sum(float(s.sum()) for s in seen)), Means(*means)
