"""Which form the moments of pooled rows take: by their shape."""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np

from contrast_core.moments._implicit import ImplicitMoments
from contrast_core.moments._row_space import RowSpaceMoments, span_of_rows
from contrast_core.moments._second_moments import SecondMoments

_FEW_FEATURES = 3000  # up to which one reduction of the covariance costs no more than an iteration
_NARROW = 1500  # features up to which the covariance itself is cheap, however few the rows
_FEW_ROWS = 5000  # whose Gram matrix is worth a reduction
_LARGEST = 10_000  # covariance or Gram matrix that is affordable where an iteration fails


Form: TypeAlias = Literal["covariance", "gram", "products"]


def form_of(n_rows: int, n_features: int) -> Form:
    """What to make of so many rows: the covariance, their Gram matrix, or products only.

    The covariance of up to 3,000 features; with more features than rows, and more than 1,500, the
    Gram matrix of up to 5,000 rows; products with anything larger.
    """
    if _wide(n_rows, n_features):
        return "gram" if n_rows <= _FEW_ROWS else "products"
    return "covariance" if n_features <= _FEW_FEATURES else "products"


def max_products_of(n_features: int) -> int:
    """How many products an iteration may take: about what the covariance costs."""
    return min(max(n_features // 8, 640), 2000)


def affordable(n_rows: int, n_features: int) -> bool:
    """Whether a matrix will do where an iteration fails."""
    return min(n_rows, n_features) <= _LARGEST


def pooled_moments(
    parts: tuple[Any, ...], names: tuple[str, ...], feature_names: tuple[str, ...] | None
) -> SecondMoments | RowSpaceMoments | ImplicitMoments:
    """Moments of the rows of one dataset or more about their common mean; see `form_of`.

    Parameters
    ----------
    parts : tuple of ndarrays or CSR matrices of shape (any, n_features)
        The datasets, held as they are where there is no covariance.
    names : tuple of str
        What errors call them.
    feature_names : tuple of str or None
        Names of the features.

    Raises
    ------
    ValueError
        On NaN or infinity.
    """
    match form_of(sum(rows.shape[0] for rows in parts), parts[0].shape[1]):
        case "gram":
            return _row_space(parts, names, feature_names)
        case "covariance":
            return _covariance(parts, names, feature_names)
    max_products = max_products_of(parts[0].shape[1])
    return ImplicitMoments.pooled(parts, names, feature_names, max_products=max_products)


def exact_moments(moments: ImplicitMoments) -> SecondMoments | RowSpaceMoments:
    """The same moments with a matrix, for where products are not enough; see `affordable`."""
    parts = moments.covariance.parts
    names = ("X", "positive")[: len(parts)]
    form = _row_space if _wide(moments.n_samples, moments.n_features) else _covariance
    return form(parts, names, moments.feature_names)


def _wide(n_rows: int, n_features: int) -> bool:
    return n_features > max(n_rows, _NARROW)


def _covariance(
    parts: tuple[Any, ...], names: tuple[str, ...], feature_names: tuple[str, ...] | None
) -> SecondMoments:
    return reduce(
        SecondMoments.merge,
        (
            SecondMoments.from_data(rows, feature_names=feature_names, name=name)
            for rows, name in zip(parts, names, strict=True)
        ),
    )


def _row_space(
    parts: tuple[Any, ...], names: tuple[str, ...], feature_names: tuple[str, ...] | None
) -> RowSpaceMoments:
    space, variances = span_of_rows(parts, names, common_mean=True)
    counts = [part.shape[0] for part in parts]
    return RowSpaceMoments(
        sum(counts),
        space.means[0],
        np.average(variances, axis=0, weights=counts),
        space,
        slice(0, sum(counts)),
        feature_names,
    )
