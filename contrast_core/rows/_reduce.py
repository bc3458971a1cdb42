"""Sums over rows of any kind, in one pass over a dataset.

Problem: rows arrive in blocks of one dataset, or in chunks of a dask array that a cluster reads. An
object that sums rows therefore has two operations: it adds a block, and it merges with another sum
(a map and a reduction). Blocks can then be summed on any machine and in any grouping.

The tasks of dask form chains, one for each thread. A task reads some chunks and adds them to the
sums of the task before it, which are on the same worker. Therefore a worker holds a few sums and
the chunks of one task, however many rows there are, and only the last sums of the chains cross the
network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, cast

import numpy as np

from contrast_core.rows._dask import DaskRows, chunk_rows, fused
from contrast_core.rows._parts import joined, joint_blocks
from contrast_core.rows._rows import Rows

_TASK = 8  # size of a task in blocks; in smaller tasks, merging would take most of the time


def reduce_rows(
    parts: Sequence[Rows], start: Callable[[], Any], *, check: bool = True
) -> list[Any]:
    """Sum each of several disjoint selections of one dataset in one pass over it.

    Parameters
    ----------
    parts : sequence of Rows
        A single dataset, or results of ``whole.take(...)`` for disjoint rows of the same `whole`.
    start : callable
        Function that returns an empty sum. The sum's method ``add(block, weights, codes)`` takes
        a block of rows and the weights and groups of the rows, or None. Its method ``result()``
        returns an object with a method ``merge(other)``, or None if no rows were added. For a dask
        array, `start` is pickled, and every task makes its own sums.
    check : bool, default=True
        Whether to raise an error on NaN and infinity.

    Returns
    -------
    list
        The result of each part. It is None for a part without rows.
    """
    if parts[0].place == "dask":
        return _reduce_chunks(cast("Sequence[DaskRows]", parts), start, check)
    sums = [start() for _ in parts]
    alone = ((0, *block) for block in labelled_blocks(parts[0], check=check))
    for i, *block in joint_blocks(parts, check=check) if len(parts) > 1 else alone:
        sums[i].add(*block)
    return [each.result() for each in sums]


def labelled_blocks(rows: Rows, *, check: bool = True) -> Iterator[tuple[Any, Any, Any]]:
    """Yield blocks of rows with the weights and the groups of the rows, or None for either."""
    weights, codes, stop = rows.weights, rows.codes, 0
    for block in rows.blocks(check=check):
        start, stop = stop, stop + block.shape[0]
        yield block, *(None if each is None else each[start:stop] for each in (weights, codes))


def _reduce_chunks(
    parts: Sequence[DaskRows], start: Callable[[], Any], check: bool
) -> list[Any | None]:
    """Return the sums of selections of a dask array, computed by chains of tasks."""
    delayed: Any = import_module("dask").delayed  # not typed
    whole, owner = joined(parts) if len(parts) > 1 else (parts[0], None)
    chunks = whole.chunks()
    if not chunks:
        return [None] * len(parts)
    of_rows = (owner, whole.weights, whole.codes)
    labels = [
        [None] * len(chunks) if each is None else np.split(each, whole.edges()[1:-1])
        for each in of_rows
    ]
    reduce, merge = delayed(_reduce_some, pure=True), delayed(_merge, pure=True)
    n_chains, n_tasks = _layout(whole, len(chunks))
    sums = []
    for chain in range(n_chains):
        done = None
        for task in range(n_tasks * chain // n_chains, n_tasks * (chain + 1) // n_chains):
            some = slice(len(chunks) * task // n_tasks, len(chunks) * (task + 1) // n_tasks)
            names, read = zip(*chunks[some], strict=True)
            own = [each[some] for each in labels]
            done = reduce(done, list(read), names, own, len(parts), start, whole.options, check)
        sums.append(done)
    while len(sums) > 1:
        merged = [merge(a, b) for a, b in zip(sums[::2], sums[1::2], strict=False)]
        sums = merged + sums[2 * len(merged) :]
    return list(fused(sums[0], [chunk.key for _, chunk in chunks]).compute())


def _layout(rows: DaskRows, n_chunks: int) -> tuple[int, int]:
    """Return the number of chains and the number of all tasks.

    Each thread of the scheduler gets one chain. If the sizes of the chunks are unknown, each task
    has one chunk.
    """
    elements = max(rows.array.chunks[0], default=0) * rows.shape[1]
    known = bool(elements) and not math.isnan(elements)
    per_task = max(1, int(_TASK * rows.elements // elements)) if known else 1
    n_chains = min(n_chunks, rows.n_threads)
    return n_chains, max(math.ceil(n_chunks / per_task), n_chains)


def _reduce_some(
    before: list[Any | None] | None,
    chunks: list[Any],
    names: Sequence[str],
    labels: Sequence[Sequence[Any]],
    n_parts: int,
    start: Callable[[], Any],
    options: dict[str, Any],
    check: bool,
) -> list[Any | None]:
    """Add the rows of some chunks to the sums of each part; None stands for a sum without rows.

    `before` holds the sums of the previous task of the chain. `labels` holds three sequences with
    an entry for every chunk: the indices of the rows' parts, the rows' weights, and the rows'
    groups. An entry is None if the rows have no such label.
    """
    whole = [
        (chunk_rows(chunk, name, options).replace(_weights=weights, _codes=codes), owner)
        for chunk, name, owner, weights, codes in zip(chunks, names, *labels, strict=True)
    ]
    sums: list[Any | None] = []
    for i in range(n_parts):  # one part after another, because a sum needs much memory
        into = start()
        for rows, owner in whole:
            part = rows if owner is None else rows.take(owner == i)
            for block in labelled_blocks(part, check=check):
                into.add(*block)
        sums += _merge([None if before is None else before[i]], [into.result()])
    return sums


def _merge(a: list[Any | None], b: list[Any | None]) -> list[Any | None]:
    """Merge two lists of sums, one sum for each part; None stands for a sum without rows."""
    return [
        x.merge(y) if x is not None and y is not None else x or y for x, y in zip(a, b, strict=True)
    ]
