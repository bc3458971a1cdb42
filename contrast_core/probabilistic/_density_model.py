"""The contract of the models with a density: missing values are let through to their fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from contrast_core._moment_contrast import MomentContrast
from contrast_core._validation import MatrixLike, check_count, check_flag, check_generator
from contrast_core.moments import Moments, is_moments
from contrast_core.probabilistic._latent_gaussian import LatentGaussian
from contrast_core.rows import Rows
from contrast_core.solve import Design, design_rows


class DensityModel(MomentContrast):
    """Base of the models that take NaN for a missing value.

    A subclass defines `_fit_parts`, and names in `_of_some` the attributes that only some of its
    fits set.
    """

    _of_some: ClassVar[tuple[str, ...]] = ()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _fit_design(self, X: MatrixLike | Moments, background: Any, design: Design) -> Self:
        parts = rows_with_gaps(
            X, background, design, type(self).__name__, self._background_is_optional
        )
        fitted = self._fit_parts(parts, design)
        if fitted is not None:
            return fitted
        if parts:
            X, *others = parts
            background = others if len(others) > 1 else next(iter(others), None)
        return super()._fit_design(X, background, design)

    def _fit_parts(self, parts: Sequence[Rows], design: Design) -> Self | None:
        """Fit from foreground and backgrounds, or None where their moments will do.

        There are no parts if moments were given.
        """
        raise TypeError(f"{type(self).__name__} does not define how to fit.")

    def _imputed(
        self,
        X: MatrixLike,
        model: LatentGaussian,
        return_std: object,
        n_draws: object,
        random_state: int | np.random.Generator | None,
    ) -> Any:
        """Fill in missing values by a model, as `PCPCA.impute` and `CLVM.impute` describe."""
        with_std = check_flag(return_std, "return_std")
        rows = self._rows(X, missing=True)
        if not rows.can_miss:
            kind = "sparse, and what it does not store is zero" if rows.is_sparse else "a tensor"
            raise TypeError(
                f"{rows.name} is {kind}; missing values are NaN in an array or a DataFrame. "
                "Convert it, with NaN where values are missing."
            )
        width = self.n_features_in_
        if n_draws is None:
            filled = rows.map(model.imputed, width)
            return (filled, rows.map(model.deviations, width)) if with_std else filled
        if with_std:
            raise ValueError(
                "return_std=True and n_draws are both given; the spread of the draws is the "
                "standard deviation: leave one out."
            )
        count, rng = check_count(n_draws, "n_draws"), check_generator(random_state)
        elements = max(1, rows.elements // count)
        drawn = [model.draws(block, count, rng) for block in rows.blocks(elements=elements)]
        return np.concatenate(drawn, axis=1)

    def _set_fitted(self, feature_names: tuple[str, ...] | None, **attributes: Any) -> Self:
        for name in ("within_labels_", "within_means_", *self._of_some, *self._of_moments):
            if name not in attributes:  # of a fit before
                self.__dict__.pop(name, None)
        return super()._set_fitted(feature_names, **attributes)


def rows_with_gaps(
    X: Any, background: Any, design: Design, method: str, optional: bool = False
) -> list[Rows]:
    """Return foreground and backgrounds, with NaN let through in those that are in memory.

    The list is empty if one of them is moments.
    """
    several = background if type(background) in (list, tuple) else [background]
    if any(is_moments(one) for one in (X, *several)):
        return []
    remedy = (
        f"{method} takes missing values (NaN) of arrays, masked arrays and DataFrames in memory, "
        "not of sparse matrices, tensors, stored or dask data. Convert these, or fill the entries "
        "in, for example with sklearn.impute.SimpleImputer."
    )
    parts = design_rows(X, background, design, missing=True, optional=optional)
    # In place, for they are read again and again.
    return [
        part.replace(missing=part.missing and part.in_memory, remedy=part.remedy or remedy)
        for part in parts
    ]


def any_missing(parts: Sequence[Rows]) -> bool:
    """Return whether any value is missing."""
    return any(part.any_missing() for part in parts)
