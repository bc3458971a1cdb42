"""Posteriors of latent variables given rows, for NumPy arrays and torch tensors.

The E-step of expectation maximisation, and the bound that stochastic variational inference climbs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.special import gammaln

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._clvm_em import Model

Tails: TypeAlias = Literal["normal", "entries", "rows", "counts"]

DOF = 4.0  # of Student's t
_WEIGHING_STEPS = 500  # of the weights of a new row's values, at most
_SETTLED = 1e-9  # change of its latent variables


class RowPosteriors(NamedTuple):
    """Per row: log-density, weights (n, D), means (n, k) and covariances (n, k * k) of z."""

    log_density: Any
    weights: Any
    latent: Any
    covariance: Any


def namespace(array: Any) -> Any:
    """The module whose functions take such arrays: NumPy or torch."""
    return np if isinstance(array, np.ndarray) else import_module("torch")


def log_gamma(array: Any) -> Any:
    """Return the log-gamma function of an array, a tensor or a number."""
    return array.lgamma() if hasattr(array, "lgamma") else gammaln(array)


def expected(left: Any, seen: Any, weights: Any, model: Model, tails: Tails) -> RowPosteriors:
    """The E-step.

    Parameters
    ----------
    left : array of shape (n, n_features)
        Rows about their mean, 0 where a value is missing.
    seen : array of shape (n, n_features), or (1, n_features) where it is the same for all
        1 where a value is observed, else 0.
    weights : array of shape (n, n_features)
        Of the values, where these have one each; `seen` to begin with.
    model : Model
        Of tensors the noise variance is a tensor too; gradients flow.
    tails
        The distribution; Student's t has `DOF` degrees of freedom.

    Returns
    -------
    RowPosteriors
        Of ``"entries"`` the log-density is the variational bound, where the posteriors of weights
        and latent variables are independent, each the best given the other's before. What is the
        same for all rows, as `seen` is, may come once.
    """
    xp = namespace(left)
    loadings, noise = model
    k = loadings.shape[1]
    given = weights if tails == "entries" else seen
    outer = outer_products(loadings)
    systems = (given @ outer).reshape(len(given), k, k) + noise * identity(k, left)
    inverse = xp.linalg.inv(systems)
    log_determinant = xp.linalg.slogdet(systems)[1]
    latent = (inverse @ ((given * left) @ loadings)[:, :, None])[:, :, 0]
    covariance = noise * inverse.reshape(len(given), k * k)
    if tails == "entries":
        scaled = _scaled(left, latent, covariance, model)
        constant = gammaln((DOF + 1) / 2) - gammaln(DOF / 2) - (np.log(DOF * np.pi)) / 2
        constant = constant - xp.log(noise) / 2
        inside = (seen * (constant - (DOF + 1) / 2 * xp.log1p(scaled))).sum(axis=1)
        # log det of the covariance is that of noise times the inverse system.
        spread = k * xp.log(noise) - log_determinant
        divergence = from_standard(latent, covariance, spread)
        new = seen * _weights(scaled)
        return RowPosteriors(inside - divergence, new, latent, covariance)
    n_seen = seen.sum(axis=1)
    # As squares of what is left, not as a difference of squares, which may be far larger.
    distance = (given * (left - latent @ loadings.T) ** 2).sum(axis=1) / noise
    distance = distance + (latent**2).sum(axis=1)
    log_determinant = log_determinant + (n_seen - k) * xp.log(noise)
    if tails == "normal":
        density = -0.5 * (n_seen * np.log(2 * np.pi) + log_determinant + distance)
        return RowPosteriors(density, given, latent, covariance)
    density = log_gamma((DOF + n_seen) / 2) - gammaln(DOF / 2) - n_seen / 2 * np.log(DOF * np.pi)
    density = density - log_determinant / 2 - (DOF + n_seen) / 2 * xp.log1p(distance / DOF)
    scale = ((DOF + n_seen) / (DOF + distance))[:, None]
    return RowPosteriors(density, given * scale, latent, covariance / scale)


def _scaled(left: Any, latent: Any, covariance: Any, model: Model) -> Any:
    """Expected squares of what the latent variables leave, over `DOF` times the noise variance."""
    around = (left - latent @ model.loadings.T) ** 2 + covariance @ outer_products(model.loadings).T
    return around / (DOF * model.noise)


def _weights(scaled: Any) -> Any:
    return (DOF + 1) / DOF / (1 + scaled)


def value_weights(left: Any, seen: Any, latent: Any, covariance: Any, model: Model) -> Any:
    """Weights of values by themselves, (n, n_features), given posteriors of latent variables."""
    return seen * _weights(_scaled(left, latent, covariance, model))


def settled(left: Any, seen: Any, model: Model, tails: Tails) -> RowPosteriors:
    """Iterate the E-step of new rows until the weights of their values no longer change."""
    weights = seen + 0 * left
    side = expected(left, seen, weights, model, tails)
    for _ in range(_WEIGHING_STEPS if tails == "entries" else 0):
        before, side = side, expected(left, seen, side.weights, model, tails)
        if not abs(side.latent - before.latent).max(initial=0.0) > _SETTLED:
            break
    return side


def from_standard(latent: Any, covariance: Any, log_determinant: Any) -> Any:
    """Divergence of normal posteriors, with covariances (n, k * k), from the standard normal."""
    k = latent.shape[1]
    traces = covariance[:, :: k + 1].sum(axis=1)
    return 0.5 * (traces + (latent**2).sum(axis=1) - k - log_determinant)


def outer_products(vectors: Any) -> Any:
    """Return the outer product of each row with itself, (n, k * k)."""
    n, k = vectors.shape
    return (vectors[:, :, None] * vectors[:, None, :]).reshape(n, k * k)


def identity(k: int, like: Any) -> Any:
    """The identity matrix, an array such as another one."""
    if isinstance(like, np.ndarray):
        return np.eye(k)
    return namespace(like).eye(k, dtype=like.dtype, device=like.device)


def latent_of(
    rows: FloatArray, *, model: Model, mean: FloatArray, tails: Tails, first: int, last: int
) -> FloatArray:
    """Posterior means of latent variables `first` to `last`, given what is observed, (n, k)."""
    found: FloatArray = _of_rows(rows, model, mean, tails).latent[:, first:last]
    return found


def densities_of(rows: FloatArray, *, model: Model, mean: FloatArray, tails: Tails) -> FloatArray:
    """Column of log-densities of what is observed; of ``"entries"`` the variational bound."""
    found: FloatArray = _of_rows(rows, model, mean, tails).log_density[:, None]
    return found


def _of_rows(rows: FloatArray, model: Model, mean: FloatArray, tails: Tails) -> RowPosteriors:
    rows = np.asarray(rows, dtype=np.float64)
    seen = (~np.isnan(rows)).astype(np.float64)
    return settled(np.where(seen > 0, rows - mean, 0.0), seen, model, tails)
