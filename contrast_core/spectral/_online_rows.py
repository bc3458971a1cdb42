"""Centred rows of both kinds for online cPCA*: from a stream, or from data in memory in turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray, iter_chunks

_BLOCK_ELEMENTS = 2**20  # 8 MB of float64: the rows of a pass are gathered block by block


class Centre(NamedTuple):
    """Rows of one kind seen so far: how many, their mean, and sums of |x|^2 and |x|^4 about it."""

    n_rows: int
    mean: FloatArray
    squares: float = 0.0
    fourths: float = 0.0


def centre_of(rows: Any, name: str) -> Centre:
    """Count, mean and scatter of rows in memory, dense or sparse, block by block."""
    total = sum(np.sum(chunk, axis=0, dtype=np.float64) for chunk in iter_chunks(rows, name))
    mean = total / rows.shape[0]
    centre = Centre(rows.shape[0], mean)
    for chunk in iter_chunks(rows, name):
        centre = _with_lengths(centre, chunk - mean)
    return centre


def centre_running(rows: NDArray[Any], seen: Centre) -> tuple[FloatArray, Centre]:
    """Each row about the running mean that includes it, scaled as Welford's sum asks."""
    if not len(rows):
        return np.empty(rows.shape), seen
    t = seen.n_rows + np.arange(1.0, len(rows) + 1)[:, None]
    origin = seen.mean if seen.n_rows else rows[0].astype(np.float64)
    shifted = rows - origin
    drift = np.cumsum(shifted, axis=0) / t
    centred = (shifted - drift) * np.sqrt(t / np.maximum(t - 1, 1))
    after = seen._replace(n_rows=seen.n_rows + len(rows), mean=origin + drift[-1])
    return centred, _with_lengths(after, centred)


def _with_lengths(centre: Centre, centred: FloatArray) -> Centre:
    lengths = np.einsum("nd,nd->n", centred, centred)
    return centre._replace(
        squares=centre.squares + float(lengths.sum()),
        fourths=centre.fourths + float(lengths @ lengths),
    )


def alternating(
    rows: tuple[Any, Any], centres: tuple[Centre, Centre], rng: np.random.Generator
) -> Iterator[tuple[FloatArray, NDArray[np.bool_]]]:
    """One pass, in blocks: foreground and background rows in turn, centred, both in random order.

    Taking turns keeps p at one half, where a background row weighs least: the noise that is left
    at a constant learning rate is smaller than with all rows shuffled together.
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
        for i in (0, 1):
            part = rows[i][order[i][start:stop]]
            block[i::2] = part.toarray() if hasattr(part, "toarray") else part
            block[i::2] -= centres[i].mean
        yield block, np.arange(len(block)) % 2 == 0
