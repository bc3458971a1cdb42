"""Coordinates in which a foreground and a background vary, and directions in which neither does.

Problem: a direction in which neither dataset varies is an eigenvector of ``C_X - alpha C_Y`` with
the eigenvalue 0. It would come before every eigenvector with a negative eigenvalue, along which
alpha times the background variance exceeds the foreground variance. The directions without variance
form the null space of the sum of both covariances. The rank of the sum is determined after all D
features are scaled to unit variance. Its condition number is then at most D times the smallest one
that any scaling of the features can give (van der Sluis, Numerische Mathematik 14:14, 1969).
Eigenvalues up to 4 D eps times the largest one count as zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from contrast_core._validation import FloatArray
from contrast_core.linalg import fix_signs
from contrast_core.moments import Moments

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Frame:
    """Two covariances in orthonormal coordinates of the space in which either dataset may vary.

    Parameters
    ----------
    x, y : ndarray of shape (size, size)
        Foreground and background in these coordinates.
    moments : Moments
        Moments of the foreground; their coordinates are called the outer coordinates.
    basis : ndarray of shape (size, moments.size) or None
        Directions of these coordinates, as rows in the outer coordinates. If None, both coordinates
        are the same.
    exact : bool
        Whether it is certain that every direction varies in at least one dataset.
    """

    x: FloatArray
    y: FloatArray
    moments: Moments
    basis: FloatArray | None = None
    exact: bool = False

    @classmethod
    def from_moments(cls, x: Moments, y: Moments) -> Frame:
        """Return the frame of two covariances, without the features that vary in neither."""
        varies = x.varies | y.varies
        if x.form != "dense" or varies.all():
            return cls(x.matrix(), y.matrix(), x, exact=x.form != "dense")
        kept = np.flatnonzero(varies)
        square = np.ix_(kept, kept)
        return cls(x.matrix()[square], y.matrix()[square], x, np.eye(x.size)[kept])

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.x)

    def scale(self, alpha: float) -> float:
        """Return the scale of rounding errors of ``x - alpha y``; 0 if the frame is exact."""
        if self.exact:
            return 0.0
        x, y = (float(part.diagonal().max(initial=0.0)) for part in (self.x, self.y))
        return x + alpha * y

    def without_null_directions(self) -> Frame:
        """Return the frame without the directions in which neither dataset varies.

        These directions span the null space of the sum of both covariances. Each covariance is
        first scaled to unit total variance, and then the features of the sum are scaled to unit
        variance. Eigenvalues up to 4 D eps times the largest one count as zero.
        """
        if self.exact:
            return self
        total = np.zeros((self.size, self.size))
        for matrix in (self.x, self.y):
            trace = float(np.trace(matrix))
            if trace > 0:
                total += matrix * (1 / trace)
        deviations = np.sqrt(total.diagonal())
        deviations[deviations == 0] = 1.0
        total /= deviations
        total /= deviations[:, None]
        tolerance = 4 * len(total) * _EPS
        values, vectors = scipy.linalg.eigh(total, driver="evd", check_finite=False)
        varying = vectors[:, values > tolerance * values.max(initial=0.0)]
        if varying.shape[1] == len(total):
            return replace(self, exact=True)
        # Let P be the sum and S the diagonal matrix of the features' standard deviations. `vectors`
        # are the eigenvectors of S^-1 P S^-1. The column space of P is S times the column space of
        # S^-1 P S^-1.
        basis = np.linalg.qr(varying * deviations[:, None])[0].T
        return self._within(basis)

    def well_conditioned(self, limit: float) -> Frame:
        """Return the frame without the directions in which both datasets together vary little.

        The directions that are left out are eigenvectors of the sum of both covariances. Their
        eigenvalues are below the largest eigenvalue divided by `limit`.
        """
        values, vectors = scipy.linalg.eigh(self.x + self.y, driver="evd", check_finite=False)
        return self._within(vectors[:, values * limit >= values.max(initial=0.0)].T)

    def to_outer(self, components: FloatArray) -> FloatArray:
        """Map rows, (..., k, size), to the coordinates of the moments, (..., k, moments.size)."""
        return components if self.basis is None else components @ self.basis

    def null_directions(self, count: int) -> FloatArray:
        """Return orthonormal directions, (count, n_features), in which nothing varies."""
        if not count:
            return np.empty((0, self.moments.n_features))
        if self.basis is None:
            return self.moments.complement(count)
        start = np.random.default_rng(0).standard_normal((count, self.moments.size))
        # Features that vary in neither dataset have no part in `basis`. They are taken first.
        constant = np.flatnonzero(~self.basis.any(axis=0))[:count]
        start[: len(constant)] = np.eye(self.moments.size)[constant]
        start[len(constant) :, constant] = 0.0
        for _ in range(2):  # the second pass removes rounding errors of the first
            start -= start @ self.basis.T @ self.basis
            start = np.linalg.qr(start.T)[0].T
        return fix_signs(start)

    def _within(self, basis: FloatArray) -> Frame:
        """Return the frame restricted to the span of `basis`, whose rows are orthonormal."""
        x, y = (_symmetric(basis @ part @ basis.T) for part in (self.x, self.y))
        return replace(self, x=x, y=y, basis=self.to_outer(basis), exact=True)


def _symmetric(matrix: FloatArray) -> FloatArray:
    return np.asarray((matrix + matrix.T) / 2)
