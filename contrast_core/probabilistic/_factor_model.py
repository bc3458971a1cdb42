"""The density of one dataset: a linear model with few latent variables and isotropic noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._row_posterior import (
    DEGREES,
    Model,
    RowPosteriors,
    Tails,
    converged_posteriors,
    linear_posterior,
    outer_products,
    patterns_of,
    run_e_step,
)
from contrast_core.rows import Rows


@dataclass(frozen=True, eq=False)
class FactorModel:
    r"""The model :math:`x = L z + \mu + \varepsilon` of rows, which may have missing values.

    Here z are k standard normal latent variables, and :math:`\varepsilon` is the noise. The methods
    take blocks of dense rows, in which NaN is a missing value. Unless the tails are
    "entries", a k x k linear system is solved once for all rows with the same pattern of observed
    values.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
    loadings : ndarray of shape (n_features, k)
        The loadings L. The columns need not be orthogonal.
    noise_variance : float
        Noise variance sigma^2, above 0. For Student's t it is the squared scale.
    tails : {"normal", "entries", "rows"}
        Distribution of the noise: normal, or Student's t of each value or of each whole row.
    degrees : float
        Degrees of freedom of Student's t.

    References
    ----------
    Li, Jones and Engelhardt, arXiv:2012.07977, 2020, Sec. 7.2.
    """

    mean: FloatArray
    loadings: FloatArray
    noise_variance: float
    tails: Tails = "normal"
    degrees: float = DEGREES

    @property
    def model(self) -> Model:
        """Loadings and noise variance."""
        return Model(self.loadings, self.noise_variance)

    @property
    def gain(self) -> FloatArray:
        """Matrix that maps centred complete rows to posterior means of z, (n_features, k)."""
        return linear_posterior(self.model).gain

    def latent_means(self, rows: Any) -> FloatArray:
        """Return the posterior means of z, (n, k); 0 for rows without observed values."""
        found: FloatArray = self._posterior(rows)[1].latent
        return found

    def log_density(self, rows: Any) -> FloatArray:
        """Return the log-density of each row's observed values, (n, 1).

        It is 0 for a row without observed values.
        """
        found: FloatArray = self._posterior(rows)[1].log_density[:, None]
        return found

    def normal_log_densities(self, rows: Rows) -> FloatArray:
        """Return the normal log-density of each row, (n,), for arrays, sparse rows and tensors."""
        complete = partial(  # `map` converts keyword arrays to tensors if the rows are tensors
            _complete_log_densities,
            mean=self.mean,
            loadings=self.loadings,
            noise=np.array(self.noise_variance),
        )
        function = self.log_density if rows.can_miss else complete
        column: FloatArray = rows.map(function, 1, dense=True)
        return column[:, 0]

    def imputed(self, rows: Any) -> FloatArray:
        """Return the rows with conditional means where values are missing, (n, n_features)."""
        observed, found = self._posterior(rows)
        return np.asarray(np.where(observed, rows, found.latent @ self.loadings.T + self.mean))

    def deviations(self, rows: Any) -> FloatArray:
        """Return standard deviations of missing values given the observed values of the same row.

        The result has shape (n, n_features), and is 0 for observed values.
        """
        observed, found = self._posterior(rows)
        variances = self.noise_variance + found.covariance @ outer_products(self.loadings).T
        return np.asarray(np.where(observed, 0.0, np.sqrt(variances)))

    def draws(self, rows: Any, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Return copies of the rows in which missing values are drawn, (n_draws, n, n_features)."""
        observed, found = self._posterior(rows)
        n, k = found.latent.shape
        spread = np.linalg.cholesky(found.covariance.reshape(n, k, k))
        drawn = np.empty((n_draws, *rows.shape))
        for one in drawn:
            latent = found.latent + (spread @ rng.standard_normal((n, k, 1)))[:, :, 0]
            one[:] = latent @ self.loadings.T + self.mean
            one += np.sqrt(self.noise_variance) * rng.standard_normal(one.shape)
            np.copyto(one, rows, where=observed)
        return drawn

    def sample(self, n: int, rng: np.random.Generator, add_noise: bool) -> FloatArray:
        """Draw rows from the model, (n, n_features)."""
        rows = rng.standard_normal((n, self.loadings.shape[1])) @ self.loadings.T
        if add_noise:
            errors = np.sqrt(self.noise_variance) * rng.standard_normal(rows.shape)
            if self.tails == "entries":
                errors *= np.sqrt(self.degrees / rng.chisquare(self.degrees, rows.shape))
            rows += errors
        if self.tails == "rows":
            rows *= np.sqrt(self.degrees / rng.chisquare(self.degrees, (n, 1)))
        return np.asarray(rows + self.mean)

    def _posterior(self, rows: Any) -> tuple[NDArray[np.bool_], RowPosteriors]:
        """Return which values are observed, and the posterior of each row."""
        rows = np.asarray(rows, dtype=np.float64)
        observed = ~np.isnan(rows)
        left = np.where(observed, rows - self.mean, 0.0)
        masks, codes = patterns_of(observed)
        return observed, converged_posteriors(
            left, masks, self.model, self.tails, codes, self.degrees
        )


def _complete_log_densities(rows: Any, mean: Any, loadings: Any, noise: Any) -> Any:
    """Return the normal log-density of each row, (n, 1), for arrays or tensors."""
    left = rows - mean
    seen = 1 + 0 * left[:1]
    return run_e_step(left, seen, seen, Model(loadings, noise), "normal").log_density[:, None]
