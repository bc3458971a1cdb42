"""Moments of dask arrays: partial moments of blocks, merged in pairs by whatever scheduler runs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from typing import Any

from contrast_core._sources import check_two_dimensional
from contrast_core._validation import check_rows, iter_chunks
from contrast_core.linalg import blas_threads
from contrast_core.moments._accumulator import Precision, Sums, accumulate

_TASK_ELEMENTS = 2**25  # of neighbouring chunks per task, so that products outweigh the merging


def dask_sums(X: Any, name: str, precision: Precision) -> Sums:
    """Sums over all rows of a dask array of dense or sparse chunks, computed now.

    On threads, processes or a cluster: the scheduler that dask would use for `X`.
    """
    from dask.delayed import delayed

    check_two_dimensional(X, name)
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    chunks = X.to_delayed().ravel().tolist()
    part = delayed(_partial_sums, pure=True)
    merge = delayed(_merge, pure=True)
    ends = _task_ends(X, len(chunks))
    parts = [part(chunks[a:b], a, name, precision) for a, b in pairwise(ends)]
    while len(parts) > 1:
        pairs = [merge(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[2 * len(pairs) :]
    with _one_blas_thread_each(X):
        sums: Sums | None = parts[0].compute() if parts else None
    if sums is None:
        raise ValueError(f"{name} has no rows (n_samples=0); at least one is needed.")
    return sums


def _task_ends(X: Any, n_chunks: int) -> list[int]:
    """Where the neighbouring chunks of a task begin and end; one chunk each if sizes are unknown.

    Tasks of about the same size, enough of them for every processor.
    """
    elements = max(X.chunks[0], default=0) * X.shape[1]
    known = bool(elements) and not math.isnan(elements)
    per_task = max(1, int(_TASK_ELEMENTS // elements)) if known else 1
    n_tasks = max(math.ceil(n_chunks / per_task), min(n_chunks, 2 * (os.cpu_count() or 1)))
    return [n_chunks * i // n_tasks for i in range(n_tasks + 1)] if n_tasks else []


def _partial_sums(chunks: list[Any], first: int, name: str, precision: Precision) -> Sums | None:
    """Sums over some chunks; None where they have no rows, as filtered chunks may."""

    def blocks() -> Iterator[Any]:
        for i, chunk in enumerate(chunks, first):
            label = f"chunk {i} of {name}"
            yield from iter_chunks(check_rows(chunk, label), label, dense=False)

    if not any(chunk.shape[0] for chunk in chunks):
        return None
    return accumulate(blocks(), name, precision=precision, parallel=False)


def _merge(a: Sums | None, b: Sums | None) -> Sums | None:
    return a.merge(b) if a is not None and b is not None else a or b


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
