"""Whether values are counts, of which the logarithms were meant."""

from __future__ import annotations

import numpy as np

from contrast_core.feedback import warn
from contrast_core.rows import Rows

_FIRST_CELLS = 1000  # that are looked at


def looks_like_counts(rows: Rows) -> float:
    """The largest of the first values if all are whole numbers, as counts are; else 0."""
    values = rows.take(slice(_FIRST_CELLS)).load()
    values = values.data if rows.is_sparse else values
    if values.size and values.max() > 1 and np.array_equal(values, np.rint(values)):
        return float(values.max())
    return 0.0


def warn_of_counts(rows: Rows) -> None:
    """Warn if the values are whole numbers, as counts are and their logarithms are not."""
    if largest := looks_like_counts(rows):
        warn(
            f"the values look like raw counts (whole numbers, up to {largest:g}). Give log-"
            "normalised counts: sc.pp.normalize_total(adata, target_sum=1e4); sc.pp.log1p(adata).",
        )
