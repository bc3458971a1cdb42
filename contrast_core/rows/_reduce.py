"""Sums over rows of any kind, in one pass over a dataset."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, Protocol, Self, TypeVar, cast

import numpy as np

from contrast_core.rows._dask import DaskRows, chunk_rows
from contrast_core.rows._rows import Rows, joined, joint_blocks

_TASK = 8  # times the elements of a block in a task, so that its work outweighs the merging


class Mergeable(Protocol):
    """What rows add up to."""

    def merge(self, other: Self, /) -> Self: ...


ResultT = TypeVar("ResultT", bound=Mergeable, covariant=True)


class Sum(Protocol[ResultT]):
    """Takes blocks of rows."""

    def add(self, block: Any, /) -> None: ...

    def result(self) -> ResultT | None: ...


def reduce_rows(
    parts: Sequence[Rows], start: Callable[[], Sum[ResultT]], *, check: bool = True
) -> list[ResultT | None]:
    """What each of several disjoint selections of one dataset adds up to, in one pass over it.

    Parameters
    ----------
    parts : sequence of Rows
        One, or what ``whole.take(...)`` gave for disjoint rows of the same `whole`.
    start : callable
        Returns a sum without rows. For a dask array it is pickled: every task makes sums of its
        own, whose results are merged in pairs by whatever scheduler runs.
    check : bool, default=True
        Refuse NaN and infinity.

    Returns
    -------
    list
        The results; None of a part without rows.
    """
    if parts[0].place == "dask":
        return _reduce_chunks(cast("Sequence[DaskRows]", parts), start, check)
    sums = [start() for _ in parts]
    if len(parts) == 1:
        for block in parts[0].blocks(check=check):
            sums[0].add(block)
    else:
        for i, block in joint_blocks(parts, check=check):
            sums[i].add(block)
    return [each.result() for each in sums]


def _reduce_chunks(
    parts: Sequence[DaskRows], start: Callable[[], Any], check: bool
) -> list[Any | None]:
    delayed: Any = import_module("dask").delayed  # not typed
    whole, owner = joined(parts) if len(parts) > 1 else (parts[0], None)
    chunks = whole.chunks()
    owners: list[Any] = [None] * len(chunks)
    if owner is not None:
        owners = np.split(owner, whole.edges()[1:-1])
    reduce, merge = delayed(_reduce_some, pure=True), delayed(_merge, pure=True)
    tasks = []
    for a, b in pairwise(_task_ends(whole, len(chunks))):
        labels, some = zip(*chunks[a:b], strict=True)
        tasks.append(
            reduce(list(some), labels, owners[a:b], len(parts), start, whole.options, check)
        )
    while len(tasks) > 1:
        merged = [merge(a, b) for a, b in zip(tasks[::2], tasks[1::2], strict=False)]
        tasks = merged + tasks[2 * len(merged) :]
    return list(tasks[0].compute()) if tasks else [None] * len(parts)


def _task_ends(rows: DaskRows, n_chunks: int) -> list[int]:
    """Where the neighbouring chunks of a task begin and end; one chunk each if sizes are unknown.

    Tasks of about the same size, enough of them for every processor.
    """
    elements = max(rows.array.chunks[0], default=0) * rows.shape[1]
    known = bool(elements) and not math.isnan(elements)
    per_task = max(1, int(_TASK * rows.elements // elements)) if known else 1
    n_tasks = max(math.ceil(n_chunks / per_task), min(n_chunks, 2 * (os.cpu_count() or 1)))
    return [n_chunks * i // n_tasks for i in range(n_tasks + 1)] if n_tasks else []


def _reduce_some(
    chunks: list[Any],
    labels: Sequence[str],
    owners: list[Any],
    n_parts: int,
    start: Callable[[], Any],
    options: dict[str, Any],
    check: bool,
) -> list[Any | None]:
    """Over some chunks, for each part; None where they have no rows, as filtered chunks may."""
    sums = [start() for _ in range(n_parts)]
    for chunk, label, owner in zip(chunks, labels, owners, strict=True):
        rows = chunk_rows(chunk, label, options)
        for i in range(n_parts):
            for block in (rows if owner is None else rows.take(owner == i)).blocks(check=check):
                sums[i].add(block)
    return [each.result() for each in sums]


def _merge(a: list[Any | None], b: list[Any | None]) -> list[Any | None]:
    return [
        x.merge(y) if x is not None and y is not None else x or y for x, y in zip(a, b, strict=True)
    ]
