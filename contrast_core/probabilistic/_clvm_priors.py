"""Penalties and priors of loadings, which are maximised with the likelihood, and their M-steps.

An M-step is given sums of the E-step: ``cross`` (D, K), products of rows with latent variables, and
``second``, of these with each other, (K, K) or, where values have weights of their own, (D, K, K).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray

PRIOR_SHAPE, PRIOR_RATE = 1e-3, 1e-3  # of the inverse gamma; the rate in units of the noise
_NEWTON_STEPS = 50  # about five in practice


@dataclass(frozen=True)
class Prior:
    """Base of the others: nothing but the likelihood is maximised."""

    smooth: ClassVar[bool] = True

    def value(self, loadings: FloatArray) -> float:
        """Return what is added to the log-likelihood of all rows."""
        return 0.0

    def slope(self, of_likelihood: FloatArray, loadings: FloatArray, n_rows: float) -> FloatArray:
        """The gradient, from that of the likelihood, per row where there are so many."""
        return of_likelihood

    def maximised(
        self,
        cross: FloatArray,
        second: FloatArray,
        loadings: FloatArray,
        noise: float,
        n_rows: float = 1.0,
    ) -> FloatArray:
        """The M-step's loadings, from those before and sums over a share ``1 / n_rows`` of rows."""
        return solved(second, cross)


LIKELIHOOD_ALONE = Prior()


@dataclass(frozen=True)
class Support(Prior):
    """Rows of the salient loadings are zero, but for those that are kept."""

    n_shared: int
    kept: NDArray[np.bool_]

    def slope(self, of_likelihood: FloatArray, loadings: FloatArray, n_rows: float) -> FloatArray:
        """Zero where loadings are."""
        found = of_likelihood.copy()
        found[~self.kept, self.n_shared :] = 0.0
        return found

    def maximised(
        self,
        cross: FloatArray,
        second: FloatArray,
        loadings: FloatArray,
        noise: float,
        n_rows: float = 1.0,
    ) -> FloatArray:
        """Rows without salient loadings by regression on the shared latent variables alone."""
        found, k, without = solved(second, cross), self.n_shared, ~self.kept
        of_these = second if second.ndim == 2 else second[without]
        found[without, k:] = 0.0
        found[without, :k] = solved(of_these[..., :k, :k], cross[without, :k])
        return found


@dataclass(frozen=True)
class Penalty(Prior):
    """Rates times the lengths of the rows of the salient loadings are taken off."""

    n_shared: int
    rates: FloatArray
    smooth: ClassVar[bool] = False

    @classmethod
    def adaptive(cls, penalty: float, dense: FloatArray, n_shared: int) -> Penalty:
        """Rates that are the inverse lengths of the most likely rows, times rho."""
        lengths = np.linalg.norm(dense[:, n_shared:], axis=1)
        rates = np.full(len(lengths), np.inf)
        np.divide(penalty, lengths, out=rates, where=lengths > 0)
        return cls(n_shared, rates)

    def value(self, loadings: FloatArray) -> float:
        """Minus the penalty."""
        rows = np.linalg.norm(loadings[:, self.n_shared :], axis=1)
        return -float((self.rates[rows > 0] * rows[rows > 0]).sum())

    def maximised(
        self,
        cross: FloatArray,
        second: FloatArray,
        loadings: FloatArray,
        noise: float,
        n_rows: float = 1.0,
    ) -> FloatArray:
        """The exact minimum, of which rows are zero."""
        return proximal(cross, second, self.n_shared, noise * self.rates / n_rows)


@dataclass(frozen=True)
class Relevance(Prior):
    r"""Each column of S has a normal prior, its variance a vague inverse gamma prior.

    Once the variances are integrated out the rest,

    .. math:: \log p(S) = -(D / 2 + a) \log \det(b I + S^\top S / 2),

    does not depend on the rotation of S. Its logarithm is concave in what it is taken of, so that
    it lies above what is quadratic in S, which the M-step maximises.
    """

    n_shared: int
    n_features: int
    rate: float

    def _inner(self, loadings: FloatArray) -> tuple[FloatArray, FloatArray]:
        shared = loadings[:, : self.n_shared]
        values, vectors = np.linalg.eigh(self.rate * np.eye(self.n_shared) + shared.T @ shared / 2)
        return values, vectors

    @property
    def _weight(self) -> float:
        return self.n_features / 2 + PRIOR_SHAPE

    def _precision(self, loadings: FloatArray, n_rows: float) -> FloatArray:
        values, vectors = self._inner(loadings)
        return np.asarray(self._weight / n_rows * vectors / values @ vectors.T)

    def value(self, loadings: FloatArray) -> float:
        """The logarithm of p(S)."""
        return -self._weight * float(np.log(self._inner(loadings)[0]).sum())

    def slope(self, of_likelihood: FloatArray, loadings: FloatArray, n_rows: float) -> FloatArray:
        """Return the gradient of the log-likelihood plus the prior."""
        found, k = of_likelihood.copy(), self.n_shared
        found[:, :k] -= loadings[:, :k] @ self._precision(loadings, n_rows)
        return found

    def maximised(
        self,
        cross: FloatArray,
        second: FloatArray,
        loadings: FloatArray,
        noise: float,
        n_rows: float = 1.0,
    ) -> FloatArray:
        """Ridge regression."""
        with_prior, k = second.copy(), self.n_shared
        with_prior[..., :k, :k] += noise * self._precision(loadings, n_rows)
        return solved(with_prior, cross)


def proximal(
    cross: FloatArray, second: FloatArray, n_shared: int, thresholds: FloatArray
) -> FloatArray:
    """The M-step's loadings with a penalty on the length of each salient row, exactly.

    Shared loadings are eliminated; a salient row w then minimises
    ``w A w^T / 2 - w b^T + threshold |w|``, which is zero where b is shorter than the threshold,
    else ``b (A + threshold / r)^-1`` with r its length.
    """
    k, several = n_shared, second[None] if second.ndim == 2 else second
    of_shared, mixed = several[:, :k, :k], several[:, :k, k:]
    shared, salient = np.split(cross, [k], axis=1)
    regression = np.asarray(np.linalg.solve(of_shared, mixed), np.float64)
    values, vectors = np.linalg.eigh(several[:, k:, k:] - mixed.swapaxes(1, 2) @ regression)
    along = _turned(salient - _turned(shared, regression), vectors)
    kept = np.linalg.norm(along, axis=1) > thresholds
    parts_of = np.broadcast_to(values, along.shape)[kept]
    some, limits = along[kept], thresholds[kept, None]
    length = np.zeros((len(some), 1))
    for _ in range(_NEWTON_STEPS):  # on 1 / |..| - 1, which is nearly linear
        parts = some / (parts_of * length + limits)
        square = (parts**2).sum(axis=1, keepdims=True)
        slope = (parts**2 * parts_of / (parts_of * length + limits)).sum(axis=1, keepdims=True)
        change = (square**0.5 - 1) * square / slope
        length += change
        if np.all(np.abs(change) <= 1e-12 * length):
            break
    along = np.zeros(along.shape)
    along[kept] = some * length / (parts_of * length + limits)
    rows = _turned(along, vectors.swapaxes(1, 2))
    return np.hstack(
        [solved(second[..., :k, :k], shared - _turned(rows, mixed.swapaxes(1, 2))), rows]
    )


def _turned(rows: FloatArray, matrices: FloatArray) -> FloatArray:
    """Each row times its matrix, or times the one of all."""
    if len(matrices) == 1:
        return np.asarray(rows @ matrices[0])
    return np.asarray((rows[:, None, :] @ matrices)[:, 0, :])


def solved(second: FloatArray, cross: FloatArray) -> FloatArray:
    """``cross @ inv(second)``, row by row where each has a matrix of its own."""
    if second.ndim == 2:
        return np.asarray(np.linalg.lstsq(second, cross.T, rcond=None)[0].T, np.float64)
    return np.asarray(np.linalg.solve(second, cross[:, :, None])[:, :, 0], np.float64)
