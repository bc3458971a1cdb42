"""Leading components of contrasts of two covariances, in any form that these take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.feedback import warn
from contrast_core.linalg import (
    NotConvergedError,
    contrastive_path,
    eigenpairs_by_products,
    fix_signs,
    formed_eigenpairs,
    mirror_upper,
    null_space_eigenpairs,
    worker_threads,
)
from contrast_core.moments import (
    ALONE,
    Covariance,
    Moments,
    Threads,
    joint_products,
    weighted_product,
)
from contrast_core.solve._frame import Frame
from contrast_core.solve._plan import Plan

_EPS = float(np.finfo(np.float64).eps)
_SMALLEST, _LARGEST = 1e-280, 1e300  # of variances, so that all digits of a contrast are numbers
_ADVICE = (
    "Use solver='gram' where the rows of both datasets are few, solver='eigh' where the features "
    "are, or another number of components."
)


class OneContrast(NamedTuple):
    """Top-k components of one contrast.

    Eigenvalues, descending as far as anything varies (k,); orthonormal rows, signs fixed
    (k, n_features); variances along them (k,).
    """

    values: FloatArray
    components: FloatArray
    foreground_variance: FloatArray
    background_variance: FloatArray


class Solution(NamedTuple):
    """Components at each of several contrasts, A of them.

    values : ndarray of shape (A, k)
        Eigenvalues of ``C_X - alpha C_Y``, descending as far as anything varies.
    components : ndarray of shape (A, k, n_features)
        Orthonormal rows, signs fixed; last those along which nothing varies.
    coordinates : ndarray of shape (A, k, c)
        The same in coordinates that keep inner products, of which there are fewer.
    foreground_variance, background_variance : ndarray of shape (A, k)
        Along each component.
    solvers : tuple of str
        What each contrast was solved by.
    n_null : int
        How many of the k components are directions in which nothing varies.
    """

    values: FloatArray
    components: FloatArray
    coordinates: FloatArray
    foreground_variance: FloatArray
    background_variance: FloatArray
    solvers: tuple[str, ...]
    n_null: int

    def each(self) -> list[OneContrast]:
        """The contrasts one by one."""
        parts = self.values, self.components, self.foreground_variance, self.background_variance
        return [OneContrast(*part) for part in zip(*parts, strict=True)]


def solve_contrasts(
    x: Moments,
    y: Moments,
    alphas: Sequence[float],
    k: int,
    plan: Plan,
    *,
    random_state: int | None = 0,
) -> Solution:
    """Top-k components of ``C_X - alpha C_Y`` for each alpha, from 0 to inf.

    Raises
    ------
    ValueError
        At ``alpha = inf``, if the background varies in all but fewer than k of the directions in
        which anything does.
    NotConvergedError
        If there are products only, and they do not suffice.
    """
    check_range(x, "X")
    check_range(y, "the background")
    check_products(x, y, max((alpha for alpha in alphas if math.isfinite(alpha)), default=0.0))
    return _solve(x, y, x.varies | y.varies, alphas, k, plan, random_state)


def check_range(moments: Moments, name: str, factor: float = 1.0) -> None:
    """Refuse variances that leave the range of float64, or would when multiplied."""
    # Squares that vanish leave a mean behind.
    if not moments.variances.any() and 0 < np.abs(moments.mean).max() < _SMALLEST**0.5:
        raise _out_of_range(0.0, name)
    largest = _LARGEST / factor / max(moments.n_features, 1)
    check_variances(moments.variances, name, _SMALLEST, largest)


def check_products(x: Moments, y: Moments, alpha: float) -> None:
    """Refuse a contrast that multiplies variances beyond the range of float64."""
    try:
        check_range(x, "X", 1 + alpha)
        check_range(y, "the background", 1 + alpha)
    except ValueError:
        raise ValueError(
            f"alpha={alpha:.3g} times the variances of these data is beyond what float64 can hold. "
            "Use a smaller alpha, or alpha=inf for the limit."
        ) from None


def check_variances(variances: FloatArray, name: str, smallest: float, largest: float) -> None:
    """Refuse variances of which the largest is not 0 nor within limits."""
    highest = float(variances.max(initial=0.0))
    if 0 < highest < smallest or not highest <= largest:
        raise _out_of_range(highest, name)


def _out_of_range(highest: float, name: str) -> ValueError:
    return ValueError(
        f"the variances of {name} go up to {highest:.1g}: float64 cannot hold what a contrast is "
        "made of; bring all data to a scale near 1."
    )


def solve_components(moment: Covariance, rows: Moments, k: int, plan: Plan) -> Solution:
    """Top-k components of a symmetric matrix that need not be positive semidefinite.

    Parameters
    ----------
    moment : Covariance
        The matrix.
    rows : Moments
        Of the rows that it was taken of, in the same coordinates: what varies in them. The
        variance along the components is the "background" of the result.
    k, plan
        As for `solve_contrasts`; raises NotConvergedError too.
    """
    return _solve(moment, rows, rows.varies, [0.0], k, plan, random_state=0, indefinite=True)


def _solve(
    x: Covariance,
    y: Moments,
    varies: NDArray[np.bool_],
    alphas: Sequence[float],
    k: int,
    plan: Plan,
    random_state: int | None,
    *,
    indefinite: bool = False,
) -> Solution:
    if x.form == "products":
        return _by_products(x, y, varies, alphas, k, plan, random_state)
    frame = Frame.of(x, y, varies, indefinite=indefinite)
    finite = [i for i, alpha in enumerate(alphas) if math.isfinite(alpha)]
    found = dict(zip(finite, _in_frame(frame, [alphas[i] for i in finite], k, plan), strict=True))
    doubtful = [
        i
        for i in range(len(alphas))
        if i not in found or may_be_null(found[i].values, frame.scale(alphas[i]), frame.size)
    ]
    exact = frame.without_null_directions() if doubtful or k > frame.size else frame
    if exact.size < k:
        doubtful = list(range(len(alphas)))
    elif exact.size == frame.size:
        doubtful = [i for i in doubtful if i not in found]
    again = _in_frame(exact, [alphas[i] for i in doubtful], k, plan)
    found |= dict(zip(doubtful, again, strict=True))
    return lifted(x, y, exact, [found[i] for i in range(len(alphas))], k)


class Found(NamedTuple):
    """Eigenpairs in the coordinates of the moments, and what found them."""

    values: FloatArray
    components: FloatArray
    solver: str


def _in_frame(frame: Frame, alphas: Sequence[float], k: int, plan: Plan) -> list[Found]:
    """Eigenpairs of each contrast, as many of k as there are coordinates."""
    k = min(k, frame.size)
    if not k:
        return [Found(np.empty(0), np.empty((0, frame.outer.size)), "eigh") for _ in alphas]
    x, y = frame.x, frame.y
    budget = plan.path_budget(frame.size, k, len(alphas))
    if budget is not None:
        path = contrastive_path(x.matrix(), y.matrix(), np.array(alphas), k, budget=budget)
        parts = zip(path.values, frame.out(path.components), path.solvers, strict=True)
        return [Found(*part) for part in parts]
    memory = np.empty((frame.size,) * 2) if len(alphas) else np.empty((0, 0))
    found = []
    for alpha in alphas:
        if math.isinf(alpha):
            pairs, solver = null_space_eigenpairs(x.matrix(), y.matrix(), k), "eigh"
        else:
            form = partial(_contrast, x, y, alpha, memory)
            pairs, solver = formed_eigenpairs(form, k, plan.iteration(frame.size, k))
        found.append(Found(pairs.values, frame.out(pairs.components), solver))
    return found


def _contrast(
    x: Covariance, y: Covariance, alpha: float, memory: FloatArray, sign: float
) -> FloatArray:
    """A contrast, or its negative, made in the same memory each time."""
    memory[:] = 0.0
    x.add_to(memory, sign)
    if alpha:
        y.add_to(memory, -sign * alpha)
    mirror_upper(memory)
    return memory


def may_be_null(values: FloatArray, scale: float, size: int) -> bool:
    """Whether one of the leading directions may be one without variance, whose contrast is 0.

    If such directions exist they come before all of negative contrast.
    """
    return bool(scale > 0 and np.abs(values).min(initial=np.inf) <= 4 * size * _EPS * scale)


def lifted(x: Covariance, y: Moments, frame: Frame, found: list[Found], k: int) -> Solution:
    """The solution in feature space, filled up to k with directions in which nothing varies."""
    coordinates = np.stack([part.components for part in found])
    n_found, n_null = coordinates.shape[1], k - coordinates.shape[1]
    flat = coordinates.reshape(len(found) * n_found, -1 if coordinates.size else x.size)
    x_along, y_along = (part.along(flat).reshape(len(found), n_found) for part in (x, y))
    values = np.stack([part.values for part in found])
    components = x.lift(coordinates)
    components = fix_signs(components.reshape(-1, x.n_features)).reshape(components.shape)
    if n_null:
        nulls = frame.null_directions(n_null)
        warn_of_null_directions(n_null, k)
        components = np.concatenate(
            [components, np.broadcast_to(nulls, (len(found), *nulls.shape))], axis=1
        )
        values, x_along, y_along = (
            np.pad(part, ((0, 0), (0, n_null))) for part in (values, x_along, y_along)
        )
        coordinates = np.pad(coordinates, ((0, 0), (0, n_null), (0, n_null)))
        coordinates[:, n_found:, -n_null:] = np.eye(n_null)
    solvers = tuple(part.solver for part in found)
    return Solution(values, components, coordinates, x_along, y_along, solvers, n_null)


def warn_of_null_directions(n_null: int, k: int) -> None:
    """Say that so many of k components mean nothing."""
    warn(
        f"the last {n_null} of {k} components are directions in which neither dataset varies (or "
        "less than float64 can square): they are arbitrary. Use fewer components."
    )


def _by_products(
    x: Covariance,
    y: Moments,
    varies: NDArray[np.bool_],
    alphas: Sequence[float],
    k: int,
    plan: Plan,
    random_state: int | None,
) -> Solution:
    """Of the features that vary; ties among directions without contrast are left to a matrix."""
    found = []
    with products_of(varies, x, y) as products:
        for alpha in alphas:

            def multiply(columns: FloatArray, alpha: float = alpha) -> FloatArray:
                return products.weighted(columns, (1.0, -alpha))

            _check_products(alpha, k, int(varies.sum()))
            try:
                pairs = eigenpairs_by_products(
                    multiply,
                    int(varies.sum()),
                    k,
                    random_state=random_state,
                    max_products=plan.max_products,
                )
            except NotConvergedError as error:
                raise NotConvergedError(f"alpha={alpha:.6g}: {error} {_ADVICE}") from error
            found.append(found_by_products(y, varies, alpha, pairs.values, pairs.components))
    flat = np.concatenate([part.components for part in found])
    along = [
        np.einsum("dk,kd->k", product, flat).reshape(len(found), k)
        for product in joint_products((x, y), flat.T)
    ]
    return of_features(found, *along)


class Products:
    """Products with matrices, of the features that vary."""

    def __init__(
        self, varies: NDArray[np.bool_], parts: tuple[Covariance, ...], threads: Threads
    ) -> None:
        self._varies, self._all = varies, bool(varies.all())
        self._parts, self._threads = parts, threads

    def __call__(self, columns: FloatArray, count: int | None = None) -> list[FloatArray]:
        """With all of the matrices or the first few, for columns (features that vary, b)."""
        products = joint_products(self._parts[:count], self._whole(columns), self._threads)
        return products if self._all else [product[self._varies] for product in products]

    def weighted(self, columns: FloatArray, weights: Sequence[float]) -> FloatArray:
        """With their sum, so weighted."""
        product = weighted_product(self._parts, weights, self._whole(columns), self._threads)
        return product if self._all else product[self._varies]

    def _whole(self, columns: FloatArray) -> FloatArray:
        if self._all:
            return columns
        whole = np.zeros((len(self._varies), columns.shape[1]))
        whole[self._varies] = columns
        return whole


@contextmanager
def products_of(varies: NDArray[np.bool_], *parts: Covariance) -> Iterator[Products]:
    """Products with the matrices, of the features that vary."""
    shares_out = any(part.shares_out for part in parts)
    # BLAS's own threads, which go on running for a while after each product, would be in the way.
    with worker_threads() if shares_out else nullcontext(ALONE) as threads:
        yield Products(varies, parts, threads)


def found_by_products(
    y: Moments, varies: NDArray[np.bool_], alpha: float, values: FloatArray, components: FloatArray
) -> Found:
    """Eigenpairs (k,) and (k, features that vary), unless some may be without variance."""
    scale = float(np.abs(values).max() + (1 + alpha) * y.variances.max())
    if may_be_null(values, scale, len(varies)):
        raise NotConvergedError(
            f"alpha={alpha:.6g}: some of {len(values)} components have no contrast, and products "
            f"do not show whether anything varies along them. {_ADVICE}"
        )
    whole = np.zeros((len(values), len(varies)))
    whole[:, varies] = components
    return Found(values, whole, "lanczos")


def of_features(
    found: Sequence[Found], foreground_variance: FloatArray, background_variance: FloatArray
) -> Solution:
    """The solution where the coordinates are the features, and each component varies."""
    values = np.stack([part.values for part in found])
    components = np.stack([part.components for part in found])
    solvers = tuple(part.solver for part in found)
    return Solution(
        *(values, components, components, foreground_variance, background_variance, solvers, 0)
    )


def _check_products(alpha: float, k: int, n_varying: int) -> None:
    if math.isinf(alpha):
        raise NotConvergedError(
            "alpha=inf needs the null space of the background, which products do not show; use "
            "solver='gram' or 'eigh', or a large finite alpha."
        )
    if k > n_varying:
        raise NotConvergedError(
            f"{k} components are more than the {n_varying} features that vary. {_ADVICE}"
        )
