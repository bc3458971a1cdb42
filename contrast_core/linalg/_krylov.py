"""A block Krylov space of a symmetric operator, and the spectrum as it shows in it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg._search import Multiply, random_block

_FAR = 1e-3  # part of a product along the basis: if more is taken off, one more pass must follow
_EXHAUSTED = 0.01  # part of a product that the basis leaves: less is orthogonalised once more
_LOST = 1e-12  # cosine of a block with the rest of the basis that need not be taken off
_EPS = float(np.finfo(np.float64).eps)


class RitzPairs(NamedTuple):
    """Ritz values, descending (q,), vectors in the basis as columns (p, q), residuals (q,)."""

    values: FloatArray
    vectors: FloatArray
    residuals: FloatArray


class BlockKrylov:
    """Orthonormal basis of ``span(B, A B, A^2 B, ...)``, B a random block, one product at a time.

    In exact arithmetic a product lies along the last two blocks and the next one alone. It is
    orthogonalised against the whole basis where rounding errors can have grown to count, by a
    bound: about every other time. Eigenvalues of a multiplicity up to the width of B are found,
    where a single vector sees one of each.

    Parameters
    ----------
    multiply : callable
        Product of A, symmetric, with a block of columns, (n, b) to (n, b).
    size : int
        n.
    width : int
        Columns of B.
    largest : int
        Columns that the basis may have.
    random_state : int or None, default=0
        Seed of B.
    """

    def __init__(
        self,
        multiply: Multiply,
        size: int,
        width: int,
        largest: int,
        random_state: int | None = 0,
    ) -> None:
        self._multiply = multiply
        self.width = min(width, size)
        self.steps = self.used = 0
        # Pages that are never reached cost no memory.
        self._basis = np.empty((size, min(max(largest, self.width), size)), order="F")
        self._projected = np.zeros((self._basis.shape[1],) * 2)
        self._coupling = np.empty((self.width, 0))
        self._block = random_block(size, self.width, random_state)
        self._lost = (0.0, 0.0)  # cosines of the last blocks with the basis before them, at most
        self._scale, self._least = 0.0, np.inf  # of A; of the last coupling

    @property
    def largest(self) -> int:
        """Columns that the basis has room for."""
        return int(self._basis.shape[1])

    @property
    def full(self) -> bool:
        """Whether it has none for another block."""
        return bool(self.used + self.width > self.largest)

    def grow(self) -> None:
        """Take the next block into the basis, by one product."""
        first, self.used = self.used, self.used + self.width
        self._basis[:, first : self.used] = self._block
        product = np.asfortranarray(self._multiply(self._block))
        held = self._basis[:, : self.used]
        whole = self._lost_after(self._least) > _LOST
        along, self._block, self._coupling = next_block(held, product, whole=whole)
        split = np.vstack([along[-2 * self.width :], self._coupling])
        self._scale = max(self._scale, float(np.linalg.norm(split, 2)))
        self._least = float(np.linalg.svd(self._coupling, compute_uv=False)[-1])
        lost = _EPS if whole else self._lost_after(self._least)
        if lost > _LOST:
            rest = _take_off(held, self._block)
            along += rest @ self._coupling
            self._block, again = _orthonormal(self._block)
            self._coupling, lost = again @ self._coupling, _EPS
        self._lost = self._lost[1], lost
        self._projected[: self.used, first : self.used] = along
        self._projected[first : self.used, : self.used] = along.T
        self.steps += 1

    def _lost_after(self, least: float) -> float:
        """How far the next block can be from orthogonal to all but the last two."""
        before, now = self._lost
        error = self._scale * (2 * now + before + 4 * _EPS)
        return error / least if least else np.inf

    @property
    def norm(self) -> float:
        """Of A, less what the basis does not show of it."""
        return float(np.linalg.norm(self._projected[: self.used, : self.used], axis=0).max())

    def ritz_pairs(self, count: int | None = None) -> RitzPairs:
        """Eigenpairs of A as far as the basis shows them, all or so many leading ones."""
        projected = self._projected[: self.used, : self.used]
        options: dict[str, Any] = {"driver": "evd"}
        if count is not None and count < self.used:
            options = {"driver": "evr", "subset_by_index": (self.used - count, self.used - 1)}
        values, vectors = scipy.linalg.eigh(projected, check_finite=False, **options)
        values, vectors = values[::-1], vectors[:, ::-1]
        last = vectors[self.used - self.width :]
        return RitzPairs(values, vectors, np.linalg.norm(self._coupling @ last, axis=0))

    def restart(self, ritz: RitzPairs, keep: int) -> None:
        """Hold only the `keep` leading Ritz vectors and the block that would follow."""
        self._basis[:, :keep] = self._basis[:, : self.used] @ ritz.vectors[:, :keep]
        self._projected[:] = 0.0
        np.fill_diagonal(self._projected[:keep, :keep], ritz.values[:keep])
        self.used = keep
        self._lost = (1.0, 1.0)  # the next product has a part along all of them

    def vectors(self, coordinates: FloatArray) -> FloatArray:
        """Columns in the basis (p, k) as columns in the space (n, k)."""
        return np.asarray(self._basis[:, : len(coordinates)] @ coordinates)


def next_block(
    held: FloatArray, product: FloatArray, *, whole: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Split a product into its part along the basis `held`, a new block, and its coupling.

    ``product = held @ along + block @ coupling``; the product is overwritten. Unless the `whole`
    basis is asked for, along its last two blocks alone.
    """
    width = product.shape[1]
    length = max(scipy.linalg.blas.dnrm2(column) for column in product.T)  # of tiny numbers too
    along = np.zeros((held.shape[1], width))
    # Of what lies along the basis, only the part along the last two blocks is large, but where an
    # iteration has been restarted. Without it, one pass leaves as little as two.
    along[-2 * width :] = _take_off(held[:, -2 * width :], product)
    far = np.inf if whole else 0.0
    while far > _FAR * length:
        rest = _take_off(held, product)
        along += rest
        far = np.abs(rest).max()
    block, coupling = _orthonormal(product)
    if np.abs(coupling.diagonal()).min() < _EXHAUSTED * length:
        for _ in range(2):  # the block may hold rounding errors of any direction
            _take_off(held, block)
            block, _ = _orthonormal(block)
    return along, block, coupling


def _take_off(held: FloatArray, product: FloatArray) -> FloatArray:
    """The part of columns (n, b), overwritten, along orthonormal ones, both Fortran-contiguous."""
    part = held.T @ product
    scipy.linalg.blas.dgemm(-1.0, held, part, beta=1.0, c=product, overwrite_c=True)
    return part


def _orthonormal(columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Basis of the columns' span (n, b), and their coordinates in it, (b, b)."""
    basis, coordinates = scipy.linalg.qr(
        columns, mode="economic", check_finite=False, overwrite_a=True
    )
    return basis, coordinates
