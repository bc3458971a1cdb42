"""Work in a thread, one at a time, with progress; it can be cancelled."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from qtpy.QtCore import QObject, Signal  # type: ignore[attr-defined]
from threadpoolctl import ThreadpoolController

from napari_plugin._settings import Cancelled, Report

_EVERY = 0.1
"""Seconds between reports of progress, for each of which the window paints a bar."""


@dataclass(eq=False)
class Work:
    """A function for the thread, and what is to be called in the window's thread.

    Parameters
    ----------
    run : callable of Report
    done : callable of the result
    failed : callable of the exception
    """

    run: Callable[[Report], Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    stop: Event = field(default_factory=Event, init=False)


class Runner(QObject):
    """Does one work at a time; a new one waits until the thread of a cancelled one is free.

    Signals
    -------
    progressed(done, total, doing)
    idle()
        A work has ended, whichever way.
    """

    progressed = Signal(int, int, str)
    idle = Signal()
    _reported = Signal(object, int, int, str)
    _ended = Signal(object, object, object)

    def __init__(self) -> None:
        super().__init__()
        self._thread = ThreadPoolExecutor(1)
        self._current: Work | None = None
        self._n_alive = 0
        self._reported.connect(self._on_reported)
        self._ended.connect(self._on_ended)

    @property
    def is_busy(self) -> bool:
        """Whether a work goes on, or waits to begin."""
        return self._current is not None

    @property
    def is_quiet(self) -> bool:
        """Whether the thread has nothing left to do, not even to end a cancelled work."""
        return not self._n_alive

    def start(self, work: Work) -> None:
        """Begin a work; one that goes on is cancelled."""
        self.cancel()
        self._current = work
        self._n_alive += 1
        self._thread.submit(self._run, work)

    def cancel(self) -> None:
        """Drop the work; its thread ends at the next block."""
        work, self._current = self._current, None
        if work is not None:
            work.stop.set()

    def _run(self, work: Work) -> None:
        """Work in the thread."""
        shown, due = "", 0.0

        def report(done: int, total: int, doing: str) -> None:
            nonlocal shown, due
            if work.stop.is_set():
                raise Cancelled
            now = time.monotonic()
            if doing != shown or now >= due:
                shown, due = doing, now + _EVERY
                self._reported.emit(work, done, max(total, 1), doing)

        # BLAS threads spin while they wait for a core that the window is drawing on; on all cores,
        # a fit of a fraction of a second took a minute.
        n_threads = max(1, (os.cpu_count() or 1) // 2)
        result, failure = None, None
        try:
            with ThreadpoolController().limit(limits=n_threads, user_api="blas"):
                result = None if work.stop.is_set() else work.run(report)
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the window was closed, and took this object with it
            self._ended.emit(work, result, failure)

    def _on_reported(self, work: Work, done: int, total: int, doing: str) -> None:
        # Signals that are still queued when a work is cancelled must find that it is over.
        if self._current is work:
            self.progressed.emit(done, total, doing)

    def _on_ended(self, work: Work, result: Any, failure: Exception | None) -> None:
        self._n_alive -= 1
        if self._current is work:
            self._current = None
            try:
                if failure is not None:
                    raise failure
                work.done(result)
            except Exception as error:
                work.failed(error)
        if not self.is_busy:
            self.idle.emit()
