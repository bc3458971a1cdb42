"""Block Davidson iteration for the leading eigenpairs of neighbouring contrasts.

One search space serves a few neighbouring values of alpha: their eigenvectors are close, so the
corrections that one of them needs help the others, and products with the two covariances are
taken once for all. One Cholesky factor in single precision preconditions the group; residuals and
Rayleigh-Ritz stay in double precision. What comes out is a candidate: the proof is another file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import spotrf, spotrs

from contrast_core._validation import FloatArray
from contrast_core.linalg._lapack import largest_eigenpairs

_PATIENCE = 5  # iterations between which the worst error must fall by _PROGRESS
_PROGRESS = 0.1
_MAX_FACTORS = 3  # where progress stops, the factor is made anew from what is known by then


class RitzPairs(NamedTuple):
    """Approximate leading eigenpairs at one contrast.

    Ritz values of the wanted k and the one after, descending (k + 1,); orthonormal vectors as
    columns (D, k); norm of the residual of the k.
    """

    values: FloatArray
    vectors: FloatArray
    residual: float

    @property
    def gap(self) -> float:
        """Distance from the last wanted Ritz value to the next one."""
        return float(self.values[-2] - self.values[-1])


def neighbouring_pairs(
    foreground: FloatArray,
    background: FloatArray,
    alphas: FloatArray,
    k: int,
    start: FloatArray,
    tolerance: Callable[[float, float], float],
) -> tuple[list[RitzPairs], FloatArray]:
    """Leading eigenpairs at a few neighbouring alphas.

    Parameters
    ----------
    foreground, background : ndarray of shape (D, D)
        Symmetric.
    alphas : ndarray
        Finite, close to each other.
    k : int
        Number of eigenpairs wanted.
    start : ndarray of shape (D, b), b > k
        Orthonormal columns near the leading eigenvectors.
    tolerance : callable (alpha, gap) -> float
        Wanted bound on residual over gap.

    Returns
    -------
    pairs : list of RitzPairs
        One per alpha; not all need have converged.
    vectors : ndarray of shape (D, b)
        Ritz vectors at the last alpha, a start for the next group.
    """
    block = start.shape[1]
    middle = float(alphas[len(alphas) // 2])
    solve = _preconditioner(foreground, background, middle, k, start)
    largest_basis = min(max(120, 4 * len(alphas) * block), len(foreground))
    basis, x, y = start, foreground @ start, background @ start
    pairs: dict[int, RitzPairs] = {}
    blocks: dict[int, FloatArray] = {}  # Ritz vectors, the k wanted and the extra ones
    unsolved = list(range(len(alphas)))
    worst: list[float] = []
    n_factors = 1
    while True:
        x_small, y_small = basis.T @ x, basis.T @ y
        residuals, errors, still_unsolved = [], [0.0], []
        for i in unsolved:
            alpha = float(alphas[i])
            small = np.asfortranarray(x_small - alpha * y_small)
            values, vectors = largest_eigenpairs(small, block)
            values, vectors = values[::-1], vectors[:, ::-1]
            blocks[i] = basis @ vectors
            ritz = blocks[i][:, :k]
            residual = x @ vectors[:, :k] - alpha * (y @ vectors[:, :k]) - ritz * values[:k]
            norms = np.linalg.norm(residual, axis=0)
            pairs[i] = RitzPairs(values[: k + 1].copy(), ritz, float(np.linalg.norm(norms)))
            gap = pairs[i].gap
            limit = tolerance(alpha, gap) * gap
            if pairs[i].residual > limit:
                open_columns = norms > 0.02 * limit
                residuals.append(residual[:, open_columns] / norms[open_columns])
                errors.append(pairs[i].residual / max(gap, np.finfo(np.float64).tiny))
                still_unsolved.append(i)
        unsolved = still_unsolved
        worst.append(max(errors))
        stalled = len(worst) > _PATIENCE and worst[-1] > _PROGRESS * worst[-1 - _PATIENCE]
        if not unsolved or (stalled and n_factors == _MAX_FACTORS):
            return [pairs[i] for i in range(len(alphas))], blocks[len(alphas) - 1]
        if stalled:
            i = unsolved[len(unsolved) // 2]
            solve = _preconditioner(foreground, background, float(alphas[i]), k, blocks[i])
            n_factors += 1
            worst.clear()
        new = solve(np.hstack(residuals))
        if basis.shape[1] + new.shape[1] > largest_basis:
            basis = _independent(np.hstack([blocks[i] for i in unsolved]), 1e-6)
            x, y = foreground @ basis, background @ basis
        new = new / np.linalg.norm(new, axis=0)
        new -= basis @ (basis.T @ new)
        new = _independent(new, 0.03)
        new -= basis @ (basis.T @ new)
        new = np.linalg.qr(new)[0]
        basis = np.hstack([basis, new])
        x, y = np.hstack([x, foreground @ new]), np.hstack([y, background @ new])


def _preconditioner(
    foreground: FloatArray, background: FloatArray, alpha: float, k: int, start: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    """Solve with ``sigma I - C(alpha)``, the first k directions lifted so that it is definite.

    sigma starts within the gap below the k-th Ritz value and moves up until Cholesky succeeds.
    """
    product = foreground @ start - alpha * (background @ start)
    values, rotation = np.linalg.eigh(start.T @ product)
    values, rotation = values[::-1], rotation[:, ::-1]
    ritz = start @ rotation
    norms = np.linalg.norm(product @ rotation - ritz * values, axis=0)[:k]
    scale = max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
    gap = float(values[k - 1] - values[k])
    shift = values[k] + 0.5 * gap if norms.max() < gap else values[k - 1] + norms[-1]
    step = max(gap, float(norms.max()), 1e-3 * scale)
    while True:
        # Divided by its scale, so that single precision neither overflows nor underflows.
        matrix = (background * (alpha / scale) - foreground * (1 / scale)).astype(np.float32)
        matrix.flat[:: len(matrix) + 1] += np.float32(shift / scale)
        lift = np.maximum(values[:k] - shift, 0) + 0.5 * gap + 1e-6 * scale
        raised = (ritz[:, :k] * np.sqrt(lift / scale)).astype(np.float32)
        matrix += raised @ raised.T
        factor, failed = spotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
        if not failed:
            break
        step *= 2
        shift += step

    def solve(right: FloatArray) -> FloatArray:
        solution, _ = spotrs(factor, np.asfortranarray(right, dtype=np.float32), lower=1)
        return np.asarray(solution, dtype=np.float64)

    return solve


def _independent(columns: FloatArray, threshold: float) -> FloatArray:
    """Orthonormal basis of the columns' span, less directions that are nearly dependent."""
    left, singular, _ = scipy.linalg.svd(columns, full_matrices=False, check_finite=False)
    return np.asarray(left[:, singular > threshold * singular[0]])
