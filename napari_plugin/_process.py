"""Long computations in a process of their own, which can be ended at any moment.

Decompositions of more than a few hundred features take seconds, cannot be interrupted, and hold
Python's lock, so that even in a thread they stop the window.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from napari_plugin._settings import Report

_POLL = 0.02  # seconds


def compute(report: Report, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(*arguments)``, both of which can be pickled.

    The process ends at once if `report` raises. Exceptions of the function are raised here.
    """
    report(0, 0, "Solving")
    # Unlike multiprocessing, loky does not run the script again that opened the window.
    loky: Any = import_module("joblib.externals.loky")  # without types
    threads = str(max(1, (os.cpu_count() or 1) // 2))  # the window draws on the others
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    pool = loky.ProcessPoolExecutor(1, env=dict.fromkeys(names, threads))
    try:
        job = pool.submit(function, *arguments)
        while not job.done():
            report(0, 0, "Solving")
            loky.wait([job], timeout=_POLL)
        return job.result()
    finally:
        pool.shutdown(kill_workers=True)
