"""Leading eigenpairs of a contrast that is known only by its products with vectors."""

from __future__ import annotations

import abc
import math
from concurrent.futures import Executor
from contextlib import nullcontext

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import LinearOperator

from contrast_core._validation import FloatArray
from contrast_core.linalg._krylov import accuracy, next_block, squares_fit
from contrast_core.linalg._threads import worker_threads

_EPS = float(np.finfo(np.float64).eps)
_LARGEST_BASIS = 320  # vectors held; what is kept at a restart is a third of them


class NotConvergedError(ValueError):
    """The iteration ended before its result was as exact as every result here must be."""


class SymmetricOperator(LinearOperator, abc.ABC):
    """A symmetric matrix behind its products with blocks of columns.

    Parameters
    ----------
    size : int
        Number of rows and columns.
    random_state : int or None
        Seed of an iteration's start.
    max_products : int
        Columns that an iteration may multiply before it gives up; at a third of them it does so
        unless it has begun to converge.
    """

    def __init__(self, size: int, *, random_state: int | None, max_products: int) -> None:
        super().__init__(np.dtype(np.float64), (size, size))
        self.random_state = random_state
        self.max_products = max_products

    @abc.abstractmethod
    def _matmat(self, columns: FloatArray) -> FloatArray: ...

    @property
    def shares_out(self) -> bool:
        """Whether `multiply` makes use of threads."""
        return False

    def multiply(self, columns: FloatArray, pool: Executor | None, n_threads: int) -> FloatArray:
        """The product with columns (D, b), on threads of the pool where that is of use."""
        return self._matmat(columns)

    def _adjoint(self) -> SymmetricOperator:
        return self

    _transpose = _adjoint


def lanczos_eigenpairs(
    foreground: SymmetricOperator, background: SymmetricOperator, alpha: float, k: int
) -> tuple[FloatArray, FloatArray]:
    """Top-k eigenpairs of ``foreground - alpha * background``: values (k,), vectors (D, k).

    Thick-restarted block Lanczos iteration with full reorthogonalisation, from a random block wider
    than k: eigenvalues of a multiplicity up to its width are found, where a single vector sees one
    of each. Accepted are vectors whose residual over the gap bounds the sine to
    ``max(1e-8, 50 * eps * |C| / gap)``. Unlike an inertia check that is no proof: an eigenvector to
    which the whole random block is orthogonal, to the accuracy reached, would be missed.

    Raises
    ------
    NotConvergedError
        If the products run out first, as when eigenvalues k and k + 1 tie.
    """
    if math.isinf(alpha):
        raise NotConvergedError(
            "alpha=inf needs the null space of the background, which products do not show; use "
            "solver='gram' or 'eigh', or a large finite alpha."
        )
    shares_out = foreground.shares_out or background.shares_out
    # BLAS's own threads, which go on running for a while after each product, would be in the way.
    with worker_threads() if shares_out else nullcontext((None, 1)) as threads:
        return _iterate(foreground, background, alpha, k, *threads)


def _iterate(
    foreground: SymmetricOperator,
    background: SymmetricOperator,
    alpha: float,
    k: int,
    pool: Executor | None,
    n_threads: int,
) -> tuple[FloatArray, FloatArray]:
    size = foreground.shape[0]
    width = min(k + 2, size)
    rng = np.random.default_rng(foreground.random_state)
    basis = np.empty((size, min(size, max(_LARGEST_BASIS, 4 * width)) + width), order="F")
    projected = np.zeros((basis.shape[1],) * 2)
    block = np.linalg.qr(rng.standard_normal((size, width)))[0]
    used = n_products = n_checked = 0
    while True:
        first, used = used, used + block.shape[1]
        basis[:, first:used] = block
        product = foreground.multiply(block, pool, n_threads)
        if alpha:
            product -= alpha * background.multiply(block, pool, n_threads)
        n_products += block.shape[1]
        largest = float(np.abs(product).max())
        if not squares_fit(largest):
            raise NotConvergedError(
                f"the contrast of these data is of the size of {largest:.1g}, squares of which are "
                "no longer numbers; bring the data to a scale near 1."
            )
        held = basis[:, :used]
        along, block, coupling = next_block(held, product)
        projected[:used, first:used] = along
        projected[first:used, :used] = along.T
        whole = used + block.shape[1] > size
        full = used + block.shape[1] > basis.shape[1] - width
        spent = n_products >= foreground.max_products
        # Solving the projected problem at every block would cost more than the products.
        if not (whole or full or spent or used - n_checked >= max(4 * width, used // 8)):
            continue
        n_checked = used
        values, vectors = scipy.linalg.eigh(projected[:used, :used], check_finite=False)
        values, vectors = values[::-1], vectors[:, ::-1]
        residuals = np.linalg.norm(coupling @ vectors[first:used, : k + 1], axis=0)
        gap, wanted, accepted = accuracy(values, residuals, k)
        if whole or accepted:
            return values[:k].copy(), held @ vectors[:, :k]
        lost = 3 * n_products >= foreground.max_products and wanted > gap
        if spent or lost:
            norm = float(np.abs(values[[0, -1]]).max())
            raise NotConvergedError(
                f"the iteration for alpha={alpha:.6g} used {n_products} products without reaching "
                f"the accuracy (residual over gap {wanted / max(gap, _EPS * norm or 1.0):.1e}): "
                f"eigenvalues {k} and {k + 1} are close, or alpha is large. "
                "Use solver='gram' where the rows of both datasets are few, solver='eigh' where "
                "the features are, or another number of components."
            )
        if full:
            keep = max((basis.shape[1] - width) // 3, 2 * width)
            basis[:, :keep] = held @ vectors[:, :keep]
            projected[:] = 0.0
            projected.flat[: keep * len(projected) : len(projected) + 1] = values[:keep]
            used = n_checked = keep
