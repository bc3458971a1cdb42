r"""Leading eigenpairs of a contrast of few rows with many features, from the rows' inner products.

With centred rows Z, their products :math:`G = Z Z^\top` and their weights
:math:`S = \operatorname{diag}(1/n, \ldots, -\alpha/m, \ldots)` the contrast is
:math:`C = Z^\top S Z`. Of a vector :math:`v = Z^\top u` only the combination u of the rows is held:
that of :math:`C v` is :math:`S G u`, and inner products of vectors are those in the metric of G.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf
from scipy.sparse.linalg import LinearOperator

from contrast_core._validation import FloatArray
from contrast_core.linalg._krylov import BlockKrylov, squares_fit
from contrast_core.linalg._proof import AIMS, RitzPairs, is_proved
from contrast_core.linalg._single import LARGEST_SHARE, search
from contrast_core.linalg._threads import worker_threads

_EPS = float(np.finfo(np.float64).eps)


class DualPairs(NamedTuple):
    """Eigenvalues of a contrast, descending (k,), and its eigenvectors by the rows.

    Combinations of the rows that give orthonormal vectors, as columns (N, k), and the rows' scores
    along these vectors (N, k).
    """

    values: FloatArray
    combinations: FloatArray
    scores: FloatArray


def dual_eigenpairs(gram: FloatArray, weights: FloatArray, k: int) -> DualPairs | None:
    """The k algebraically largest eigenpairs of a contrast, proved by inertia, or None.

    By a block Krylov space of a random block with a fixed seed. None if that does not converge soon
    for want of a gap, if the eigenvalue after the k-th is well below zero, if the proof fails, or
    if squares would leave the range of float64.

    Parameters
    ----------
    gram : ndarray of shape (N, N)
        Inner products of the centred rows.
    weights : ndarray of shape (N,)
        Of the rows: one positive number for the foreground's, which come first, and for all others
        one that is not.
    k : int
        Number of eigenpairs.
    """
    if not squares_fit(float(gram.diagonal().max())):
        return None
    try:
        # Few columns are multiplied faster by threads of ours than by those of BLAS.
        with worker_threads() as (pool, n_threads):
            products = _Products(gram, pool, n_threads)
            krylov = _DualKrylov(products, weights, k + 2, len(gram) // LARGEST_SHARE)
            ritz, norm, converged = search(krylov, k)
            if not converged:
                return None
            dual, residual = _polished(products, weights, krylov.vectors(ritz.vectors[:, :k]))
    except np.linalg.LinAlgError:  # the space is exhausted
        return None
    pairs = RitzPairs(np.append(dual.values, ritz.values[k]), dual.combinations, residual)
    return dual if is_proved(pairs, _bound_by_inertia(gram, weights, pairs), norm) else None


class _Products(LinearOperator):
    """A symmetric matrix whose rows the threads of a pool share when it is multiplied."""

    def __init__(self, matrix: FloatArray, pool: Executor | None, n_threads: int) -> None:
        super().__init__(matrix.dtype, matrix.shape)
        self._parts, self._pool = np.array_split(matrix.T, max(n_threads, 1)), pool

    def _matmat(self, columns: FloatArray) -> Any:
        multiply = map if self._pool is None else self._pool.map
        return np.concatenate(list(multiply(lambda part: part @ columns, self._parts)))


class _DualKrylov(BlockKrylov):
    """The Krylov space of S G, orthonormal in the metric of G.

    Raises LinAlgError where a block adds less than b directions that can be told from rounding.
    """

    def __init__(self, products: _Products, weights: FloatArray, width: int, largest: int) -> None:
        super().__init__(products, width, largest, random_state=0)
        self._weights = weights[:, None]
        self._images = np.empty_like(self._basis)  # products of G with the basis
        self._block, self._image, _ = _orthonormal(self._block, products @ self._block)

    def grow(self) -> None:
        first, self.used = self.used, self.used + self.width
        self._basis[:, first : self.used] = self._block
        self._images[:, first : self.used] = self._image
        held, images = self._basis[:, : self.used], self._images[:, : self.used]
        product = self._weights * self._image
        total = np.zeros((self.used, self.width))
        for _ in range(2):
            along = images.T @ product
            product -= held @ along
            total += along
        self._projected[: self.used, first : self.used] = total
        self._projected[first : self.used, : self.used] = total.T
        self._block, self._image, self._coupling = _orthonormal(product, self.operator @ product)
        self.steps += 1


def _orthonormal(block: FloatArray, image: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Columns that are orthonormal in the metric, their images, and the factor taken off."""
    coupling = np.eye(block.shape[1])
    for _ in range(2):
        inner = block.T @ image
        upper = np.linalg.cholesky((inner + inner.T) / 2).T
        block, image = (solve_triangular(upper, part.T, trans="T").T for part in (block, image))
        coupling = upper @ coupling
    return block, image, coupling


def _polished(
    products: _Products, weights: FloatArray, combinations: FloatArray
) -> tuple[DualPairs, float]:
    """Ritz pairs of these vectors, their scores computed anew, and the norm of their residual."""
    combinations, scores, _ = _orthonormal(combinations, products @ combinations)
    weighted = weights[:, None] * scores
    values, rotation = np.linalg.eigh(scores.T @ weighted)
    values, rotation = values[::-1], rotation[:, ::-1]
    combinations, scores = combinations @ rotation, scores @ rotation
    rest = weights[:, None] * scores - combinations * values
    residual = np.sqrt(max(float((rest * (products @ rest)).sum()), 0.0))
    return DualPairs(values, combinations, scores), float(residual)


def _bound_by_inertia(gram: FloatArray, weights: FloatArray, pairs: RitzPairs) -> float:
    r"""Upper bound of the (k+1)-th eigenvalue, inf if there is no proof.

    As many eigenvalues of C exceed :math:`\sigma > 0` as the matrix

    .. math:: F = \sigma I - w G_{xx}
        + \frac{w p}{\sigma} G_{xy} \left(I + \frac{p}{\sigma} G_{yy}\right)^{-1} G_{yx}

    has negative ones, w and -p being the weights: F and the inner matrix are Schur complements of
    :math:`S^{-1} - G/\sigma`, as :math:`\sigma I - C` is of the matrix that both stand in. With V
    the foreground's part of the combinations, whose :math:`M = -V^\top F V` must be positive,
    :math:`F + 2 F V M^{-1} V^\top F` has a Cholesky factor if those are k and no more.
    """
    n = int((weights > 0).sum())
    w, p = float(weights[0]), -float(weights[-1]) if n < len(weights) else 0.0
    g_xx, g_xy, g_yy = gram[:n, :n], gram[:n, n:], gram[n:, n:]
    top_x, top_y = (
        scale * float(np.abs(part).sum(axis=0).max(initial=0.0))
        for scale, part in ((w, g_xx), (p, g_yy))
    )
    v = pairs.vectors[:n]
    for share in AIMS if pairs.gap > 0 else ():
        shift = float(pairs.values[-1] + share * pairs.gap)
        if shift <= 0:
            break
        matrix = np.array(g_xx * -w, order="F")
        matrix.flat[:: n + 1] += shift
        image = matrix @ v
        if p:
            inner = np.array(g_yy * (p / shift), order="F")
            inner.flat[:: len(inner) + 1] += 1.0
            lower, failed = dpotrf(inner, lower=1, clean=0, overwrite_a=1)
            if failed:
                continue
            across = dtrsm(np.sqrt(w * p / shift), lower, np.array(g_xy.T, order="F"), lower=1)
            image += across.T @ (across @ v)
            matrix = dsyrk(1.0, across, trans=1, beta=1.0, c=matrix, overwrite_c=1, lower=1)
        try:
            upper = np.linalg.cholesky(-(v.T @ image)).T
        except np.linalg.LinAlgError:
            continue
        raised = np.sqrt(2.0) * solve_triangular(upper, image.T, trans="T").T
        matrix = dsyrk(1.0, raised, beta=1.0, c=matrix, overwrite_c=1, lower=1)
        _, failed = dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
        if not failed:
            # What rounding may have added to F is as a foreground of so much less weight.
            rounding = len(gram) * _EPS * (shift + (2 + top_y / shift) * top_x)
            rounding += len(gram) * _EPS * float((raised**2).sum())
            return shift + (rounding / shift) * top_x
    return float("inf")
