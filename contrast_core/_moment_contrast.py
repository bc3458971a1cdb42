"""The contract of the contrastive methods that need no more of the data than their moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from contrast_core._base import LinearContrast
from contrast_core._validation import FloatArray, MatrixLike, check_labels
from contrast_core.moments import Moments, parts_along
from contrast_core.solve import Design, DesignOptions, Plan, contrast_moments


class MomentContrast(LinearContrast):
    """Base of those that need no more of the data than their moments.

    A subclass defines `_fit_moments`, and sets ``foreground_moments_`` and ``background_moments_``.
    """

    groups_: NDArray[Any]
    group_means_: FloatArray

    __metadata_request__fit: ClassVar[dict[str, bool]] = dict.fromkeys(
        ("background", *DesignOptions.__annotations__), True
    )
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"groups": True}

    def fit(
        self,
        X: MatrixLike | Moments,
        y: object = None,
        *,
        background: MatrixLike | Moments | Sequence[MatrixLike | Moments],
        groups: ArrayLike | None = None,
        background_groups: ArrayLike | Sequence[ArrayLike | None] | None = None,
        sample_weight: ArrayLike | None = None,
        background_weight: ArrayLike | Sequence[ArrayLike | None] | None = None,
        background_mix: ArrayLike | None = None,
    ) -> Self:
        r"""Fit from foreground and background data or their moments.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor of \
                shape (n, n_features), or SecondMoments
            Foreground; what `SecondMoments.from_data` reads.
        y : ignored
        background : the same kinds, of shape (m, n_features), or a list of them
            Background, with the same features in the same order. Moments for all or for none. Of
            several backgrounds the covariance is
            :math:`C_Y = \sum_j w_j C_j`, each about its own mean.
        groups, background_groups : array-like of shape (n,) and (m,), optional
            A label for each row, such as its donor or batch. The covariances are then those
            within groups, each row about its group's mean: what varies beyond the differences
            between donors. Of several backgrounds a list, with None for one without groups.
        sample_weight, background_weight : array-like of shape (n,) and (m,), optional
            A weight for each row, not negative; whole numbers count rows so many times. Of
            several backgrounds a list.
        background_mix : array-like of shape (number of backgrounds,), optional
            :math:`w_j`, positive, made to sum to one; by default each background counts the same,
            however many rows it has.

        Returns
        -------
        Self
            With groups, also `groups_` (G,) and `group_means_` (G, n_features), those of the
            foreground, for `transform`.

        Raises
        ------
        ValueError
            If the features differ, a dataset has fewer than two rows or is not finite, a group's
            label is missing, a weight is negative, or a parameter is out of range.
        TypeError
            If only one of the two is `SecondMoments`, moments come with groups or weights, or a
            parameter has the wrong type.
        """
        design = Design(groups, background_groups, sample_weight, background_weight, background_mix)
        moments = self._moments(X, background, design)
        fitted = self._fit_moments(*moments)
        centres = moments[0].centres or (None, None)
        for name, value in zip(("groups_", "group_means_"), centres, strict=True):
            if value is not None:
                setattr(fitted, name, value)
            elif hasattr(fitted, name):  # of a fit before
                delattr(fitted, name)
        return fitted

    def transform(self, X: MatrixLike, *, groups: ArrayLike | None = None) -> FloatArray:
        """Scores of rows on the components.

        Every row is centred by the foreground mean, so that foreground and background can share a
        plot.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor of \
                shape (n, n_features)
            Rows from anywhere; sparse input stays sparse, stored data are read in blocks of rows.
        groups : array-like of shape (n,), optional
            A label for each row: its scores are centred by those of its group instead. Of a group
            that the foreground of the fit had, by that group's mean there; of another one, by the
            mean of these rows.

        Returns
        -------
        ndarray of shape (n, n_components)
            ``(X - mean_) @ components_.T``, unless the class says otherwise. For a dask array, a
            dask array, not yet computed; for a tensor, a tensor of its dtype on its device,
            computed in float64, through which gradients flow.

        Raises
        ------
        ValueError
            If the features are not those of the fit, a value is NaN or infinite, or a label is
            missing.
        """
        scores = super().transform(X)
        return scores if groups is None else self._by_group(scores, groups, self.projection_)

    def _by_group(
        self,
        scores: FloatArray,
        groups: ArrayLike,
        projection: FloatArray,
        *,
        foreground: bool = True,
    ) -> FloatArray:
        """Scores centred by those of the means of the foreground's groups, or by their own."""
        labels = check_labels(groups, len(scores), "groups")
        known = np.asarray(getattr(self, "groups_", ())).tolist() if foreground else []
        shift = np.zeros(scores.shape)
        for group in np.unique(labels).tolist():
            rows = labels == group
            if group in known:
                mean = self.group_means_[known.index(group)]
                shift[rows] = (mean - self.mean_) @ projection
            else:
                shift[rows] = np.asarray(scores[rows].mean(axis=0))
        return scores - shift

    @property
    def background_variances_(self) -> FloatArray:
        """Variance of each background along each component, (number of backgrounds, k)."""
        check_is_fitted(self)
        if not hasattr(self, "background_moments_"):
            raise AttributeError(
                "background_variances_ needs the moments of the fit, which this estimator does "
                "not hold; save it with save(..., moments=True), or fit it again."
            )
        return parts_along(self.background_moments_, self.components_)

    def _moments(
        self, X: MatrixLike | Moments, background: Any, design: Design
    ) -> tuple[Moments, Moments, Plan]:
        return contrast_moments(
            X, background, n_components=self.n_components, products=False, design=design
        )

    def _fit_moments(self, foreground: Moments, background: Moments, plan: Plan) -> Self:
        raise TypeError(f"{type(self).__name__} does not define how to fit.")
