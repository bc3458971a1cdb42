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
from numpy.typing import NDArray
from scipy.linalg.blas import ssyrk
from scipy.linalg.lapack import spotrf, spotrs

from contrast_core._validation import FloatArray
from contrast_core.linalg._lapack import largest_eigenpairs
from contrast_core.linalg._proof import RitzPairs

EXTRA = 3  # vectors carried beyond the k wanted
_PATIENCE = 5  # iterations between which the worst error must fall by _PROGRESS
_PROGRESS = 0.1
_MAX_FACTORS = 3  # where progress stops, the factor is made anew from what is known by then


class Pencil:
    """``foreground - alpha * background`` for any alpha, in double and in single precision.

    Copies in single precision are kept of two matrices, which many alphas need, not of one.

    Parameters
    ----------
    foreground : ndarray of shape (D, D)
        Symmetric.
    background : ndarray of shape (D, D), optional
        Symmetric. None is zero, without its products.
    """

    def __init__(self, foreground: FloatArray, background: FloatArray | None) -> None:
        self.matrices = [foreground] if background is None else [foreground, background]
        # Divided by their scales, so that single precision neither overflows nor underflows.
        self._scales = [max(float(m.max()), -float(m.min())) or 1.0 for m in self.matrices]
        self._single = [] if background is None else list(map(_single, self.matrices, self._scales))

    def single_precision(self, alpha: float, scale: float) -> NDArray[np.float32]:
        """``(foreground - alpha * background) / scale``, in Fortran order."""
        if not self._single:
            return _single(self.matrices[0], scale).T
        contrast = self._single[0].T * np.float32(self._scales[0] / scale)
        contrast -= self._single[1].T * np.float32(alpha * self._scales[1] / scale)
        return contrast

    def starting_block(self, alpha: float, k: int) -> FloatArray:
        """Columns near the k leading eigenvectors and a few more, a start for the iteration.

        Orthonormal in double precision; from LAPACK's single precision.
        """
        contrast = self.single_precision(alpha, self._scales[0] + alpha * self._scales[-1])
        _, vectors = largest_eigenpairs(contrast, min(k + EXTRA, len(contrast)))
        return np.linalg.qr(vectors[:, ::-1].astype(np.float64))[0]


def _single(matrix: FloatArray, scale: float) -> NDArray[np.float32]:
    single = np.empty(matrix.shape, dtype=np.float32)
    return np.multiply(matrix, 1 / scale, out=single, casting="same_kind")


def neighbouring_pairs(
    pencil: Pencil,
    alphas: FloatArray,
    k: int,
    start: FloatArray,
    tolerance: Callable[[float, float], float],
) -> tuple[list[RitzPairs], FloatArray]:
    """Leading eigenpairs at a few neighbouring alphas.

    Parameters
    ----------
    pencil : Pencil
        The two covariances.
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
    space = _SearchSpace(pencil, start, min(max(120, 4 * len(alphas) * start.shape[1]), len(start)))
    middle = space.ritz(alphas[len(alphas) // 2 :][:1], k)[0]
    solve = _preconditioner(pencil, middle)
    pairs: dict[int, RitzPairs] = {}
    unsolved = list(range(len(alphas)))
    worst: list[float] = []
    n_factors = 1
    while True:
        residuals, errors, open_ritz, still_unsolved = [], [0.0], [], []
        for i, ritz in zip(unsolved, space.ritz(alphas[unsolved], k), strict=True):
            norms = np.linalg.norm(ritz.residual, axis=0)
            pair = RitzPairs(ritz.values[: k + 1], ritz.vectors, float(np.linalg.norm(norms)))
            pairs[i] = pair
            limit = tolerance(ritz.alpha, pair.gap) * pair.gap
            if pair.residual > limit:
                open_columns = norms > 0.02 * limit
                residuals.append(ritz.residual[:, open_columns] / norms[open_columns])
                errors.append(pair.residual / max(pair.gap, np.finfo(np.float64).tiny))
                open_ritz.append(ritz)
                still_unsolved.append(i)
        unsolved = still_unsolved
        worst.append(max(errors))
        stalled = len(worst) > _PATIENCE and worst[-1] > _PROGRESS * worst[-1 - _PATIENCE]
        if not residuals or (stalled and n_factors == _MAX_FACTORS):
            break
        if stalled:
            solve = _preconditioner(pencil, open_ritz[len(open_ritz) // 2])
            n_factors += 1
            worst.clear()
        new = solve(np.hstack(residuals))
        if space.size + new.shape[1] > space.capacity:
            space.restrict(np.hstack([ritz.coordinates for ritz in open_ritz]))
        if not space.extend(new):
            break
    last = space.ritz(alphas[-1:], k)[0]
    return [pairs[i] for i in range(len(alphas))], space.basis @ last.coordinates


class _Ritz(NamedTuple):
    """Rayleigh-Ritz at one contrast; the extra vectors only in coordinates of the search space."""

    alpha: float
    values: FloatArray  # (b,), descending
    coordinates: FloatArray  # (s, b)
    vectors: FloatArray  # of the k wanted, (D, k)
    residual: FloatArray  # (D, k)


class _SearchSpace:
    """An orthonormal basis, its products with both covariances, and these within the basis."""

    def __init__(self, pencil: Pencil, start: FloatArray, capacity: int) -> None:
        n_features, self._block = start.shape
        self._pencil, self.capacity, self.size = pencil, capacity, 0
        # In Fortran order, so that the columns in use are one piece of memory.
        self._basis, self._x, self._y = (
            np.zeros((n_features, capacity), order="F") for _ in range(3)
        )
        self._x_small, self._y_small = np.zeros((2, capacity, capacity))
        self._append(start)

    @property
    def basis(self) -> FloatArray:
        """The columns in use, (D, s)."""
        return self._basis[:, : self.size]

    def ritz(self, alphas: FloatArray, k: int) -> list[_Ritz]:
        """Rayleigh-Ritz at each alpha."""
        s = self.size
        values, coordinates = [], []
        for alpha in alphas.tolist():
            small = self._x_small[:s, :s] - alpha * self._y_small[:s, :s]
            ascending, vectors = largest_eigenpairs(small.T, self._block)
            values.append(ascending[::-1].copy())
            coordinates.append(vectors[:, ::-1])
        wanted = np.hstack([columns[:, :k] for columns in coordinates])
        vectors = self.basis @ wanted
        residual = self._y[:, :s] @ wanted
        residual *= np.repeat(-alphas, k)
        residual += self._x[:, :s] @ wanted
        residual -= vectors * np.concatenate([v[:k] for v in values])
        pieces = zip(
            alphas.tolist(),
            values,
            coordinates,
            np.split(vectors, len(alphas), axis=1),
            np.split(residual, len(alphas), axis=1),
            strict=True,
        )
        return [_Ritz(*piece) for piece in pieces]

    def restrict(self, coordinates: FloatArray) -> None:
        """Keep only the span of some vectors."""
        kept = _independent(coordinates, 1e-6)
        s, self.size = self.size, kept.shape[1]
        for columns in (self._basis, self._x, self._y):
            columns[:, : self.size] = columns[:, :s] @ kept
        for small in (self._x_small, self._y_small):
            small[: self.size, : self.size] = kept.T @ small[:s, :s] @ kept

    def extend(self, columns: FloatArray) -> bool:
        """Add the span of columns as far as it is new and there is room; False if nothing is."""
        new = columns / np.linalg.norm(columns, axis=0)
        new -= self.basis @ (self.basis.T @ new)
        new = _independent(new, 0.03)[:, : self.capacity - self.size]
        if not new.shape[1]:
            return False
        new -= self.basis @ (self.basis.T @ new)
        self._append(np.linalg.qr(new)[0])
        return True

    def _append(self, columns: FloatArray) -> None:
        old, self.size = self.size, self.size + columns.shape[1]
        new = slice(old, self.size)
        self._basis[:, new] = columns
        products = ((self._x, self._x_small), (self._y, self._y_small))
        for matrix, (product, small) in zip(self._pencil.matrices, products, strict=False):
            np.matmul(columns.T, matrix, out=product[:, new].T)
            small[: self.size, new] = self.basis.T @ product[:, new]
            small[new, :old] = small[:old, new].T


def _preconditioner(pencil: Pencil, ritz: _Ritz) -> Callable[[FloatArray], FloatArray]:
    """Solve with ``sigma I - C(alpha)``, the first k directions lifted so that it is definite.

    sigma starts within the gap below the k-th Ritz value and moves up until Cholesky succeeds.
    """
    values, k = ritz.values, ritz.vectors.shape[1]
    norms = np.linalg.norm(ritz.residual, axis=0)
    scale = max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
    gap = float(values[k - 1] - values[k])
    shift = values[k] + 0.5 * gap if norms.max() < gap else values[k - 1] + norms[-1]
    step = max(gap, float(norms.max()), 1e-3 * scale)
    while True:
        matrix = pencil.single_precision(ritz.alpha, -scale)
        matrix.T.flat[:: len(matrix) + 1] += np.float32(shift / scale)
        lift = np.maximum(values[:k] - shift, 0) + 0.5 * gap + 1e-6 * scale
        raised = (ritz.vectors * np.sqrt(lift / scale)).astype(np.float32)
        matrix = ssyrk(1.0, raised, beta=1.0, c=matrix, overwrite_c=1, lower=1)
        factor, failed = spotrf(matrix, lower=1, clean=0, overwrite_a=1)
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
