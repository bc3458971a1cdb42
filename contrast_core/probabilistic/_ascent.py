"""Maximise an objective by accelerating an iteration that never lowers it, such as EM.

The map is the function that takes a point to the next point of this iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from contrast_core._validation import FloatArray

_MEMORY = 10  # largest number of steps that are mixed before the memory is cleared
_MAPS = 300  # largest number of evaluations by mixing, before L-BFGS takes over
_EPS = float(np.finfo(np.float64).eps)


class Evaluation(NamedTuple):
    """The objective at a point, its gradient, and the point to which the map takes this point."""

    value: float
    gradient: FloatArray
    update: FloatArray


class Ascent(NamedTuple):
    """Result of an ascent.

    point : ndarray of shape (p,)
        The last accepted point.
    values : ndarray of shape (number of points,)
        The objective at each accepted point; it does not fall by more than rounding.
    converged : bool
        Whether the length of the gradient reached the tolerance.
    """

    point: FloatArray
    values: FloatArray
    converged: bool


def ascend(
    evaluate: Callable[[FloatArray], Evaluation],
    start: FloatArray,
    *,
    tol: float,
    max_iter: int,
    smooth: bool = True,
) -> Ascent:
    """Maximise by Anderson mixing of the map, then by L-BFGS if mixing has not converged.

    Mixing extrapolates the last steps of the map. If the objective would fall, mixing takes the
    map's own step instead. On likelihoods of latent variable models, mixing needs half as many
    evaluations as SQUAREM, another method to accelerate EM. On a nearly flat likelihood neither
    mixing nor SQUAREM converges, but L-BFGS does.

    Parameters
    ----------
    evaluate : callable
        Computes the objective, its gradient and the map at a point. The map must not lower the
        objective.
    start : ndarray of shape (p,)
        First point.
    tol : float
        The ascent ends when the gradient is shorter than this. (The change of the objective would
        be a bad criterion, because the objective stops changing long before the point does.)
    max_iter : int
        Largest number of evaluations.
    smooth : bool, default=True
        Whether the objective has a gradient. If it has none, `evaluate` returns the step of the map
        as the gradient, and only Anderson mixing is used.

    References
    ----------
    Henderson and Varadhan, "Damped Anderson acceleration with restarts and monotonicity control for
    accelerating EM and EM-like algorithms", JCGS 28(4), 2019.
    """
    if not smooth:
        return _mixing(evaluate, start, tol, max_iter)[0]
    best, left = Ascent(start, np.empty(0), False), max_iter
    # L-BFGS compares values of the objective, so it stops when only rounding errors change them.
    # Mixing can continue from there.
    for climb in (_mixing, _quasi_newton, _mixing):
        found, n = climb(evaluate, best.point, tol, min(left, _MAPS if climb is _mixing else left))
        values = np.concatenate([best.values, found.values[best.values.size > 0 :]])
        best, left = found._replace(values=values), left - n
        if found.converged or left <= 0:
            break
    return best


def _mixing(
    evaluate: Callable[[FloatArray], Evaluation], start: FloatArray, tol: float, max_iter: int
) -> tuple[Ascent, int]:
    """Run Anderson mixing, and return its result and the number of evaluations."""
    point, here = start, evaluate(start)
    n, values = 1, [here.value]
    points: list[FloatArray] = []  # points since the memory was cleared
    steps: list[FloatArray] = []
    while np.linalg.norm(here.gradient) > tol and n < max_iter:
        points, steps = [*points, point], [*steps, here.update - point]
        found = None
        if len(points) > 1:
            point, n = _extrapolated(points, steps), n + 1
            with suppress(np.linalg.LinAlgError):  # the extrapolated point can be invalid
                found = evaluate(point)
        if found is None or not found.value >= here.value - 4 * _EPS * abs(here.value):
            if len(points) > 1:
                points, steps = [], []
            point = here.update
            found, n = evaluate(point), n + 1
        here = found
        values.append(here.value)
        if len(points) > _MEMORY:
            points, steps = [], []
    return Ascent(point, np.array(values), bool(np.linalg.norm(here.gradient) <= tol)), n


def _extrapolated(points: list[FloatArray], steps: list[FloatArray]) -> FloatArray:
    """Return the point to which Anderson mixing extrapolates.

    Anderson mixing approximates the step of the map by a linear function of the point. Among the
    affine combinations of the last points, it takes the one whose approximate step is shortest, and
    adds this step. The differences of steps are nearly linearly dependent, so least squares ignores
    small singular values.
    """
    of_points, of_steps = np.diff(points, axis=0), np.diff(steps, axis=0)
    weights = np.linalg.lstsq(of_steps.T, steps[-1], rcond=1e-12)[0]
    return np.asarray(points[-1] + steps[-1] - weights @ (of_points + of_steps))


def _quasi_newton(
    evaluate: Callable[[FloatArray], Evaluation], start: FloatArray, tol: float, max_iter: int
) -> tuple[Ascent, int]:
    def negative(point: FloatArray) -> tuple[float, FloatArray]:
        found = evaluate(point)
        return -found.value, -found.gradient

    values = [evaluate(start).value]
    found = minimize(
        *(negative, start),
        jac=True,
        method="L-BFGS-B",
        callback=lambda intermediate_result: values.append(-intermediate_result.fun),
        options={"maxfun": max_iter, "maxiter": max_iter, "gtol": tol / start.size**0.5, "ftol": 0},
    )
    converged = bool(np.linalg.norm(found.jac) <= tol)
    return Ascent(found.x, np.array(values), converged), found.nfev
