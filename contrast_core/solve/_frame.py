"""Coordinates in which a foreground and a background vary, and directions in which neither does.

A direction in which nothing varies has the contrast 0, which is more than that of every direction
with more background than foreground: it must not come before them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.linalg import fix_signs
from contrast_core.moments import Covariance, DenseCovariance

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Frame:
    """Two covariances in orthonormal coordinates in which one of them may vary.

    Parameters
    ----------
    x, y : Covariance
        Foreground and background in these coordinates.
    outer : Covariance
        What they were made of, whose coordinates are meant by `out`.
    basis : ndarray of shape (size, outer.size) or None
        The coordinates' directions as rows; None: they are those of `outer`.
    indefinite : bool
        Whether x is no covariance; what varies is then what y shows.
    exact : bool
        Whether something varies in every direction, for sure.
    """

    x: Covariance
    y: Covariance
    outer: Covariance
    basis: FloatArray | None = None
    indefinite: bool = False
    exact: bool = False

    @classmethod
    def of(
        cls, x: Covariance, y: Covariance, varies: NDArray[np.bool_], *, indefinite: bool = False
    ) -> Frame:
        """The coordinates of two covariances, less features that do not vary in either."""
        if x.form != "dense" or varies.all():
            return cls(x, y, x, indefinite=indefinite, exact=x.form != "dense")
        kept = np.flatnonzero(varies)
        square = np.ix_(kept, kept)
        inner_x, inner_y = (DenseCovariance(part.matrix()[square]) for part in (x, y))
        return cls(inner_x, inner_y, x, np.eye(x.size)[kept], indefinite)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.x.size

    def scale(self, alpha: float) -> float:
        """What rounding of ``x - alpha y`` is relative to; 0 where every direction varies."""
        if self.exact:
            return 0.0
        x, y = (
            float(np.abs(part.matrix().diagonal()).max(initial=0.0)) for part in (self.x, self.y)
        )
        return x + max(alpha, float(self.indefinite)) * y

    def without_null_directions(self) -> Frame:
        """The same, less the directions in which neither varies: this frame where there are none.

        Those of the sum of both covariances at unit total variance, its features at unit variance:
        eigenvalues up to 4 D eps of the largest are rounding.
        """
        if self.exact:
            return self
        total = np.zeros((self.size, self.size))
        for part in (self.y,) if self.indefinite else (self.x, self.y):
            matrix = part.matrix()
            trace = float(np.trace(matrix))
            if trace > 0:
                total += matrix * (1 / trace)
        spread = np.sqrt(total.diagonal())
        spread[spread == 0] = 1.0
        total /= spread
        total /= spread[:, None]
        tolerance = 4 * len(total) * _EPS
        if _exceeds(total, tolerance * float(np.abs(total).sum(axis=0).max(initial=0.0))):
            return replace(self, exact=True)
        values, vectors = scipy.linalg.eigh(total, driver="evd", check_finite=False)
        varying = vectors[:, values > tolerance * values[-1]]
        if varying.shape[1] == len(total):
            return replace(self, exact=True)
        # The span of S^-1 P S^-1 is S^-1 times that of P.
        basis = np.linalg.qr(varying * spread[:, None])[0].T
        return self._within(basis)

    def well_conditioned(self, limit: float) -> Frame:
        """The same, less the directions with little variance in both together.

        Those are eigenvectors of the sum of both covariances with eigenvalues below the largest one
        divided by `limit`.
        """
        values, vectors = scipy.linalg.eigh(
            self.x.matrix() + self.y.matrix(), driver="evd", check_finite=False
        )
        return self._within(vectors[:, values * limit >= values.max(initial=0.0)].T)

    def out(self, components: FloatArray) -> FloatArray:
        """Rows in these coordinates (..., k, size) in those of `outer`, (..., k, outer.size)."""
        return components if self.basis is None else components @ self.basis

    def null_directions(self, count: int) -> FloatArray:
        """So many orthonormal directions, (count, n_features), in which nothing varies."""
        if not count:
            return np.empty((0, self.outer.n_features))
        if self.basis is None:
            return self.outer.complement(count)
        start = np.random.default_rng(0).standard_normal((count, self.outer.size))
        constant = np.flatnonzero(~self.basis.any(axis=0))[:count]
        start[: len(constant)] = np.eye(self.outer.size)[constant]
        start[len(constant) :, constant] = 0.0
        for _ in range(2):
            start -= start @ self.basis.T @ self.basis
            start = np.linalg.qr(start.T)[0].T
        return fix_signs(start)

    def _within(self, basis: FloatArray) -> Frame:
        x, y = (
            DenseCovariance(_symmetric(basis @ part.matrix() @ basis.T))
            for part in (self.x, self.y)
        )
        return replace(self, x=x, y=y, basis=self.out(basis), exact=True)


def _exceeds(matrix: FloatArray, bound: float) -> bool:
    """Whether all eigenvalues of a symmetric matrix exceed a bound."""
    shifted = np.array(matrix, order="F")
    shifted.flat[:: len(matrix) + 1] -= bound
    _, failed = scipy.linalg.lapack.dpotrf(shifted, lower=1, clean=0, overwrite_a=1)
    return not failed


def _symmetric(matrix: FloatArray) -> FloatArray:
    return np.asarray((matrix + matrix.T) / 2)
