"""Result of pairing: the pairs, and how well they cover the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray


class LabelSummary(NamedTuple):
    """Counts for one label (a donor): its rows in both views, the paired ones, and the pairs.

    `median_distance` is NaN for a label without pairs.
    """

    label: Any
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
    within : tuple
        A named tuple for each label that has rows in either view, in sorted order: its `label`,
        its numbers of rows in both views, of pairs and of paired rows, and the median distance.

    See Also
    --------
    contrast_core.contrast.effective_n_pairs : Number of independent pairs they correspond to.
    """

    rows: NDArray[np.intp]
    positive_rows: NDArray[np.intp]
    distances: FloatArray
    within: tuple[LabelSummary, ...]

    @property
    def n_pairs(self) -> int:
        """Return the number of pairs."""
        return len(self.rows)

    @property
    def coverage(self) -> tuple[float, float]:
        """Return the fraction of paired rows of X, and of the positive view."""
        paired = sum(each.n_rows_paired for each in self.within)
        positive_paired = sum(each.n_positive_rows_paired for each in self.within)
        return (
            paired / max(sum(each.n_rows for each in self.within), 1),
            positive_paired / max(sum(each.n_positive_rows for each in self.within), 1),
        )
