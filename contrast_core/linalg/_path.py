"""Leading eigenpairs of ``C_X - alpha C_Y`` at many contrasts, with a proof for each contrast.

Problem: find the k leading eigenpairs at dozens of neighbouring values of alpha. Each value gives
one matrix, called a contrast. The eigenvectors at one contrast are close to the eigenvectors at the
next, so one block Davidson search (`_search`) goes from contrast to contrast and keeps its search
space. Its results (Ritz values and Ritz vectors) are candidates until they are proved to be the
leading eigenpairs. The proof (`_proof`) needs an upper bound of the (k+1)-th eigenvalue. Two bounds
are used.

1. Inertia. Let the k columns of V be the Ritz vectors of a contrast C, and let S be a positive
   diagonal matrix. If ``sigma I - C + V S V^T`` has a Cholesky factor, at most k eigenvalues of C
   exceed sigma (`_proof`), so sigma is an upper bound.
2. Convexity. The sum of the j largest eigenvalues of ``C_X - alpha C_Y`` is a maximum of functions
   that are linear in alpha, and hence convex. Therefore, between two contrasts, the sum of the
   k + 1 largest eigenvalues lies below the chord that joins its values at these contrasts. The sum
   of the k Ritz values is a lower bound of the sum of the k largest eigenvalues. Therefore the
   chord minus the sum of the Ritz values is an upper bound of the (k+1)-th eigenvalue. This bound
   needs no factorisation at the contrasts between the two.

If neither bound proves the result at a contrast, LAPACK solves the eigenproblem at this contrast
again. No unproved result is returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg._eigen import solve_contrast
from contrast_core.linalg._precondition import Pencil, by_diagonal
from contrast_core.linalg._proof import (
    Eigenpairs,
    RitzPairs,
    allowed_sine,
    bound_by_inertia,
    is_proved,
    spectral_norm,
)
from contrast_core.linalg._search import (
    EXTRA,
    Precondition,
    Ritz,
    SearchSpace,
    Stage,
    random_block,
    search,
    squares_fit,
)

_EPS = float(np.finfo(np.float64).eps)
_GROUP = 6  # neighbouring contrasts that are solved together and share a budget


def contrastive_path(
    foreground: FloatArray,
    background: FloatArray,
    alphas: FloatArray,
    k: int,
    *,
    budget: float | None = None,
) -> list[tuple[Eigenpairs, str]]:
    """Return the top-k eigenpairs of ``foreground - alpha * background`` at every contrast.

    Parameters
    ----------
    foreground, background : ndarray of shape (D, D)
        Symmetric matrices; the background is positive semidefinite.
    alphas : ndarray of shape (A,)
        Contrast strengths from 0 to inf, ascending.
    k : int
        Number of eigenpairs.
    budget : float, optional
        Number of columns that the search may multiply for each contrast. The search takes groups of
        neighbouring contrasts. If a group exceeds its budget, LAPACK solves this group and all
        later ones. LAPACK also solves every contrast whose result is not proved. If None, LAPACK
        solves all contrasts.

    Returns
    -------
    list of (Eigenpairs, str)
        The eigenpairs at each contrast, and the solver that found them: "search" or "eigh". The
        sine of the largest angle to the exact subspace is at most
        ``max(1e-8, 100 * eps * |C| / gap)``, where C is the contrast and gap is the distance
        between its eigenvalues k and k + 1.
    """
    finite = np.flatnonzero(np.isfinite(alphas))
    proved: dict[int, RitzPairs] = {}
    largest = max(float(np.abs(m.diagonal()).max()) for m in (foreground, background))
    if (
        budget is not None
        and k + 1 + EXTRA < len(foreground)
        and len(finite)
        and foreground.any()
        and squares_fit(largest * (1 + float(alphas[finite[-1]])))
    ):
        path = _ProvedPath(foreground, background, alphas[finite], k, budget)
        proved = {int(finite[i]): pairs for i, pairs in path.proved.items()}
    return [
        (proved[i].eigenpairs(), "search")
        if i in proved
        else solve_contrast(foreground, background, alpha, k)
        for i, alpha in enumerate(alphas.tolist())
    ]


class _ProvedPath:
    """Candidate eigenpairs at every contrast, and bounds that prove them to be the leading ones."""

    def __init__(
        self,
        foreground: FloatArray,
        background: FloatArray,
        alphas: FloatArray,
        k: int,
        budget: float,
    ) -> None:
        self.pencil, self.k = Pencil((foreground, background)), k
        self.norms = spectral_norm(foreground), spectral_norm(background)
        self.pairs = self._candidates(alphas, budget)
        self.alphas = alphas[: len(self.pairs)]
        self.beta = np.full(len(self.pairs), np.inf)  # upper bounds of the (k+1)-th eigenvalues
        self.tried = np.zeros(len(self.pairs), dtype=bool)  # where `bound_by_inertia` was called
        if self.pairs:
            self._prove()
        self.proved = {i: p for i, p in enumerate(self.pairs) if self._is_proved(i, self.beta[i])}

    def _candidates(self, alphas: FloatArray, budget: float) -> list[RitzPairs]:
        """Search contrasts group by group, until a group exceeds its budget of products."""
        pencil = self.pencil
        width = self.k + EXTRA
        space = SearchSpace(
            pencil.multiply,
            random_block(pencil.size, width),
            max(120, 4 * _GROUP * width),
        )

        def tolerance(ritz: Ritz, gap: float) -> float:
            return 0.2 * allowed_sine(self._norm(ritz.alpha), gap)

        # The first Cholesky preconditioner is built from the Ritz vectors at the first contrast.
        # Rough Ritz vectors suffice, and a few steps with the diagonal preconditioner find them.
        stage = by_diagonal(pencil.diagonals, 4)
        search(space, lambda: alphas[:1], self.k, [stage], tolerance, 2 * budget)
        candidates: list[RitzPairs] = []
        last: list[Precondition] = []  # only the last factor, because each is as large as a matrix

        def new_factor(ritz: Ritz) -> Precondition:
            last[:] = [pencil.factored(ritz)]
            return last[0]

        # A factor helps beyond the contrast for which it was made. A group begins with the last
        # factor of the group before, and keeps it as long as each step reduces the error tenfold.
        new_stages = [stage._replace(make=new_factor) for stage in pencil.factors()]
        last_stage = Stage(lambda _: last[0], patience=1)
        for i in range(0, len(alphas), _GROUP):
            group = alphas[i : i + _GROUP]
            pairs, converged = search(
                space,
                partial(np.copy, group),
                self.k,
                [last_stage, *new_stages] if last else new_stages,
                tolerance,
                budget * len(group),
            )
            if not converged:
                break
            candidates += pairs
        return candidates

    def _norm(self, alpha: float) -> float:
        """Return an estimate of the spectral norm of the contrast."""
        return self.norms[0] + alpha * self.norms[1]

    def _is_proved(self, i: int, beta: float) -> bool:
        return is_proved(self.pairs[i], beta, self._norm(float(self.alphas[i])))

    def _prove(self) -> None:
        """Bound the (k+1)-th eigenvalue by inertia at a few contrasts, by chords at the others.

        Each chord begins where the one before ends, and is as long as it is expected to prove all
        results between its ends. If inertia gives a larger bound than expected, a shorter chord is
        tried.
        """
        low, last = 0, len(self.pairs) - 1
        self._bound_by_inertia(low)
        while low < last:
            high = low + 1
            while high < last and self._proves_between(low, high + 1):
                high += 1
            self._bound_by_inertia(high)
            if self._proves_between(low, high):
                for i, bound in self._chord(low, high):
                    self.beta[i] = min(self.beta[i], bound)
                low = high

    def _proves_between(self, low: int, high: int) -> bool:
        """Return whether the chord proves each result in between that inertia may prove."""
        return all(
            self._is_proved(i, bound)
            for i, bound in self._chord(low, high)
            if self._is_proved(i, self.pairs[i].first_bound)
        )

    def _chord(self, low: int, high: int) -> Iterator[tuple[int, float]]:
        """Yield each contrast in between and a bound of its (k+1)-th eigenvalue."""
        sums = self._upper_sum(low), self._upper_sum(high)
        span = self.alphas[high] - self.alphas[low]
        for i in range(low + 1, high):
            weight = (self.alphas[i] - self.alphas[low]) / span
            chord = (1 - weight) * sums[0] + weight * sums[1]
            yield i, float(chord - self.pairs[i].values[:-1].sum())

    def _bound_by_inertia(self, i: int) -> None:
        if self.tried[i]:
            return
        self.tried[i] = True
        alpha = float(self.alphas[i])
        negated = partial(self.pencil.negated, alpha)
        self.beta[i] = bound_by_inertia(negated, self.pairs[i])

    def _upper_sum(self, i: int) -> float:
        """Return an upper bound of the sum of the k + 1 largest eigenvalues.

        Before inertia was tried at this contrast, this is the bound that is expected of it.
        """
        pairs = self.pairs[i]
        beta = self.beta[i] if self.tried[i] else pairs.first_bound
        rounding = self.k * (pairs.residual + _EPS * self._norm(float(self.alphas[i])))
        return float(pairs.values[:-1].sum() + rounding + beta)
