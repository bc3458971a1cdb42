"""Run jobs in a thread, one at a time; jobs report their progress and can be cancelled."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from qtpy.QtCore import QObject, Signal  # type: ignore[attr-defined]
from threadpoolctl import ThreadpoolController

from napari_plugin._settings import Cancelled, Report

_EVERY = 0.1
"""Least time in seconds between two reports; the window redraws its progress bar for each."""


@dataclass(eq=False)
class Job:
    """A function to run in the thread, and the functions that receive its result or exception.

    Parameters
    ----------
    run : callable of Report
        Function that does the work, in the thread.
    done : callable of the result
        Function that is called in the window's thread if `run` returns.
    failed : callable of the exception
        Function that is called in the window's thread if `run` or `done` raises.
    is_move : bool, default=False
        Whether the job changes a result to the position of the slider.
    """

    run: Callable[[Report], Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    is_move: bool = False
    stop: Event = field(default_factory=Event, init=False)


class Runner(QObject):
    """Thread that does one job at a time; a new job waits until a cancelled job has ended.

    Signals
    -------
    progressed(done, total, doing)
        The work done, the total work, and the name of the step.
    """

    progressed = Signal(int, int, str)
    _reported = Signal(object, int, int, str)
    _ended = Signal(object, object, object)

    def __init__(self) -> None:
        super().__init__()
        self._thread = ThreadPoolExecutor(1)
        self.current: Job | None = None
        """Job that is running or waiting to begin."""
        self._last: Future[None] | None = None
        self._reported.connect(self._on_reported)
        self._ended.connect(self._on_ended)

    @property
    def is_quiet(self) -> bool:
        """Whether no job is running or waiting, and every cancelled job has ended."""
        return self._last is None or self._last.done()

    def start(self, job: Job) -> None:
        """Cancel the running job, and begin a new one when it has ended."""
        self.cancel()
        self.current = job
        self._last = self._thread.submit(self._run, job)

    def cancel(self) -> None:
        """Cancel the job, which stops after the block that it is working on."""
        job, self.current = self.current, None
        if job is not None:
            job.stop.set()

    def _run(self, job: Job) -> None:
        """Run a job; this is called in the thread."""
        shown, due = "", 0.0

        def report(done: int, total: int, doing: str) -> None:
            nonlocal shown, due
            if job.stop.is_set():
                raise Cancelled
            now = time.monotonic()
            if doing != shown or now >= due:
                shown, due = doing, now + _EVERY
                self._reported.emit(job, done, max(total, 1), doing)

        # BLAS, the library for linear algebra, gets only half of the cores. If it used all cores
        # while the window draws on one of them, the threads of BLAS would spin until that core is
        # free. A fit that needs a fraction of a second took a minute in this case.
        n_threads = max(1, (os.cpu_count() or 1) // 2)
        result, failure = None, None
        try:
            with ThreadpoolController().limit(limits=n_threads, user_api="blas"):
                result = None if job.stop.is_set() else job.run(report)
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the window was closed, which deleted this object
            self._ended.emit(job, result, failure)

    def _on_reported(self, job: Job, done: int, total: int, doing: str) -> None:
        # A signal that was queued before the job was cancelled is ignored.
        if self.current is job:
            self.progressed.emit(done, total, doing)

    def _on_ended(self, job: Job, result: Any, failure: Exception | None) -> None:
        if self.current is job:
            self.current = None
            try:
                if failure is not None:
                    raise failure
                job.done(result)
            except Exception as error:
                job.failed(error)
