"""What two densities give: shared latent variables, likelihoods of rows, and new rows."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from contrast_core._linear_map import LinearMap
from contrast_core._moment_contrast import MomentContrast
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_choice,
    check_count,
    check_flag,
    check_generator,
)
from contrast_core.probabilistic._clvm_em import Model, posterior
from contrast_core.probabilistic._density import log_densities

Dataset: TypeAlias = Literal["foreground", "background"]


class TwoDensities(MomentContrast):
    """Base of a model of both datasets, with loadings that they share and others that they do not.

    A subclass sets these attributes.
    """

    shared_loadings_: FloatArray
    salient_loadings_: FloatArray
    noise_variance_: float

    def _model(self, dataset: object) -> tuple[Model, FloatArray]:
        """Model and mean of a dataset."""
        check_is_fitted(self)
        if check_choice(dataset, "dataset", ["foreground", "background"]) == "background":
            return Model(self.shared_loadings_, self.noise_variance_), self.background_mean_
        loadings = np.hstack([self.shared_loadings_, self.salient_loadings_])
        return Model(loadings, self.noise_variance_), self.mean_

    @property
    def latent_covariance_(self) -> FloatArray:
        """Covariance of the salient latent variables given a row, (t, t)."""
        k = self.shared_loadings_.shape[1]
        return posterior(self._model("foreground")[0]).covariance[k:, k:]

    def transform_shared(
        self,
        X: MatrixLike,
        *,
        dataset: Dataset = "foreground",
        groups: ArrayLike | None = None,
    ) -> FloatArray:
        """Posterior means of the shared latent variables.

        Parameters
        ----------
        X : as for `transform`
            Rows from anywhere.
        dataset : {"foreground", "background"}, default="foreground"
            Which model the rows are of: that of the background, about its own mean, has no salient
            part.
        groups : array-like of shape (n,), optional
            As for `transform`; of background rows each group is centred by its own mean here.

        Returns
        -------
        ndarray of shape (n, n_shared)
            For a dask array or a tensor, the same, as from `transform`.

        Raises
        ------
        ValueError
            If `dataset` is neither, the features are not those of the fit, a value is NaN or
            infinite, or a label is missing.
        """
        model, mean = self._model(dataset)
        gain = posterior(model).gain[:, : self.shared_loadings_.shape[1]]
        scores = LinearMap(mean=mean, projection=gain).transform(self._rows(X))
        if groups is None:
            return scores
        return self._by_group(scores, groups, gain, foreground=dataset == "foreground")

    def score_samples(self, X: MatrixLike, *, dataset: Dataset = "foreground") -> FloatArray:
        r"""Log-density of each row under the model.

        .. math:: \log N(x;\, \mu_x,\, S S^\top + W W^\top + \sigma^2 I) \quad\text{or}\quad
            \log N(y;\, \mu_y,\, S S^\top + \sigma^2 I)

        Parameters
        ----------
        X : as for `transform`
            Rows from anywhere.
        dataset : {"foreground", "background"}, default="foreground"
            Which of the two. Their difference tells which of them a row is more like.

        Returns
        -------
        ndarray of shape (n,)
            Natural logarithms.

        Raises
        ------
        ValueError
            If `dataset` is neither, the features are not those of the fit, or a value is NaN or
            infinite.
        """
        (loadings, noise), mean = self._model(dataset)
        directions, lengths, _ = np.linalg.svd(loadings, full_matrices=False)
        return log_densities(self._rows(X), mean, directions.T, lengths**2 + noise, noise)

    def score(self, X: MatrixLike, y: object = None, *, dataset: Dataset = "foreground") -> float:
        """Mean log-density of rows under the model.

        Parameters
        ----------
        X : as for `transform`
            Rows from anywhere.
        y : ignored
        dataset : {"foreground", "background"}, default="foreground"
            As for `score_samples`.

        Returns
        -------
        float
            Mean of `score_samples`.

        Raises
        ------
        ValueError
            As for `score_samples`.
        """
        return float(self.score_samples(X, dataset=dataset).mean())

    def sample(
        self,
        n_samples: int = 1,
        *,
        dataset: Dataset = "foreground",
        noise: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> FloatArray:
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        dataset : {"foreground", "background"}, default="foreground"
            Like which rows; those of the background have no salient part.
        noise : bool, default=False
            Whether to add the noise. Without it the rows lie in the span of the loadings; with it
            they are draws from the density of `score_samples`.
        random_state : int, Generator or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n_samples, n_features)

        Raises
        ------
        ValueError, TypeError
            If `n_samples` is not an integer of at least 1, or `dataset` is neither.
        """
        (loadings, variance), mean = self._model(dataset)
        shape = check_count(n_samples, "n_samples"), loadings.shape[1]
        with_noise = check_flag(noise, "noise")
        rng = check_generator(random_state)
        rows = rng.standard_normal(shape) @ loadings.T + mean
        if with_noise:
            rows += np.sqrt(variance) * rng.standard_normal(rows.shape)
        return np.asarray(rows)
