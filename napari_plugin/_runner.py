"""Steps in a thread, one at a time, with progress in the activity dock; cancelled at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

from napari.qt.threading import create_worker
from napari.utils import progress
from threadpoolctl import ThreadpoolController

from napari_plugin._settings import Progress, Steps

_EVERY = 0.1
"""Seconds between reports of progress, for each of which the window paints two bars."""


@dataclass(frozen=True, eq=False)
class Work:
    """Steps, and what is to be called in the window's thread.

    Parameters
    ----------
    steps : function to generator of Progress
        Made in the thread's first moment, so that a run that waits holds nothing.
    done : callable of the result
    failed : callable of the exception
    title : str
        What the activity dock calls it.
    """

    steps: Callable[[], Steps[Any]]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]
    title: str


class Runner:
    """Does one work at a time; a cancelled one is waited for before the next begins.

    Parameters
    ----------
    on_progress : callable of Progress, optional
    on_idle : callable, optional
        When a work has ended, whichever way.
    """

    def __init__(
        self,
        on_progress: Callable[[Progress], None] | None = None,
        on_idle: Callable[[], None] | None = None,
    ) -> None:
        self._on_progress, self._on_idle = on_progress, on_idle
        self._number = 0
        self._current: _Running | None = None
        self._waiting: Work | None = None
        self._alive: set[int] = set()

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
        self._number += 1
        number, stop = self._number, Event()
        # A worker lives on after its run, so its slots hold a number, not the images.
        made: list[Steps[Any]] = []
        worker = create_worker(_work, work.steps, stop, made)
        worker.aborted.connect(partial(_close, made))  # by napari, as its window closes
        worker.yielded.connect(partial(self._on_yielded, number))
        worker.returned.connect(partial(self._on_returned, number))
        worker.errored.connect(partial(self._on_errored, number))
        worker.finished.connect(partial(self._on_finished, number))
        bar = progress(total=0, desc=work.title)
        self._current = _Running(number, work, stop, bar)
        self._alive.add(number)
        worker.start()

    def cancel(self) -> None:
        """Hear no more of the work; its thread ends with the block that it is at."""
        self._waiting = None
        if self._current is not None:
            self._current.stop.set()
            self._end()

    def _end(self) -> None:
        if self._current is not None:
            current, self._current = self._current, None
            current.bar.close()  # last: napari's bars take events as they change

    def _is_current(self, number: int) -> bool:
        # Signals that are still queued when a run is cancelled must find that it is over.
        return self._current is not None and self._current.number == number

    def _on_yielded(self, number: int, report: Progress) -> None:
        if not self._is_current(number) or self._current is None:
            return
        if self._on_progress is not None:
            self._on_progress(report)
        bar = self._current.bar  # last: it takes events, the end of this work perhaps
        if bar.total != report.total or bar.desc != f"{report.doing}: ":
            bar.reset(total=report.total)
            bar.set_description(report.doing)
        bar.update(report.done - bar.n)

    def _on_returned(self, number: int, result: Any) -> None:
        if not self._is_current(number) or self._current is None:
            return
        work = self._current.work
        self._end()
        if isinstance(result, _Failure):
            work.failed(result.error)
        else:
            try:
                work.done(result)
            except Exception as error:
                work.failed(error)

    def _on_errored(self, number: int, error: Exception) -> None:
        if self._is_current(number) and self._current is not None:
            work = self._current.work
            self._end()
            work.failed(error)

    def _on_finished(self, number: int) -> None:
        self._alive.discard(number)
        if self._is_current(number):
            self._end()
        if self._waiting is not None and not self._alive:
            work, self._waiting = self._waiting, None
            self.start(work)
        if not self.is_busy and self._on_idle is not None:
            self._on_idle()


@dataclass(frozen=True, eq=False)
class _Running:
    number: int
    work: Work
    stop: Event
    bar: Any


@dataclass(frozen=True, eq=False)
class _Failure:
    error: Exception


def _close(made: list[Steps[Any]]) -> None:
    """End a process that solves; a worker that napari stops does not go on to do it."""
    for steps in made:
        steps.close()


def _work(
    make: Callable[[], Steps[Any]], stop: Event, made: list[Steps[Any]]
) -> Generator[Progress, None, Any]:
    """Take the steps in the worker's thread, returning an exception instead of raising it.

    A worker takes any RuntimeError for the end of the application and reports neither an error nor
    its end (superqt, ``WorkerBase.run``), and napari 0.9's own slot for ``errored`` fails.
    """
    blas = ThreadpoolController()
    n_threads = max(1, (os.cpu_count() or 1) // 2)
    shown, due = "", 0.0
    try:
        steps = make()
        made.append(steps)
        while not stop.is_set():
            # BLAS threads spin while they wait for a core that the window is drawing on; on all
            # cores, a fit of a fraction of a second took a minute.
            with blas.limit(limits=n_threads, user_api="blas"):
                report = next(steps)
            now = time.monotonic()
            if report.doing != shown or now >= due:
                shown, due = report.doing, now + _EVERY
                yield report
    except StopIteration as end:
        return end.value
    except Exception as error:
        return _Failure(error)
    finally:
        _close(made)
    return None
