"""Base class of the contrastive methods that are computed from second moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from contrast_core._base import LinearContrast, check_not_positional
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    as_number,
    check_choice,
    check_labels,
)
from contrast_core.moments import Moments, parts_along, warn_of_units
from contrast_core.solve import (
    Design,
    Plan,
    check_background_is_given,
    contrast_moments,
)

# A warning is issued if at most this many features hold nearly all of the variance. The number is
# small, because a few dozen genes may well hold nearly all of the variance of raw counts.
_FEW = 3

# A fit without a background does not set these fitted attributes.
_OF_THE_BACKGROUND = {
    "background_mean_",
    "background_moments_",
    "background_variance_",
    "contrast_index_",
    "gamma_max_",
}


class MomentContrast(LinearContrast):
    """Base class of the methods that are computed from second moments.

    A subclass defines `_fit_moments`, and sets ``foreground_moments_`` and ``background_moments_``.
    If the method is PCA of the foreground at strength 0, the subclass sets
    `_background_is_optional` to True. `_rules` lists the words that are allowed as the strength.
    """

    _background_is_optional: ClassVar[bool] = False
    _rules: ClassVar[tuple[str, ...]] = ("auto",)

    within_labels_: NDArray[Any]
    within_means_: FloatArray

    __metadata_request__fit: ClassVar[dict[str, bool]] = dict.fromkeys(
        ("background", *(option.name for option in fields(Design))), True
    )
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"within": True}

    def fit(
        self,
        X: MatrixLike | Moments,
        y: object = None,
        *,
        background: MatrixLike | Moments | Sequence[MatrixLike | Moments] | None = None,
        within: ArrayLike | None = None,
        background_within: ArrayLike | Sequence[ArrayLike | None] | None = None,
        sample_weight: ArrayLike | None = None,
        background_weight: ArrayLike | Sequence[ArrayLike | None] | None = None,
        background_mix: ArrayLike | None = None,
    ) -> Self:
        r"""Fit from foreground and background data or their moments.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor of \
                shape (n, n_features), or SecondMoments
            Foreground, in any form that `SecondMoments.from_data` reads. `PCPCA` and `CLVM` also
            take missing values, in arrays, masked arrays and DataFrames in memory. Missing values
            are NaN or masked.
        y : ignored
        background : like X, of shape (m, n_features), or a list of such datasets, optional
            Background, with the same features in the same order. Either all datasets are moments,
            or none is. The covariance of several backgrounds is :math:`C_Y = \sum_j w_j C_j`, where
            each :math:`C_j` is taken about its own mean. Without a background, `CPCA` and
            `CPCAStar` are PCA of the foreground, and `PCPCA` is probabilistic PCA. The strength is
            then 0, and attributes that describe the background are not set. All other methods need
            a background.
        within, background_within : array-like of shape (n,) and (m,), optional
            A label for each row, such as its donor or batch. Each row is then centred by the mean
            of the rows with its label, so that differences between donors do not count. For several
            backgrounds, give a list, with None for a background without labels.
        sample_weight, background_weight : array-like of shape (n,) and (m,), optional
            A weight for each row, not negative. A row with the weight 3 counts as three rows. For
            several backgrounds, give a list.
        background_mix : array-like of shape (number of backgrounds,), optional
            Positive weights :math:`w_j`, which are scaled to sum to one. By default, all
            backgrounds have the same weight, however many rows they have.

        Returns
        -------
        Self
            The fitted estimator. If `within` is given, it has two more attributes, which
            `transform` uses. `within_labels_` (G,) are the labels of the foreground, and
            `within_means_` (G, n_features) are the means of the rows with these labels.

        Raises
        ------
        ValueError
            If the features differ, or a dataset has fewer than two rows or is not finite. The error
            is also raised if a label is missing, a weight is negative, a parameter is out of range,
            or a method that needs a background is given none. With missing values, the error is
            also raised if a feature is never observed in one of the datasets, if fewer than two
            rows have a value, or if labels are given.
        TypeError
            If only one of the datasets is `SecondMoments`, or moments are given with labels or
            weights. The error is also raised if the background is given as a positional argument,
            or if a parameter has the wrong type.
        """
        design = Design(within, background_within, sample_weight, background_weight, background_mix)
        if background is not None:
            return self._fit_design(X, background, design)
        check_not_positional(X, y)
        return self._fit_alone(X, design)

    def _fit_alone(self, X: MatrixLike | Moments, design: Design) -> Self:
        """Fit without a background, at strength 0."""
        check_background_is_given(None, self._background_is_optional)
        for name in ("background_within", "background_weight", "background_mix"):
            if getattr(design, name) is not None:
                raise ValueError(f"{name} was given without a background; give both or neither.")
        name = cast(Any, self)._strength
        strength = getattr(self, name)
        if isinstance(strength, str):
            check_choice(strength, name, self._rules, "a number")
        elif as_number(strength, name) != 0:
            raise ValueError(
                f"{name}={strength:g} was given without a background. Give one: "
                f"fit(X, background=...), or set {name} to 'auto' or 0."
            )
        fitted = clone(self).set_params(**{name: 0.0})._fit_design(X, None, design)
        for attribute in [each for each in vars(self) if each.endswith("_")]:  # from an earlier fit
            delattr(self, attribute)
        for attribute, value in vars(fitted).items():
            if attribute.endswith("_") and attribute not in _OF_THE_BACKGROUND:
                setattr(self, attribute, value)
        return self

    def _fit_design(self, X: MatrixLike | Moments, background: Any, design: Design) -> Self:
        """Fit from data or moments; without a background, the foreground is used in its place."""
        moments = self._moments(X, background, design)
        if background is not None:
            warn_of_units(moments[0].variances, moments[1].variances, most=_FEW)
        fitted = self._fit_moments(*moments)
        centres = moments[0].centres or (None, None)
        for name, value in zip(("within_labels_", "within_means_"), centres, strict=True):
            if value is not None:
                setattr(fitted, name, value)
        return fitted

    def _set_contrast(self, foreground: Moments, background: Moments, **attributes: Any) -> Self:
        """Set the fitted attributes that describe the two datasets, and the given attributes."""
        return self._set_fitted(
            foreground.feature_names,
            mean_=foreground.mean,
            background_mean_=background.mean,
            foreground_moments_=foreground,
            background_moments_=background,
            **attributes,
        )

    def transform(self, X: MatrixLike, *, within: ArrayLike | None = None) -> FloatArray:
        """Return the scores of rows on the components.

        Every row is centred by the foreground mean, so that foreground and background can be
        plotted together.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor of \
                shape (n, n_features)
            Rows to transform. Sparse input stays sparse. Stored data are read in blocks of rows.
        within : array-like of shape (n,), optional
            A label for each row. The scores of a row are then centred by the mean of its label in
            the foreground of the fit. If the foreground has no such label, they are centred by the
            mean of the given rows with this label.

        Returns
        -------
        ndarray of shape (n, n_components)
            ``(X - mean_) @ components_.T``, unless the class says otherwise. If X is a dask array,
            the scores are a dask array that is not computed yet. If X is a torch tensor, the scores
            are a tensor with the same dtype and device. They are computed in float64, and gradients
            with respect to X can be computed.

        Raises
        ------
        ValueError
            If the features are not those of the fit, a value is NaN or infinite, or a label is
            missing.
        """
        scores = super().transform(X)
        return scores if within is None else self._centred_within(scores, within, self.projection_)

    def _centred_within(
        self,
        scores: FloatArray,
        within: ArrayLike,
        projection: FloatArray,
        *,
        foreground: bool = True,
    ) -> FloatArray:
        """Centre the scores of the rows with each label.

        The subtracted mean is the mean of this label in the foreground of the fit. If the label did
        not occur there, or `foreground` is False, it is the mean of the given rows with this label.
        """
        labels = check_labels(within, len(scores), "within")
        known = np.asarray(getattr(self, "within_labels_", ())).tolist() if foreground else []
        shift = np.zeros(scores.shape)
        for label in np.unique(labels).tolist():
            rows = labels == label
            if label in known:
                mean = self.within_means_[known.index(label)]
                shift[rows] = (mean - self.mean_) @ projection
            else:
                shift[rows] = np.asarray(scores[rows].mean(axis=0))
        return scores - shift

    @property
    def background_variances_(self) -> FloatArray:
        """Return the variance of each background along each component, (n_backgrounds, k)."""
        check_is_fitted(self)
        if not hasattr(self, "background_moments_"):
            raise AttributeError(
                "background_variances_ needs the moments of the background, but this estimator "
                "does not hold them. Fit it with a background, and save it with "
                "save(..., moments=True)."
            )
        return parts_along(self.background_moments_, self.components_)

    def _moments(
        self, X: MatrixLike | Moments, background: Any, design: Design
    ) -> tuple[Moments, Moments, Plan]:
        return contrast_moments(
            X,
            background,
            n_components=self.n_components,
            products=False,
            design=design,
            optional=self._background_is_optional,
        )

    def _fit_moments(self, foreground: Moments, background: Moments, plan: Plan) -> Self:
        raise TypeError(f"{type(self).__name__} does not define how to fit.")
