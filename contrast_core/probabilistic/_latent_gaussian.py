"""A Gaussian latent variable model of rows of which any values may be missing (NaN)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._patterns import (
    Patterns,
    Systems,
    latent_means,
    outer_products,
    patterns_of,
    systems_of,
)


class _RowPosterior(NamedTuple):
    """Posterior of the latent variables z of each row, given the values observed."""

    observed: NDArray[np.bool_]
    centred: FloatArray
    patterns: Patterns
    systems: Systems
    means: FloatArray


@dataclass(frozen=True, eq=False)
class LatentGaussian:
    r"""The model :math:`x = W z + \bar x + \varepsilon`, of blocks of rows with values missing.

    Of each row only the values observed count: with the rows :math:`W_o` of W that belong to them
    and :math:`M = W_o^\top W_o + \sigma^2 I_d`, z is Gaussian with mean
    :math:`M^{-1} W_o^\top (x_o - \bar x_o)` and covariance :math:`\sigma^2 M^{-1}`. Rows with the
    same values observed share M; no matrix is larger than d x d.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
    loadings : ndarray of shape (n_features, d)
        W; its columns need not be orthogonal.
    noise_variance : float
        sigma^2, positive.

    References
    ----------
    Li, Jones and Engelhardt, arXiv:2012.07977, 2020, Sec. 7.2.
    """

    mean: FloatArray
    loadings: FloatArray
    noise_variance: float

    def latent_means(self, rows: Any) -> FloatArray:
        """Posterior means of z, (n, d); 0 where nothing is observed."""
        return self._posterior(rows).means

    def log_density(self, rows: Any) -> FloatArray:
        """Log-density of what is observed, (n, 1); 0 where nothing is."""
        found, noise = self._posterior(rows), self.noise_variance
        left = np.where(found.observed, found.centred - found.means @ self.loadings.T, 0.0)
        distances = np.einsum("nf,nf->n", left, left) / noise
        distances += np.einsum("nk,nk->n", found.means, found.means)
        n_observed = found.patterns.masks.sum(axis=1)
        constants = n_observed * np.log(2 * np.pi) + found.systems.log_determinant
        constants += (n_observed - self.loadings.shape[1]) * np.log(noise)
        return np.asarray(-0.5 * (constants[found.patterns.codes] + distances)[:, None])

    def imputed(self, rows: Any) -> FloatArray:
        """The rows with conditional means where values are missing, (n, n_features)."""
        found = self._posterior(rows)
        return np.where(found.observed, rows, found.means @ self.loadings.T + self.mean)

    def deviations(self, rows: Any) -> FloatArray:
        """Conditional standard deviations of missing values, (n, n_features); 0 of others."""
        found, d = self._posterior(rows), self.loadings.shape[1]
        inverse = found.systems.inverse.reshape(-1, d * d)
        variances = self.noise_variance * (1 + inverse @ outer_products(self.loadings).T)
        return np.where(found.observed, 0.0, np.sqrt(variances)[found.patterns.codes])

    def draws(self, rows: Any, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """The rows with draws where values are missing, (n_draws, n, n_features)."""
        found, noise = self._posterior(rows), self.noise_variance
        spread = np.linalg.cholesky(noise * found.systems.inverse)[found.patterns.codes]
        drawn = np.empty((n_draws, *rows.shape))
        for one in drawn:
            latent = found.means + (spread @ rng.standard_normal((*found.means.shape, 1)))[:, :, 0]
            one[:] = latent @ self.loadings.T + self.mean
            one += np.sqrt(noise) * rng.standard_normal(one.shape)
            np.copyto(one, rows, where=found.observed)
        return drawn

    def _posterior(self, rows: Any) -> _RowPosterior:
        observed = ~np.isnan(rows)
        centred = np.where(observed, rows - self.mean, 0.0)
        patterns = patterns_of(observed)
        systems = systems_of(patterns.masks, self.loadings, self.noise_variance)
        means = latent_means(systems, patterns.codes, centred @ self.loadings)
        return _RowPosterior(observed, centred, patterns, systems, means)
