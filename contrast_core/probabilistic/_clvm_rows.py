"""Maximum likelihood of the contrastive latent variable model from rows, by one weighted EM.

What second moments cannot tell: rows of which values are missing, and noise with heavy tails.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._clvm_em import Model
from contrast_core.probabilistic._patterns import latent_means, outer_products, systems_of

Tails: TypeAlias = Literal["normal", "entries", "rows"]

DOF = 4.0  # of Student's t
_LEAST_NOISE = 1e-13  # of the mean variance, where that is 1
_WEIGHING_STEPS = 500  # of the weights of a new row's values, at most
_SETTLED = 1e-9  # change of its latent variables


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


class _Side(NamedTuple):
    """E-step per row: log-density, weights (n, D), means (n, k), covariances (n, k * k) of z."""

    log_density: FloatArray
    weights: FloatArray
    latent: FloatArray
    covariance: FloatArray


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
    seen = [~np.isnan(rows) for rows in (x, y)]
    filled = [np.where(s, rows, 0.0) for s, rows in zip(seen, (x, y), strict=True)]
    weights = [s.astype(np.float64) for s in seen]
    model, values, converged = start, [], False
    for _ in range(max_iter):
        sides = []
        for i, width in enumerate((model.loadings.shape[1], n_shared)):
            part = Model(model.loadings[:, :width], model.noise)
            left = np.where(seen[i], filled[i] - means[i], 0.0)
            sides.append(_expected(left, seen[i], weights[i], part, tails, dof))
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


def _expected(
    left: FloatArray,
    seen: NDArray[np.bool_],
    weights: FloatArray,
    model: Model,
    tails: Tails,
    dof: float,
) -> _Side:
    loadings, noise = model
    n, k = len(left), loadings.shape[1]
    given = weights if tails == "entries" else seen.astype(np.float64)
    systems = systems_of(given, loadings, noise)
    projected = (given * left) @ loadings
    latent = latent_means(systems, np.arange(n), projected)
    covariance = noise * systems.inverse.reshape(n, k * k)
    n_seen = seen.sum(axis=1)
    if tails == "entries":
        around = (left - latent @ loadings.T) ** 2 + covariance @ outer_products(loadings).T
        scaled = around / (dof * noise)
        constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - np.log(dof * np.pi * noise) / 2
        inside = np.where(seen, constant - (dof + 1) / 2 * np.log1p(scaled), 0.0).sum(axis=1)
        traces = np.trace(covariance.reshape(n, k, k), axis1=1, axis2=2)
        # log det of the covariance is that of noise times the inverse system.
        spread = k * np.log(noise) - systems.log_determinant
        divergence = 0.5 * (traces + (latent**2).sum(axis=1) - k - spread)
        new = np.where(seen, (dof + 1) / dof / (1 + scaled), 0.0)
        return _Side(inside - divergence, new, latent, covariance)
    # As squares of what is left, not as a difference of squares, which may be far larger.
    distance = (given * (left - latent @ loadings.T) ** 2).sum(axis=1) / noise
    distance += (latent**2).sum(axis=1)
    log_determinant = (n_seen - k) * np.log(noise) + systems.log_determinant
    if tails == "normal":
        density = -0.5 * (n_seen * np.log(2 * np.pi) + log_determinant + distance)
        return _Side(density, given, latent, covariance)
    density = gammaln((dof + n_seen) / 2) - gammaln(dof / 2) - n_seen / 2 * np.log(dof * np.pi)
    density -= log_determinant / 2 + (dof + n_seen) / 2 * np.log1p(distance / dof)
    scale = ((dof + n_seen) / (dof + distance))[:, None]
    return _Side(density, given * scale, latent, covariance / scale)


def latent_of(
    rows: FloatArray, *, model: Model, mean: FloatArray, tails: Tails, first: int, last: int
) -> FloatArray:
    """Posterior means of latent variables `first` to `last`, given what is observed, (n, k)."""
    return _of_rows(rows, model, mean, tails).latent[:, first:last]


def densities_of(rows: FloatArray, *, model: Model, mean: FloatArray, tails: Tails) -> FloatArray:
    """Column of log-densities of what is observed; of ``"entries"`` the variational bound."""
    return _of_rows(rows, model, mean, tails).log_density[:, None]


def _of_rows(rows: FloatArray, model: Model, mean: FloatArray, tails: Tails) -> _Side:
    rows = np.asarray(rows, dtype=np.float64)
    seen = ~np.isnan(rows)
    left = np.where(seen, rows - mean, 0.0)
    side = _expected(left, seen, seen.astype(np.float64), model, tails, DOF)
    for _ in range(_WEIGHING_STEPS if tails == "entries" else 0):
        before, side = side, _expected(left, seen, side.weights, model, tails, DOF)
        if np.abs(side.latent - before.latent).max(initial=0.0) <= _SETTLED:
            break
    return side


def _maximised(
    filled: list[FloatArray], seen: list[NDArray[np.bool_]], sides: list[_Side], model: Model
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
    return Model(loadings, left_over / sum(int(s.sum()) for s in seen)), Means(*means)
