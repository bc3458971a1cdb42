"""Base classes with the methods that all contrastive estimators share."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from contrast_core._linear_map import LinearMap
from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_same_features,
)
from contrast_core.moments import PairMoments, is_moments
from contrast_core.rows import Rows, rows_of

Offset: TypeAlias = Literal["foreground", "difference", "none"]
Dataset: TypeAlias = Literal["foreground", "background"]


class Embedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base class of all methods, which sets fitted attributes and checks rows for `transform`."""

    # These fitted attributes are written to a model file only if moments are saved.
    _of_moments: ClassVar[tuple[str, ...]] = ("foreground_moments_", "background_moments_")

    n_features_in_: int

    def _set_fitted(self, feature_names: tuple[str, ...] | None, **attributes: Any) -> Self:
        """Set all fitted attributes at the end of a fit, so that a failed fit changes nothing.

        The attributes that an earlier fit has left are deleted.
        """
        if feature_names is not None:
            attributes["feature_names_in_"] = np.array(feature_names, dtype=object)
        for name in [each for each in vars(self) if each.endswith("_")]:
            delattr(self, name)
        for name, value in attributes.items():
            setattr(self, name, value)
        return self

    def _rows(self, X: MatrixLike | Rows, *, missing: bool = False) -> Rows:
        """Check the features of the rows, and return the rows, without reading their values."""
        check_is_fitted(self)
        rows = rows_of(X, min_rows=1, missing=missing)
        if not isinstance(X, Rows):  # scikit-learn also checks the names of a DataFrame's columns
            validate_data(self, X, reset=False, skip_check_array=True)
            return rows
        names = getattr(self, "feature_names_in_", None)
        check_same_features(
            *(self.n_features_in_, None if names is None else tuple(names)),
            *(rows.shape[1], rows.names),
            background_name=rows.name,
            first_name="the fit",
        )
        return rows

    def fit_transform(self, X: MatrixLike, y: object = None, **options: Any) -> FloatArray:
        """Fit, then return the scores of the rows of X.

        Parameters
        ----------
        X : as for `fit`
            Rows. X cannot be moments, because moments have no rows to transform.
        y : ignored
        **options
            Further arguments of `fit`, such as ``background=`` or ``positive=``.

        Returns
        -------
        ndarray of shape (n, n_components)

        Raises
        ------
        TypeError
            If X is moments instead of rows.
        """
        if is_moments(X) or isinstance(X, PairMoments):
            raise TypeError(
                f"fit_transform got {type(X).__name__}, which hold no rows to transform; call fit "
                "with the moments, then transform with the data."
            )
        fitted: Any = self.fit(X, y, **options)
        scores: FloatArray = fitted.transform(X)
        return scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


class LinearEmbedding(Embedding):
    """Base class of the linear methods, with `transform`, `inverse_transform` and `denoise`.

    At the end of its fit, a subclass calls `_set_fitted` with ``mean_`` and ``components_``, which
    is a matrix (k, D) with orthonormal rows. A subclass whose scores are not projections on the
    components overrides `projection_` and `reconstruction_`.
    """

    components_: FloatArray
    mean_: FloatArray

    def _set_fitted(self, feature_names: tuple[str, ...] | None, **attributes: Any) -> Self:
        n_features = len(attributes["mean_"])
        return super()._set_fitted(feature_names, n_features_in_=n_features, **attributes)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @property
    def projection_(self) -> FloatArray:
        """Return the matrix that maps centred rows to scores, (n_features, n_components)."""
        return self.components_.T

    @property
    def reconstruction_(self) -> FloatArray:
        """Return the matrix that maps scores to centred rows, (n_components, n_features)."""
        return self.components_

    @property
    def linear_map_(self) -> LinearMap:
        """Return `transform` and `inverse_transform` as one `contrast_core.spectral.LinearMap`."""
        return LinearMap(
            mean=self.mean_,
            projection=self.projection_,
            reconstruction=self.reconstruction_,
            offsets=self._offsets(),
        )

    @property
    def _projector(self) -> LinearMap:
        """Return the orthogonal projector on the components."""
        return LinearMap(
            mean=self.mean_,
            projection=self.components_.T,
            reconstruction=self.components_,
            offsets=self._offsets(),
        )

    def transform(self, X: MatrixLike) -> FloatArray:
        """Return the scores of rows on the components.

        Every row is centred by the foreground mean, so that foreground and background can be
        plotted together.

        Parameters
        ----------
        X : array-like, DataFrame, sparse matrix, stored dataset, dask array or torch tensor of \
                shape (n, n_features)
            Rows to transform. Sparse input stays sparse. Stored data are read in blocks of rows.

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
            If the features are not those of the fit, or a value is NaN or infinite.
        """
        rows = self._rows(X)
        return self.linear_map_.transform(rows)

    def inverse_transform(self, X: MatrixLike) -> FloatArray:
        """Map scores back to feature space.

        Parameters
        ----------
        X : array-like of shape (n, n_components)
            Scores.

        Returns
        -------
        ndarray of shape (n, n_features)
            ``X @ components_ + mean_``, unless the class says otherwise. If X is a dask array or a
            tensor, so is the result, as for `transform`.

        Raises
        ------
        ValueError
            If the number of columns is not the number of components, or a value is NaN or infinite.
        """
        check_is_fitted(self)
        return self.linear_map_.inverse_transform(X)

    def denoise(self, X: MatrixLike, *, offset: Offset = "foreground") -> FloatArray:
        r"""Project rows on the components, and remove everything else.

        .. math:: \hat x = V V^\top (x - \bar x) + \text{offset}

        The columns of V are the components, and :math:`\bar x` is the foreground mean.

        Parameters
        ----------
        X : as for `transform`
            Rows to denoise.
        offset : {"foreground", "difference", "none"}, default="foreground"
            The vector that is added to the projection. "foreground" adds the foreground mean, and
            "none" adds nothing. "difference" adds the foreground mean minus the background mean,
            which also removes a static background and uneven illumination.

        Returns
        -------
        ndarray of shape (n, n_features)
            Denoised rows. If X is a dask array or a tensor, so is the result, as for `transform`.

        Raises
        ------
        ValueError
            If `offset` is none of the three, the features are not those of the fit, or a value is
            NaN or infinite.

        References
        ----------
        Abid, Zhang, Bagaria and Zou 2018, Sec. 3.3.
        """
        rows = self._rows(X)
        return self._projector.denoise(rows, offset=offset)

    def _offsets(self) -> dict[str, FloatArray]:
        """Return the vector that `denoise` adds to the projection, for each value of `offset`."""
        return {"foreground": self.mean_, "none": np.zeros_like(self.mean_)}

    def remove_components(self, X: MatrixLike) -> FloatArray:
        r"""Remove the components from rows, and keep everything else.

        .. math:: x - V V^\top (x - \bar x)

        The columns of V are the components, and :math:`\bar x` is the foreground mean.

        Parameters
        ----------
        X : as for `transform`
            Rows from which the components are removed. The result is dense.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError
            If the features are not those of the fit, or a value is NaN or infinite.
        """
        rows = self._rows(X)
        return self._projector.remove_components(rows)

    def feature_weights(self) -> FloatArray:
        """Return the weight of each feature in each component.

        Returns
        -------
        ndarray of shape (n_components, n_features)
            Squared entries of `components_`, each row rescaled to a maximum of 1.

        References
        ----------
        Abid, Zhang, Bagaria and Zou 2018, Sec. 3.3.
        """
        check_is_fitted(self)
        return self._projector.feature_weights()


class BackgroundMixin:
    """Mixin that routes the argument `background` of `fit` through pipelines."""

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"background": True}


def check_not_positional(X: object, y: object) -> None:
    """Raise TypeError if y looks like a background that was given as a positional argument."""
    columns = [getattr(data, "shape", ())[1:] for data in (X, y)]
    if is_moments(y) or (columns[0] == columns[1] and columns[1:] not in ([()], [(1,)])):
        raise TypeError(
            f"y is {type(y).__name__} with the features of X, but fit does not use y. If y is the "
            "background, give it by name: fit(X, background=...)."
        )


class ScoreMixin:
    """Mixin with `score`, for methods whose `score_samples` takes rows of either dataset."""

    def score(self, X: MatrixLike, y: object = None, *, dataset: Dataset = "foreground") -> float:
        """Return the mean of `score_samples` over rows.

        Parameters
        ----------
        X : as for `transform`
            Rows.
        y : ignored
        dataset : {"foreground", "background"}, default="foreground"
            The dataset whose model scores the rows.

        Returns
        -------
        float

        Raises
        ------
        ValueError, TypeError
            As for `score_samples`.
        """
        fitted: Any = self
        return float(fitted.score_samples(X, dataset=dataset).mean())


class LinearContrast(BackgroundMixin, LinearEmbedding):
    """Base class of the linear methods that contrast a foreground with a background.

    A subclass also sets ``background_mean_`` if it is fitted with a background.
    """

    n_components: int
    background_mean_: FloatArray

    def _offsets(self) -> dict[str, FloatArray]:
        if not hasattr(self, "background_mean_"):  # fitted without a background
            return super()._offsets()
        return super()._offsets() | {"difference": self.mean_ - self.background_mean_}
