"""The iteration of online cPCA*, for single rows (compiled with numba) or minibatches.

Equations are those of Golkar et al., arXiv:2211.07723; see `OnlineCPCAStar`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray

# After this number of rows, the inverse of M is computed again, so that rounding errors do not
# accumulate.
_REFRESH = 256


class OnlineState(NamedTuple):
    """State of the iteration after some rows: weights, and numbers of steps and of rows.

    W are the feedforward weights, and M are the lateral weights.
    """

    feedforward: FloatArray  # W, (k, D)
    lateral: FloatArray  # M, (k, k), symmetric positive definite
    n_steps: int
    n_seen: int
    n_background: int


class StepSizes(NamedTuple):
    """Step sizes of W and M, and the contrast strength beta.

    At step s, the step size of W is eta = ``learning_rate / (1 + s / decay_steps)``, and the step
    size of M is eta / tau.
    """

    learning_rate: float
    decay_steps: float  # inf keeps the step size constant
    tau: float
    beta: float | FloatArray  # one value for all rows, or one for each row, (n,)


def advance(
    state: OnlineState,
    rows: FloatArray,
    is_foreground: NDArray[np.bool_],
    sizes: StepSizes,
    batch_size: int = 1,
) -> OnlineState:
    """Update the state by the rows (n, D), which must be centred and of unit scale, and return it.

    If the iteration diverges, the result is not finite or a LinAlgError is raised.
    """
    state = state._replace(feedforward=state.feedforward.copy(), lateral=state.lateral.copy())
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    parameters = float(sizes.learning_rate), float(sizes.decay_steps), float(sizes.tau)
    betas = np.full(len(rows), sizes.beta, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if batch_size > 1:
            n_batches = -(-len(rows) // batch_size)
            for part in np.array_split(np.arange(len(rows)), n_batches):
                batch = rows[part], is_foreground[part], betas[part]
                state = _minibatch_step(state, *batch, *parameters)
        else:
            steps = _steps()
            for start in range(0, len(rows), _REFRESH):
                block = slice(start, start + _REFRESH)
                inverse = np.linalg.inv(_full_rank(state.lateral))
                batch = rows[block], is_foreground[block], betas[block]
                try:
                    state = OnlineState(*steps(*state, inverse, *batch, *parameters))
                except SystemError as error:  # numba raises this if Ctrl-C arrives during the call
                    raise KeyboardInterrupt from error
    return state


def _full_rank(M: FloatArray) -> FloatArray:
    """Return M plus a tiny ridge, which matters only if the foreground's rank is below k."""
    return np.asarray(M + (1e-12 * np.trace(M) / len(M)) * np.eye(len(M)))


def _single_steps(
    W: FloatArray,
    M: FloatArray,
    n_steps: int,
    n_seen: int,
    n_background: int,
    inverse: FloatArray,
    rows: FloatArray,
    is_foreground: NDArray[np.bool_],
    betas: FloatArray,
    learning_rate: float,
    decay_steps: float,
    tau: float,
) -> Any:
    """Apply equations 9-11 to each row in turn, in code that numba can compile.

    The inverse of M is updated with the Sherman-Morrison formula. The decay of W is kept in the
    factor `scale`, so that the true weights are ``scale * W``. This saves one pass over W for each
    row. W, M and inverse are overwritten.
    """
    k = len(M)
    scale = 1.0
    for i in range(len(rows)):
        x, beta = rows[i], betas[i]
        eta = learning_rate / (1.0 + n_steps / decay_steps)
        rate = eta / tau
        n_steps += 1
        n_seen += 1
        coefficient = scale * np.dot(W, x)
        M *= 1.0 - rate
        if is_foreground[i]:
            coefficient = np.dot(inverse, coefficient)
            u = np.dot(inverse, coefficient)
            shrink = rate / (1.0 - rate + rate * np.dot(u, coefficient))
            for j in range(k):
                M[j] += (rate * coefficient[j]) * coefficient
                inverse[j] -= (shrink * u[j]) * u
        else:
            n_background += 1
            # The factor is 1/p, where p is the share of background rows so far. It is limited,
            # because the step would overshoot while p is small.
            coefficient *= -beta / max(n_background / n_seen, eta * beta * np.dot(x, x))
        inverse /= 1.0 - rate
        scale *= 1.0 - 2.0 * eta * (1.0 - beta)
        if abs(scale) < 1e-6:
            W *= scale
            scale = 1.0
        for j in range(k):
            W[j] += (2.0 * eta / scale * coefficient[j]) * x
    W *= scale
    return W, M, n_steps, n_seen, n_background


def _minibatch_step(
    state: OnlineState,
    batch: FloatArray,
    is_foreground: NDArray[np.bool_],
    betas: FloatArray,
    learning_rate: float,
    decay_steps: float,
    tau: float,
) -> OnlineState:
    """Take one step of equations 10-11 with averages over the rows of the batch."""
    W, M, n_steps, n_seen, n_background = state
    eta = learning_rate / (1 + n_steps / decay_steps)
    n_seen += len(batch)
    n_background += int((~is_foreground).sum())
    projected = batch @ W.T
    outputs = np.linalg.solve(_full_rank(M), projected[is_foreground].T).T
    projected[is_foreground] = outputs
    projected[~is_foreground] *= -betas[~is_foreground, None] * n_seen / max(n_background, 1)
    W = W + 2 * eta * (projected.T @ batch / len(batch) - (1 - betas.mean()) * W)
    M = M + eta / tau * (outputs.T @ outputs / len(batch) - M)
    return OnlineState(W, M, n_steps + 1, n_seen, n_background)


@cache
def _steps() -> Callable[..., Any]:
    """Return `_single_steps`, compiled if numba is installed."""
    try:
        from numba import njit
    except ImportError:
        return _single_steps
    compiled: Callable[..., Any] = njit(cache=True, error_model="numpy")(_single_steps)
    return compiled
