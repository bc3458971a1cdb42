"""Worker threads for work that BLAS does not run in parallel.

Problem: if Python threads and BLAS threads run at the same time, there are more threads than
processors, and all of them become slow. While worker threads run, each may use an equal share of
the threads that BLAS was allowed before. The number of BLAS threads is restored afterwards
(threadpoolctl). Results do not depend on the number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

_MAX_WORKERS = 4  # each worker needs memory for a block of rows and for a product
_controller_in_use = threading.Lock()


@contextmanager
def worker_threads() -> Iterator[tuple[ThreadPoolExecutor | None, int]]:
    """Yield a pool of worker threads and their number, or (None, 0) if BLAS has a single thread.

    While the pool exists, each worker may use an equal share of the BLAS threads.
    """
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
    """Yield threadpoolctl's control of the number of BLAS threads.

    The control that is yielded has no effect while another thread uses this function. The number of
    BLAS threads is a setting of the whole process. If two threads changed and restored it at the
    same time, it could end up wrong.
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
    """Return the cached controller; finding the loaded libraries takes as long as a small fit."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
