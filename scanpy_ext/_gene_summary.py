"""How every gene varies in sets of cells, wherever the matrix lies: nothing of it is kept."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from contrast_core.feedback import Progress
from contrast_core.moments import FeatureMoments

from . import _matrix


class GeneSummary(NamedTuple):
    """Moments and the largest value of every gene in a set of cells."""

    moments: FeatureMoments
    largest: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Any) -> GeneSummary:
        """Summary of an array or CSR matrix with at least one row."""
        largest = rows.max(axis=0)
        if sp.issparse(largest):
            largest = largest.toarray()
        return cls(FeatureMoments.from_data(rows), np.asarray(largest, dtype=np.float64).ravel())

    def merge(self, other: GeneSummary) -> GeneSummary:
        """Summary of the cells of both."""
        return GeneSummary(
            self.moments.merge(other.moments), np.maximum(self.largest, other.largest)
        )


def gene_summaries(
    matrix: Any, sets: list[_matrix.BoolArray], progress: Progress = False
) -> list[GeneSummary | None]:
    """Summaries of all genes in each set of cells, from one pass; None for an empty set.

    Parameters
    ----------
    matrix
        All cells and genes, (n_obs, n_vars): in memory, in a file or in dask.
    sets
        Masks of shape (n_obs,).
    progress
        As in `contrast_core`.
    """
    every = np.ones(matrix.shape[1], dtype=bool)
    if getattr(matrix, "format", None) == "csc":
        blocks = _matrix.column_blocks(matrix, every, progress)
        parts = [_of_block(block.tocsr(), *sets) for _, block in blocks]
        return [_side_by_side(of_set) for of_set in zip(*parts, strict=True)]
    rows = _matrix.with_columns(matrix, every)
    parts = list(_matrix.over_blocks(_of_block, rows, sets, progress))
    return [merged(of_set) for of_set in zip(*parts, strict=True)]


def merged(summaries: Iterable[GeneSummary | None]) -> GeneSummary | None:
    """The summary of all cells, None if there are none."""
    known = [summary for summary in summaries if summary is not None]
    return reduce(GeneSummary.merge, known) if known else None


def _of_block(rows: Any, *masks: _matrix.BoolArray) -> list[GeneSummary | None]:
    return [GeneSummary.of(rows[mask]) if mask.any() else None for mask in masks]


def _side_by_side(blocks: Iterable[GeneSummary | None]) -> GeneSummary | None:
    """The summary of all genes from those of blocks of genes, of the same cells."""
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
