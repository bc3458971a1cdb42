"""Factorise a kernel matrix into coordinates of the mapped rows, to which linear methods apply."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.feedback import warn
from contrast_core.linalg import pivoted_cholesky

# A warning is given if the rounding error exceeds this share of the largest entry of the centred
# kernel.
_BLURRED = 1e-4
# A negative eigenvalue beyond this share of the largest eigenvalue is not due to rounding.
_INDEFINITE = 1e-8


class KernelFactor(NamedTuple):
    """Map from components, in the coordinates L of `factorise`, to coefficients on the mapped rows.

    A mapped row is the image of a row in the feature space of the kernel. The coefficients are
    computed from r pivot rows, whose images span the images of all N rows.
    """

    triangle: FloatArray  # coordinates of the pivot rows, lower triangular, (r, r)
    pivots: NDArray[np.intp]  # (r,)
    n_foreground: int
    foreground_mean: FloatArray  # mean kernel row of the foreground, not centred, (N,)

    def dual(self, components: FloatArray) -> FloatArray:
        """Return coefficients of components (k, r) on the N mapped rows, (k, N).

        The triangle gives coefficients on the centred pivot rows. Their mean within each dataset is
        then subtracted. With the resulting coefficients, the rows before centring combine to the
        same component.
        """
        coefficients = np.zeros((len(components), len(self.foreground_mean)))
        coefficients[:, self.pivots] = scipy.linalg.solve_triangular(
            self.triangle, components.T, lower=True, trans="T", check_finite=False
        ).T
        for part in np.split(coefficients, [self.n_foreground], axis=1):
            part -= part.mean(axis=1, keepdims=True)
        return coefficients


def check_kernel(kernel: FloatArray) -> None:
    """Raise ValueError unless the kernel is square, finite and symmetric."""
    if kernel.shape[0] != kernel.shape[1]:
        raise ValueError(
            f"the precomputed kernel has {kernel.shape[0]} rows (X and background together) and "
            f"{kernel.shape[1]} columns; it needs a column for each row, foreground first."
        )
    if not np.isfinite(kernel).all():
        raise ValueError(
            "the kernel has values that are NaN or infinite; scale the data, or use a smaller "
            "degree or kernel_gamma."
        )
    asymmetry = float(np.abs(kernel - kernel.T).max())
    if asymmetry > _INDEFINITE * float(np.abs(kernel).max()):
        raise ValueError(
            f"the kernel is not symmetric: k(a, b) and k(b, a) differ by up to {asymmetry:.3g}, "
            "but must be equal."
        )


def _centre_by_dataset(kernel: FloatArray, n: int) -> FloatArray:
    """Centre the mapped rows of each dataset by their own mean.

    The first n rows are the foreground. From each block of the kernel matrix, which belongs to two
    datasets, the means of its columns and then the means of its rows are subtracted.
    """
    centred = kernel.copy()
    for part in (slice(None, n), slice(n, None)):
        centred[part] -= centred[part].mean(axis=0)
    for part in (slice(None, n), slice(n, None)):
        centred[:, part] -= centred[:, part].mean(axis=1, keepdims=True)
    return (centred + centred.T) / 2


def factorise(kernel: FloatArray, n: int) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return coordinates L (N, r) of the mapped rows, centred by dataset, and the pivot rows (r,).

    A row counts as lying in the span of the pivot rows if its squared distance from this span is
    below a limit. The limit is ``N * eps`` times the largest entry on the kernel's diagonal. If the
    kernel has larger rounding errors, the limit is twice the absolute value of the most negative
    eigenvalue of the centred kernel.

    Raises
    ------
    ValueError
        If an eigenvalue is negative beyond rounding, or all are zero.
    """
    centred = _centre_by_dataset(kernel, n)
    rounding = len(kernel) * np.finfo(np.float64).eps * float(np.abs(kernel.diagonal()).max())
    if rounding > _BLURRED * float(centred.diagonal().max()) > 0:
        warn(
            "the kernel has nearly the same value for all pairs of rows, so that the centred "
            "kernel is small and has large rounding errors. This happens if the rows are far from "
            "zero or kernel_gamma is far too small. Subtract the mean of all rows first, or use a "
            "larger kernel_gamma.",
        )
    factor = pivoted_cholesky(centred, rounding)
    coordinates, rest = factor.coordinates(), factor.order[factor.rank :]
    unexplained = centred[np.ix_(rest, rest)] - coordinates[rest] @ coordinates[rest].T
    if np.abs(unexplained).max(initial=0.0) > 2 * rounding:
        # The largest entry of a positive semi-definite matrix is on its diagonal. The factorisation
        # left no diagonal entry above `rounding`, but another entry is larger. The kernel may
        # therefore be indefinite.
        values = scipy.linalg.eigvalsh(centred, check_finite=False)
        largest, smallest = float(values[-1]), float(values[0])
        if smallest < -_INDEFINITE * max(largest, 0.0):
            raise ValueError(
                f"the kernel is indefinite on these data: the smallest eigenvalue of the centred "
                f"kernel is {smallest:.3g}, and the largest is {largest:.3g}. A covariance in "
                "feature space needs a positive semi-definite kernel. Use another kernel or other "
                "parameters (a sigmoid kernel is indefinite for many parameters)."
            )
        factor = pivoted_cholesky(centred, max(rounding, -2 * smallest))
        coordinates = factor.coordinates()
    if not factor.rank:
        raise ValueError(
            "the kernel does not tell the rows of a dataset apart: after centring it is zero "
            "to working precision. Check that the rows differ and are not far from zero, and that "
            "kernel_gamma is not far too small."
        )
    return coordinates, factor.pivots
