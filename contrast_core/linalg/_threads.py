"""Threads for work that BLAS does not share out, as many as BLAS may use.

Problem: threads of Python and threads of BLAS at once are more than there are processors, which
makes both slow. While worker threads run, BLAS gets its share of the number it was allowed before,
and that number is restored afterwards (threadpoolctl). Results do not depend on the number.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

_MAX_WORKERS = 4  # each holds a block and a product
_controller_in_use = threading.Lock()


@contextmanager
def worker_threads() -> Iterator[tuple[ThreadPoolExecutor | None, int]]:
    """Yield worker threads that share BLAS's threads; none where BLAS has a single thread."""
    with blas_threads() as blas:
        n_threads = max((library["num_threads"] for library in blas.info()), default=1)
        n_workers = min(n_threads, _MAX_WORKERS)
        if n_workers < 2:
            yield None, 0
            return
        with blas.limit(limits=n_threads // n_workers), ThreadPoolExecutor(n_workers) as pool:
            yield pool, n_workers


@contextmanager
def blas_threads() -> Iterator[Any]:
    """Yield threadpoolctl's control of the BLAS libraries; of none while another thread has it.

    The number of BLAS threads belongs to the process: two that set and restore it at once would
    leave it wrong.
    """
    controller = _controller()
    if not _controller_in_use.acquire(blocking=False):
        yield controller.select(user_api=[])
        return
    try:
        yield controller.select(user_api="blas")
    finally:
        _controller_in_use.release()


@cache
def _controller() -> Any:
    """Return the libraries loaded with this package; a search takes as long as a small fit."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
