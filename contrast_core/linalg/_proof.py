"""Proof that approximate eigenpairs are close to the leading eigenpairs.

Problem: an iteration returns k approximate eigenpairs of a matrix C (Ritz pairs), with values
theta_1 >= ... >= theta_k and residuals r_i. Small residuals show that they are close to some
eigenpairs. They do not show that these are the k leading ones, because a leading eigenvector that
the search has missed does not change the residuals.

If the (k+1)-th eigenvalue is at most beta, and beta is below theta_k, then the sine of the largest
angle to the leading subspace is at most ``sqrt(sum_i (|r_i| / (theta_i - beta))^2)``. This follows
if each equation ``C v_i - theta_i v_i = r_i`` is projected on the eigenvectors that are not among
the k leading ones, as in the theorem of Davis and Kahan. The bound beta comes from inertia, which
is the number of positive and negative eigenvalues. Let V have k columns and S be a positive
diagonal matrix. If ``sigma I - C + V S V^T`` has a Cholesky factor, it is positive definite, and
then at most k eigenvalues of C exceed sigma. A result counts as proved if the bound of the sine is
at most 1e-8, or at most the effect of rounding if that is larger (`allowed_sine`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf

from contrast_core._validation import FloatArray
from contrast_core.linalg._bases import fix_signs

_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
# Values of sigma to try one after the other, as distances above the (k+1)-th Ritz value in units of
# the gap between the Ritz values k and k + 1.
AIMS = (0.1, 0.5)


class Eigenpairs(NamedTuple):
    """Eigenvalues in descending order (k,) and eigenvectors as rows (k, D).

    The rows are orthonormal. For a generalised problem ``A v = lambda B v``, they are
    B-orthonormal.
    """

    values: FloatArray
    components: FloatArray


class RitzPairs(NamedTuple):
    """Approximate leading eigenpairs of one matrix.

    `values` are the k wanted Ritz values and the next one, descending (k + 1,). `vectors` are
    orthonormal columns (D, k), and `residuals` are the norms ``|C v_i - theta_i v_i|`` (k,).
    """

    values: FloatArray
    vectors: FloatArray
    residuals: FloatArray

    @property
    def residual(self) -> float:
        """Frobenius norm of the matrix of all k residuals."""
        return float(np.linalg.norm(self.residuals))

    def sine(self, beta: float) -> float:
        """Return a bound of the sine of the largest angle to the leading subspace.

        The bound holds if the (k+1)-th eigenvalue is at most `beta`. Each residual is divided by
        the distance of its own Ritz value from `beta`.
        """
        margins = self.values[:-1] - beta
        return float(np.linalg.norm(self.residuals / margins)) if margins[-1] > 0 else float("inf")

    def eigenpairs(self) -> Eigenpairs:
        """Return the k wanted pairs, with the vectors as rows whose signs are fixed."""
        rows = np.ascontiguousarray(self.vectors.T)
        return Eigenpairs(self.values[: len(rows)], fix_signs(rows))

    @property
    def gap(self) -> float:
        """Distance from the last wanted Ritz value to the next one."""
        return float(self.values[-2] - self.values[-1])

    @property
    def first_bound(self) -> float:
        """The bound of the (k+1)-th eigenvalue that `bound_by_inertia` tries first."""
        return float(self.values[-1] + AIMS[0] * self.gap)


def allowed_sine(norm: float, gap: float) -> float:
    """Return the largest accepted sine: 1e-8, or the effect of rounding if that is larger."""
    return max(1e-8, 50 * _EPS * norm / max(gap, _EPS * norm, _TINY))


def is_proved(pairs: RitzPairs, beta: float, norm: float) -> bool:
    """Return whether the sine is small enough, given that the next eigenvalue is at most `beta`."""
    margin = float(pairs.values[-2]) - beta
    return margin > 0 and pairs.sine(beta) <= allowed_sine(norm, margin)


def bound_by_inertia(negated: Callable[[], FloatArray], pairs: RitzPairs) -> float:
    """Return an upper bound of the (k+1)-th eigenvalue; inf if none is found.

    Parameters
    ----------
    negated : callable
        Function that returns a new copy of ``-C``, (D, D), which will be overwritten.
    pairs : RitzPairs
        Ritz pairs of C.
    """
    for share in AIMS if pairs.gap > 0 else ():
        shift = float(pairs.values[-1] + share * pairs.gap)
        matrix = negated()
        matrix.flat[:: len(matrix) + 1] += shift
        # Adding V S V^T makes the matrix positive definite along the Ritz vectors V.
        raised = pairs.vectors * np.sqrt(pairs.values[:-1] - shift + pairs.gap)
        lower = dsyrk(1.0, raised, beta=1.0, c=matrix.T, overwrite_c=1, lower=1)
        trace = float(lower.trace())
        _, failed = dpotrf(lower, lower=1, clean=0, overwrite_a=1)
        if not failed:
            # The computed factor is the exact factor of a matrix that differs from this one by
            # rounding errors. Their norm is at most (D + 1) eps / 2 times the trace, up to terms of
            # second order (Higham, Accuracy and Stability of Numerical Algorithms, 2002, Theorem
            # 10.3), because the squares in column i of the factor sum up to diagonal entry i. Twice
            # this bound also allows for the rounding errors of the matrix itself.
            return shift + (len(matrix) + 1) * _EPS * trace
    return float("inf")


def spectral_norm(matrix: FloatArray) -> float:
    """Estimate the spectral norm of a symmetric matrix by power iteration, from below."""
    vector = np.random.default_rng(0).normal(size=len(matrix))
    norm = 0.0
    for _ in range(10):
        vector /= np.linalg.norm(vector) or 1.0
        vector = matrix @ vector
        norm = float(np.linalg.norm(vector))
    return norm
