"""Davidson iteration for the leading eigenpairs of contrasts ``C_X - alpha C_Y``.

Problem: find a few leading eigenvectors of large symmetric matrices from products of the matrices
with columns. The block Davidson method (Davidson, Journal of Computational Physics 17:87, 1975;
Saad, Numerical Methods for Large Eigenvalue Problems, 2011) keeps an orthonormal basis of a small
search space. The eigenpairs of the matrix projected on this space are the best approximations that
the space contains (Rayleigh-Ritz procedure). The method then extends the space by the
preconditioned residuals of these approximations (`_precondition`).

One space serves several neighbouring values of alpha, or one value that changes during the search.
The products of the basis with the two matrices are computed once. Rayleigh-Ritz at any alpha is
then a small eigenproblem within the space. Residuals show that the approximations are close to some
eigenpairs, but not that these are the leading ones; `_proof` proves that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg._lapack import largest_eigenpairs
from contrast_core.linalg._proof import RitzPairs

# Function that multiplies a symmetric matrix with columns, (D, b) to (D, b).
Multiply: TypeAlias = Callable[[FloatArray], FloatArray]
# Function that multiplies each of one or two symmetric matrices with columns (D, b).
MultiplyEach: TypeAlias = Callable[[FloatArray], Sequence[FloatArray]]

EXTRA = 3  # least number of Ritz vectors that a reduced space keeps besides the k wanted ones
_TOGETHER = 8  # multiplying this many columns takes hardly longer than multiplying one
_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)


class NotConvergedError(ValueError):
    """Error of an iteration that ended before its result was within the tolerance."""


class Ritz(NamedTuple):
    """Result of the Rayleigh-Ritz procedure at one alpha.

    values : ndarray of shape (b,)
        Ritz values, descending; b is at least r.
    vectors, residual : ndarray of shape (D, r)
        Leading r Ritz vectors and their residuals.
    """

    alpha: float
    values: FloatArray
    vectors: FloatArray
    residual: FloatArray


# Function that returns columns to extend the space with. It takes residuals (D, b) of unit length,
# their Ritz values (b,), and the result of Rayleigh-Ritz at one of the contrasts.
Precondition: TypeAlias = Callable[[FloatArray, FloatArray, Ritz], FloatArray]


class Stage(NamedTuple):
    """One stage of a search: the preconditioner that extends the search space, and when to stop.

    make : callable
        Function that makes a preconditioner from the result of Rayleigh-Ritz at one contrast.
    patience : int
        Number of steps within which the worst error must fall by the factor `progress`. Otherwise
        the next stage begins.
    extra : int
        Number of Ritz vectors after the wanted ones whose residuals extend the space too. If it is
        not 0, a result is accepted only if the first of these vectors has converged roughly.
    cost : int
        Cost of making the preconditioner, as a number of multiplied columns.
    progress : float
        Factor by which the worst error must fall within `patience` steps.
    """

    make: Callable[[Ritz], Precondition]
    patience: int
    extra: int = 0
    cost: int = 0
    progress: float = 0.1


class SearchSpace:
    """Orthonormal basis of a search space, its products with the matrices, and projected matrices.

    Parameters
    ----------
    multiply : callable
        Function that multiplies columns with the foreground's and the background's matrix, or with
        one matrix.
    start : ndarray of shape (D, b)
        Orthonormal columns.
    capacity : int
        Largest number of columns of the basis.
    """

    def __init__(self, multiply: MultiplyEach, start: FloatArray, capacity: int) -> None:
        self._multiply, self.capacity = multiply, min(max(capacity, start.shape[1]), len(start))
        self.size = self.n_products = 0
        products = multiply(start)
        # In Fortran order the columns in use are contiguous in memory.
        self._basis, *self._products = (
            np.empty((len(start), self.capacity), order="F") for _ in range(1 + len(products))
        )
        self._small = [np.empty((self.capacity, self.capacity)) for _ in products]
        self._append(start, products)

    def small(self, alpha: float) -> FloatArray:
        """Return the contrast projected on the s columns of the basis, (s, s), in Fortran order."""
        x, *y = (part[: self.size, : self.size] for part in self._small)
        return (x - alpha * y[0] if y else x.copy()).T

    def trace_ratio(self, k: int, ridge: float, alpha: float, rise: float = 1e-13) -> float:
        """Return the largest trace ratio of k orthonormal directions within the space.

        The ratio is the foreground variance along the directions, divided by the sum of the
        background variance and ``k * ridge``. Newton's iteration rises from `alpha` until the
        relative step is at most `rise`. Convergence is quadratic: the relative error that is left
        is about the square of the last step.
        """
        while True:
            _, vectors = largest_eigenpairs(self.small(alpha), k)
            x, y = (
                np.vdot(vectors, part[: self.size, : self.size] @ vectors) for part in self._small
            )
            before, alpha = alpha, max(alpha, float(x / (y + k * ridge)))
            if not alpha > before * (1 + rise):
                return alpha

    def ritz(self, alphas: FloatArray, n_values: int, n_vectors: int) -> list[Ritz]:
        """Return Ritz values, vectors and residuals at each alpha."""
        eigenpairs = [largest_eigenpairs(self.small(a), min(n_values, self.size)) for a in alphas]
        values = [ascending[::-1].copy() for ascending, _ in eigenpairs]
        wanted = np.hstack([vectors[:, : -n_vectors - 1 : -1] for _, vectors in eigenpairs])
        each = wanted.shape[1] // len(alphas)
        vectors = self._basis[:, : self.size] @ wanted
        x, *y = (product[:, : self.size] @ wanted for product in self._products)
        residual = x
        for part in y:
            part *= np.repeat(alphas, each)
            residual -= part
        residual -= vectors * np.concatenate([v[:each] for v in values])
        pieces = (np.split(part, len(alphas), axis=1) for part in (vectors, residual))
        return [Ritz(*parts) for parts in zip(alphas.tolist(), values, *pieces, strict=True)]

    def norm(self, alpha: float) -> float:
        """Return the largest absolute Ritz value, a lower bound of the contrast's spectral norm."""
        return float(np.abs(np.linalg.eigvalsh(self.small(alpha))).max())

    def values(self, alpha: float) -> FloatArray:
        """Return all Ritz values, descending."""
        return np.asarray(np.linalg.eigvalsh(self.small(alpha))[::-1], dtype=np.float64)

    def restrict(self, alphas: FloatArray, count: int) -> None:
        """Reduce the space to the span of the `count` leading Ritz vectors at each alpha."""
        s, count = self.size, min(count, self.size)
        leading = [largest_eigenpairs(self.small(alpha), count)[1] for alpha in alphas.tolist()]
        kept, _ = _independent(np.hstack(leading), 1e-6)
        self.size = kept.shape[1]
        for columns in (self._basis, *self._products):
            columns[:, : self.size] = columns[:, :s] @ kept
        for small in self._small:
            small[: self.size, : self.size] = kept.T @ small[:s, :s] @ kept

    def extend(self, columns: FloatArray) -> bool:
        """Add the directions of columns that are not yet in the space, as far as there is room.

        Return whether any direction was added.
        """
        basis = self._basis[:, : self.size]
        new = columns / np.linalg.norm(columns, axis=0)
        new -= basis @ (basis.T @ new)
        new, left = _independent(new, 1e-3)
        new = new[:, : self.capacity - self.size]
        if not new.shape[1]:
            return False
        # If little of the columns is left, normalising the remainder magnifies its rounding errors
        # along the basis, so these errors are removed once more.
        if left < 0.1:
            new -= basis @ (basis.T @ new)
            new = np.linalg.qr(new)[0]
        self._append(new, self._multiply(new))
        return True

    def _append(self, columns: FloatArray, products: Sequence[FloatArray]) -> None:
        old, self.size = self.size, self.size + columns.shape[1]
        self.n_products += columns.shape[1]
        new = slice(old, self.size)
        self._basis[:, new] = columns
        for given, product, small in zip(products, self._products, self._small, strict=True):
            product[:, new] = given
            small[: self.size, new] = self._basis[:, : self.size].T @ given
            small[new, :old] = small[:old, new].T


def search(
    space: SearchSpace,
    contrasts: Callable[[], FloatArray],
    wanted: int | Callable[[], int],
    stages: Iterable[Stage],
    tolerance: Callable[[Ritz, float], float],
    budget: float = np.inf,
) -> tuple[list[RitzPairs], bool]:
    """Extend a search space until it contains the leading eigenvectors at a few contrasts.

    Parameters
    ----------
    space : SearchSpace
        The space to extend.
    contrasts : callable
        Function that returns the values of alpha. It is called at every step, because the values
        may depend on the space.
    wanted : int or callable
        Number of eigenpairs, or a function that returns it and is called at every step.
    stages : iterable of Stage
        Stages, which are used one after another. A stage ends if the error no longer falls fast
        enough.
    tolerance : callable (Ritz, gap) -> float
        Function that returns the largest accepted ratio of residual and gap. The gap is the
        difference between the last wanted Ritz value and the next one.
    budget : float
        Largest number of columns to multiply.

    Returns
    -------
    pairs : list of RitzPairs
        One result for each contrast, in the order of the contrasts.
    converged : bool
        Whether all results are within the tolerance.
    """
    unsolved = list(range(len(contrasts())))
    pairs: dict[int, RitzPairs] = {}
    spent = -space.n_products  # columns that were multiplied before this search are not counted
    for stage in stages:
        precondition: Precondition | None = None
        spent += stage.cost
        worst: list[float] = []
        while unsolved:
            still_unsolved, unsolved_ritz, residuals, values, errors = [], [], [], [], []
            k = wanted() if callable(wanted) else wanted
            at_each = space.ritz(contrasts()[unsolved], k + 1 + stage.extra, k + stage.extra)
            for i, ritz in zip(unsolved, at_each, strict=True):
                norms = np.linalg.norm(ritz.residual, axis=0)
                pairs[i] = RitzPairs(ritz.values[: k + 1], ritz.vectors[:, :k], norms[:k])
                gap = pairs[i].gap
                limit = tolerance(ritz, gap)
                margins = np.maximum(ritz.values[: len(norms)] - ritz.values[k], max(gap, _TINY))
                with np.errstate(over="ignore"):
                    sines = norms / margins
                    sine = float(np.linalg.norm(sines[:k]))
                if sine <= limit and (sines[k : k + 1] <= 0.1).all():
                    continue
                # The space is not extended by residuals that are far below the limit already.
                inaccurate = sines > 0.02 * limit
                still_unsolved.append(i)
                unsolved_ritz.append(ritz)
                residuals.append(ritz.residual[:, inaccurate] / norms[inaccurate])
                values.append(ritz.values[: len(norms)][inaccurate])
                errors.append(sine)
            unsolved = still_unsolved
            if not unsolved or spent + space.n_products >= budget:
                return list(pairs.values()), not unsolved
            worst.append(max(errors))
            if (
                len(worst) > stage.patience
                and worst[-1] > stage.progress * worst[-1 - stage.patience]
            ):
                break
            # One preconditioner serves all contrasts. It is made for the middle unsolved one.
            middle = unsolved_ritz[len(unsolved_ritz) // 2]
            if precondition is None:
                precondition = stage.make(middle)
            new = precondition(np.hstack(residuals), np.concatenate(values), middle)
            # A full space is reduced. A space of capacity D is not, as it can hold all directions.
            if space.size + new.shape[1] > space.capacity < len(new):
                keep = max(k + EXTRA, space.capacity // (4 * len(unsolved_ritz)))
                space.restrict(np.array([ritz.alpha for ritz in unsolved_ritz]), keep)
            if not space.extend(new):
                break
    return list(pairs.values()), False


def exact_enough(norm: float, gap: float, sine: float) -> float:
    """Return the largest accepted ratio of residual and gap (see `search`).

    This is `sine`, or the effect of rounding if that is larger. It is 0 if the gap is itself no
    larger than rounding errors, so that no result is accepted. `norm` is an estimate of the norm of
    the matrix.
    """
    rounding = 50 * _EPS * norm
    return max(sine, rounding / gap) if gap > rounding else 0.0


def rounding_counts(norm: float, gap: float, sine: float) -> bool:
    """Return whether `exact_enough` depends on the norm."""
    return 50 * _EPS * norm > sine * gap


def block_width(k: int) -> int:
    """Return how many columns to multiply at a time: k + 2, rounded up to a multiple of 8."""
    return -(-(k + 2) // _TOGETHER) * _TOGETHER


def squares_fit(largest: float) -> bool:
    """Return whether squares of entries up to `largest` neither underflow nor overflow."""
    return largest == 0 or 1e-151 < largest < 1e151


def random_block(n_features: int, width: int, random_state: int | None = 0) -> FloatArray:
    """Return random orthonormal columns to begin a search with, (D, b)."""
    block = np.random.default_rng(random_state).standard_normal((n_features, width))
    return np.linalg.qr(block)[0]


def _independent(columns: FloatArray, threshold: float) -> tuple[FloatArray, float]:
    """Return an orthonormal basis of the columns' span, and the smallest singular value kept.

    Directions whose singular value is at most `threshold` times the largest one are left out.
    """
    left, singular, _ = scipy.linalg.svd(columns, full_matrices=False, check_finite=False)
    kept = singular > threshold * singular[0]
    return np.asarray(left[:, kept]), float(singular[kept][-1])
