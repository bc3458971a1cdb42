"""What online cPCA* asks of its arguments and data, and what it says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contrast_core._validation import FloatArray
from contrast_core.feedback import warn
from contrast_core.spectral._online_rows import Scatter, covariance_along
from contrast_core.spectral._online_steps import StepSizes

_SETTLED = 2.0  # time constants of the slowest component, for W to come near its limit


def unit_beta(beta: float | FloatArray, variance: float | FloatArray) -> FloatArray:
    """The same contrast for rows that were divided by the root of the background's variance."""
    weight = np.asarray(beta * variance, dtype=np.float64)
    total = 1 - beta + weight
    return np.divide(weight, total, out=np.ones_like(weight), where=total > 0)


def check_learning_rate(
    sizes: StepSizes, n_steps: int, background: Scatter, *, per_step: float
) -> None:
    """Raise if a step would overshoot on average; `per_step` is the background rows in a step."""
    length, beta = background.unit_length, float(np.ravel(sizes.beta)[-1])
    load = beta * length / per_step + 1 - beta
    eta = sizes.learning_rate / (1 + n_steps / sizes.decay_steps)
    if eta * load >= 1:
        raise ValueError(
            f"a learning rate of {eta:.3g} is too large for these background rows: "
            f"learning rate * (beta * |x|^2 / p + 1 - beta) is {eta * load:.3g} and must stay "
            f"below 1 (|x|^2 = {length:.3g} and beta = {beta:.3g} of standardised rows, "
            f"p = {per_step:.3g} per step). Use learning_rate={0.3 / load:.1g} or less."
        )


def check_variation(foreground: Scatter, background: Scatter, *, beta: float) -> None:
    """Raise if there is nothing to compare, or nothing to divide by."""
    if not foreground.squares:
        raise ValueError(
            f"X is constant (none of its {len(foreground.mean)} features varies over "
            f"{foreground.n_rows} rows): there is no variance to compare; check which rows it "
            "holds."
        )
    if not background.squares and beta == 1:
        raise ValueError(
            "beta=1 divides by the background's variance, but the background is constant; use "
            "beta below 1, or check which rows the background holds."
        )


def warn_of_too_few_steps(
    components: FloatArray, n_steps: int, sizes: StepSizes, background: Any, scatter: Scatter
) -> None:
    """Warn unless eta times the variance B along every component has added up to some units.

    W grows along a component at that rate.
    """
    beta = float(sizes.beta)
    along = beta * covariance_along(background, scatter, components)
    slowest = 1 - beta + float(np.linalg.eigvalsh(along)[0])
    total = sizes.learning_rate * n_steps
    if np.isfinite(sizes.decay_steps):
        total = sizes.learning_rate * sizes.decay_steps * np.log1p(n_steps / sizes.decay_steps)
    if 2 * total * slowest < _SETTLED:
        warn(
            f"{n_steps} steps are few for these data: the generalised eigenvalues have not been "
            "reached, and the components perhaps not. With beta = "
            f"{beta:.6g} of standardised rows, directions count in which the background hardly "
            f"varies (B is {slowest:.2g} along a component), and they take about "
            f"{_SETTLED / (2 * slowest):.2g} / learning_rate steps. Use more n_passes, a smaller "
            "beta, or CPCAStar."
        )


def check_flags(is_foreground: ArrayLike, n_rows: int) -> NDArray[np.bool_]:
    """Which of `n_rows` rows are foreground."""
    flags = np.asarray(is_foreground)
    if flags.shape != (n_rows,):
        raise ValueError(
            f"is_foreground has shape {flags.shape}, but X has {n_rows} rows; expected "
            f"({n_rows},), True for each foreground row and False for each background row."
        )
    if flags.dtype != np.bool_ and not np.isin(flags, (0, 1)).all():
        raise ValueError(
            "is_foreground holds values other than True and False (1 and 0); compare your labels "
            "first, as in labels == 'stimulated'."
        )
    return flags.astype(np.bool_)
