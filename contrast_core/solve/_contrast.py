"""Leading components of contrasts ``C_X - alpha C_Y`` of two covariances, in any form.

Problem: find the k leading eigenvectors of a difference of two covariances, which is indefinite, at
one contrast or many (Abid, Zhang, Bagaria and Zou, Nature Communications 9:2134, 2018).

If the moments hold matrices, `contrast_core.linalg` finds the eigenvectors. A direction in which
neither dataset varies (a null direction) has the eigenvalue 0, so it would come before every
direction with a negative eigenvalue. If null directions could be among the results, the contrast is
solved again in coordinates without them (`Frame`). If only products are available, an iteration
finds the components, and an error is raised if null directions could be among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.feedback import warn
from contrast_core.linalg import (
    Eigenpairs,
    NotConvergedError,
    contrastive_path,
    fix_signs,
    leading_eigenpairs,
    search_components,
    solve_contrast,
    worker_threads,
)
from contrast_core.moments import ALONE, Moments, Threads, weighted_sum
from contrast_core.solve._frame import Frame
from contrast_core.solve._plan import Plan

_EPS = float(np.finfo(np.float64).eps)
# A contrast neither underflows nor overflows if the variances are within these limits.
_SMALLEST, _LARGEST = 1e-280, 1e300
_SMALL = 320  # largest number of features for which a matrix is formed from products
_ADVICE = (
    "Use solver='gram' if both datasets have few rows, solver='eigh' if there are few features, or "
    "another number of components."
)


# Eigenpairs in the coordinates of the moments, and the solver that found them.
Solved: TypeAlias = tuple[Eigenpairs, str]


class ContrastSolution(NamedTuple):
    """Top-k components of one contrast.

    values : ndarray of shape (k,)
        Eigenvalues of ``C_X - alpha C_Y``, descending. The zeros that belong to directions in which
        nothing varies come last.
    components : ndarray of shape (k, n_features)
        Orthonormal rows with fixed signs. Directions in which nothing varies come last.
    coordinates : ndarray of shape (k, c)
        The same components in c orthonormal coordinates: the coordinates of the moments (see
        `Moments`), and one more for each of the `n_null` components.
    foreground_variance, background_variance : ndarray of shape (k,)
        Variances along each component.
    solver : {"eigh", "search"}
        "eigh" is LAPACK, and "search" is the block search.
    n_null : int
        Number of components (of the k) along which nothing varies.
    """

    values: FloatArray
    components: FloatArray
    coordinates: FloatArray
    foreground_variance: FloatArray
    background_variance: FloatArray
    solver: str
    n_null: int


def solve_contrasts(
    x: Moments,
    y: Moments,
    alphas: Sequence[float],
    k: int,
    plan: Plan,
    *,
    random_state: int | None = 0,
) -> list[ContrastSolution]:
    """Return the top-k components of ``C_X - alpha C_Y`` for each alpha, which may be infinite.

    Raises
    ------
    ValueError
        At ``alpha = inf``, if there are fewer than k directions in which the foreground varies but
        the background does not.
    NotConvergedError
        If only products are available, and the iteration does not converge.
    """
    largest = max((alpha for alpha in alphas if math.isfinite(alpha)), default=0.0)
    check_range_at(largest, x, y)
    if x.form == "products":
        return _by_products(x, y, alphas, k, plan, random_state)
    return _by_matrices(x, y, alphas, k, plan)


def check_range(moments: Moments, name: str) -> None:
    """Raise ValueError if a contrast of the variances would be outside the range of float64."""
    # If all variances are zero and the mean is tiny but not zero, the squares have underflowed.
    if not moments.variances.any() and 0 < np.abs(moments.mean).max() < _SMALLEST**0.5:
        raise _out_of_range(0.0, name)
    check_variances(moments.variances, name, _SMALLEST, _LARGEST / max(moments.n_features, 1))


def check_range_at(alpha: float, x: Moments, y: Moments) -> None:
    """Raise ValueError if the contrast at alpha would be outside the range of float64."""
    for moments, name in ((x, "X"), (y, "the background")):
        check_range(moments, name)
        if moments.variances.max(initial=0.0) > _LARGEST / (1 + alpha) / moments.n_features:
            raise ValueError(
                f"alpha={alpha:.3g} times the variances of these data exceeds the range of "
                "float64. Use a smaller alpha, or alpha=inf for the limit."
            )


def check_variances(variances: FloatArray, name: str, smallest: float, largest: float) -> None:
    """Raise ValueError unless the largest variance is 0 or within the limits."""
    highest = float(variances.max(initial=0.0))
    if 0 < highest < smallest or not highest <= largest:
        raise _out_of_range(highest, name)


def _out_of_range(highest: float, name: str) -> ValueError:
    return ValueError(
        f"the largest variance of {name} is {highest:.1g}, so a contrast would be outside the "
        "range of float64. Multiply all data by a constant that brings them near 1."
    )


def _by_matrices(
    x: Moments, y: Moments, alphas: Sequence[float], k: int, plan: Plan
) -> list[ContrastSolution]:
    """Solve each contrast with matrices, and again without null directions where necessary."""
    frame = Frame.from_moments(x, y)
    finite = [i for i, alpha in enumerate(alphas) if math.isfinite(alpha)]
    solved = dict(zip(finite, _in_frame(frame, [alphas[i] for i in finite], k, plan), strict=True))
    # Contrasts to solve without null directions: those at alpha = inf, and those whose results may
    # contain a null direction.
    doubtful = [
        i
        for i in range(len(alphas))
        if i not in solved or may_be_null(solved[i][0].values, frame.scale(alphas[i]), frame.size)
    ]
    exact = frame.without_null_directions() if doubtful or k > frame.size else frame
    if exact.size < k:
        doubtful = list(range(len(alphas)))
    elif exact.size == frame.size:  # there are no null directions, so the results stand
        doubtful = [i for i in doubtful if i not in solved]
    again = _in_frame(exact, [alphas[i] for i in doubtful], k, plan)
    solved |= dict(zip(doubtful, again, strict=True))
    nulls = exact.null_directions(max(k - exact.size, 0))
    return lifted(x, y, [solved[i] for i in range(len(alphas))], nulls)


def _in_frame(frame: Frame, alphas: Sequence[float], k: int, plan: Plan) -> list[Solved]:
    """Return k components of each contrast, or all if there are fewer than k coordinates."""
    k = min(k, frame.size)
    if not k:
        nothing = Eigenpairs(np.empty(0), np.empty((0, frame.moments.size)))
        return [(nothing, "eigh") for _ in alphas]
    budget = plan.path_budget(frame.size, k, len(alphas))
    if budget is not None:
        solved = contrastive_path(frame.x, frame.y, np.array(alphas), k, budget=budget)
    else:
        budget = plan.budget(frame.size, k)
        solved = [solve_contrast(frame.x, frame.y, alpha, k, budget) for alpha in alphas]
    return [
        (Eigenpairs(pairs.values, frame.to_outer(pairs.components)), solver)
        for pairs, solver in solved
    ]


def may_be_null(values: FloatArray, scale: float, size: int) -> bool:
    """Return whether one of the leading eigenvalues is zero up to rounding.

    Its eigenvector may then be a direction in which nothing varies. `scale` is the scale of the
    rounding errors of the matrix, and `size` its number of rows.
    """
    return bool(scale > 0 and np.abs(values).min(initial=np.inf) <= 4 * size * _EPS * scale)


def lifted(
    x: Moments, y: Moments, solved: list[Solved], nulls: FloatArray | None = None
) -> list[ContrastSolution]:
    """Return the solutions in feature space, followed by the components `nulls` without variance.

    `solved` holds eigenpairs in the coordinates of the moments. `nulls` has the shape (n_null, D).
    """
    values, coordinates = (
        np.stack([getattr(pairs, name) for pairs, _ in solved]) for name in ("values", "components")
    )
    n_varying = coordinates.shape[1]
    flat = coordinates.reshape(len(solved) * n_varying, -1 if coordinates.size else x.size)
    x_along, y_along = (
        part.variances_along(flat).reshape(len(solved), n_varying) for part in (x, y)
    )
    components = x.lift(coordinates)
    components = fix_signs(components.reshape(-1, x.n_features)).reshape(components.shape)
    n_null = 0
    if nulls is not None and len(nulls):
        n_null = len(nulls)
        warn_of_null_directions(n_null, n_varying + n_null)
        components = np.concatenate(
            [components, np.broadcast_to(nulls, (len(solved), n_null, x.n_features))], axis=1
        )
        values, x_along, y_along = (
            np.pad(part, ((0, 0), (0, n_null))) for part in (values, x_along, y_along)
        )
        coordinates = np.pad(coordinates, ((0, 0), (0, n_null), (0, n_null)))
        coordinates[:, n_varying:, -n_null:] = np.eye(n_null)
    solvers, nulls_of_each = (solver for _, solver in solved), [n_null] * len(solved)
    parts = values, components, coordinates, x_along, y_along, solvers, nulls_of_each
    return [ContrastSolution(*each) for each in zip(*parts, strict=True)]


def warn_of_null_directions(n_null: int, k: int) -> None:
    """Warn that the last `n_null` of k components are arbitrary."""
    warn(
        f"the last {n_null} of {k} components are arbitrary, because neither dataset varies along "
        "them, or varies so little that the squares are 0 in float64. Use fewer components."
    )


def _by_products(
    x: Moments,
    y: Moments,
    alphas: Sequence[float],
    k: int,
    plan: Plan,
    random_state: int | None,
) -> list[ContrastSolution]:
    """Solve each contrast by products, for the features that vary."""
    varies = x.varies | y.varies
    size = int(varies.sum())
    solved = []
    with threads_for(x, y) as threads:
        for alpha in alphas:
            _check_solvable(alpha, k, size)
            contrast = weighted_sum((x, y), (1.0, -alpha)) if alpha else x
            multiply = partial(products_of, (contrast,), varies, threads)
            if size <= max(_SMALL, 4 * k):
                [matrix] = multiply(np.eye(size))
                pairs = leading_eigenpairs((matrix + matrix.T) / 2, k)
            else:
                diagonal = contrast.variances[varies]
                pairs = _searched(multiply, diagonal, k, plan, random_state, alpha)
            solved.append(solved_by_products(y, varies, alpha, pairs))
    return lifted(x, y, solved)


def _searched(
    multiply: Callable[[FloatArray], list[FloatArray]],
    diagonal: FloatArray,
    k: int,
    plan: Plan,
    random_state: int | None,
    alpha: float,
) -> Eigenpairs:
    """Return the eigenpairs that a search by products finds; raise an error if it fails."""
    budget = plan.max_products
    try:
        pairs = search_components(multiply, [diagonal], k, budget, random_state=random_state).pairs
    except NotConvergedError as error:
        raise NotConvergedError(f"alpha={alpha:.6g}: {error} {_ADVICE}") from error
    if pairs is None:
        raise NotConvergedError(
            f"alpha={alpha:.6g}: the search used {budget} products of the contrast with a vector "
            f"and did not reach the required accuracy, because eigenvalues {k} and {k + 1} are "
            f"close. {_ADVICE}"
        )
    return pairs.eigenpairs()


def products_of(
    parts: Sequence[Moments], varies: NDArray[np.bool_], threads: Threads, columns: FloatArray
) -> list[FloatArray]:
    """Return the product of each covariance with columns, for the features that vary.

    The columns and the products have the shape (number of features that vary, b).
    """
    if not varies.all():
        of_varying, columns = columns, np.zeros((len(varies), columns.shape[1]))
        columns[varies] = of_varying
    return [part.apply(columns, threads)[varies] for part in parts]


@contextmanager
def threads_for(*parts: Any) -> Iterator[Threads]:
    """Yield worker threads for the products of these moments, if threads make them faster.

    Meanwhile, the number of BLAS threads is reduced, because BLAS threads go on running for a while
    after each product and would slow down the workers.
    """
    uses_threads = any(part.gains_from_threads for part in parts)
    with worker_threads() if uses_threads else nullcontext(ALONE) as threads:
        yield threads


def solved_by_products(
    y: Moments, varies: NDArray[np.bool_], alpha: float, pairs: Eigenpairs
) -> Solved:
    """Return eigenpairs of all features, from eigenpairs of the features that vary.

    Raises NotConvergedError if one of the components may be a direction without variance.
    """
    values, components = pairs
    scale = float(np.abs(values).max() + (1 + alpha) * y.variances.max())
    if may_be_null(values, scale, len(varies)):
        raise NotConvergedError(
            f"alpha={alpha:.6g}: for some of {len(values)} components, the foreground variance "
            "minus alpha times the background variance is 0 up to rounding. This solver cannot "
            f"tell whether anything varies along them. {_ADVICE}"
        )
    whole = np.zeros((len(values), len(varies)))
    whole[:, varies] = components
    return Eigenpairs(values, whole), "search"


def _check_solvable(alpha: float, k: int, n_varying: int) -> None:
    """Raise NotConvergedError if a contrast cannot be solved by products at all."""
    if math.isinf(alpha):
        raise NotConvergedError(
            "alpha=inf needs the null space of the background, which this solver cannot find; use "
            "solver='gram' or 'eigh', or a large finite alpha."
        )
    if k > n_varying:
        raise NotConvergedError(
            f"{k} components were asked for, but only {n_varying} features vary. {_ADVICE}"
        )
