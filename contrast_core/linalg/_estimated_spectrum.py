"""The spectrum of an operator: its top exactly, the rest as a density from a few probes."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg._eigen import Eigenpairs
from contrast_core.linalg._krylov import BlockKrylov, RitzPairs
from contrast_core.linalg._search import Multiply, NotConvergedError, exact_enough
from contrast_core.linalg._signs import fix_signs

_WIDTH = 32  # probes; the density's error falls with the root of their number
_STEPS = 16  # products before the density is read, so as many nodes of each probe's quadrature
_MOST_NODES = 24  # more change nothing beside the error of the probes
_KNOWN = 1e-3  # residual, relative to the Ritz value, from which on that is no estimate
_EPS = float(np.finfo(np.float64).eps)
_BASIS_PER_PAIR = 4  # that a space needs at least, unless it is exhausted
_HOPELESS = 8  # products after which a residual above the gap means that there is none


class EstimatedSpectrum:
    r"""Leading eigenpairs of a positive semidefinite operator exactly, all eigenvalues nearly.

    For when the eigenvalues decide how many eigenvectors are wanted, and the matrix is too large
    for `Spectrum`. One block Krylov space of random probes gives both. Its Ritz pairs converge at
    the top; and by the Gauss quadrature of each unit probe w,

    .. math:: w^\top f(A)\, w \approx \sum_j \omega_j f(\theta_j), \qquad
        E[w^\top f(A)\, w] = \operatorname{tr} f(A) / n,

    the probes' mean is the density of the rest (stochastic Lanczos quadrature). They are deflated
    by what has converged, which counts exactly. Quantiles are interpolated between the midpoints of
    the quadrature's steps, on the scale of singular values, with the trace, which is known, as a
    control variate: corrected by their regression on each probe's estimate of it.

    Parameters
    ----------
    multiply : callable
        Product of A with a block of columns, (n, b) to (n, b).
    size : int
        n.
    rank : int
        Number of nonzero eigenvalues.
    trace : float
        Sum of the eigenvalues.
    max_products : int
        Columns that the basis may have.

    References
    ----------
    Ubaru, Chen and Saad, SIAM Journal on Matrix Analysis and Applications 38:1075, 2017.
    """

    def __init__(
        self, multiply: Multiply, size: int, rank: int, trace: float, *, max_products: int
    ) -> None:
        self._size, self._rank, self._trace = size, rank, trace
        self._krylov = BlockKrylov(multiply, size, _WIDTH, max_products)
        self._ritz = self._grown(1)

    @property
    def values(self) -> FloatArray:
        """Eigenvalues, descending (rank,), those that have not converged being quantiles.

        Their ranks are uncertain by less than ``sqrt(n / 64)``.
        """
        if self._krylov.steps < _STEPS:
            self._ritz = self._grown(_STEPS - self._krylov.steps)
        values, vectors, residuals = self._ritz
        converged = np.append(residuals <= _KNOWN * values, False)
        known = min(int(np.argmin(converged)), self._rank)
        n_rest = self._rank - known
        if known == len(values) or values[known] <= self._size * _EPS * values[0]:
            return np.append(values[:known], np.zeros(n_rest))  # the space is exhausted
        # Counted from the top: the operator's null space is below its nonzero eigenvalues.
        levels = 1 - (np.arange(n_rest) + 0.5) / (self._size - known)
        n_nodes = min(self._krylov.steps, _MOST_NODES)
        probes = vectors[: self._krylov.width, known:]
        roots = np.empty((len(probes), n_rest))
        for row, probe in zip(roots, probes, strict=True):
            nodes, weights = _gauss(values[known:], probe, n_nodes, float(values[0]))
            row[:] = _singular_quantiles(nodes, weights, float(values[known]), levels)
        # A probe that sees too much variance, by the exact trace, sees too large quantiles.
        means = (probes**2 @ values[known:]) / (probes**2).sum(axis=1)
        excess = means.mean() - (self._trace - values[:known].sum()) / (self._size - known)
        spread = means - means.mean()
        slopes = (
            spread
            @ (roots - roots.mean(axis=0))
            / max(spread @ spread, float(np.finfo(np.float64).tiny))
        )
        rest = np.clip(roots.mean(axis=0) - slopes * excess, 0.0, np.sqrt(values[known]))
        return np.concatenate([values[:known], np.sort(rest**2)[::-1]])

    def leading(self, k: int, *, only_if_separated: bool = False) -> Eigenpairs:
        """The k largest eigenvalues, descending, and their eigenvectors as rows (k, n).

        Parameters
        ----------
        k : int
            How many.
        only_if_separated : bool, default=False
            Give up early if eigenvalues k and k + 1 are so close that the iteration is slow.

        Raises
        ------
        NotConvergedError
            If the basis is full before they are exact.
        """
        while True:
            values, _, residuals = self._ritz
            gap = float(values[k - 1] - values[k]) if len(values) > k else 0.0
            residual = float(np.linalg.norm(residuals[:k]))
            limit = gap * exact_enough(float(values[0]), gap)
            if residual <= limit and limit > 0 and residuals[k] <= 0.1 * gap:
                break
            slow = only_if_separated and self._krylov.steps >= _HOPELESS and residual > gap
            if self._krylov.full or slow or _BASIS_PER_PAIR * k > self._krylov.largest:
                raise NotConvergedError(
                    f"the iteration used {self._krylov.used} products without reaching the "
                    f"accuracy (residual {residual:.1e}, gap {gap:.1e}): eigenvalues {k} and "
                    f"{k + 1} are close."
                )
            self._ritz = self._grown()
        vectors = self._krylov.vectors(self._ritz.vectors[:, :k])
        return Eigenpairs(self._ritz.values[:k].copy(), fix_signs(np.ascontiguousarray(vectors.T)))

    def settle(self, index: int, tolerance: float) -> None:
        """Grow the space until the eigenvalue of this index is known to within `tolerance`."""
        while len(self._ritz.values) <= index or self._ritz.residuals[index] > tolerance:
            if self._krylov.full:
                raise NotConvergedError(
                    f"the iteration used {self._krylov.used} products without finding eigenvalue "
                    f"{index + 1} to within {tolerance:.1e}."
                )
            self._ritz = self._grown()

    def _grown(self, n_steps: int = 0) -> RitzPairs:
        # Solving the projected problem at every block would cost more than the products.
        for _ in range(n_steps or max(2, self._krylov.steps // 8)):
            if not self._krylov.full:
                self._krylov.grow()
        return self._krylov.ritz_pairs()


def _gauss(
    values: FloatArray, start: FloatArray, n_nodes: int, norm: float
) -> tuple[FloatArray, FloatArray]:
    """Gauss quadrature of the measure ``start**2`` at `values`: nodes, ascending, and weights.

    By the Lanczos iteration on the diagonal matrix of the values.
    """
    vectors = np.empty((n_nodes, len(values)))
    diagonal, off = np.empty(n_nodes), np.empty(n_nodes)
    following, length = start, float(np.linalg.norm(start))
    for used in range(n_nodes):
        vectors[used] = following / length
        following = values * vectors[used]
        diagonal[used] = following @ vectors[used]
        for _ in range(2):
            following = following - (vectors[: used + 1] @ following) @ vectors[: used + 1]
        off[used] = length = float(np.linalg.norm(following))
        if length <= 1e-12 * norm:
            break
    nodes, coordinates = scipy.linalg.eigh_tridiagonal(diagonal[: used + 1], off[:used])
    return nodes, coordinates[0] ** 2


def _singular_quantiles(
    nodes: FloatArray, weights: FloatArray, largest: float, levels: FloatArray
) -> FloatArray:
    """Roots of a distribution's quantiles, of which a Gauss quadrature is known and the maximum."""
    from scipy.interpolate import PchipInterpolator

    kept = weights > 1e-12
    nodes, weights = nodes[kept], weights[kept]
    middles = np.concatenate([[0.0], np.cumsum(weights) - weights / 2, [1.0]])
    roots = np.sqrt(np.clip(np.concatenate([[0.0], nodes, [largest]]), 0.0, None))
    return np.asarray(PchipInterpolator(middles, roots)(levels))
