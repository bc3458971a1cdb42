"""Work in a thread, one at a time, with progress in the activity dock; cancelled at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

from napari.qt.threading import create_worker
from napari.utils import progress
from qtpy.QtCore import QObject, Signal  # type: ignore[attr-defined]
from threadpoolctl import ThreadpoolController

from napari_plugin._settings import Cancelled, Report

_EVERY = 0.1
"""Seconds between reports of progress, for each of which the window paints two bars."""


@dataclass(frozen=True, eq=False)
class Work:
    """A function for the thread, and what is to be called in the window's thread.

    Parameters
    ----------
    run : callable of Report
    done : callable of the result
    failed : callable of the exception
    title : str
        Shown in the activity dock.
    """

    run: Callable[[Report], Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    title: str


class Runner(QObject):
    """Does one work at a time; a new one waits until the thread of a cancelled one has ended.

    Signals
    -------
    progressed(done, total, doing)
    idle()
        A work has ended, whichever way.
    """

    progressed = Signal(int, int, str)
    idle = Signal()
    _reported = Signal(object, int, int, str)

    def __init__(self) -> None:
        super().__init__()
        self._current: _Running | None = None
        self._waiting: Work | None = None
        self._alive: list[_Running] = []
        self._reported.connect(self._on_reported)

    @property
    def is_busy(self) -> bool:
        """Whether a work goes on, or waits to begin."""
        return self._current is not None or self._waiting is not None

    @property
    def is_quiet(self) -> bool:
        """Whether no thread is left at all, not even a cancelled one."""
        return not self._alive

    def start(self, work: Work) -> None:
        """Begin a work; one that goes on is cancelled."""
        self.cancel()
        if self._alive:
            self._waiting = work
            return
        running = _Running(work, Event(), progress(total=0, desc=work.title))
        running.worker = worker = create_worker(_run, running, self._report)
        worker.returned.connect(partial(self._on_returned, running))
        worker.finished.connect(partial(self._on_finished, running))
        self._current = running
        self._alive.append(running)
        worker.start()

    def cancel(self) -> None:
        """Drop the work; its thread ends at the next block."""
        self._waiting = None
        if self._current is not None:
            self._current.stop.set()
            self._end()

    def _report(self, running: _Running) -> Report:
        """Return the function that the thread calls as it works."""
        shown, due = "", 0.0

        def report(done: int, total: int, doing: str) -> None:
            nonlocal shown, due
            if running.stop.is_set() or running.worker.abort_requested:
                raise Cancelled
            now = time.monotonic()
            if doing != shown or now >= due:
                shown, due = doing, now + _EVERY
                self._reported.emit(running, done, max(total, 1), doing)

        return report

    def _end(self) -> None:
        if self._current is not None:
            current, self._current = self._current, None
            current.bar.close()  # last: napari's bars process events as they change

    def _on_reported(self, running: _Running, done: int, total: int, doing: str) -> None:
        # Signals that are still queued when a work is cancelled must find that it is over.
        if self._current is not running:
            return
        bar = running.bar
        self.progressed.emit(done, total, doing)
        if bar.total != total or bar.desc != f"{doing}: ":
            bar.reset(total=total)
            bar.set_description(doing)
        bar.update(done - bar.n)

    def _on_returned(self, running: _Running, result: Any) -> None:
        work = running.work
        if self._current is not running or work is None:
            return
        self._end()
        if isinstance(result, _Failure):
            work.failed(result.error)
            return
        try:
            work.done(result)
        except Exception as error:
            work.failed(error)

    def _on_finished(self, running: _Running) -> None:
        self._alive.remove(running)
        running.work = None  # a worker lives on for a while, and shall not hold the images
        if self._current is running:
            self._end()
        if self._waiting is not None and not self._alive:
            work, self._waiting = self._waiting, None
            self.start(work)
        if not self.is_busy:
            self.idle.emit()


@dataclass(eq=False)
class _Running:
    work: Work | None
    stop: Event
    bar: Any
    worker: Any = None


@dataclass(frozen=True, eq=False)
class _Failure:
    error: Exception


def _run(running: _Running, make_report: Callable[[_Running], Report]) -> Any:
    """Work in the worker's thread, returning an exception instead of raising it.

    A worker takes any RuntimeError for the end of the application and reports neither an error nor
    its end (superqt, ``WorkerBase.run``), and napari 0.9's own slot for ``errored`` fails.
    """
    # BLAS threads spin while they wait for a core that the window is drawing on; on all cores, a
    # fit of a fraction of a second took a minute.
    n_threads = max(1, (os.cpu_count() or 1) // 2)
    try:
        with ThreadpoolController().limit(limits=n_threads, user_api="blas"):
            return running.work.run(make_report(running))  # type: ignore[union-attr]
    except Cancelled:
        return None
    except Exception as error:
        return _Failure(error)
