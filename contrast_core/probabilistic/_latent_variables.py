"""Scores, densities, samples and imputation by a fitted latent variable model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_count,
    check_flag,
    check_generator,
)
from contrast_core.probabilistic._density import complete_or_not, log_densities
from contrast_core.probabilistic._density_model import DensityModel
from contrast_core.probabilistic._latent_gaussian import LatentGaussian


class LatentVariableModel(DensityModel):
    """Base of the methods whose scores are posterior means of latent variables.

    A subclass sets ``loadings_`` (n_features, d) with orthogonal columns, ``noise_variance_``,
    ``contrastive_eigenvalues_`` and ``gamma_``.
    """

    loadings_: FloatArray
    noise_variance_: float
    contrastive_eigenvalues_: FloatArray
    gamma_: float

    @property
    def _model_variances(self) -> FloatArray:
        """Variances of the model along the components, (d,)."""
        return self.contrastive_eigenvalues_ / (1 - self.gamma_)

    @property
    def projection_(self) -> FloatArray:
        """Map from centred rows to posterior means, (n_features, d)."""
        return self.loadings_ / self._model_variances

    @property
    def reconstruction_(self) -> FloatArray:
        """Map from posterior means to centred rows, (d, n_features)."""
        # The lengths of W's columns; one is zero where a component is as weak as the noise.
        lengths = np.linalg.norm(self.loadings_, axis=0)
        scale = np.divide(
            self._model_variances, lengths, out=np.zeros_like(lengths), where=lengths > 0
        )
        return np.asarray(self.components_ * scale[:, None])

    def transform(self, X: MatrixLike, *, within: ArrayLike | None = None) -> FloatArray:
        r"""Posterior means of the latent variables.

        .. math:: E[z \mid x] = (W^\top W + \sigma^2 I)^{-1} W^\top (x - \bar x)

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Rows from anywhere; sparse input stays sparse. NaN in dense rows is a value that is
            missing, whatever the fit had: z is then given what is observed, and 0 if nothing is.
        within : array-like of shape (n,), optional
            As in `CPCA.transform`; rows must then be complete.

        Returns
        -------
        ndarray of shape (n, n_components)
            Their posterior covariance is `latent_covariance_` for every complete row.

        Raises
        ------
        ValueError
            If the features are not those of the fit, a value is infinite, or one is NaN in rows
            with `within`, sparse rows or a tensor.
        """
        rows = self._rows(X, missing=True)
        if within is not None or not rows.can_miss:
            return super().transform(X, within=within)
        function = complete_or_not(self.linear_map_.transform, self._gaussian.latent_means)
        scores: FloatArray = rows.map(function, self._n_features_out)
        return scores

    def inverse_transform(self, X: MatrixLike) -> FloatArray:
        r"""Rows of the components' subspace whose posterior means are the ones given.

        .. math:: \hat x = W (W^\top W)^{-1} (W^\top W + \sigma^2 I)\, z + \bar x

        After `transform` this is the orthogonal projection that `denoise` gives, the closest that d
        dimensions allow. The model's mean of a row given z is ``z @ loadings_.T + mean_``.

        Parameters
        ----------
        X : array-like of shape (n, n_components)
            Latent variables.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError
            If the number of columns is not the number of components.

        References
        ----------
        Tipping and Bishop 1999, Sec. 3.3.
        """
        return super().inverse_transform(X)

    def score_samples(self, X: MatrixLike) -> FloatArray:
        r"""Log-density of each row under the model.

        .. math:: \log N(x;\, \bar x,\, W W^\top + \sigma^2 I)

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Rows from anywhere, in the units and about the mean of the foreground. Of dense rows
            with missing values (NaN) the density is that of what is observed.

        Returns
        -------
        ndarray of shape (n,)
            Natural logarithms; 0 of a row of which nothing is observed.

        Raises
        ------
        ValueError
            If the features are not those of the fit, or a value is infinite, or NaN in sparse rows
            or a tensor.
        """
        rows = self._rows(X, missing=True)
        variances, noise = self._model_variances, self.noise_variance_
        return log_densities(
            *(rows, self.mean_, self.components_, variances, noise),
            incomplete=self._gaussian.log_density,
        )

    def score(self, X: MatrixLike, y: object = None) -> float:
        """Mean log-density of rows under the model.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Rows from anywhere, of which values may be missing as in `score_samples`. The background
            does not enter: on rows like the foreground's this score falls as `gamma` rises, so it
            cannot choose `gamma`.
        y : ignored

        Returns
        -------
        float
            Mean of `score_samples`.

        Raises
        ------
        ValueError
            As `score_samples`.
        """
        return float(self.score_samples(X).mean())

    def impute(
        self,
        X: MatrixLike,
        *,
        return_std: bool = False,
        n_draws: int | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> Any:
        r"""Fill missing values in from what is observed of the same row.

        .. math:: \hat x_u = \bar x_u + W_u \operatorname{E}[z \mid x_o], \qquad
            \operatorname{Cov}[x_u \mid x_o] = \sigma^2
            \bigl(I + W_u (W_o^\top W_o + \sigma^2 I)^{-1} W_u^\top\bigr)

        with o and u for the values observed and missing of a row. This is the conditional normal
        distribution of Li et al., written with d x d matrices only.

        Parameters
        ----------
        X : array-like, masked array or DataFrame of shape (n, n_features)
            Rows from anywhere; NaN (or a mask) marks what is missing. Of a row with nothing
            observed the conditional mean is the foreground's.
        return_std : bool, default=False
            Whether to return the conditional standard deviations too.
        n_draws : int, optional
            Return so many draws of the missing values instead of their means. Values of a row are
            drawn jointly.
        random_state : int, Generator or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n, n_features), or (n_draws, n, n_features)
            X in float64 with its missing values filled in; what is observed is as it was. With
            `return_std` a tuple of this and the standard deviations, (n, n_features), 0 where a
            value is observed.

        Raises
        ------
        ValueError
            If the features are not those of the fit, a value is infinite, or draws are asked for
            together with standard deviations.
        TypeError
            If X is sparse or a tensor, in which nothing can be missing, or a parameter has the
            wrong type.

        References
        ----------
        Li, Jones and Engelhardt 2020, Sec. 7.2.

        Examples
        --------
        >>> import numpy as np
        >>> from contrast_core import PCPCA
        >>> from contrast_core.datasets import load_mouse_protein
        >>> mice = load_mouse_protein()
        >>> pcpca = PCPCA(gamma=0.2).fit(mice.foreground, background=mice.background)
        >>> gappy = mice.foreground.copy()
        >>> gappy[:, 0] = np.nan
        >>> filled, std = pcpca.impute(gappy, return_std=True)
        >>> bool(np.corrcoef(filled[:, 0], mice.foreground[:, 0])[0, 1] > 0.7)
        True
        """
        return self._imputed(X, self._gaussian, return_std, n_draws, random_state)

    @property
    def _gaussian(self) -> LatentGaussian:
        return LatentGaussian(self.mean_, self.loadings_, self.noise_variance_)

    def sample(
        self,
        n_samples: int = 1,
        *,
        noise: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> FloatArray:
        r"""Draw rows from the model: new data like what only the foreground has.

        .. math:: x = W z + \bar x \;(+\, \varepsilon), \qquad
            z \sim N(0, I),\; \varepsilon \sim N(0, \sigma^2 I)

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        noise : bool, default=False
            Whether to add the noise. Without it, as in the paper, the rows lie in the model's
            subspace; with it they are draws from the density of `score_samples`.
        random_state : int, Generator or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n_features)

        Raises
        ------
        ValueError, TypeError
            If `n_samples` is not an integer of at least 1.

        References
        ----------
        Li, Jones and Engelhardt 2020, Sec. 6.4.
        """
        check_is_fitted(self)
        shape = check_count(n_samples, "n_samples"), self.loadings_.shape[1]
        with_noise = check_flag(noise, "noise")
        rng = check_generator(random_state)
        latent = rng.standard_normal(shape)
        rows = latent @ self.loadings_.T + self.mean_
        if with_noise:
            rows += np.sqrt(self.noise_variance_) * rng.standard_normal(rows.shape)
        return np.asarray(rows)
