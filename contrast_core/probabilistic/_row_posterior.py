r"""Posterior of the latent variables of each row, for NumPy arrays and torch tensors.

A row is :math:`x = L z + \mu + \varepsilon` with standard normal z and noise that is normal or
Student's t. The posterior uses only the observed values of the row. With the rows :math:`L_o` of
the loadings that belong to these values, the posterior covariance of z is
:math:`\sigma^2 (L_o^\top L_o + \sigma^2 I)^{-1}`. The matrix to invert is therefore k x k, where k
is the number of latent variables. Three computations use these posteriors: the E-step of
expectation maximisation, the gradient of PCPCA's likelihood of incomplete rows, and the bound of
stochastic variational inference.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from contrast_core._validation import FloatArray

# Distribution of the values given the latent variables: normal, Student's t for each value,
# Student's t for each whole row, or negative binomial.
Tails: TypeAlias = Literal["normal", "entries", "rows", "counts"]

DEGREES = 4.0  # default degrees of freedom of Student's t
_WEIGHTING_STEPS = 500  # largest number of E-steps for new rows
_SETTLED = 1e-9  # the E-steps for new rows end when the latent variables change by less


class Model(NamedTuple):
    """Loadings (size, k) of k latent variables, and the noise variance.

    The shared latent variables come first. The loadings have `size` rows, usually one for each
    feature.
    """

    loadings: FloatArray
    noise: float


class RowPosteriors(NamedTuple):
    """Results of the E-step for each row.

    They are the log-density (n,), the weights of the values (n, n_features), and the posterior
    means (n, k) and covariances (n, k * k) of z.
    """

    log_density: Any
    weights: Any
    latent: Any
    covariance: Any


class LinearPosterior(NamedTuple):
    """Posterior of the latent variables given a complete row.

    `gain` (n_features, k) maps the centred row to the posterior mean. `covariance` is (k, k).
    """

    gain: FloatArray
    covariance: FloatArray


def linear_posterior(model: Model) -> LinearPosterior:
    """Return the posterior of the latent variables given a complete row."""
    axes, _, precisions = principal_axes(model)
    covariance = axes / precisions @ axes.T
    return LinearPosterior(model.loadings @ covariance / model.noise, covariance)


def principal_axes(
    model: Model, spread: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the rotation (k, k) of latent space that makes the columns of the loadings orthogonal.

    Also return the squared lengths of the rotated columns (k,), and the posterior precision of the
    rotated latent variables (k,). (Their prior precision is 1.)

    The last columns of the loadings can be random. The entries of a row in these columns then have
    a covariance matrix. `spread` is the sum of these matrices over the rows. It is added to the
    inner products of these columns.
    """
    squared = model.loadings.T @ model.loadings
    if spread is not None:
        squared[-len(spread) :, -len(spread) :] += spread
    squares, axes = np.linalg.eigh(squared)
    return axes, squares, 1 + np.maximum(squares, 0.0) / model.noise


class Expectation(NamedTuple):
    """Result of the E-step, averaged over rows.

    `cross` (size, k) is the expected product of a row and its latent variables. `second` (k, k) is
    the expected product of the latent variables with each other. `slope` is the gradient of the
    log-likelihood with respect to the loadings and the logarithm of the noise variance. If the
    noise variance is s, the expected log-likelihood of new loadings L is
    ``-(trace(L second L^T) - 2 trace(L cross^T)) / (2 s)`` plus a constant.
    """

    log_likelihood: float
    slope: Model
    cross: FloatArray
    second: FloatArray


def expected_by_covariance(
    model: Model,
    apply: Callable[[FloatArray], FloatArray],
    total_variance: float,
    n_features: int,
    spread: FloatArray | None = None,
) -> Expectation:
    """Run the E-step for complete rows with normal noise, which needs only their covariance.

    Let C be the covariance of the rows, B the map from rows to posterior means and G the posterior
    covariance. Then ``cross`` is ``C B^T`` and ``second`` is ``G + B C B^T``.

    Parameters
    ----------
    model : Model
        Loadings and noise variance.
    apply : callable
        Multiplies C by columns (size, k).
    total_variance : float
        Trace of C.
    n_features : int
        Number of features with noise, which can exceed the number of rows of the loadings.
    spread : ndarray of shape (t, t), optional
        As for `principal_axes`, if the last t columns of the loadings are random. The
        log-likelihood and its gradient in the result are valid only without `spread`.
    """
    axes, squares, precisions = principal_axes(model, spread)
    # After this rotation no digits are lost by cancellation, even if columns of the loadings are
    # nearly parallel and much longer than the standard deviation of the noise.
    loadings, noise = model.loadings @ axes, model.noise
    gain = loadings / (precisions * noise)
    cross = apply(loadings) / (precisions * noise)
    inner = gain.T @ cross
    explained = float((loadings * cross).sum())
    log_determinant = n_features * np.log(noise) + np.log(precisions).sum()
    distance = (total_variance - explained) / noise
    left = total_variance - 2 * explained + float(inner.diagonal() @ squares)
    n_noise = n_features - len(axes) + (1 / precisions).sum()
    slope = (cross - loadings @ inner) / noise - gain
    return Expectation(
        -0.5 * float(n_features * np.log(2 * np.pi) + log_determinant + distance),
        Model(slope @ axes.T, -0.5 * float(n_noise - left / noise)),
        cross @ axes.T,
        axes @ (np.diag(1 / precisions) + inner) @ axes.T,
    )


def patterns_of(observed: NDArray[np.bool_]) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the distinct patterns of observed values, and the index of each row's pattern."""
    if observed.all():
        return np.ones((1, observed.shape[1])), np.zeros(len(observed), dtype=np.intp)
    packed = np.packbits(observed, axis=1)
    _, first, codes = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return observed[first].astype(np.float64), codes.reshape(-1)


def run_e_step(
    left: Any,
    seen: Any,
    weights: Any,
    model: Model,
    tails: Tails,
    codes: Any = None,
    degrees: float = DEGREES,
) -> RowPosteriors:
    """Run the E-step: return the posteriors and log-densities of rows.

    Parameters
    ----------
    left : array of shape (n, n_features)
        Centred rows, 0 where a value is missing.
    seen : array of shape (n, n_features), or fewer rows
        1 where a value is observed, else 0. If `seen` has a single row, it applies to all rows.
        With `codes`, `seen` has one row for each pattern, and the linear system of each pattern is
        solved once.
    weights : array of shape (n, n_features)
        Weight of each value, used for ``"entries"`` only. In the first E-step it equals `seen`.
    model : Model
        Loadings and noise variance. If they are tensors, gradients flow to both.
    tails
        Distribution of the noise.
    codes : array of shape (n,), optional
        Index of each row's pattern in `seen`, for ``"normal"`` and ``"rows"``.
    degrees : float
        Degrees of freedom of Student's t.

    Returns
    -------
    RowPosteriors
        For ``"entries"`` the log-density is a variational bound, which assumes that the posteriors
        of weights and latent variables are independent. The posterior of the latent variables is
        optimal for the given weights, and the new weights are optimal for this posterior. If all
        rows of a returned array are equal, it may have only one row.
    """
    xp = namespace(left)
    loadings, noise = model
    k = loadings.shape[1]
    given = weights if tails == "entries" else seen
    systems = (given @ outer_products(loadings)).reshape(len(given), k, k)
    systems = systems + noise * identity(k, left)
    inverse, log_determinant = xp.linalg.inv(systems), xp.linalg.slogdet(systems)[1]
    n_seen = seen.sum(axis=1)
    if codes is not None:
        inverse, log_determinant, n_seen = inverse[codes], log_determinant[codes], n_seen[codes]
    projected = (weights * left if tails == "entries" else left) @ loadings
    latent = (inverse @ projected[:, :, None])[:, :, 0]
    covariance = noise * inverse.reshape(len(inverse), k * k)
    if tails == "entries":
        scaled = _scaled(left, latent, covariance, model, degrees)
        constant = gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - np.log(degrees * np.pi) / 2
        constant = constant - xp.log(noise) / 2
        inside = (seen * (constant - (degrees + 1) / 2 * xp.log1p(scaled))).sum(axis=1)
        # The covariance is the noise variance times the inverse of the system.
        divergence = divergence_from_standard_normal(
            latent, covariance, k * xp.log(noise) - log_determinant
        )
        new = seen * _weights(scaled, degrees)
        return RowPosteriors(inside - divergence, new, latent, covariance)
    given = given if codes is None or len(given) == 1 else given[codes]
    # The squared residuals are summed directly. The difference of two sums of squares would be
    # cheaper, but could lose all digits.
    distance = (given * (left - latent @ loadings.T) ** 2).sum(axis=1) / noise
    distance = distance + (latent**2).sum(axis=1)
    log_determinant = log_determinant + (n_seen - k) * xp.log(noise)
    if tails == "normal":
        density = -0.5 * (n_seen * np.log(2 * np.pi) + log_determinant + distance)
        return RowPosteriors(density, given, latent, covariance)
    together = degrees + n_seen
    density = log_gamma(together / 2) - gammaln(degrees / 2) - n_seen / 2 * np.log(degrees * np.pi)
    density = density - log_determinant / 2 - together / 2 * xp.log1p(distance / degrees)
    scale = (together / (degrees + distance))[:, None]
    return RowPosteriors(density, given * scale, latent, covariance / scale)


def _scaled(left: Any, latent: Any, covariance: Any, model: Model, degrees: float) -> Any:
    """Return expected squared residuals, divided by noise variance times degrees of freedom."""
    around = (left - latent @ model.loadings.T) ** 2 + covariance @ outer_products(model.loadings).T
    return around / (degrees * model.noise)


def _weights(scaled: Any, degrees: float) -> Any:
    return (degrees + 1) / degrees / (1 + scaled)


def value_weights(
    left: Any, seen: Any, latent: Any, covariance: Any, model: Model, degrees: float = DEGREES
) -> Any:
    """Return the weight of each value, (n, n_features), given posteriors of latent variables."""
    return seen * _weights(_scaled(left, latent, covariance, model, degrees), degrees)


def converged_posteriors(
    left: Any, seen: Any, model: Model, tails: Tails, codes: Any = None, degrees: float = DEGREES
) -> RowPosteriors:
    """Return the posteriors of new rows.

    For ``"entries"`` the E-step is iterated until the latent variables no longer change.
    """
    if tails != "entries":
        return run_e_step(left, seen, seen, model, tails, codes, degrees)
    seen = seen if codes is None else seen[codes]
    found = run_e_step(left, seen, seen + 0 * left, model, tails, degrees=degrees)
    for _ in range(_WEIGHTING_STEPS):
        before = found.latent
        found = run_e_step(left, seen, found.weights, model, tails, degrees=degrees)
        if not abs(found.latent - before).max(initial=0.0) > _SETTLED:
            break
    return found


def divergence_from_standard_normal(latent: Any, covariance: Any, log_determinant: Any) -> Any:
    """Return the Kullback-Leibler divergence of normal posteriors from the standard normal."""
    k = latent.shape[1]
    traces = covariance[:, :: k + 1].sum(axis=1)
    return 0.5 * (traces + (latent**2).sum(axis=1) - k - log_determinant)


def namespace(array: Any) -> Any:
    """Return the module of an array's functions: NumPy or torch."""
    return np if isinstance(array, np.ndarray) else import_module("torch")


def log_gamma(array: Any) -> Any:
    """Return the log-gamma function of an array, a tensor or a number."""
    return array.lgamma() if hasattr(array, "lgamma") else gammaln(array)


def outer_products(vectors: Any) -> Any:
    """Return the outer product of each row with itself, (n, k * k)."""
    n, k = vectors.shape
    return (vectors[:, :, None] * vectors[:, None, :]).reshape(n, k * k)


def identity(k: int, like: Any) -> Any:
    """Return the identity matrix with the type, dtype and device of another array."""
    if isinstance(like, np.ndarray):
        return np.eye(k)
    return namespace(like).eye(k, dtype=like.dtype, device=like.device)
