"""The pairs that were found, and how well they cover the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray


class GroupSummary(NamedTuple):
    """One group (a donor): its rows in both views, how many of them are in pairs, how many pairs.

    `median_distance` is NaN in a group without pairs.
    """

    group: Any
    n_rows: int
    n_positive_rows: int
    n_pairs: int
    n_rows_paired: int
    n_positive_rows_paired: int
    median_distance: float


@dataclass(frozen=True, eq=False)
class PositivePairs:
    """Pairs of a row of X with a row of the positive view, sorted by the two indices.

    Parameters
    ----------
    rows : ndarray of int of shape (n_pairs,)
        Which row of X.
    positive_rows : ndarray of int of shape (n_pairs,)
        Which row of the positive view.
    distances : ndarray of shape (n_pairs,)
        Euclidean distance of the two, in the space in which they were paired.
    groups : tuple of GroupSummary
        One entry for each group that has rows in either view, in sorted order.

    See Also
    --------
    contrast_core.effective_n_pairs : How many independent pairs they are worth.
    """

    rows: NDArray[np.intp]
    positive_rows: NDArray[np.intp]
    distances: FloatArray
    groups: tuple[GroupSummary, ...]

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return len(self.rows)

    @property
    def coverage(self) -> tuple[float, float]:
        """Fraction of the rows of X, and of the positive view, that are in at least one pair."""
        paired = sum(g.n_rows_paired for g in self.groups)
        positive_paired = sum(g.n_positive_rows_paired for g in self.groups)
        return (
            paired / max(sum(g.n_rows for g in self.groups), 1),
            positive_paired / max(sum(g.n_positive_rows for g in self.groups), 1),
        )
