"""Variance and largest value of every gene in sets of cells, from one pass over any matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core.moments import FeatureMoments
from contrast_core.rows import Rows, reduce_rows

from ._select import BoolArray


class GeneSummary(NamedTuple):
    """Moments and the largest value of every gene in a set of cells."""

    moments: FeatureMoments
    largest: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Any) -> GeneSummary:
        """Return the summary of a few rows, at least one: an array or a sparse matrix."""
        largest = rows.max(axis=0)
        largest = largest.toarray() if hasattr(largest, "toarray") else largest
        return cls(FeatureMoments.at_once(rows), np.asarray(largest, dtype=np.float64).ravel())

    def merge(self, other: GeneSummary) -> GeneSummary:
        """Return the summary of the cells of both."""
        return GeneSummary(
            self.moments.merge(other.moments), np.maximum(self.largest, other.largest)
        )


class _Summary:
    """Accumulator of the summary over blocks of rows."""

    def __init__(self) -> None:
        self._found: GeneSummary | None = None

    def add(self, block: Any, *_: object) -> None:
        if block.shape[0]:
            self._found = merged([self._found, GeneSummary.of(block)])

    def result(self) -> GeneSummary | None:
        return self._found


def gene_summaries(matrix: Rows, sets: Sequence[BoolArray]) -> list[GeneSummary | None]:
    """Return summaries of all genes in disjoint sets of cells; None for an empty set.

    From one pass over all cells and genes, (n_obs, n_vars), by genes where that is cheaper.
    """
    if matrix.reads_rows:
        return reduce_rows([matrix.take(mask) for mask in sets], _Summary, check=False)
    parts = [
        [GeneSummary.of(block[mask]) if mask.any() else None for mask in sets]
        for _, block in matrix.column_blocks()
    ]
    return [_side_by_side(of_set) for of_set in zip(*parts, strict=True)]


def merged(summaries: Iterable[GeneSummary | None]) -> GeneSummary | None:
    """Return the summary of all cells, None if there are none."""
    known = [summary for summary in summaries if summary is not None]
    return reduce(GeneSummary.merge, known) if known else None


def _side_by_side(blocks: Iterable[GeneSummary | None]) -> GeneSummary | None:
    """Return the summary of all genes from those of blocks of genes."""
    known = [block for block in blocks if block is not None]
    if not known:
        return None
    return GeneSummary(
        FeatureMoments(
            known[0].moments.n_samples,
            np.concatenate([block.moments.mean for block in known]),
            np.concatenate([block.moments.squares for block in known]),
        ),
        np.concatenate([block.largest for block in known]),
    )
