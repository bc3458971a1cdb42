"""A block Krylov space of a symmetric operator, and the spectrum as it shows in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg._search import Multiply, random_block

_FAR = 1e-3  # part of a product along the basis: if more is taken off, one more pass must follow
_EXHAUSTED = 0.01  # part of a product that the basis leaves: less is orthogonalised once more


class RitzPairs(NamedTuple):
    """Ritz values, descending (p,), vectors in the basis as columns (p, p), residuals (p,)."""

    values: FloatArray
    vectors: FloatArray
    residuals: FloatArray


class BlockKrylov:
    """Orthonormal basis of ``span(B, A B, A^2 B, ...)``, B a random block, one product at a time.

    With full reorthogonalisation, twice. Eigenvalues of a multiplicity up to the width of B are
    found, where a single vector sees one of each.

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
        product = self._multiply(self._block)
        held = self._basis[:, : self.used]
        along, self._block, self._coupling = next_block(held, product)
        self._projected[: self.used, first : self.used] = along
        self._projected[first : self.used, : self.used] = along.T
        self.steps += 1

    def ritz_pairs(self) -> RitzPairs:
        """Eigenpairs of A as far as the basis shows them."""
        projected = self._projected[: self.used, : self.used]
        values, vectors = scipy.linalg.eigh(projected, driver="evd", check_finite=False)
        values, vectors = values[::-1], vectors[:, ::-1]
        last = vectors[self.used - self.width :]
        return RitzPairs(values, vectors, np.linalg.norm(self._coupling @ last, axis=0))

    def restart(self, ritz: RitzPairs, keep: int) -> None:
        """Hold only the `keep` leading Ritz vectors and the block that would follow."""
        self._basis[:, :keep] = self._basis[:, : self.used] @ ritz.vectors[:, :keep]
        self._projected[:] = 0.0
        np.fill_diagonal(self._projected[:keep, :keep], ritz.values[:keep])
        self.used = keep

    def vectors(self, coordinates: FloatArray) -> FloatArray:
        """Columns in the basis (p, k) as columns in the space (n, k)."""
        return np.asarray(self._basis[:, : len(coordinates)] @ coordinates)


def next_block(held: FloatArray, product: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Split a product into its part along the basis `held`, a new block, and its coupling.

    ``product = held @ along + block @ coupling``; the product is overwritten.
    """
    scale = np.abs(product).max() or 1.0  # squares of tiny numbers are zero
    length = scale * np.linalg.norm(product / scale, axis=0).max()
    # Of what lies along the basis, only the part along the last two blocks is large, but where an
    # iteration has been restarted. Without it, one pass leaves as little as two.
    along = np.zeros((held.shape[1], product.shape[1]))
    last = slice(-2 * product.shape[1], None)
    along[last] = held[:, last].T @ product
    product -= held[:, last] @ along[last]
    far = np.inf
    while far > _FAR * length:
        rest = held.T @ product
        product -= held @ rest
        along += rest
        far = np.abs(rest).max()
    block, coupling = np.linalg.qr(product)
    if np.abs(coupling.diagonal()).min() < _EXHAUSTED * length:
        # The block may hold rounding errors of any direction.
        block -= held @ (held.T @ block)
        block = np.linalg.qr(block)[0]
    return along, block, coupling
