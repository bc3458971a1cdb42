"""Scores, densities, imputation and samples of fitted latent variable models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from contrast_core._base import Dataset, ScoreMixin
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
from contrast_core.moments import Moments, is_moments
from contrast_core.probabilistic._clvm_counts import CountModel
from contrast_core.probabilistic._factor_model import FactorModel
from contrast_core.probabilistic._row_posterior import DEGREES, Tails, linear_posterior
from contrast_core.rows import Rows
from contrast_core.solve import Design, design_rows


class LatentModel(ScoreMixin, MomentContrast):
    """Base class of `PCPCA` and `CLVM`: a density of rows that may have missing values.

    A subclass defines `_fit_parts` and `_loadings`, and sets ``noise_variance_``.
    """

    noise_variance_: float
    dispersions_: FloatArray
    library_size_: float

    @property
    def _tails(self) -> Tails:
        """Distribution of the noise."""
        return "normal"

    @property
    def _n_shared(self) -> int:
        """Number of shared latent variables, which come before the salient variables."""
        return 0

    def _loadings(self, dataset: str) -> FloatArray:
        """Return the loadings of all k latent variables of a dataset, (n_features, k)."""
        raise TypeError(f"{type(self).__name__} does not define its loadings.")

    def _model(self, dataset: object = "foreground") -> FactorModel | CountModel:
        """Return the density of the rows of a dataset."""
        check_is_fitted(self)
        name = check_choice(dataset, "dataset", ["foreground", "background"])
        if name == "background" and not hasattr(self, "background_mean_"):
            raise ValueError(
                f"dataset='background' was given, but this {type(self).__name__} was fitted "
                "without a background: fit again with a background, or leave dataset out."
            )
        mean = self.mean_ if name == "foreground" else self.background_mean_
        if self._tails == "counts":
            log_dispersions = np.log(self.dispersions_)
            return CountModel(self._loadings(name), mean, log_dispersions, self.library_size_)
        degrees = getattr(self, "degrees_of_freedom_", DEGREES)  # not set if the noise is normal
        loadings, noise = self._loadings(name), self.noise_variance_
        return FactorModel(mean, loadings, noise, self._tails, degrees)

    def _linear_model(self, attribute: str) -> FactorModel:
        """Return the foreground's density, or raise an error if its scores are not linear."""
        model = self._model()
        if isinstance(model, CountModel) or model.tails == "entries":
            raise AttributeError(
                f"{attribute} is not defined: {type(self).__name__}({self._option}) weighs every "
                "value of a row, so its scores are not a linear function of the rows and cannot be "
                "mapped back. Use transform, transform_shared, score_samples, score or the "
                "methods that draw samples. For the other methods fit with robust='rows' or "
                "without robust, or to logarithms instead of counts."
            )
        return model

    @property
    def _option(self) -> str:
        """Option that selected the noise, as written in a call, such as ``robust='rows'``."""
        return "noise='counts'" if self._tails == "counts" else f"robust={self._tails!r}"

    @property
    def latent_covariance_(self) -> FloatArray:
        """Covariance of the t salient latent variables given a complete row, (t, t)."""
        model = self._model()
        if isinstance(model, CountModel):
            raise AttributeError(
                f"latent_covariance_ is not defined with {self._option}: it depends on the row."
            )
        return linear_posterior(model.model).covariance[self._n_shared :, self._n_shared :]

    @property
    def projection_(self) -> FloatArray:
        """Map from centred rows to posterior means, (n_features, t)."""
        return self._linear_model("projection_").gain[:, self._n_shared :]

    @property
    def reconstruction_(self) -> FloatArray:
        """Map from posterior means to centred rows, (t, n_features)."""
        loadings = self._loadings("foreground")[:, self._n_shared :]
        # A component whose variance equals the noise variance has zero loadings and zero scores,
        # which no map can invert. The pseudo-inverse leaves it out.
        return LinearMap.reconstruction_of(self.projection_, loadings)

    def transform(self, X: MatrixLike, *, within: ArrayLike | None = None) -> FloatArray:
        r"""Return the posterior means of the latent variables (in `CLVM`, the salient variables).

        .. math:: E[t \mid x] = (I + W^\top M W)^{-1} W^\top M (x - \bar x), \qquad
            M = (S S^\top + \sigma^2 I)^{-1}

        where t are the salient latent variables, W are their loadings, S are the shared loadings
        and :math:`\sigma^2` is the noise variance. In `PCPCA`, W are all loadings and S = 0.
        Directions in which the shared latent variables vary have little weight. With
        ``robust="rows"`` the formula holds unchanged, because the weight of a row does not affect
        its posterior mean. With ``robust="entries"`` the E-step is iterated, from weights of 1 for
        all values of a row, until the latent variables no longer change.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Rows of either dataset, or new rows. Sparse input stays sparse, except with
            ``robust="entries"`` and for counts. NaN in dense rows is a missing value, even if the
            data of the fit were complete. The posterior mean then uses the observed values of the
            row. It is 0 if no value is observed.
        within : array-like of shape (n,), optional
            Labels, as in `CPCA.transform`. They need complete rows, and cannot be used with
            ``robust="entries"`` or counts.

        Returns
        -------
        ndarray of shape (n, n_components) or (n, n_salient)
            Posterior means. With normal noise the posterior covariance of every complete row is
            `latent_covariance_`.

        Raises
        ------
        ValueError
            If the features are not those of the fit, if a value is infinite, or if a value is NaN
            in sparse rows, in a tensor or together with `within`.
        TypeError
            If X is a tensor and the fit was for counts or had ``robust="entries"``.
        """
        check_is_fitted(self)
        return self._latent_means(X, "foreground", slice(self._n_shared, None), within)

    def _latent_means(
        self, X: MatrixLike, dataset: object, which: slice, within: ArrayLike | None
    ) -> FloatArray:
        """Return the posterior means of some of the latent variables."""
        model = self._model(dataset)
        width = model.loadings[:, which].shape[1]
        if isinstance(model, CountModel) or model.tails == "entries":
            if within is not None:
                raise ValueError(
                    f"within is given, but with {self._option} scores are not linear in the rows "
                    "and cannot be centred within labels: leave within out."
                )
            by_row = partial(_scores, model=model, which=which)
            found: FloatArray = self._weighted_rows(X).map(by_row, width, dense=True)
            return found
        gain = model.gain[:, which]
        linear = LinearMap(mean=model.mean, projection=gain)
        rows = self._rows(X, missing=within is None)
        if within is not None:
            scores = linear.transform(rows)
            return self._centred_within(scores, within, gain, foreground=dataset == "foreground")
        if not rows.can_miss:
            return linear.transform(rows)
        by_row = partial(_scores, model=model, which=which, linear=linear)
        found = rows.map(by_row, width)
        return found

    def _weighted_rows(self, X: MatrixLike) -> Rows:
        """Return checked rows for a computation that needs NumPy; raise TypeError for tensors."""
        rows = self._rows(X, missing=self._tails != "counts")
        if not (rows.can_miss or rows.is_sparse):
            raise TypeError(
                f"{rows.name} is a tensor, but a robust model or a model of counts computes with "
                "NumPy only: give an array."
            )
        return rows

    def inverse_transform(self, X: MatrixLike) -> FloatArray:
        r"""Map posterior means of the latent variables back to rows.

        .. math:: \hat x = W (W^\top M W)^{-1} (I + W^\top M W)\, t + \bar x

        with W and M as in `transform`. The result is the row whose posterior mean is t and which
        differs from the mean by a combination of the components. For the scores that `transform`
        returns, this row equals the result of `denoise`. (It differs from the model's expected row
        given t, which is ``t @ W.T + mean_``.)

        Parameters
        ----------
        X : array-like of shape (n, n_components) or (n, n_salient)
            Latent variables.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError
            If the number of columns is not the number of latent variables.

        References
        ----------
        Tipping and Bishop 1999, Sec. 3.3.
        """
        return super().inverse_transform(X)

    def score_samples(self, X: MatrixLike, *, dataset: Dataset = "foreground") -> FloatArray:
        r"""Return the log-density of each row under the model of its dataset.

        The density is normal about the mean of the dataset. With ``robust="rows"`` it is Student's
        t with the same scale. With ``robust="entries"`` and for counts the log-density has no
        closed form, and the variational lower bound is returned instead.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            Rows of either dataset, or new rows. For dense rows with missing values (NaN) the
            density is the density of the observed values.
        dataset : {"foreground", "background"}, default="foreground"
            Dataset whose model is used. In `PCPCA` the two models differ only by their means. In
            `CLVM` the model of the background has no salient loadings, so the difference of the two
            log-densities tells which dataset a row resembles more.

        Returns
        -------
        ndarray of shape (n,)
            Natural logarithms; 0 for a row without observed values.

        Raises
        ------
        ValueError
            If `dataset` is neither of the two names; if `dataset` is "background" and the fit had
            no background; if the features are not those of the fit; if a value is infinite; or if a
            value is NaN in sparse rows or a tensor.
        TypeError
            If X is a tensor and the fit was robust or for counts.
        """
        model = self._model(dataset)
        if isinstance(model, FactorModel) and model.tails == "normal":
            return model.normal_log_densities(self._rows(X, missing=True))
        column: FloatArray = self._weighted_rows(X).map(model.log_density, 1, dense=True)
        return column[:, 0]

    def impute(
        self,
        X: MatrixLike,
        *,
        dataset: Dataset = "foreground",
        return_std: bool = False,
        n_draws: int | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> Any:
        r"""Fill in missing values by their mean given the observed values of the same row.

        .. math:: \hat x_u = \bar x_u + L_u \operatorname{E}[z \mid x_o], \qquad
            \operatorname{Cov}[x_u \mid x_o] = \sigma^2
            \bigl(I + L_u (L_o^\top L_o + \sigma^2 I)^{-1} L_u^\top\bigr)

        Here o and u are the observed and missing values of a row, and L are the loadings of all
        latent variables of the dataset.

        Parameters
        ----------
        X : array-like, masked array or DataFrame of shape (n, n_features)
            Rows of either dataset, or new rows. NaN (or a mask) marks missing values. For a row
            without observed values the conditional mean is the mean of the dataset.
        dataset : {"foreground", "background"}, default="foreground"
            Dataset whose model is used, as in `score_samples`.
        return_std : bool, default=False
            Whether to return the conditional standard deviations too.
        n_draws : int, optional
            Number of draws of the missing values to return instead of their means. The missing
            values of a row are drawn jointly.
        random_state : int, Generator or None, default=None
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n, n_features), or (n_draws, n, n_features)
            X in float64 with its missing values filled in; observed values are unchanged. With
            `return_std`, a tuple of this array and the standard deviations, (n, n_features), which
            are 0 where a value is observed.

        Raises
        ------
        ValueError
            If the fit was robust or for counts, if `dataset` is neither of the two names, if the
            features are not those of the fit, if a value is infinite, or if both draws and standard
            deviations are requested.
        TypeError
            If X is sparse or a tensor, which cannot have missing values here, or if a parameter has
            the wrong type.

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
        model = self._model(dataset)
        if isinstance(model, CountModel) or model.tails != "normal":
            raise ValueError(
                "impute needs a fit with normal noise, but this one was made with "
                f"{self._option}. Fit again without it; a fit with normal noise also takes missing "
                "values."
            )
        with_std = check_flag(return_std, "return_std")
        rows = self._rows(X, missing=True)
        if not rows.can_miss:
            kind = "a sparse matrix" if rows.is_sparse else "a tensor"
            raise TypeError(
                f"{rows.name} is {kind}, in which missing values cannot be marked. Convert it to "
                "an array or a DataFrame with NaN where values are missing."
            )
        width = self.n_features_in_
        if n_draws is None:
            filled = rows.map(model.imputed, width)
            return (filled, rows.map(model.deviations, width)) if with_std else filled
        if with_std:
            raise ValueError(
                "return_std=True and n_draws are both given. Give only one of them; the standard "
                "deviation of the draws estimates the same as return_std."
            )
        count, rng = check_count(n_draws, "n_draws"), check_generator(random_state)
        elements = max(1, rows.elements // count)
        drawn = [model.draws(block, count, rng) for block in rows.blocks(elements=elements)]
        return np.concatenate(drawn, axis=1)

    def sample_foreground(
        self,
        n_samples: int = 1,
        *,
        add_noise: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> FloatArray:
        """Draw rows from the model of the foreground.

        In `PCPCA` this model describes the variation that the foreground has and the background
        lacks.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        add_noise : bool, default=False
            Whether to add the noise. With noise the rows are draws from the density that
            `score_samples` computes. Without noise they are the mean plus a linear combination of
            the loadings, or expected counts.
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
        return self._sample("foreground", n_samples, add_noise, random_state)

    def _sample(
        self, dataset: Dataset, n_samples: object, add_noise: object, random_state: Any
    ) -> FloatArray:
        model, n = self._model(dataset), check_count(n_samples, "n_samples")
        noisy = check_flag(add_noise, "add_noise")
        return model.sample(n, check_generator(random_state), noisy)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _fit_design(self, X: MatrixLike | Moments, background: Any, design: Design) -> Self:
        """Fit to the rows if the subclass needs them, otherwise to the moments of the data."""
        several = background if type(background) in (list, tuple) else [background]
        parts = []
        if not any(is_moments(one) for one in (X, *several)):
            parts = self._rows_with_gaps(X, background, design)
        fitted = self._fit_parts(parts, design)
        if fitted is not None:
            return fitted
        if parts:
            X, *others = parts
            background = others if len(others) > 1 else next(iter(others), None)
        return super()._fit_design(X, background, design)

    def _rows_with_gaps(self, X: Any, background: Any, design: Design) -> list[Rows]:
        """Return foreground and backgrounds, in which NaN is allowed for rows in memory."""
        remedy = (
            f"{type(self).__name__} takes missing values (NaN) in arrays, masked arrays and "
            "DataFrames in memory, but not in sparse matrices, tensors, stored or dask data. "
            "Convert the data, or fill in the missing values, for example with "
            "sklearn.impute.SimpleImputer."
        )
        optional = self._background_is_optional
        parts = design_rows(X, background, design, missing=True, optional=optional)
        return [
            part.replace(missing=part.missing and part.in_memory, remedy=part.remedy or remedy)
            for part in parts
        ]

    def _fit_parts(self, parts: Sequence[Rows], design: Design) -> Self | None:
        """Fit to the rows of foreground and backgrounds, or return None if moments are enough.

        `parts` is empty if moments were given instead of rows.
        """
        raise TypeError(f"{type(self).__name__} does not define how to fit.")


def _scores(
    rows: Any, model: FactorModel | CountModel, which: slice, linear: LinearMap | None = None
) -> FloatArray:
    """Return the posterior means of the latent variables `which`.

    If the map `linear` is given and no value is NaN, this map computes the means.
    """
    if linear is not None and not np.isnan(rows).any():
        return linear.transform(rows)
    return model.latent_means(rows)[:, which]


def any_missing(parts: Sequence[Rows]) -> bool:
    """Return whether any value is missing."""
    return any(part.any_missing() for part in parts)
