"""Sums over rows of any kind, in one pass over a dataset.

Problem: rows arrive in blocks of one dataset, or in chunks of a dask array that a cluster reads. A
sum therefore has two operations: it adds a block, and it merges with another sum (a map and a
reduction). Blocks can then be summed on any machine and in any grouping.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, cast

import numpy as np

from contrast_core.rows._dask import DaskRows, chunk_rows
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
        array, `start` is pickled. Every task then makes its own sums, and the scheduler merges
        their results in pairs.
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
    blocks = joint_blocks(parts, check=check) if len(parts) > 1 else _blocks(parts[0], check)
    for i, *block in with_labels(parts, blocks):
        sums[i].add(*block)
    return [each.result() for each in sums]


def labelled_blocks(rows: Rows, *, check: bool = True) -> Iterator[tuple[Any, Any, Any]]:
    """Yield blocks of rows with the weights and the groups of the rows, or None for either."""
    return (block[1:] for block in with_labels([rows], _blocks(rows, check)))


def with_labels(
    parts: Sequence[Rows], blocks: Iterable[tuple[int, Any]]
) -> Iterator[tuple[int, Any, Any, Any]]:
    """Add the weights and groups of their rows to blocks of several parts.

    `blocks` yields the index of a part and a block of its rows. The blocks of each part must be in
    the order of its rows.
    """
    labels = [(part.weights, part.codes) for part in parts]
    ends = [0] * len(parts)
    for i, block in blocks:
        which = slice(ends[i], ends[i] + block.shape[0])
        ends[i] = which.stop
        weights, codes = (None if each is None else each[which] for each in labels[i])
        yield i, block, weights, codes


def _blocks(rows: Rows, check: bool) -> Iterator[tuple[int, Any]]:
    return ((0, block) for block in rows.blocks(check=check))


def _reduce_chunks(
    parts: Sequence[DaskRows], start: Callable[[], Any], check: bool
) -> list[Any | None]:
    delayed: Any = import_module("dask").delayed  # not typed
    whole, owner = joined(parts) if len(parts) > 1 else (parts[0], None)
    chunks = whole.chunks()
    of_rows = (owner, whole.weights, whole.codes)
    labels = [
        [None] * len(chunks) if each is None else np.split(each, whole.edges()[1:-1])
        for each in of_rows
    ]
    reduce, merge = delayed(_reduce_some, pure=True), delayed(_merge, pure=True)
    tasks = []
    for a, b in pairwise(_task_ends(whole, len(chunks))):
        names, some = zip(*chunks[a:b], strict=True)
        own = [each[a:b] for each in labels]
        tasks.append(reduce(list(some), names, own, len(parts), start, whole.options, check))
    while len(tasks) > 1:
        merged = [merge(a, b) for a, b in zip(tasks[::2], tasks[1::2], strict=False)]
        tasks = merged + tasks[2 * len(merged) :]
    return list(tasks[0].compute()) if tasks else [None] * len(parts)


def _task_ends(rows: DaskRows, n_chunks: int) -> list[int]:
    """Return where the chunks of each task begin and end.

    The tasks have about the same size, and there are enough of them for all processors. If the
    sizes of the chunks are unknown, each task has one chunk.
    """
    elements = max(rows.array.chunks[0], default=0) * rows.shape[1]
    known = bool(elements) and not math.isnan(elements)
    per_task = max(1, int(_TASK * rows.elements // elements)) if known else 1
    n_tasks = max(math.ceil(n_chunks / per_task), min(n_chunks, 2 * (os.cpu_count() or 1)))
    return [n_chunks * i // n_tasks for i in range(n_tasks + 1)] if n_tasks else []


def _reduce_some(
    chunks: list[Any],
    names: Sequence[str],
    labels: Sequence[Sequence[Any]],
    n_parts: int,
    start: Callable[[], Any],
    options: dict[str, Any],
    check: bool,
) -> list[Any | None]:
    """Return the sum of the rows of some chunks for each part; None for a part without rows.

    `labels` holds three sequences with an entry for every chunk: the indices of the rows' parts,
    the rows' weights, and the rows' groups. An entry is None if the rows have no such label.
    """
    sums = [start() for _ in range(n_parts)]
    for chunk, name, owner, weights, codes in zip(chunks, names, *labels, strict=True):
        rows = chunk_rows(chunk, name, options).replace(_weights=weights, _codes=codes)
        parts = [rows] if owner is None else [rows.take(owner == i) for i in range(n_parts)]
        for part, into in zip(parts, sums, strict=True):
            for block in labelled_blocks(part, check=check):
                into.add(*block)
    return [each.result() for each in sums]


def _merge(a: list[Any | None], b: list[Any | None]) -> list[Any | None]:
    return [
        x.merge(y) if x is not None and y is not None else x or y for x, y in zip(a, b, strict=True)
    ]
