"""Several selections of the rows of one dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from contrast_core.rows._rows import Index, Rows

RowsT = TypeVar("RowsT", bound=Rows)


def joint_blocks(
    parts: Sequence[Rows], *, check: bool = True
) -> Iterator[tuple[int, Any, Any, Any]]:
    """Yield blocks of several disjoint selections of one dataset's rows, in one pass over it.

    Parameters
    ----------
    parts : sequence of Rows
        Results of ``whole.take(...)`` for disjoint rows of the same `whole`.
    check
        As for `Rows.blocks`.

    Yields
    ------
    int, ndarray or CSR matrix, ndarray or None, ndarray or None
        Index of a part in `parts`, and rows of this part with their weights and groups. The weights
        or groups are None if the rows have none.
    """
    wanted, owner = joined(parts)
    labels = wanted.weights, wanted.codes
    for start, stop in wanted._shown(list(pairwise(wanted.edges()))):
        block = wanted.read(start, stop, check=check)
        here = owner[start:stop]
        own = [None if each is None else each[start:stop] for each in labels]
        for i in np.unique(here).tolist():
            mine = here == i
            rows = block if mine.all() else block[mine]
            yield i, rows, *(None if each is None else each[mine] for each in own)


def joined(parts: Sequence[RowsT]) -> tuple[RowsT, Index]:
    """Return the rows of several disjoint selections, and the index of each row's selection."""
    first = parts[0]
    owner = np.full(first._n_source, -1, dtype=np.intp)
    for i, part in enumerate(parts):
        owner[slice(None) if part._rows is None else part._rows] = i
    return first.take_all().take(owner >= 0), owner[owner >= 0]


def pieces(parts: Sequence[RowsT]) -> tuple[list[RowsT], list[list[int]]] | None:
    """Split selections of one dataset, which may overlap, into disjoint pieces.

    Returns
    -------
    list of Rows, list of lists of int
        The pieces, and for each part the indices of its pieces. The result is None if the parts
        cannot be read together. Parts can be read together if they are selections of one dataset
        that is not on a device, with the same columns, weights and groups. The number of rows of
        each selection must also be known and not zero, and its rows must be in ascending order.
    """
    first = parts[0]
    if not all(part._is_read_with(first) and part._is_ascending() for part in parts):
        return None
    # Bit i of a row's code says whether part i contains the row. Rows of equal code form a piece.
    codes = np.zeros(first._n_source, dtype=np.int64)
    for i, part in enumerate(parts):
        codes[slice(None) if part._rows is None else part._rows] += 1 << i
    used = [int(code) for code in np.unique(codes) if code]
    whole = first.take_all()
    disjoint = [whole.take(codes == code) for code in used]
    return disjoint, [
        [j for j, code in enumerate(used) if code >> i & 1] for i in range(len(parts))
    ]
