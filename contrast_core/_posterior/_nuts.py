"""The No-U-Turn sampler for densities that are the same for a matrix and all its rotations.

A rotation multiplies the matrix A (D, k) from the right by an orthogonal matrix (k, k).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contrast_core._validation import FloatArray

_WARM_UP = 400  # least number of warm-up draws, from which step size and scales are learned

# A target computes the log-density of a matrix (D, k) and of other parameters (n,), such as the
# logarithm of a noise variance, and the gradients of the log-density with respect to both.
Target: TypeAlias = Callable[[FloatArray, FloatArray], tuple[float, FloatArray, FloatArray]]


class Draws(NamedTuple):
    """Draws of matrices (chains, draws, D, k) and of other parameters (chains, draws, n).

    `diverging` (chains, draws) tells at which draws the sampler diverged.
    """

    matrices: FloatArray
    others: FloatArray
    diverging: Any


class _Trapezoids:
    r"""Unconstrained coordinates for matrices (D, k) up to rotation of their columns.

    Every matrix A is a lower trapezoidal matrix L (zero above the diagonal) times a rotation. A
    density that is the same for all rotations of A can therefore be sampled over L alone. The
    density must then be multiplied by the volume of the matrices that share an L, which is
    :math:`\prod_i |L_{ii}|^{k-i}`, i = 1 .. k. The diagonal is positive, except for its last entry.
    The sign of that entry is free, so that the last column can pass through zero.

    A point holds the entries of L, with the logarithms of the diagonal entries except the last.
    """

    def __init__(self, n_features: int, k: int) -> None:
        self.shape = n_features, k
        self.at = np.tril_indices(n_features, 0, k)
        rows, columns = self.at
        self.logged = np.flatnonzero((rows == columns) & (columns < k - 1))
        # The power of L_ii in the volume is k - i, where i = columns + 1. Because points hold the
        # logarithm of L_ii, the power is one higher.
        self.powers = k - columns[self.logged].astype(np.float64)

    def matrices(self, points: FloatArray) -> FloatArray:
        """Return the matrices (..., D, k) at points (..., n)."""
        entries = points.copy()
        entries[..., self.logged] = np.exp(entries[..., self.logged])
        found = np.zeros((*points.shape[:-1], *self.shape))
        found[(..., *self.at)] = entries
        return found

    def point(self, matrix: FloatArray) -> FloatArray:
        """Return the point that represents a lower trapezoidal matrix with a positive diagonal."""
        entries: FloatArray = matrix[self.at].copy()
        entries[self.logged] = np.log(entries[self.logged])
        return entries


def draw_matrices(
    target: Target,
    start: FloatArray,
    spread: FloatArray,
    others: FloatArray,
    *,
    draws: int,
    chains: int,
    rng: np.random.Generator,
) -> Draws:
    """Draw from a density that is the same for a matrix and all its rotations.

    Parameters
    ----------
    target : callable
        Computes the log-density of a matrix (D, k) and of other parameters (n,), and its gradients
        with respect to both. It is a density with respect to the D k entries of the whole matrix.
    start : ndarray of shape (D, k)
        A matrix of high density, lower trapezoidal with a positive diagonal.
    spread : ndarray of shape (D, 1)
        For each row of the matrix, the standard deviation of the random starting points around
        `start`. It should be about twice the standard deviation of the density, so that the chains
        start at different points.
    others : ndarray of shape (n,)
        Values of the other parameters at which the density is high.
    draws, chains : int
        Number of draws that each chain keeps, and number of chains. The warm-up takes half as many
        draws, but at least 400.
    rng : Generator
        Source of the chains' seeds.

    Raises
    ------
    ImportError
        If nutpie is not installed.
    """
    nutpie = _nutpie()
    form, n_others = _Trapezoids(*start.shape), len(others)
    centre = np.concatenate([others, form.point(start)])
    widths = np.concatenate([np.full(n_others, 0.5), np.broadcast_to(spread, start.shape)[form.at]])
    logged = n_others + form.logged
    widths[logged] = np.minimum(widths[logged], 0.5)

    def log_density(point: FloatArray) -> tuple[float, FloatArray]:
        matrix = form.matrices(point[n_others:])
        value, by_matrix, by_others = target(matrix, point[:n_others])
        gradient = np.empty_like(point)
        gradient[:n_others] = by_others
        gradient[n_others:] = by_matrix[form.at]
        if len(logged):
            gradient[logged] = gradient[logged] * np.exp(point[logged]) + form.powers
            value += float(form.powers @ point[logged])
        return value, gradient

    def finite_log_density(point: FloatArray) -> tuple[float, FloatArray]:
        # The first steps of a chain can be so long that numbers overflow. Such steps are rejected.
        with np.errstate(all="ignore"):
            try:
                return log_density(point)
            except (OverflowError, ZeroDivisionError, ValueError, np.linalg.LinAlgError):
                return -np.inf, np.zeros_like(point)

    def starting_point(seed: int) -> FloatArray:
        return centre + widths * np.random.default_rng(seed).standard_normal(len(centre))

    # nutpie's public functions accept only models of PyMC or Stan, which need a compiler at run
    # time. A density written in NumPy needs this internal module, so nutpie's version is pinned
    # (https://github.com/pymc-devs/nutpie/issues/146 asks for a public function).
    model = nutpie.compiled_pyfunc.from_pyfunc(
        len(centre),
        lambda: finite_log_density,
        lambda *_: lambda point: {"point": point},
        [np.dtype(np.float64)],
        [(len(centre),)],
        ["point"],
        make_initial_point_fn=starting_point,
    )
    found = nutpie.sample(
        model,
        draws=draws,
        tune=max(_WARM_UP, draws // 2),
        chains=chains,
        seed=int(rng.integers(2**31)),
        save_warmup=False,
        progress_bar=False,
    )
    points = found.posterior["point"].to_numpy()
    return Draws(
        form.matrices(points[..., n_others:]),
        points[..., :n_others],
        found.sample_stats["diverging"].to_numpy(),
    )


def _nutpie() -> Any:
    try:
        import_module("nutpie.compiled_pyfunc")
    except ImportError as error:
        raise ImportError(
            "posterior() needs nutpie and ArviZ, and at least one of them is not installed. Run "
            "pip install '.[posterior]' in the folder of the project (its clone or sdist)."
        ) from error
    return import_module("nutpie")
