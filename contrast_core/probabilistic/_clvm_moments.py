"""The likelihood of the contrastive latent variable model, computed from second moments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg import leading_eigenpairs
from contrast_core.moments import Moments
from contrast_core.probabilistic._clvm_horseshoe import shrunk_probability
from contrast_core.probabilistic._clvm_likelihood import (
    FIRST_NOISE,
    Fit,
    Likelihood,
    Search,
    Selected,
    Step,
    described_model,
)
from contrast_core.probabilistic._clvm_priors import LIKELIHOOD_ALONE, Prior, Sums
from contrast_core.probabilistic._row_posterior import (
    Expectation,
    Model,
    expected_by_covariance,
)
from contrast_core.solve import contrast_index


@dataclass(frozen=True)
class MomentLikelihood(Likelihood):
    """Likelihood of the features that vary in either dataset, computed from second moments."""

    x: Moments
    y: Moments

    roughly: ClassVar[dict[str, Any]] = {"tol": 1e-5, "max_iter": 500}
    has_gradient: ClassVar[bool] = True

    @classmethod
    def from_moments(cls, x: Moments, y: Moments, n_shared: int, search: Search) -> Self:
        """Return the likelihood of rows with these moments."""
        n_rows, n_features = x.n_samples + y.n_samples, int((x.varies | y.varies).sum())
        share = x.n_samples / n_rows
        variance = (share * x.total_variance + (1 - share) * y.total_variance) / n_features
        return cls(n_shared, search, n_features, n_rows, variance**0.5, x.size, x, y)

    @property
    def foreground_share(self) -> float:
        """Number of foreground rows divided by the number of all rows."""
        return self.x.n_samples / self.n_rows

    def first(self) -> Model:
        """Return a model whose loadings are leading components.

        The shared loadings are components of the background, and the salient loadings are
        components of the contrast. Without salient variables, the shared loadings are components of
        both datasets together.
        """
        k, t, share = self.n_shared, self.search.n_salient, self.foreground_share
        parts = [(self.y, 1.0)] if t else [(self.x, share), (self.y, 1 - share)]
        loadings = np.zeros((self.size, k + t))
        for first, count, sums in ((0, k, parts), (k, t, [(self.x, 1.0), (self.y, -1.0)])):
            if not count:
                continue
            matrix = np.zeros((self.size, self.size))
            for part, weight in sums:
                matrix += (weight / self.unit**2) * part.matrix()
            values, vectors = leading_eigenpairs(matrix, min(count, self.size), overwrite=True)
            lengths = np.sqrt(np.maximum(values - FIRST_NOISE, FIRST_NOISE))
            loadings[:, first : first + len(values)] = vectors.T * lengths
        return Model(loadings, FIRST_NOISE)

    def expect(self, model: Model, spread: FloatArray | None = None) -> Expectation:
        """Run the E-step for both datasets.

        If the t salient loadings W are random, `spread` (t, t) is the sum of the posterior
        covariances of the rows of W. The log-likelihood and its gradient in the result are valid
        only without `spread`.
        """
        (size, n_latent), k, share = model.loadings.shape, self.n_shared, self.foreground_share
        value = by_log_noise = 0.0
        slope, cross = np.zeros((2, size, n_latent))
        second = np.zeros((n_latent, n_latent))
        for weight, moments, width in ((share, self.x, n_latent), (1 - share, self.y, k)):
            part = expected_by_covariance(
                Model(model.loadings[:, :width], model.noise),
                partial(self._apply, moments),
                moments.total_variance / self.unit**2,
                self.n_features,
                None if width == k else spread,
            )
            value += weight * part.log_likelihood
            by_log_noise += weight * part.slope.noise
            slope[:, :width] += weight * part.slope.loadings
            cross[:, :width] += weight * part.cross
            second[:width, :width] += weight * part.second
        return Expectation(value, Model(slope, by_log_noise), cross, second)

    def _apply(self, moments: Moments, columns: FloatArray) -> FloatArray:
        """Multiply `columns` by the covariance of a dataset whose values are divided by `unit`."""
        return np.asarray(moments.apply(columns) / self.unit**2)

    def left_over(self, loadings: FloatArray, found: Expectation) -> float:
        """Return the expected squared residual of a row, given new loadings.

        The data are divided by `unit`, so that the mean squared length of a row is the number of
        features. The calculation therefore starts from `n_features`.
        """
        explained = 2 * (loadings * found.cross).sum() - (loadings @ found.second * loadings).sum()
        return float(self.n_features - explained)

    def evaluate(self, at: Fit, prior: Prior = LIKELIHOOD_ALONE) -> Step:
        """Return the log-likelihood plus log-prior per row, its gradient, and the step of EM.

        The M-step is exact for all loadings, whereas eqs. 6 and 7 of Severson et al. assume that
        the loadings are orthogonal.
        """
        (before, noise), n, found = at.model, self.n_rows, self.expect(at.model)
        slope = Model(prior.slope(found.slope.loadings, before, n), found.slope.noise)
        loadings = prior.maximised(Sums(found.cross, found.second, noise, n), before)
        update = Model(loadings, self.left_over(loadings, found) / self.n_features)
        return Step(found.log_likelihood + prior.value(before) / n, slope, Fit(update))

    def horseshoe(self, dense: Fit) -> FloatArray:
        return shrunk_probability(self, dense.model, self.search.priors)

    def log_likelihoods(self, per_row: FloatArray) -> FloatArray:
        """Convert log-likelihoods per row to log-likelihoods of all rows, in the data's units."""
        return np.asarray(self.n_rows * (per_row - self.n_features * np.log(self.unit)))

    def described(self, found: Selected) -> dict[str, Any]:
        x, y, best = self.x, self.y, found.fit
        attributes = described_model(
            best.model.loadings * self.unit, 0.0, (x.mean, y.mean), found.n_shared, x.lift
        )
        inside = x.coordinates_of(attributes["components_"])
        along = x.variances_along(inside), y.variances_along(inside)
        return attributes | {
            "noise_variance_": best.model.noise * self.unit**2,
            "log_likelihoods_": self.log_likelihoods(best.log_likelihoods),
            "foreground_variance_": along[0],
            "background_variance_": along[1],
            "contrast_index_": contrast_index(*along),
            "foreground_moments_": x,
            "background_moments_": y,
        }
