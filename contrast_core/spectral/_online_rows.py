"""Centre and scale rows for online cPCA*, from a stream or in alternating order from memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray
from contrast_core.rows import Rows

_BLOCK_ELEMENTS = 2**20  # number of elements in a block of rows, 8 MB in float64
_TINY, _HUGE = 1e-280, 1e300  # limits of sums of squares that keep full precision


class Scatter(NamedTuple):
    """Running count, mean and scatter (sum of squares about the mean) of the rows of one dataset.

    The fields `unit_squares` and `unit_fourths` are the sums of ``|x|^2`` and ``|x|^4`` over the
    centred rows after they were divided by their scale, the square root of `variance`.
    """

    n_rows: int
    mean: FloatArray
    varies: NDArray[np.bool_]  # features that have varied
    squares: float = 0.0  # sum of |x|^2 about the mean
    unit_squares: float = 0.0
    unit_fourths: float = 0.0

    @classmethod
    def empty(cls, n_features: int) -> Scatter:
        return cls(0, np.zeros(n_features), np.zeros(n_features, dtype=np.bool_))

    @property
    def variance(self) -> float:
        """Return the mean variance of the features that vary; 0 if none does."""
        return self.squares / max(self.n_rows * int(self.varies.sum()), 1)

    @property
    def unit_length(self) -> float:
        """Return the mean of ``|x|^2`` over rows at unit scale, with the weight ``|x|^2`` for each.

        Long rows count more, because they are the first for which a step would overshoot.
        """
        return self.unit_fourths / self.unit_squares if self.unit_squares else 0.0


def scatter_of(rows: Rows, name: str) -> Scatter:
    """Return the count, mean and scatter of rows, computed block by block."""
    n, n_features = rows.shape
    first = rows.read(0, 1, dense=True)[0].astype(np.float64)
    # Rows are shifted by the first row, so that the mean of a constant feature is exactly its
    # value.
    mean = np.zeros(n_features)
    varies = np.zeros(n_features, dtype=np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):  # `_check_range` finds overflows
        for chunk in rows.blocks(dense=True):
            shifted = np.subtract(chunk, first, dtype=np.float64)
            mean += shifted.sum(axis=0)
            varies |= (shifted != 0).any(axis=0)
        mean = first + mean / n
        squared_lengths = np.concatenate(
            [
                _squared_lengths(np.subtract(chunk, mean, dtype=np.float64))
                for chunk in rows.blocks(dense=True, check=False)
            ]
        )
        squares = float(squared_lengths.sum())
    _check_range(squares, varies, name)
    scatter = Scatter(n, mean, varies, squares)
    return _with_lengths(scatter, squared_lengths / (scatter.variance or 1.0))


def standardise_running(
    rows: NDArray[Any], seen: Scatter, name: str
) -> tuple[FloatArray, FloatArray, Scatter]:
    """Standardise rows by the running mean and scale, so that the units of the data do not matter.

    Returns
    -------
    ndarray of shape (n, n_features)
        Standardised rows. The mean of all rows up to and including a row is subtracted from this
        row. The t-th row is then multiplied by ``sqrt(t / (t - 1))``, so that the squares of the
        rows add up to the scatter about the running mean (Welford). Finally it is divided by the
        square root of the mean variance of the rows up to and including this row.
    ndarray of shape (n,)
        For each row, the mean variance of the rows up to and including this row.
    Scatter
        Count, mean and scatter of all rows, including the new rows.
    """
    if not len(rows):
        return np.empty(rows.shape), np.empty(0), seen
    t = seen.n_rows + np.arange(1.0, len(rows) + 1)
    origin = seen.mean if seen.n_rows else rows[0].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # `_check_range` finds overflows
        shifted = np.subtract(rows, origin, dtype=np.float64)
        drift = np.cumsum(shifted, axis=0) / t[:, None]
        centred = (shifted - drift) * np.sqrt(t / np.maximum(t - 1, 1))[:, None]
        squared_lengths = _squared_lengths(centred)
        squares = seen.squares + np.cumsum(squared_lengths)
    moved = centred != 0
    new = moved.any(axis=0) & ~seen.varies
    varies = seen.varies | new
    _check_range(float(squares[-1]), varies, name)
    n_varying = int(seen.varies.sum()) + np.cumsum(
        np.bincount(moved[:, new].argmax(axis=0), minlength=len(rows))
    )
    variances = squares / np.maximum(t * n_varying, 1)
    scale = np.where(variances > 0, variances, 1.0)
    after = seen._replace(
        n_rows=seen.n_rows + len(rows),
        mean=origin + drift[-1],
        varies=varies,
        squares=float(squares[-1]),
    )
    after = _with_lengths(after, squared_lengths / scale)
    return centred / np.sqrt(scale)[:, None], variances, after


def apply_covariance(rows: Rows, scatter: Scatter, columns: FloatArray) -> FloatArray:
    """Return the covariance of the standardised rows times a matrix with n_features rows."""
    product = np.zeros(columns.shape)
    offset = scatter.mean @ columns
    for chunk in rows.blocks(check=False):
        scores = chunk @ columns - offset
        product += chunk.T @ scores - np.outer(scatter.mean, scores.sum(axis=0))
    return product / (scatter.n_rows * (scatter.variance or 1.0))


def _squared_lengths(centred: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("nd,nd->n", centred, centred))


def _check_range(squares: float, varies: NDArray[np.bool_], name: str) -> None:
    if varies.any() and not _TINY < squares < _HUGE:
        raise ValueError(
            f"the squares of {name} add up to {squares:.3g}, which is near the limits of float64. "
            "Multiply both datasets by a constant that brings them near 1."
        )


def _with_lengths(scatter: Scatter, squared_lengths: FloatArray) -> Scatter:
    """Add the squared lengths of rows of unit scale to the sums of the scatter."""
    return scatter._replace(
        unit_squares=scatter.unit_squares + float(squared_lengths.sum()),
        unit_fourths=scatter.unit_fourths + float(squared_lengths @ squared_lengths),
    )


def alternating(
    rows: tuple[Rows, Rows], scatters: tuple[Scatter, Scatter], rng: np.random.Generator
) -> Iterator[tuple[FloatArray, NDArray[np.bool_]]]:
    """Yield standardised rows of one pass in random order, alternating between the datasets.

    The step of a background row is multiplied by 1/p, where p is the share of background rows so
    far (see `OnlineCPCAStar`). In this order, p stays at one half, so the factor stays small. With
    a constant learning rate, the result is then less noisy than if all rows were shuffled together.
    """
    length, n_features = max(part.shape[0] for part in rows), rows[0].shape[1]
    order = [
        np.concatenate([rng.permutation(n) for _ in range(-(-length // n))])
        for n in (part.shape[0] for part in rows)
    ]
    step = max(128, _BLOCK_ELEMENTS // (2 * n_features))
    for start in range(0, length, step):
        stop = min(start + step, length)
        block = np.empty((2 * (stop - start), n_features))
        for i, scatter in enumerate(scatters):
            some = rows[i].take(order[i][start:stop])
            block[i::2] = some.read(0, stop - start, dense=True, check=False)
            block[i::2] -= scatter.mean
            block[i::2] /= np.sqrt(scatter.variance) or 1.0
        yield block, np.arange(len(block)) % 2 == 0
