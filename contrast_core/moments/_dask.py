"""Moments of dask arrays: partial moments of blocks, merged in pairs by whatever scheduler runs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from contrast_core.linalg import blas_threads
from contrast_core.moments._accumulator import Accumulator, Precision, Sums
from contrast_core.rows import DaskRows, joined, rows_of

_TASK = 8  # times the elements of a block in a task, so that products outweigh the merging


def dask_sums(parts: Sequence[DaskRows], precision: Precision) -> list[Sums]:
    """Sums over disjoint rows of a dask array of dense or sparse chunks, computed now.

    On threads, processes or a cluster: the scheduler that dask would use for the array.
    """
    from dask.delayed import delayed

    whole, owner = joined(parts) if len(parts) > 1 else (parts[0], None)
    chunks = whole.chunks()
    owners: list[Any] = [None] * len(chunks)
    if owner is not None:
        owners = np.split(owner, whole.edges()[1:-1])
    part = delayed(_partial_sums, pure=True)
    merge = delayed(_merge, pure=True)
    tasks = []
    for a, b in pairwise(_task_ends(whole, len(chunks))):
        labels, delayed_chunks = zip(*chunks[a:b], strict=True)
        tasks.append(
            part(
                *(list(delayed_chunks), labels, owners[a:b], len(parts)),
                *(whole.name, precision, whole.elements),
            )
        )
    while len(tasks) > 1:
        pairs = [merge(a, b) for a, b in zip(tasks[::2], tasks[1::2], strict=False)]
        tasks = pairs + tasks[2 * len(pairs) :]
    with _one_blas_thread_each(whole.array):
        sums: list[Sums | None] = tasks[0].compute() if tasks else [None]
    found = [each for each in sums if each is not None]
    if len(found) < len(parts):
        raise ValueError(f"{whole.name} has no rows (n_samples=0); at least one is needed.")
    return found


def _task_ends(rows: DaskRows, n_chunks: int) -> list[int]:
    """Where the neighbouring chunks of a task begin and end; one chunk each if sizes are unknown.

    Tasks of about the same size, enough of them for every processor.
    """
    elements = max(rows.array.chunks[0], default=0) * rows.shape[1]
    known = bool(elements) and not math.isnan(elements)
    per_task = max(1, int(_TASK * rows.elements // elements)) if known else 1
    n_tasks = max(math.ceil(n_chunks / per_task), min(n_chunks, 2 * (os.cpu_count() or 1)))
    return [n_chunks * i // n_tasks for i in range(n_tasks + 1)] if n_tasks else []


def _partial_sums(
    chunks: list[Any],
    labels: Sequence[str],
    owners: list[Any],
    n_parts: int,
    name: str,
    precision: Precision,
    elements: int,
) -> list[Sums | None]:
    """Sums over some chunks for each part; None where they have no rows, as filtered chunks may."""
    sums = [Accumulator(precision, elements=elements) for _ in range(n_parts)]
    filled = set()
    for chunk, label, owner in zip(chunks, labels, owners, strict=True):
        rows = rows_of(chunk, label, elements=elements)
        for i in range(n_parts):
            mine = rows if owner is None else rows.take(owner == i)
            if mine.shape[0]:
                filled.add(i)
                sums[i].consume(mine)
    return [each.sums(name) if i in filled else None for i, each in enumerate(sums)]


def _merge(a: list[Sums | None], b: list[Sums | None]) -> list[Sums | None]:
    return [
        x.merge(y) if x is not None and y is not None else x or y for x, y in zip(a, b, strict=True)
    ]


@contextmanager
def _one_blas_thread_each(X: Any) -> Iterator[None]:
    """Where tasks run in threads of this process, they share BLAS's threads."""
    dask: Any = import_module("dask.base")  # not typed
    threaded = import_module("dask.threaded")
    if dask.get_scheduler(collections=[X]) is not threaded.get:
        yield
        return
    with blas_threads() as blas, blas.limit(limits=1):
        yield
