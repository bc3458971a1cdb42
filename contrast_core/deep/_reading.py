"""Rows for training: their checks, their scale, held-out rows, and minibatches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from contrast_core._validation import FloatArray, check_counts
from contrast_core.moments import FeatureMoments
from contrast_core.rows import Rows, load_into_memory, minibatches

Noise: TypeAlias = Literal["normal", "counts"]

SCALED_SUM = 1e4  # encoders see logarithms of counts that are scaled to this sum per row
_MOST_HELD_OUT = 5000  # largest number of held-out rows, which are kept in memory


class BackgroundScale(NamedTuple):
    """Mean and scale of the background; the fields have the names of fitted attributes of `CVAE`.

    mean_, unit_
        Mean (n_features,) of the background, and root of the mean variance of its features. For
        counts, both are computed from the logarithms of counts scaled to 10,000 per row.
    rates_, total_
        For counts: the share of each feature in all counts of the background, which is above zero,
        and the mean sum of a row of the background.
    """

    mean_: FloatArray
    unit_: float
    rates_: FloatArray | None = None
    total_: float | None = None

    @property
    def minibatch_options(self) -> dict[str, Any]:
        """Return the options by which `minibatches` scales rows; counts are not scaled."""
        return {} if self.rates_ is not None else {"shift": self.mean_, "scale": self.unit_}


def background_scale(x: Rows, y: Rows, noise: Noise) -> BackgroundScale:
    """Check both datasets, and return the mean and scale of the background.

    Raises
    ------
    ValueError
        If a value is not finite or not a count, or the background does not vary.
    """
    check_values((x, y), noise)
    if noise == "normal":
        seen = FeatureMoments.from_data(y)
        return BackgroundScale(seen.mean, _unit(seen, y.name))
    totals, parts = np.zeros(y.shape[1]), []
    for block in y.blocks():
        totals += np.asarray(block.sum(axis=0, dtype=np.float64)).ravel()
        parts.append(FeatureMoments.from_block(normalised(block)))
    seen = reduce(FeatureMoments.merge, parts)
    # A feature without background counts gets half a count, because the foreground may have some.
    rates = np.maximum(totals, 0.5)
    mean_total = float(totals.sum() / y.shape[0])
    return BackgroundScale(seen.mean, _unit(seen, y.name), rates / rates.sum(), mean_total)


def check_values(datasets: Sequence[Rows], noise: Noise) -> None:
    """Check before training that values are finite, and for a count model that they are counts."""
    for rows in datasets:  # `blocks` raises an error if a value is not finite
        for block in rows.blocks():
            if noise == "counts":
                check_counts(block, rows.name)


def normalised(counts: Any) -> Any:
    """Return the logarithms of counts scaled to 10,000 per row; sparse rows stay sparse."""
    sums = np.maximum(np.asarray(counts.sum(axis=1, dtype=np.float64)).reshape(-1, 1), 1)
    if not issparse(counts):
        return np.log1p(counts * (SCALED_SUM / sums))
    logs = counts.astype(np.float64)
    logs.data = np.log1p(logs.data * np.repeat(SCALED_SUM / sums[:, 0], np.diff(logs.indptr)))
    return logs


def _unit(seen: FeatureMoments, name: str) -> float:
    """Return the root of the mean variance of the features, by which rows are divided."""
    unit = float(np.sqrt(seen.variance.mean()))
    if not seen.varies.any() or not 0 < unit < np.inf:
        raise ValueError(
            f"{name} does not vary, or float64 cannot square its values. Its standard deviation is "
            "the unit of the model, so give at least two different rows."
        )
    return unit


def split(rows: Rows, share: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Split rows into training rows and random held-out rows, which are loaded into memory.

    At least one row is held out, unless `share` is 0.
    """
    n = rows.shape[0]
    n_out = min(max(1, round(share * n)), _MOST_HELD_OUT) if share else 0
    chosen = np.zeros(n, dtype=bool)
    chosen[rng.choice(n, n_out, replace=False)] = True
    return rows.take(~chosen), load_into_memory(rows.take(chosen))


def joint_minibatches(
    x: Rows, y: Rows, n_batches: int, rng: np.random.Generator, scale: dict[str, Any]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the minibatches of one pass, each of which has rows of both datasets.

    The numbers of rows are in proportion to the sizes of the datasets.
    """
    draws = rng.spawn(2)
    both = (minibatches(z, n_batches, each, **scale) for z, each in zip((x, y), draws, strict=True))
    for (_, foreground), (_, background) in zip(*both, strict=True):
        yield foreground, background
