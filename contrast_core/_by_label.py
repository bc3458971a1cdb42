"""Estimator that finds the background by labels, so that one matrix can hold both datasets."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, TransformerMixin, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from contrast_core._validation import (
    FloatArray,
    MatrixLike,
    check_labels,
    check_unmasked,
    check_weights,
    shown,
)
from contrast_core.rows import Rows, rows_of


class ContrastByLabel(TransformerMixin, MetaEstimatorMixin, BaseEstimator):
    """Contrastive estimator that takes the background from labels of the rows.

    ``fit(X, y)`` splits the rows. Rows whose label equals `background` are the background, and all
    other rows are the foreground. This class is meant for cross-validation, and for pipelines
    without metadata routing, because they cannot pass a ``background=`` argument correctly.

    Parameters
    ----------
    estimator : estimator with ``fit(X, *, background)``
        The contrastive estimator, which is cloned before it is fitted.
    background : label, default=0
        The label of background rows.

    Attributes
    ----------
    estimator_ : estimator
        The fitted clone of `estimator`, with all of its attributes and methods.

    Examples
    --------
    >>> import numpy as np
    >>> from contrast_core import CPCA, ContrastByLabel
    >>> X = np.random.default_rng(0).normal(size=(30, 4))
    >>> y = np.repeat(["treated", "control"], 15)
    >>> model = ContrastByLabel(CPCA(alpha=1.0), background="control").fit(X, y)
    >>> model.transform(X).shape
    (30, 2)
    """

    estimator_: Any

    def __init__(self, estimator: Any, background: object = 0) -> None:
        self.estimator = estimator
        self.background = background

    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        *,
        within: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the estimator to foreground and background rows, which are split by their labels.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix of shape (n, n_features)
            All rows.
        y : array-like of shape (n,)
            A label for each row.
        within, sample_weight : array-like of shape (n,), optional
            A label or a weight for each row, if the estimator accepts them (see `CPCA.fit`).

        Returns
        -------
        Self

        Raises
        ------
        ValueError
            If no row, or every row, has the background's label, or a label is missing.
        """
        if y is None:
            raise ValueError(
                "requires y to be passed, but the target y is None. Give a label for each row."
            )
        rows = rows_of(X)
        check_unmasked(y, "y")
        column: Any = np.asarray(y).ravel() if getattr(y, "shape", ())[1:] == (1,) else y
        n_rows = len(column) if math.isnan(rows.shape[0]) else rows.shape[0]
        labels = check_labels(column, n_rows, "y")
        if np.ndim(self.background):  # type: ignore[arg-type]
            raise TypeError(f"background={shown(self.background)} must be a single label.")
        is_background = np.asarray(labels == self.background, dtype=bool)
        present = [str(label) for label in np.unique(labels)]
        if not is_background.any():
            raise ValueError(
                f"no row has the background label {self.background!r}; the labels are "
                f"{', '.join(present)}. Set background to one of them."
            )
        if is_background.all():
            raise ValueError(
                f"every row has the background label {self.background!r}; the foreground needs "
                "rows of another label."
            )
        masks = (~is_background, is_background)
        foreground, background = (_taken(X, rows, mask) for mask in masks)
        options: dict[str, Any] = {}
        if within is not None:
            of_rows = check_labels(within, n_rows, "within")
            options |= {"within": of_rows[masks[0]], "background_within": of_rows[masks[1]]}
        if sample_weight is not None:
            weights = check_weights(sample_weight, n_rows, "sample_weight")
            options |= {"sample_weight": weights[masks[0]], "background_weight": weights[masks[1]]}
        self.estimator_ = clone(self.estimator).fit(foreground, background=background, **options)
        return self

    def transform(self, X: MatrixLike) -> FloatArray:
        """Return the fitted estimator's scores, shape (n, n_components)."""
        check_is_fitted(self)
        scores: FloatArray = self.estimator_.transform(X)
        return scores

    @available_if(lambda self: hasattr(self.estimator, "inverse_transform"))  # type: ignore[untyped-decorator]
    def inverse_transform(self, X: MatrixLike) -> FloatArray:
        """Map scores back to rows by the fitted estimator, shape (n, n_features)."""
        check_is_fitted(self)
        rows: FloatArray = self.estimator_.inverse_transform(X)
        return rows

    def get_feature_names_out(self, input_features: object = None) -> Any:
        """Return the fitted estimator's names of the scores."""
        check_is_fitted(self)
        return self.estimator_.get_feature_names_out(input_features)

    @property
    def n_features_in_(self) -> int:
        """Return the number of features of the rows seen in fit."""
        return int(self.estimator_.n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags


def _taken(X: Any, rows: Rows, mask: NDArray[np.bool_]) -> Any:
    """Return the rows where the mask is True.

    If X is a DataFrame, a dask array or a tensor, so is the result. Otherwise the result is an
    array or a CSR matrix in memory.
    """
    some = rows.take(mask)  # raises an error if a dask array does not know its number of rows
    if hasattr(X, "columns") or rows.place == "dask" or rows.device is not None:
        return _safe_indexing(X, np.flatnonzero(mask))
    return some.load(check=False)
