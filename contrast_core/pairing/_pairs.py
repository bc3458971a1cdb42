"""Result of a pairing, with the pairs and the fraction of rows that are in a pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contrast_core._validation import FloatArray


class LabelSummary(NamedTuple):
    """Numbers of rows, paired rows and pairs for one label, such as a donor.

    `n_rows` and `n_rows_paired` count rows of X; `n_positive_rows` and `n_positive_rows_paired`
    count rows of the other set, `positive`. `median_distance` is NaN for a label without pairs.
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
    """Pairs of rows, one from X and one from `positive`, sorted by the two indices.

    Parameters
    ----------
    rows : ndarray of int of shape (n_pairs,)
        For each pair, the index of its row in X.
    positive_rows : ndarray of int of shape (n_pairs,)
        For each pair, the index of its row in `positive`.
    distances : ndarray of shape (n_pairs,)
        Euclidean distance between the two rows of a pair, in the space in which they were paired.
    within : tuple of LabelSummary
        A summary for each label that occurs in X or in `positive`, sorted by label.

    See Also
    --------
    contrast_core.contrast.effective_n_pairs : Compute the equivalent number of independent pairs.
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
        """Return the fraction of rows that are in a pair, for X and for `positive`."""
        paired = sum(each.n_rows_paired for each in self.within)
        positive_paired = sum(each.n_positive_rows_paired for each in self.within)
        return (
            paired / max(sum(each.n_rows for each in self.within), 1),
            positive_paired / max(sum(each.n_positive_rows for each in self.within), 1),
        )
