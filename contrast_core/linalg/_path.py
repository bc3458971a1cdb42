"""The leading eigenpairs of ``C_X - alpha C_Y`` at many contrasts, every one of them proved.

Proof
-----
Two upper bounds of the (k+1)-th eigenvalue are used (what they prove: `_proof.py`).

1. Inertia: a Cholesky factor at the contrast.
2. Convexity. The sum of the j largest eigenvalues of ``C_X - alpha C_Y`` is a maximum of functions
   linear in alpha, hence convex: between two contrasts where it is known, the sum of k + 1 lies
   below the chord. Less the Ritz values' sum, a lower bound of the sum of k, it bounds
   lambda_{k+1} in between without another factorisation.

A contrast for which neither is enough is solved anew by LAPACK, never returned unproved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from contrast_core._validation import FloatArray
from contrast_core.linalg._davidson import EXTRA, Pencil, neighbouring_pairs
from contrast_core.linalg._eigen import contrastive_eigenpairs
from contrast_core.linalg._proof import RitzPairs, allowed_sine, bound_by_inertia, is_proved
from contrast_core.linalg._signs import fix_signs

PathSolver: TypeAlias = Literal["auto", "eigh", "davidson"]

_EPS = float(np.finfo(np.float64).eps)
_GROUP = 11  # neighbouring contrasts that share a search space and a preconditioner
FEWEST_CONTRASTS = 8  # for fewer, the start costs more than is saved
_FEWEST_FEATURES = 500  # below them LAPACK is as fast, where there are gaps


class PathSolution(NamedTuple):
    """Eigenvalues (A, k), components (A, k, D), and for each contrast the solver it came from."""

    values: FloatArray
    components: FloatArray
    solvers: tuple[str, ...]


def contrastive_path(
    foreground: FloatArray,
    background: FloatArray,
    alphas: FloatArray,
    k: int,
    *,
    solver: PathSolver = "auto",
) -> PathSolution:
    """Top-k eigenpairs of ``foreground - alpha * background`` at every contrast.

    Parameters
    ----------
    foreground, background : ndarray of shape (D, D)
        Symmetric, the background positive semidefinite. Operators are solved one contrast after
        another, by the Lanczos iteration and to its accuracy, which is not proved.
    alphas : ndarray of shape (A,)
        Ascending, from 0 to inf.
    k : int
        Number of eigenpairs.
    solver : {"auto", "eigh", "davidson"}, default="auto"
        LAPACK at every contrast, or an iteration warm-started from contrast to contrast with every
        result proved and LAPACK where the proof fails. "auto" iterates where that is faster: at
        least 500 features, at most one component per 200 features, at least 8 contrasts.

    Returns
    -------
    PathSolution
        The sine of the largest angle to the exact subspace is at most
        ``max(1e-8, 100 * eps * |C| / gap)``.
    """
    n_features = foreground.shape[0]
    finite = np.flatnonzero(np.isfinite(alphas))
    iterate = solver == "davidson" or (
        solver == "auto"
        and n_features >= max(_FEWEST_FEATURES, 200 * k)
        and len(finite) >= FEWEST_CONTRASTS
    )
    iterate = iterate and k + 1 + EXTRA < n_features and len(finite) > 0 and bool(foreground.any())
    proved: dict[int, RitzPairs] = {}
    if iterate:
        path = _ProvedPath(foreground, background, alphas[finite], k)
        proved = {int(finite[i]): pairs for i, pairs in path.proved.items()}
    values, components, solvers = [], [], []
    for i, alpha in enumerate(alphas.tolist()):
        if i in proved:
            values.append(proved[i].values[:k])
            components.append(fix_signs(proved[i].vectors.T))
            solvers.append("davidson")
        else:
            exact = contrastive_eigenpairs(foreground, background, alpha, k)
            values.append(exact.values)
            components.append(exact.components)
            solvers.append("eigh")
    return PathSolution(np.stack(values), np.stack(components), tuple(solvers))


def warm_eigenpairs(
    matrix: FloatArray, k: int, start: FloatArray | None
) -> tuple[RitzPairs | None, FloatArray]:
    """Leading eigenpairs of one symmetric matrix, from columns near them or from scratch.

    As exact and as surely proved as on a path; None where they are not. Also a start for the next.
    """
    path = _ProvedPath(matrix, None, np.zeros(1), k, start)
    return path.proved.get(0), path.block


class _ProvedPath:
    """Candidates from the iteration, and the bounds that prove them."""

    def __init__(
        self,
        foreground: FloatArray,
        background: FloatArray | None,
        alphas: FloatArray,
        k: int,
        start: FloatArray | None = None,
    ) -> None:
        self.foreground, self.background, self.alphas, self.k = foreground, background, alphas, k
        self.norms = _spectral_norm(foreground), _spectral_norm(background)
        self.pairs, self.block = self._candidates(start)
        # Upper bounds of the (k+1)-th eigenvalue: those hoped for from inertia, those proved.
        self.hoped = np.array([pairs.hoped for pairs in self.pairs])
        self.beta = np.full(len(alphas), np.inf)
        self.tried = np.zeros(len(alphas), dtype=bool)
        self.n_factorisations = 0
        self._prove()
        self.proved = {i: p for i, p in enumerate(self.pairs) if self._is_proved(i, self.beta[i])}

    def _candidates(self, vectors: FloatArray | None) -> tuple[list[RitzPairs], FloatArray]:
        pencil = Pencil(self.foreground, self.background)
        if vectors is None:
            vectors = pencil.starting_block(float(self.alphas[0]), self.k)
        found: list[RitzPairs] = []
        for i in range(0, len(self.alphas), _GROUP):
            pairs, vectors = neighbouring_pairs(
                pencil,
                self.alphas[i : i + _GROUP],
                self.k,
                vectors,
                lambda alpha, gap: 0.2 * allowed_sine(self._norm(alpha), gap),
            )
            found += pairs
        return found, vectors

    def _norm(self, alpha: float) -> float:
        return self.norms[0] + alpha * self.norms[1]

    def _is_proved(self, i: int, beta: float) -> bool:
        return is_proved(self.pairs[i], beta, self._norm(float(self.alphas[i])))

    def _prove(self) -> None:
        """Inertia at as few contrasts as possible, the chord between each two and the next."""
        low, last = 0, len(self.alphas) - 1
        self._bound_by_inertia(low)
        while low < last:
            high = low + 1
            if np.isfinite(self.beta[low]):
                while high < last and self._reaches(low, high + 1):
                    high += 1
            self._bound_by_inertia(high)
            while high > low + 1 and not self._reaches(low, high):
                high -= 1
                self._bound_by_inertia(high)
            for i, bound in self._chord(low, high, self.beta[high]):
                self.beta[i] = min(self.beta[i], bound)
            low = high

    def _reaches(self, low: int, high: int) -> bool:
        """Whether the chord will prove all between that can be proved, if what is hoped for is."""
        return all(
            self._is_proved(i, bound)
            for i, bound in self._chord(low, high, self.hoped[high])
            if self._is_proved(i, self.hoped[i])
        )

    def _chord(self, low: int, high: int, beta: float) -> Iterator[tuple[int, float]]:
        """Bounds of the (k+1)-th eigenvalue between two contrasts from those at the two."""
        sums = self._upper_sum(low, self.beta[low]), self._upper_sum(high, beta)
        span = self.alphas[high] - self.alphas[low]
        for i in range(low + 1, high):
            weight = (self.alphas[i] - self.alphas[low]) / span
            chord = (1 - weight) * sums[0] + weight * sums[1]
            yield i, chord - self.pairs[i].values[:-1].sum()

    def _bound_by_inertia(self, i: int) -> None:
        if self.tried[i]:
            return
        self.tried[i] = True
        alpha = float(self.alphas[i])

        def negated() -> FloatArray:
            if self.background is None:
                return -self.foreground
            matrix = alpha * self.background
            matrix -= self.foreground
            return matrix

        self.beta[i], n_factors = bound_by_inertia(negated, self.pairs[i], self._norm(alpha))
        self.n_factorisations += n_factors
        self.hoped[i] = self.beta[i]

    def _upper_sum(self, i: int, beta: float) -> float:
        """Upper bound of the sum of the k + 1 largest eigenvalues."""
        pairs = self.pairs[i]
        rounding = self.k * (pairs.residual + _EPS * self._norm(float(self.alphas[i])))
        return float(pairs.values[:-1].sum() + rounding + beta)


def _spectral_norm(matrix: FloatArray | None) -> float:
    """Lower estimate of a symmetric matrix's norm, within a few per cent, by power iteration."""
    if matrix is None:
        return 0.0
    vector = np.random.default_rng(0).normal(size=len(matrix))
    norm = 0.0
    for _ in range(10):
        vector /= np.linalg.norm(vector) or 1.0
        vector = matrix @ vector
        norm = float(np.linalg.norm(vector))
    return norm
