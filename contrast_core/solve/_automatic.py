"""Components at the automatic contrast strength, the largest trace ratio of k directions.

Problem: maximise the trace ratio, the foreground variance in a subspace divided by its background
variance, over all subspaces of k dimensions. Newton's iteration solves a sequence of ordinary
eigenproblems. Each step takes the trace ratio of the previous subspace as its alpha. The
iteration converges quadratically and from below to the global maximum (Ngo, Bellalij and Saad, SIAM
Review 54:545, 2012).
"""

from __future__ import annotations

from functools import partial

from contrast_core.feedback import muted
from contrast_core.linalg import (
    Eigenpairs,
    NotConvergedError,
    proved_components,
    search_components,
    squares_fit,
)
from contrast_core.moments import Moments
from contrast_core.solve._contrast import (
    ContrastSolution,
    check_range,
    lifted,
    may_be_null,
    products_of,
    solve_contrasts,
    solved_by_products,
    threads_for,
    warn_of_null_directions,
)
from contrast_core.solve._frame import Frame
from contrast_core.solve._plan import Plan

_MAX_ITERATIONS = 100  # Newton's iteration takes fewer than ten steps in practice
_DECOMPOSITIONS = 2  # number of steps of Newton's iteration that a search may cost


def solve_trace_ratio(
    x: Moments, y: Moments, k: int, ridge: float, plan: Plan, *, random_state: int | None = 0
) -> tuple[float, ContrastSolution]:
    r"""Return the largest trace ratio of k directions, and the components there.

    .. math:: \alpha = \max_V \frac{\operatorname{tr} V^\top C_X V}
        {\operatorname{tr} V^\top C_Y V + k\tau}

    V has k orthonormal columns, and tau is the `ridge`. The columns of the best V are the leading
    eigenvectors of ``C_X - alpha C_Y``. If the plan uses an iterative search, alpha and V are found
    together in one search. Otherwise, or if the search fails, Newton's iteration finds them. Each
    of its steps solves one contrast. For large matrices, a short search finds its first alpha.

    Raises NotConvergedError for the same reasons as `solve_contrasts`. If the search fails and the
    plan has a fallback, this error is also raised, so that `with_fallback` can use the fallback.
    """
    check_range(x, "X")
    check_range(y, "the background")
    alpha = 0.0
    if x.form == "products" or plan.iterates(x.size, 0):
        search = _by_products if x.form == "products" else _by_matrices
        alpha, searched = search(x, y, k, ridge, plan, random_state)
        if searched is not None:
            return alpha, searched
        plan = plan.by_lapack()  # another search would probably fail too
    for _ in range(_MAX_ITERATIONS):
        with muted("neither dataset varies"):  # the warning is issued once, below
            [solution] = solve_contrasts(x, y, [alpha], k, plan, random_state=random_state)
        risen = float(solution.foreground_variance.sum())
        risen /= float(solution.background_variance.sum()) + k * ridge
        # Each Newton step squares the error, so a rise this small means convergence.
        if risen <= alpha * (1 + 1e-12):
            break
        alpha = risen
    if solution.n_null:
        warn_of_null_directions(solution.n_null, k)
    return alpha, solution


def _by_matrices(
    x: Moments, y: Moments, k: int, ridge: float, plan: Plan, _: int | None
) -> tuple[float, ContrastSolution | None]:
    """Return alpha and the solution, from a search with matrices.

    If LAPACK would be faster, a short search finds only a rough alpha, which replaces the first
    steps of Newton's iteration. The solution is None if it is not found or not proved, or if it may
    contain a direction in which neither dataset varies. Alpha is then a lower bound.
    """
    frame = Frame.from_moments(x, y)
    budget = plan.budget(frame.size, k, _DECOMPOSITIONS) or 4 * k
    alpha, pairs = proved_components((frame.x, frame.y), k, budget, ridge=ridge)
    if pairs is None or may_be_null(pairs.values[:k], frame.scale(alpha), frame.size):
        return alpha, None
    values, components = pairs.eigenpairs()
    [found] = lifted(x, y, [(Eigenpairs(values, frame.to_outer(components)), "search")])
    return alpha, found


def _by_products(
    x: Moments, y: Moments, k: int, ridge: float, plan: Plan, random_state: int | None
) -> tuple[float, ContrastSolution | None]:
    """Return alpha and the solution, from a search with products only; None if it fails.

    A search may multiply the covariances with at most `plan.max_products` columns. If it has not
    converged by then, alpha is still a good start for Newton's iteration. If the plan has a
    fallback, NotConvergedError is raised instead.
    """
    varies = x.varies | y.varies
    diagonals = x.variances[varies], y.variances[varies]
    if k + 4 >= varies.sum() or not all(squares_fit(float(part.max())) for part in diagonals):
        return 0.0, None
    with threads_for(x, y) as threads:
        multiply = partial(products_of, (x, y), varies, threads)
        alpha, pairs = search_components(
            *(multiply, diagonals, k, plan.max_products), ridge=ridge, random_state=random_state
        )
    if pairs is not None:
        [found] = lifted(x, y, [solved_by_products(y, varies, alpha, pairs.eigenpairs())])
        return alpha, found
    if plan.fallback is not None:
        raise NotConvergedError(
            f"the search for alpha and {k} components did not converge within "
            f"{plan.max_products} products of both covariances with a vector."
        )
    return alpha, None
