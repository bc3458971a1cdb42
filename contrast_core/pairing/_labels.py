"""Labels of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def check_labels(labels: ArrayLike | None, n_rows: int, name: str) -> NDArray[Any]:
    """One label per row; without labels, the same one for all."""
    if labels is None:
        return np.zeros(n_rows, dtype=np.intp)
    array = np.asarray(labels)
    if array.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {array.shape}; expected one label for each of the {n_rows} rows."
        )
    missing = array != array  # NaN is the one value that differs from itself
    if array.dtype == object:
        missing = np.array([x is None or x != x for x in array])
    if np.any(missing):
        raise ValueError(
            f"{name} has {int(np.sum(missing))} missing labels; leave these rows out first."
        )
    return array
