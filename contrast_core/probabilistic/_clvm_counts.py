"""Posteriors and log-likelihood bounds of rows of counts, for NumPy arrays and torch tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from contrast_core._validation import FloatArray, check_counts
from contrast_core.probabilistic._row_posterior import (
    divergence_from_standard_normal,
    identity,
    log_gamma,
    namespace,
    outer_products,
)

_STEPS = 60  # largest number of steps of Newton's method; about ten in practice
_SETTLED = 1e-6  # change of the posteriors at which Newton's method ends
_LEAST_TOTAL = 1e-9  # replaces the total of a row without counts, whose logarithm is infinite


def _quadrature(n: int) -> list[tuple[float, float]]:
    nodes, shares = np.polynomial.hermite_e.hermegauss(n)
    return list(zip(nodes, shares / shares.sum(), strict=True))


# Quadrature rules for expectations over a normal variable. The bound uses the rule with five nodes.
# Its derivatives need less accuracy, and use three nodes.
_BOUND, _SLOPES = _quadrature(5), _quadrature(3)


class CountModel(NamedTuple):
    r"""Negative binomial model of counts, whose means depend on latent variables.

    The mean of the count of feature j in row i is
    :math:`a = \ell_i \exp(\mu_j + \lambda_j^\top z_i)`. Here :math:`\ell_i` is the total of the
    row, :math:`z_i` are its latent variables, and :math:`\lambda_j` are the loadings of the
    feature. The variance of the count is :math:`a + a^2 / r_j` with the dispersion :math:`r_j`.

    loadings : array of shape (n_features, k)
    mean : array of shape (n_features,)
        The parameter mu, which is the logarithm of each feature's share of a row's total if z is 0.
    log_dispersion : array of shape (n_features,)
        Logarithm of r.
    library_size : float
        Total of the rows that `sample` draws.
    """

    loadings: Any
    mean: Any
    log_dispersion: Any
    library_size: float = 1.0

    def latent_means(self, rows: Any) -> FloatArray:
        """Return the posterior means of the latent variables, (n, k)."""
        found: FloatArray = count_posteriors(checked_counts(rows), self).latent
        return found

    def log_density(self, rows: Any) -> FloatArray:
        """Return a lower bound of the log-probability of each row, (n, 1)."""
        rows = checked_counts(rows)
        found: FloatArray = count_bound(rows, self, count_posteriors(rows, self))[:, None]
        return found

    def sample(self, n: int, rng: np.random.Generator, add_noise: bool) -> FloatArray:
        """Draw rows of counts, (n, n_features); without noise return expected counts."""
        logarithms = rng.standard_normal((n, self.loadings.shape[1])) @ self.loadings.T + self.mean
        rates, r = self.library_size * np.exp(logarithms), np.exp(self.log_dispersion)
        drawn = rng.negative_binomial(r, r / (r + rates)) if add_noise else rates
        return np.asarray(drawn, np.float64)


class NormalPosteriors(NamedTuple):
    """Normal posteriors of latent variables: means (n, k) and flat covariances (n, k * k)."""

    latent: Any
    covariance: Any


def count_bound(counts: Any, model: CountModel, found: NormalPosteriors) -> Any:
    """Return a lower bound of the log-probability of each row, (n,), given its posterior.

    For each entry the bound needs the expectation of ``log(1 + exp(psi))``. Here psi is
    ``log(mean / dispersion)``, which has a normal posterior. The expectation is computed by
    quadrature.
    """
    xp = namespace(counts)
    loadings, r, k = model.loadings, xp.exp(model.log_dispersion), model.loadings.shape[1]
    centre, spread = _logarithms(found, _base(counts, model), loadings)
    values = counts * centre
    for node, share in _BOUND:
        psi = centre + node * spread
        values = values - share * (counts + r) * (
            xp.clip(psi, 0, None) + xp.log1p(xp.exp(-abs(psi)))
        )
    values = values + log_gamma(counts + r) - log_gamma(r) - log_gamma(counts + 1)
    log_determinant = xp.linalg.slogdet(found.covariance.reshape(len(counts), k, k))[1]
    return values.sum(axis=1) - divergence_from_standard_normal(
        found.latent, found.covariance, log_determinant
    )


def count_posteriors(
    counts: Any, model: CountModel, start: NormalPosteriors | None = None, *, steps: int = _STEPS
) -> NormalPosteriors:
    """Return the normal posteriors, with full covariances, that maximise `count_bound`.

    Newton's method updates the means. The covariances are computed from the expected curvature of
    the log-probability at these means.

    Parameters
    ----------
    counts : array of shape (n, n_features)
    model : CountModel
    start : NormalPosteriors, optional
        Posteriors at which the iteration starts. By default it starts at the prior.
    steps : int
        Largest number of steps.

    References
    ----------
    Opper and Archambeau, "The variational Gaussian approximation revisited", Neural Computation
    21(3), 2009.
    """
    xp = namespace(counts)
    loadings, r = model.loadings, xp.exp(model.log_dispersion)
    n, k = len(counts), loadings.shape[1]
    base, outer, prior = _base(counts, model), outer_products(loadings), identity(k, loadings)
    if start is None:
        latent = 0 * counts[:, :1] * loadings[:1]
        start = NormalPosteriors(latent, latent[:, :1] + prior.reshape(1, k * k))
    found = start
    last = 0 * start.latent[:, :1].sum(axis=1)
    part = last + 1.0
    for _ in range(steps if k and n else 0):
        centre, spread = _logarithms(found, base, loadings)
        slope, curvature = counts, 0.0
        for node, share in _SLOPES:
            p = 1 / (1 + xp.exp(-xp.clip(centre + node * spread, -500, 500)))
            slope = slope - share * (counts + r) * p
            curvature = curvature + share * (counts + r) * (p * (1 - p))
        # The posterior precision of an outlying row can oscillate between large and small values.
        # Each row therefore takes only the fraction `part` of a change. The fraction is halved if
        # the change reverses more than half of the last change, and otherwise rises again up to 1.
        before = xp.linalg.inv(found.covariance.reshape(n, k, k))
        change = (curvature @ outer).reshape(n, k, k) + prior - before
        turn = (change * prior).sum(axis=(1, 2))
        back = turn * last < -0.5 * last**2
        part = xp.where(back, part / 2, xp.clip(1.2 * part, None, 1.0))
        last = turn
        inverse = xp.linalg.inv(before + part[:, None, None] * change)
        step = (inverse @ (slope @ loadings - found.latent)[:, :, None])[:, :, 0]
        # Newton's method assumes a constant curvature, but the curvature can change by a factor of
        # e if a log-mean changes by 1. Long steps are shortened so that the bound does not fall.
        turned = abs(step @ loadings.T)
        longest = (turned.max(axis=1) if xp is np else turned.amax(dim=1))[:, None] + 1e-12
        latent = found.latent + step * (xp.log1p(longest) / longest)
        covariance = inverse.reshape(n, k * k)
        moved = max(float(longest.max()), float(abs(covariance - found.covariance).max()))
        found = NormalPosteriors(latent, covariance)
        if moved <= _SETTLED:
            break
    return found


def _base(counts: Any, model: CountModel) -> Any:
    """Return log(mean / dispersion) at zero latent variables, (n, n_features)."""
    xp = namespace(counts)
    totals = xp.clip(counts.sum(axis=1), _LEAST_TOTAL, None)
    return xp.log(totals)[:, None] + (model.mean - model.log_dispersion)


def _logarithms(found: NormalPosteriors, base: Any, loadings: Any) -> tuple[Any, Any]:
    """Return the posterior mean and standard deviation of log(mean / dispersion)."""
    xp = namespace(base)
    variances = found.covariance @ outer_products(loadings).T
    return base + found.latent @ loadings.T, xp.sqrt(xp.clip(variances, 0.0, None))


def checked_counts(rows: Any, name: str = "X") -> FloatArray:
    """Return rows in double precision; raise ValueError if they are not counts."""
    check_counts(rows, name)
    return np.asarray(rows, dtype=np.float64)
