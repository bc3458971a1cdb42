"""What the models with a density have in common: missing values are let through to their fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike

from contrast_core._moment_contrast import MomentContrast
from contrast_core._validation import MatrixLike
from contrast_core.moments import Moments, is_moments
from contrast_core.rows import Rows
from contrast_core.solve import Design, design_rows


class DensityModel(MomentContrast):
    """Base of those that take NaN for a missing value.

    A subclass defines `_fit_parts`, and names in `_of_some` the attributes that only some of its
    fits set.
    """

    _of_some: ClassVar[tuple[str, ...]] = ()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

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
        """Fit from foreground and background data, with or without missing values, or moments.

        Parameters
        ----------
        X, background
            As in `CPCA.fit`, of shape (n, n_features) and (m, n_features). In arrays, masked arrays
            and DataFrames in memory NaN, or a mask, marks a missing value; sparse matrices cannot
            hold any, for what they do not store is zero. No moments where the class says that rows
            are weighted.
        y : ignored
        groups, background_groups
            As in `CPCA.fit`, of complete data. With missing values subtract the mean of each
            group's observed values instead, in both datasets.
        sample_weight, background_weight, background_mix
            As in `CPCA.fit`, if the class does not say otherwise.

        Returns
        -------
        Self

        Raises
        ------
        ValueError, TypeError
            As `CPCA.fit`; if a feature is never observed in one of the datasets, fewer than two
            rows have a value, or incomplete data have groups or are not in memory; and as the class
            says.
        """
        design = Design(groups, background_groups, sample_weight, background_weight, background_mix)
        parts = rows_with_gaps(X, background, design, type(self).__name__)
        fitted = None if background is None else self._fit_parts(parts, design)
        if fitted is not None:
            return fitted
        if parts:
            X, *others = parts
            background = others if len(others) > 1 else others[0]
        return super().fit(X, y, background=background, **vars(design))

    def _fit_parts(self, parts: Sequence[Rows], design: Design) -> Self | None:
        """Fit from foreground and backgrounds, or None where their moments will do.

        There are no parts if moments were given.
        """
        raise TypeError(f"{type(self).__name__} does not define how to fit.")

    def _set_fitted(self, feature_names: tuple[str, ...] | None, **attributes: Any) -> Self:
        for name in ("groups_", "group_means_", *self._of_some, *self._of_moments):
            if name not in attributes:  # of a fit before
                self.__dict__.pop(name, None)
        return super()._set_fitted(feature_names, **attributes)


def rows_with_gaps(X: Any, background: Any, design: Design, method: str) -> list[Rows]:
    """Foreground and backgrounds, in which NaN is let through where they are in memory.

    Empty where one of them is moments, or there is no background.
    """
    several = background if type(background) in (list, tuple) else [background]
    if background is None or any(is_moments(one) for one in (X, *several)):
        return []
    remedy = (
        f"{method} takes missing values (NaN) of arrays, masked arrays and DataFrames in memory, "
        "not of sparse matrices, tensors, stored or dask data. Convert these, or fill the entries "
        "in, for example with sklearn.impute.SimpleImputer."
    )
    parts = design_rows(X, background, design, missing=True)
    # In place, for they are read again and again.
    return [
        part.replace(missing=part.missing and part.in_memory, remedy=part.remedy or remedy)
        for part in parts
    ]


def any_missing(parts: Sequence[Rows]) -> bool:
    """Whether a value is."""
    return any(part.any_missing() for part in parts)
