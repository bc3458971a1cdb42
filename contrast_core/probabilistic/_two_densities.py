"""Scores, densities and samples of a fitted model with a density for each dataset."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from contrast_core._base import Dataset, Offset, ScoreMixin
from contrast_core._linear_map import LinearMap
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_choice,
    check_count,
    check_flag,
    check_generator,
)
from contrast_core.probabilistic._clvm_counts import CountModel, counts_density, counts_latent
from contrast_core.probabilistic._clvm_em import Model, posterior
from contrast_core.probabilistic._clvm_posterior import DOF, Tails, densities_of, latent_of
from contrast_core.probabilistic._density import complete_or_not, log_densities
from contrast_core.probabilistic._density_model import DensityModel
from contrast_core.probabilistic._latent_gaussian import LatentGaussian
from contrast_core.rows import Rows


class TwoDensities(ScoreMixin, DensityModel):
    """Base of a model of both datasets, with loadings that they share and others that they do not.

    A subclass sets these attributes.
    """

    shared_loadings_: FloatArray
    salient_loadings_: FloatArray
    noise_variance_: float  # but of counts
    dispersions_: FloatArray  # of counts
    library_size_: float  # of counts
    tails_: Tails

    @property
    def _is_linear(self) -> bool:
        """True if posterior means are linear in the rows."""
        check_is_fitted(self)
        return self.tails_ not in ("entries", "counts")

    def _loadings(self, dataset: object) -> tuple[FloatArray, FloatArray]:
        """Loadings and mean of a dataset."""
        check_is_fitted(self)
        if check_choice(dataset, "dataset", ["foreground", "background"]) == "background":
            return self.shared_loadings_, self.background_mean_
        return np.hstack([self.shared_loadings_, self.salient_loadings_]), self.mean_

    def _model(self, dataset: object) -> tuple[Model, FloatArray]:
        """Model of normal or Student's noise, and mean, of a dataset."""
        loadings, mean = self._loadings(dataset)
        return Model(loadings, self.noise_variance_), mean

    def _count_model(self, dataset: object) -> CountModel:
        """Model of counts of a dataset."""
        return CountModel(*self._loadings(dataset), np.log(self.dispersions_))

    @property
    def latent_covariance_(self) -> FloatArray:
        """Covariance of the salient latent variables given a row, (t, t)."""
        if self.tails_ == "counts":
            raise AttributeError(
                "latent_covariance_ is not defined with likelihood='counts': it depends on the row."
            )
        k = self.shared_loadings_.shape[1]
        return posterior(self._model("foreground")[0]).covariance[k:, k:]

    @property
    def projection_(self) -> FloatArray:
        """Map from centred rows to posterior means, (n_features, t)."""
        if not self._is_linear:
            given = "robust='entries'" if self.tails_ == "entries" else "likelihood='counts'"
            raise AttributeError(
                f"{type(self).__name__}({given}) weighs every value of a row, so its "
                "scores are no linear map of rows and there is no way back from them: only "
                "transform, transform_shared, score_samples, score and sample are defined. Use "
                "robust='rows' or none, of logarithms instead of counts, for the rest."
            )
        k = self.shared_loadings_.shape[1]
        return posterior(self._model("foreground")[0]).gain[:, k:]

    @property
    def reconstruction_(self) -> FloatArray:
        """Map from posterior means to centred rows, (t, n_features)."""
        # A latent variable as weak as the noise is shrunk to zero, from which nothing leads back.
        shrinkage = self.salient_loadings_.T @ self.projection_
        return np.asarray(np.linalg.pinv(shrinkage) @ self.salient_loadings_.T)

    @property
    def _projector(self) -> LinearMap:
        return self.linear_map_

    def transform(self, X: MatrixLike, *, within: ArrayLike | None = None) -> FloatArray:
        r"""Posterior means of the salient latent variables.

        .. math:: E[t \mid x] = (I + W^\top M W)^{-1} W^\top M (x - \mu_x), \qquad
            M = (S S^\top + \sigma^2 I)^{-1}

        What the shared latent variables or the noise explain counts for little. With
        ``robust="rows"`` a row's weight leaves this as it is; with ``robust="entries"`` it is the
        mean where weights of the row's values and latent variables, each given the other as in the
        E-step, have settled, from weights of 1.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Rows from anywhere; sparse input stays sparse, but for ``robust="entries"``. NaN in
            dense rows is a value that is missing, whatever the fit had: t is then given what is
            observed, and 0 if nothing is.
        within : array-like of shape (n,), optional
            As in `CPCA.transform`, of complete rows; not with ``robust="entries"``.

        Returns
        -------
        ndarray of shape (n, n_salient)
            Their posterior covariance is `latent_covariance_` for every complete row.

        Raises
        ------
        ValueError
            If the features are not those of the fit, a value is infinite, or one is NaN in rows
            with `within`, sparse rows or a tensor.
        TypeError
            If X is a tensor and the model that of ``robust="entries"``.
        """
        check_is_fitted(self)
        k = self.shared_loadings_.shape[1]
        last = k + self.salient_loadings_.shape[1]
        return self._posterior_means(X, "foreground", (k, last), within)

    def _posterior_means(
        self, X: MatrixLike, dataset: object, which: tuple[int, int], within: ArrayLike | None
    ) -> FloatArray:
        first, last = which
        of: dict[str, Any] = {"first": first, "last": last}
        if self.tails_ == "counts":
            by_row = partial(counts_latent, model=self._count_model(dataset), **of)
        else:
            model, mean = self._model(dataset)
            by_row = partial(latent_of, model=model, mean=mean, tails=self.tails_, **of)
        if not self._is_linear:
            if within is not None:
                raise ValueError(
                    "within is given, but with robust='entries' or likelihood='counts' scores are "
                    "not linear in the rows: they cannot be centred within labels."
                )
            rows = self._weighed_rows(X)
            found: FloatArray = rows.map(by_row, last - first, dense=True)
            return found
        gain = posterior(model).gain[:, first:last]
        linear = LinearMap(mean=mean, projection=gain)
        rows = self._rows(X, missing=within is None)
        if within is not None:
            scores = linear.transform(rows)
            return self._centred_within(scores, within, gain, foreground=dataset == "foreground")
        if not rows.can_miss:
            return linear.transform(rows)
        either: FloatArray = rows.map(complete_or_not(linear.transform, by_row), last - first)
        return either

    def _weighed_rows(self, X: MatrixLike) -> Rows:
        rows = self._rows(X, missing=self.tails_ != "counts")
        if not (rows.can_miss or rows.is_sparse):
            raise TypeError(
                f"{rows.name} is a tensor, but a model that is robust, or of counts, weighs rows "
                "with NumPy: give arrays."
            )
        return rows

    def inverse_transform(self, X: MatrixLike) -> FloatArray:
        r"""Rows of the salient subspace whose posterior means are the ones given.

        .. math:: \hat x = W (W^\top M W)^{-1} (I + W^\top M W)\, t + \mu_x

        After `transform` this is what `denoise` gives. The model's mean of a row given t is
        ``t @ salient_loadings_.T + mean_``.

        Parameters
        ----------
        X : array-like of shape (n, n_salient)
            Salient latent variables.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError
            If the number of columns is not the number of salient variables.
        """
        return super().inverse_transform(X)

    def denoise(self, X: MatrixLike, *, offset: Offset = "foreground") -> FloatArray:
        r"""The salient part of rows: the shared part and the noise go.

        .. math:: \hat x = W (W^\top M W)^{-1} W^\top M (x - \mu_x) + \text{offset}

        The least squares estimate of W t, with what shared variables and noise add as the errors:
        a projection on the span of W along what the background would do, not an orthogonal one.

        Parameters
        ----------
        X : as for `transform`
            Rows to denoise.
        offset : {"foreground", "difference", "none"}, default="foreground"
            What is added back, as in `CPCA.denoise`.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError
            If `offset` is none of the three, the features are not those of the fit, or a value is
            NaN or infinite.
        """
        return super().denoise(X, offset=offset)

    def transform_shared(
        self,
        X: MatrixLike,
        *,
        dataset: Dataset = "foreground",
        within: ArrayLike | None = None,
    ) -> FloatArray:
        """Posterior means of the shared latent variables.

        Parameters
        ----------
        X : as for `transform`
            Rows from anywhere.
        dataset : {"foreground", "background"}, default="foreground"
            Which model the rows are of: that of the background, about its own mean, has no salient
            part.
        within : array-like of shape (n,), optional
            As for `transform`; background rows are centred by their label's mean among these rows.

        Returns
        -------
        ndarray of shape (n, n_shared)
            For a dask array or a tensor, the same, as from `transform`.

        Raises
        ------
        ValueError
            If `dataset` is neither, or as for `transform`.
        TypeError
            As for `transform`.
        """
        check_is_fitted(self)
        return self._posterior_means(X, dataset, (0, self.shared_loadings_.shape[1]), within)

    def score_samples(self, X: MatrixLike, *, dataset: Dataset = "foreground") -> FloatArray:
        r"""Log-density of each row under the model.

        .. math:: \log N(x;\, \mu_x,\, S S^\top + W W^\top + \sigma^2 I) \quad\text{or}\quad
            \log N(y;\, \mu_y,\, S S^\top + \sigma^2 I)

        With ``robust="rows"`` Student's t with this scale; with ``robust="entries"``, which has no
        closed form, the variational lower bound.

        Parameters
        ----------
        X : as for `transform`
            Rows from anywhere. Of dense rows with missing values (NaN) the density is that of what
            is observed.
        dataset : {"foreground", "background"}, default="foreground"
            Which of the two. Their difference tells which of them a row is more like.

        Returns
        -------
        ndarray of shape (n,)
            Natural logarithms; 0 of a row of which nothing is observed.

        Raises
        ------
        ValueError
            If `dataset` is neither, the features are not those of the fit, or a value is infinite,
            or NaN in sparse rows or a tensor.
        TypeError
            If X is a tensor and the model robust.
        """
        if self.tails_ == "counts":
            by_row = partial(counts_density, model=self._count_model(dataset))
        else:
            model, mean = self._model(dataset)
            by_row = partial(densities_of, model=model, mean=mean, tails=self.tails_)
        if self.tails_ != "normal":
            column: FloatArray = self._weighed_rows(X).map(by_row, 1, dense=True)
            return column[:, 0]
        directions, lengths, _ = np.linalg.svd(model.loadings, full_matrices=False)
        return log_densities(
            *(self._rows(X, missing=True), mean, directions.T, lengths**2 + model.noise),
            model.noise,
            incomplete=by_row,
        )

    def impute(
        self,
        X: MatrixLike,
        *,
        dataset: Dataset = "foreground",
        return_std: bool = False,
        n_draws: int | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> Any:
        """Fill missing values in from what is observed of the same row.

        Parameters
        ----------
        X : array-like, masked array or DataFrame of shape (n, n_features)
            Rows from anywhere; NaN (or a mask) marks what is missing.
        dataset : {"foreground", "background"}, default="foreground"
            Which of the two models the rows follow.
        return_std, n_draws, random_state
            As in `PCPCA.impute`.

        Returns
        -------
        ndarray of shape (n, n_features), or (n_draws, n, n_features)
            As from `PCPCA.impute`: conditional means, with `return_std` also the conditional
            standard deviations, or draws.

        Raises
        ------
        ValueError
            If the fit was robust or of counts, `dataset` is neither, the features are not those of
            the fit, a value is infinite, or draws are asked for together with standard deviations.
        TypeError
            If X is sparse or a tensor, in which nothing can be missing, or a parameter has the
            wrong type.

        Examples
        --------
        >>> import numpy as np
        >>> from contrast_core import CLVM
        >>> from contrast_core.datasets import load_mouse_protein
        >>> mice = load_mouse_protein()
        >>> clvm = CLVM(n_shared=4).fit(mice.foreground, background=mice.background)
        >>> gappy = mice.background.copy()
        >>> gappy[:, 0] = np.nan
        >>> filled = clvm.impute(gappy, dataset="background")
        >>> bool(np.corrcoef(filled[:, 0], mice.background[:, 0])[0, 1] > 0.7)
        True
        """
        check_is_fitted(self)
        if self.tails_ != "normal":
            given = "likelihood='counts'" if self.tails_ == "counts" else f"robust={self.tails_!r}"
            raise ValueError(
                f"impute needs a fit with normal noise, but this one was made with {given}: fit "
                "CLVM without it, which takes missing values too."
            )
        model, mean = self._model(dataset)
        gaussian = LatentGaussian(mean, model.loadings, model.noise)
        return self._imputed(X, gaussian, return_std, n_draws, random_state)

    def sample(
        self,
        n_samples: int = 1,
        *,
        dataset: Dataset = "foreground",
        noise: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> FloatArray:
        """Draw rows from the model: with `robust` of Student's t.

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
        loadings, mean = self._loadings(dataset)
        shape = check_count(n_samples, "n_samples"), loadings.shape[1]
        with_noise = check_flag(noise, "noise")
        rng = check_generator(random_state)
        rows = rng.standard_normal(shape) @ loadings.T
        if self.tails_ == "counts":
            rates = self.library_size_ * np.exp(rows + mean)
            r = self.dispersions_
            drawn = rng.negative_binomial(r, r / (r + rates)) if with_noise else rates
            return np.asarray(drawn, np.float64)
        variance = self.noise_variance_
        errors = np.sqrt(variance) * rng.standard_normal(rows.shape) if with_noise else 0.0
        if self.tails_ == "rows":
            wide = np.sqrt(DOF / rng.chisquare(DOF, (len(rows), 1)))
            return np.asarray(mean + wide * (rows + errors))
        if self.tails_ == "entries":
            errors = errors * np.sqrt(DOF / rng.chisquare(DOF, rows.shape))
        return np.asarray(rows + mean + errors)
