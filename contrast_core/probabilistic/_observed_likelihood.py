"""The contrastive likelihood of the observed values of rows, and its gradient.

Let x be the observed values of a row, and z its latent variables. By Fisher's identity the gradient
of log p(x) is the expectation of the gradient of log p(x, z) under the posterior of z. The
posteriors of the latent variables therefore suffice to compute the gradient of the likelihood.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from contrast_core._validation import FloatArray
from contrast_core.probabilistic._row_posterior import (
    Model,
    RowPosteriors,
    outer_products,
    patterns_of,
    run_e_step,
)


class ContrastiveLikelihood(NamedTuple):
    """The objective, and its derivatives with respect to the loadings W and the log noise variance.

    W has the shape (n_features, d), for d latent variables.
    """

    value: float
    by_loadings: FloatArray
    by_log_noise: float


class Ratio(NamedTuple):
    """Logarithm of a ratio of residuals, and its derivative with respect to the loadings W."""

    value: float
    by_loadings: FloatArray


class ObservedRows(NamedTuple):
    """Foreground and background rows, each with the pattern of its observed values.

    values : ndarray of shape (n, n_features)
        Centred rows, 0 where a value is missing.
    masks : ndarray of shape (number of patterns, n_features)
        One row for each pattern: 1 where a value is observed, else 0.
    codes : ndarray of shape (n,)
        Index of each row's pattern.
    foreground, background : ndarray of shape (n,)
        Weights of the rows in the two datasets. A foreground row has weight 0 in `background`, and
        a background row has weight 0 in `foreground`. Each array sums to one.
    """

    values: FloatArray
    masks: FloatArray
    codes: NDArray[np.intp]
    foreground: FloatArray
    background: FloatArray

    @classmethod
    def from_rows(
        cls,
        values: FloatArray,
        observed: NDArray[np.bool_],
        foreground: FloatArray,
        background: FloatArray,
    ) -> ObservedRows:
        """Return rows, given values that are 0 where they are not observed."""
        return cls(values, *patterns_of(observed), foreground, background)

    def _sums(
        self, weights: FloatArray, latent: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return two weighted sums over rows for each feature.

        Each sum runs over the rows in which the feature is observed. The first sum adds the value
        times the latent variables (n_features, d). The second sum adds `second` (n, d * d), and has
        the shape (n_features, d, d).
        """
        n, d = latent.shape
        by_pattern = csr_array((weights, self.codes, np.arange(n + 1)), (n, len(self.masks)))
        inner = self.masks.T @ (by_pattern.T @ second)
        return self.values.T @ (weights[:, None] * latent), inner.reshape(-1, d, d)

    def likelihood(
        self, loadings: FloatArray, log_noise: float, gamma: float
    ) -> ContrastiveLikelihood:
        r"""Return the value and the gradient of the objective.

        .. math:: \sum_i a_i \log N(x_i^o; 0, A_i) - \gamma \sum_j b_j \log N(y_j^o; 0, B_j)

        Here :math:`x_i^o` are the observed values of foreground row i, :math:`A_i` is their
        covariance under the model, and :math:`a_i` is the weight of the row; y, B and b stand for
        the background. The weights of each dataset sum to one. Therefore the meaning of ``gamma``
        does not depend on the numbers of rows.

        References
        ----------
        Li, Jones and Engelhardt 2020, Sec. 7.1.
        """
        noise = float(np.exp(log_noise))
        found, weights = (
            self._posteriors(loadings, noise),
            self.foreground - gamma * self.background,
        )
        second = outer_products(found.latent) + found.covariance
        cross, inner = self._sums(weights, found.latent, second)
        times = np.einsum("fij,fj->fi", inner, loadings)
        # Expected squared residuals of the observed values.
        left = float(weights @ (self.values**2).sum(axis=1))
        left += float(((times - 2 * cross) * loadings).sum())
        n_observed = float(weights @ self.masks.sum(axis=1)[self.codes])
        return ContrastiveLikelihood(
            float(weights @ found.log_density),
            (cross - times) / noise,
            -0.5 * (n_observed - left / noise),
        )

    def residual_ratio(self, loadings: FloatArray, ridge: float) -> Ratio:
        r"""Return the log ratio of the residuals of W in foreground and background.

        .. math:: \log \frac{\sum_i a_i r(x_i)}{\sum_j b_j r(y_j)}, \qquad
            r(x) = \min_z \|x_o - W_o z\|^2 + \tau \|z\|^2, \quad
            \tau = \text{ridge} \cdot \|W\|_F^2 / d

        Here a and b are the weights of the rows, :math:`x_o` are the observed values of a row, and
        :math:`W_o` are the rows of W that belong to them. The ridge is needed only for rows with
        fewer than d observed values, whose z would otherwise not be unique. The ratio does not
        change if W is multiplied by a number.
        """
        d = loadings.shape[1]
        tau = ridge * float((loadings**2).sum()) / d
        # The ridge solutions z are the posterior means with tau as the noise variance.
        latent = self._posteriors(loadings, tau).latent
        left = (self.values * (self.values - latent @ loadings.T)).sum(axis=1)
        x, y = float(self.foreground @ left), float(self.background @ left)
        weights = self.foreground / x - self.background / y
        cross, inner = self._sums(weights, latent, outer_products(latent))
        by_loadings = -2 * (cross - np.einsum("fij,fj->fi", inner, loadings))
        by_tau = float(weights @ (latent**2).sum(axis=1))
        return Ratio(float(np.log(x / y)), by_loadings + (2 * ridge / d * by_tau) * loadings)

    def expected_variances(
        self, components: FloatArray, lengths: FloatArray, noise: float
    ) -> tuple[FloatArray, FloatArray]:
        r"""Return the expected variances of both datasets along the components.

        Missing values are replaced by their conditional means, and their conditional covariances
        are added. At a maximum of the likelihood the variances then satisfy the same equation as
        for complete data, :math:`v_X - \gamma v_Y = (1 - \gamma)(\ell^2 + \sigma^2)`, where
        :math:`v_X` and :math:`v_Y` are the variances, :math:`\ell` are the lengths of the loadings
        and :math:`\sigma^2` is the noise variance.

        Parameters
        ----------
        components : ndarray of shape (d, n_features)
            Orthonormal rows. The loadings are these rows times `lengths`.
        lengths : ndarray of shape (d,)
        noise : float

        Returns
        -------
        ndarrays of shape (d,)
        """
        d, axes = len(lengths), components.T
        found = self._posteriors(axes * lengths, noise)
        unseen = ((1 - self.masks) @ outer_products(axes)).reshape(-1, d, d)[self.codes]
        # W_u' v_u for each row: W are the loadings, v the components, and u its missing values
        through = lengths[:, None] * unseen
        covariance = found.covariance.reshape(-1, d, d)
        squared = np.einsum("nkj,nkl,nlj->nj", through, covariance, through)
        squared += noise * np.diagonal(unseen, axis1=1, axis2=2)
        squared += (self.values @ axes + np.einsum("nk,nkj->nj", found.latent, through)) ** 2
        return self.foreground @ squared, self.background @ squared

    def _posteriors(self, loadings: FloatArray, noise: float) -> RowPosteriors:
        model = Model(loadings, noise)
        return run_e_step(self.values, self.masks, self.masks, model, "normal", self.codes)
