"""Which moments two datasets are reduced to: by their shape, or as asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from contrast_core._validation import check_same_features
from contrast_core.linalg import contrastive_eigenpairs, contrastive_path, variances_along
from contrast_core.moments._implicit import MAX_PRODUCTS, ImplicitMoments
from contrast_core.moments._row_space import (
    OneContrast,
    RowSpaceMoments,
    row_space_contrast,
    row_space_moments,
    with_room_for,
)
from contrast_core.moments._second_moments import SecondMoments
from contrast_core.rows import Rows

Moments: TypeAlias = SecondMoments | RowSpaceMoments | ImplicitMoments
Solver: TypeAlias = Literal["auto", "eigh", "gram", "lanczos"]

SOLVERS = ("auto", "eigh", "gram", "lanczos")
_NARROW = 1500  # features up to which the covariance itself is cheap, however few the rows
_SMALL = 5000  # covariance or Gram matrix that one decomposition is worth
_LARGE = 10_000  # that a whole path, or the lack of convergence otherwise, is worth
_PRODUCTS_BEFORE_GRAM = 180  # data without a gap then waste little beside the Gram matrix


def is_moments(data: object) -> bool:
    """Whether data have been reduced to moments already."""
    return isinstance(data, SecondMoments | RowSpaceMoments | ImplicitMoments)


def solver_of(moments: Moments) -> str:
    """The solver that moments are for."""
    match moments:
        case RowSpaceMoments():
            return "gram"
        case ImplicitMoments():
            return "lanczos"
    return "eigh"


def check_moments_pair(
    x: Any, y: Any, solver: str, n_components: object
) -> tuple[Moments, Moments]:
    """Moments of two datasets that fit together and the solver.

    Raises
    ------
    ValueError
        If they are of two kinds, of another kind than `solver` needs, or in different coordinates.
    """
    if type(x) is not type(y):
        raise ValueError(
            f"X is {type(x).__name__} and background is {type(y).__name__}; both must be moments "
            "of the same kind. Give the data of both."
        )
    if solver not in ("auto", solver_of(x)):
        raise ValueError(
            f"solver={solver!r} was asked for, but X and background are {type(x).__name__}, which "
            f"serve solver={solver_of(x)!r} only; give the data, or solver='auto'."
        )
    if isinstance(x, RowSpaceMoments):
        return with_room_for(x, y, n_components)
    return x, y


def solve_one(x: Moments, y: Moments, alpha: float, k: int) -> OneContrast:
    """Solve ``C_X - alpha C_Y`` for one alpha, without forming covariances that are not there yet.

    Raises
    ------
    ValueError
        At ``alpha = inf``, if the background's null space has fewer than k dimensions.
    NotConvergedError
        If the moments are `ImplicitMoments` and the iteration fails.
    """
    if (
        isinstance(x, RowSpaceMoments)
        and isinstance(y, RowSpaceMoments)
        and not (math.isinf(alpha) or (x.is_formed and y.is_formed))
    ):
        return row_space_contrast(x, y, alpha, k)
    c_x, c_y = x.covariance, y.covariance
    values, components = contrastive_eigenpairs(c_x, c_y, alpha, k)
    along = (variances_along(components, covariance) for covariance in (c_x, c_y))
    return OneContrast(values, x.lift(components), *along)


def solve_path(x: Moments, y: Moments, alphas: Sequence[float], k: int) -> list[OneContrast]:
    """Solve ``C_X - alpha C_Y`` for several ascending alphas, as `solve_one` does for one.

    Components are lifted to feature space with one pass over the rows.
    """
    if len(alphas) == 1:
        return [solve_one(x, y, alphas[0], k)]
    c_x, c_y = x.covariance, y.covariance
    solution = contrastive_path(c_x, c_y, np.array(alphas), k)
    return [
        OneContrast(values, lifted, variances_along(reduced, c_x), variances_along(reduced, c_y))
        for values, lifted, reduced in zip(
            solution.values, x.lift(solution.components), solution.components, strict=True
        )
    ]


def wide_moments(
    X: Rows,
    background: Rows,
    *,
    solver: str = "auto",
    n_components: object = 1,
    one_contrast: bool = False,
    operators: bool = False,
    random_state: int | None = 0,
) -> tuple[Moments, Moments] | None:
    """Moments of two datasets for which the covariance in feature space is too large, else None.

    Parameters
    ----------
    X, background : Rows of shape (n or m, n_features)
        Foreground and background. Data outside memory are left to `SecondMoments`.
    solver : {"auto", "eigh", "gram", "lanczos"}, default="auto"
        As for `contrast_core.CPCA`.
    n_components : int, default=1
        Number of components that will be asked for.
    one_contrast : bool, default=False
        Whether a single contrast is wanted, so that decomposing a large matrix may not pay.
    operators : bool, default=False
        Whether the method can work from products with the covariances alone.
    random_state : int or None, default=0
        Seed of iterations.

    Raises
    ------
    ValueError
        If `solver` needs rows in memory and there are none, the features differ, a dataset has
        fewer than two rows or is not finite.
    """
    if solver == "eigh":
        return None
    if not (X.in_memory and background.in_memory):
        if solver == "auto":
            return None
        raise ValueError(
            f"solver={solver!r} needs rows in memory, but those of X are in {X.place} and those of "
            f"background in {background.place}; use solver='eigh', which reads them once."
        )
    shapes = X.shape, background.shape
    if min(shapes[0][0], shapes[1][0]) < 2:
        return None  # refused by name where moments are taken
    (n_x, n_features), (n_y, _) = shapes
    chosen, fallback = solver, False
    if solver == "auto":
        sparse = X.is_sparse and background.is_sparse
        chosen, fallback = _choose(n_x + n_y, n_features, sparse, one_contrast, operators)
        if chosen == "eigh":
            return None
    names = X.names, background.names
    check_same_features(shapes[0][1], names[0], shapes[1][1], names[1])
    rows = X.load(check=False), background.load(check=False)
    if chosen == "gram":
        return row_space_moments(rows, names, n_components=n_components)
    max_products = _PRODUCTS_BEFORE_GRAM if fallback else MAX_PRODUCTS
    x, y = (
        ImplicitMoments.from_rows(
            data, label, found, random_state=random_state, max_products=max_products
        )
        for data, label, found in zip(rows, ("X", "background"), names, strict=True)
    )
    return x, y


def direct_moments(x: Moments, y: Moments, n_components: object) -> tuple[Moments, Moments] | None:
    """Moments with matrices, for when the iteration fails; None where those are too large."""
    if not (isinstance(x, ImplicitMoments) and isinstance(y, ImplicitMoments)):
        return None
    (x_rows,), (y_rows,) = x.covariance.parts, y.covariance.parts
    rows = x_rows, y_rows
    n_rows = x.n_samples + y.n_samples
    if min(n_rows, x.n_features) > _LARGE:
        return None
    if x.n_features > n_rows:
        names = x.feature_names, y.feature_names
        return row_space_moments(rows, names, n_components=n_components)
    return (
        SecondMoments.from_data(rows[0], feature_names=x.feature_names),
        SecondMoments.from_data(rows[1], feature_names=y.feature_names, name="background"),
    )


def _choose(
    n_rows: int, n_features: int, sparse: bool, one_contrast: bool, operators: bool
) -> tuple[str, bool]:
    """The solver, and whether another would be tried if it fails."""
    size = min(n_rows, n_features)
    direct = "gram" if n_features > max(n_rows, _NARROW) else "eigh"
    if operators and (
        size > _LARGE or (one_contrast and (size > _SMALL or (sparse and direct == "gram")))
    ):
        return "lanczos", size <= _LARGE
    return direct, False
