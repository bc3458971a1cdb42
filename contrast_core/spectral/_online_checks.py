"""Checks of the arguments, the data and the convergence of online cPCA*."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import FloatArray, check_labels
from contrast_core.feedback import warn
from contrast_core.rows import Rows
from contrast_core.spectral._online_rows import Scatter, apply_covariance
from contrast_core.spectral._online_steps import StepSizes

# The iteration's weights W (see `OnlineCPCAStar`) approach their limit exponentially, and most
# slowly along the component v with the smallest ``v^T B v``. They are near the limit after this
# number of time constants of this component.
_TIME_CONSTANTS = 2.0
# Smallest alignment of converged components. It is not 1, because constant step sizes leave noise:
# the alignment on the mouse data is 0.98 at the default step size.
_LEAST_ALIGNMENT = 0.9
# Largest number of blocks of residuals that `_improved` adds to its search space. Each block costs
# one pass over the rows. With only 1 to 4 blocks, the test for convergence would miss a third of
# the fits that fail because they converge slowly.
_RESIDUAL_BLOCKS = 8
_ROUNDING = 1e-10


def unit_beta(beta: float | FloatArray, variance: float | FloatArray) -> FloatArray:
    """Return the beta for scaled rows that has the same solutions as `beta` for the original rows.

    The scaled rows are divided by the square root of `variance`, the background's mean variance.
    """
    weight = np.asarray(beta * variance, dtype=np.float64)
    total = 1 - beta + weight
    return np.divide(weight, total, out=np.ones_like(weight), where=total > 0)


def check_learning_rate(
    sizes: StepSizes, n_steps: int, background: Scatter, *, per_step: float
) -> None:
    """Raise ValueError if a step of the iteration would overshoot.

    A step uses `per_step` background rows on average.
    """
    length, beta = background.unit_length, float(np.ravel(sizes.beta)[-1])
    load = beta * length / per_step + 1 - beta
    eta = sizes.learning_rate / (1 + n_steps / sizes.decay_steps)
    if eta * load >= 1:
        raise ValueError(
            f"a learning rate of {eta:.3g} is too large for these background rows: "
            f"learning rate * (beta * |x|^2 / p + 1 - beta) is {eta * load:.3g} and must stay "
            f"below 1 (|x|^2 = {length:.3g} and beta = {beta:.3g} for standardised rows, and "
            f"p = {per_step:.3g} background rows per step). Use learning_rate={0.3 / load:.1g} or "
            "less."
        )


def check_variation(foreground: Scatter, background: Scatter, *, beta: float) -> None:
    """Raise ValueError if the foreground or the background does not vary."""
    if not foreground.squares:
        raise ValueError(
            f"X is constant (none of its {len(foreground.mean)} features varies over "
            f"{foreground.n_rows} rows), so there is no variance to compare. Check which rows it "
            "holds."
        )
    if not background.squares and beta == 1:
        raise ValueError(
            "beta=1 divides by the background's variance, but the background is constant; use "
            "beta below 1, or check which rows the background holds."
        )


def warn_unless_converged(
    components: FloatArray,
    n_steps: int,
    sizes: StepSizes,
    rows: tuple[Rows, Rows],
    scatters: tuple[Scatter, Scatter],
) -> None:
    """Warn if the iteration has not converged to the components of cPCA*.

    There are two tests, because neither finds all failures. B is the matrix ``(1 - beta) I + beta
    C_Y`` of the eigenproblem, for standardised rows.

    - The first test compares the number of steps with the number that the weights W need to come
      near their limit along the component v with the smallest ``v^T B v``. This test finds failures
      if B is ill-conditioned.
    - The second test searches for better components in the space that is spanned by the components
      and their residuals ``C_X v - lambda B v``. If the best components in this space differ from
      the fitted components, the fit has not converged. Reasons are too few steps, steps that are
      too large or too small, and nearly equal eigenvalues. This test is weak if B is
      ill-conditioned.
    """
    beta = float(sizes.beta)

    def products(columns: FloatArray) -> tuple[FloatArray, FloatArray]:
        x, y = (apply_covariance(*each, columns) for each in zip(rows, scatters, strict=True))
        return x, beta * y + (1 - beta) * columns

    slowest = float(np.linalg.eigvalsh(components @ products(components.T)[1])[0])
    total = sizes.learning_rate * n_steps
    if np.isfinite(sizes.decay_steps):
        total = sizes.learning_rate * sizes.decay_steps * np.log1p(n_steps / sizes.decay_steps)
    if 2 * total * slowest < _TIME_CONSTANTS:
        warn(
            f"{n_steps} steps are too few for these data: the generalised eigenvalues have not "
            "converged, and the components may not have converged either. For standardised rows, "
            f"beta is {beta:.6g}. The iteration is slow along directions in which the background "
            "hardly varies: 1 - beta + beta * (background variance) is only "
            f"{slowest:.2g} along a component, which takes about "
            f"{_TIME_CONSTANTS / (2 * slowest):.2g} / learning_rate steps. Use more n_passes, a "
            "smaller beta, or CPCAStar."
        )
        return
    better = _improved(components, products)
    alignment = float(np.square(components @ better).sum()) / better.shape[1]
    if alignment < _LEAST_ALIGNMENT:
        warn(
            f"the components have not converged after {n_steps} steps: their alignment with better "
            f"components near them is {alignment:.2f}, but should be 1. Set decay_steps to a tenth "
            "of the steps, use more n_passes or tau=0.5 or less, or use CPCAStar. Components with "
            "nearly equal eigenvalues need many steps."
        )


def _improved(
    components: FloatArray, products: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
) -> FloatArray:
    """Return an orthonormal basis, as columns, of the best components near the given ones.

    The generalised eigenproblem is solved in the space that is spanned by the given components and
    a few blocks of residuals. This is a block Davidson iteration that starts at the components.
    """
    basis, best = components.T, -np.arange(1, len(components) + 1)
    for _ in range(_RESIDUAL_BLOCKS + 1):
        x, b = products(basis)
        values, rotation = scipy.linalg.eigh(basis.T @ x, basis.T @ b, check_finite=False)
        values, rotation = values[best], rotation[:, best]
        residuals = x @ rotation - values * (b @ rotation)
        residuals /= np.abs(values).max() * np.linalg.norm(b @ rotation, axis=0).max()
        # Eigenvalues beyond the rank of the foreground are 0.
        found = basis @ rotation[:, values > _ROUNDING * values[0]]
        basis = scipy.linalg.orth(np.hstack([basis, residuals]), rcond=_ROUNDING)
    return np.linalg.qr(found)[0]


def check_flags(is_foreground: ArrayLike, n_rows: int) -> NDArray[np.bool_]:
    """Return which of `n_rows` rows are foreground, as a Boolean array."""
    flags = check_labels(is_foreground, n_rows, "is_foreground")
    if flags.dtype != np.bool_ and not np.isin(flags, (0, 1)).all():
        raise ValueError(
            "is_foreground holds values other than True and False (1 and 0). Compare your labels "
            "with a value first, as in labels == 'stimulated'."
        )
    return flags.astype(np.bool_)
