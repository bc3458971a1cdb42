"""Warnings about values that are raw counts, scaled to unit variance, or not logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core.feedback import warn
from contrast_core.rows import Rows

_FIRST_CELLS = 1000  # number of cells that are checked
_FIRST_GENES = 50  # number of genes of which the mean and the variance are checked
_LARGEST_LOG = 20.0  # log1p of counts per 10,000 stays below 9.3
_APART = 3.0  # a larger ratio of mean values shows that two sets were normalised differently
_ADVICE = (
    "Give log-normalised counts: sc.pp.normalize_total(adata, target_sum=1e4); sc.pp.log1p(adata)."
)


def first_values(rows: Rows) -> NDArray[Any]:
    """Return the values of the first cells; for a sparse matrix, only the stored values."""
    values = rows.take(slice(_FIRST_CELLS)).load(check=False)
    return np.asarray(values.data if rows.is_sparse else values)


def warn_of_counts(rows: Rows) -> None:
    """Warn if all values are whole numbers, because they are then counts, not logarithms."""
    if found := _counts_fault(first_values(rows)):
        warn(found)


def warn_of_values(rows: Rows, other: Rows | None = None) -> None:
    """Warn if values are not logarithms of counts, or if two sets were normalised differently.

    Parameters
    ----------
    rows
        All cells and the genes in use. Data that are not in memory are only checked for raw counts,
        and only if `other` is given.
    other
        The background cells, if they are the cells of another AnnData.

    Raises
    ------
    ValueError
        If one of two sets holds raw counts and the other does not.
    """
    if other is not None:
        values = [first_values(each) for each in (rows, other)]
        kinds = ["raw counts" if _counts_fault(each) else "no raw counts" for each in values]
        if kinds[0] != kinds[1] and all(each.size for each in values):
            raise ValueError(
                f"adata holds {kinds[0]}, but the AnnData that was given as background holds "
                f"{kinds[1]}. Both must be normalised in the same way. {_ADVICE}"
            )
    if not rows.in_memory:
        return
    if found := fault(rows):
        warn(found)
    if other is not None:
        means = mean_of_first(rows), mean_of_first(other)
        warn_of_other_scale(*means, "adata", "the background")


def fault(rows: Rows) -> str | None:
    """Return a message if the values of the first cells are not log-normalised; otherwise None."""
    values = first_values(rows)
    if found := _counts_fault(values):
        return found
    if values.size and values.min() >= 0 and values.max() > _LARGEST_LOG:
        return (
            f"values reach {values.max():.3g}, which is too large for logarithms of counts. A few "
            f"strong genes will dominate the contrast. {_ADVICE}"
        )
    if not rows.is_sparse and _is_standardised(rows, values):
        return (
            "every gene has mean 0 and variance 1, as after sc.pp.scale, so genes that hardly vary "
            "count as much as genes that respond. Leave scaling out, or give the layer of the "
            "log-normalised counts as layer=..."
        )
    return None


def are_same_values(rows: Rows, other: Rows) -> bool:
    """Return whether two sets have the same number of cells and the same first cells."""
    if rows.shape != other.shape:
        return False
    one, two = (each.take(slice(_FIRST_CELLS)).load(check=False) for each in (rows, other))
    return not np.asarray((one != two).sum())


def warn_of_other_scale(one: float, other: float, name: str, other_name: str) -> None:
    """Warn if two positive mean values differ by more than the factor `_APART`."""
    if one > 0 and other > 0 and not 1 / _APART < one / other < _APART:
        warn(
            f"the mean value of {name} is {one:.3g}, and the mean value of {other_name} is "
            f"{other:.3g}. Both must be normalised in the same way. {_ADVICE}"
        )


def mean_of_first(rows: Rows) -> float:
    """Return the mean value of the first cells; 0 if values are negative or not in memory."""
    values = first_values(rows) if rows.in_memory else np.zeros(0)
    if not values.size or not values.min() >= 0:
        return 0.0
    return float(values.sum(dtype=np.float64)) / (min(rows.shape[0], _FIRST_CELLS) * rows.shape[1])


def _counts_fault(values: NDArray[Any]) -> str | None:
    """Return a message if all values are whole numbers, as counts are; otherwise None."""
    if values.size and values.max() > 1 and np.array_equal(values, np.rint(values)):
        return f"the values look like raw counts (whole numbers, up to {values.max():g}). {_ADVICE}"
    return None


def _is_standardised(rows: Rows, values: NDArray[Any]) -> bool:
    """Return whether genes have mean 0 and variance 1, as after `sc.pp.scale`.

    The median over the first genes decides, because capping the scaled values changes the variance
    of some genes.
    """
    if not values.size or values.min() >= 0:
        return False
    table = rows.columns(slice(_FIRST_GENES)).load(check=False).astype(np.float64)
    if not np.isfinite(table).all():
        return False
    mean, variance = table.mean(axis=0), table.var(axis=0)
    varies = variance > 0
    return bool(
        varies.any()
        and np.median(np.abs(mean[varies])) < 2e-3
        and np.median(np.abs(variance[varies] - 1)) < 1e-2
    )
