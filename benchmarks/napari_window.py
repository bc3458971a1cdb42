"""Measure whether napari's window stays responsive while the plugin works; needs a screen.

    xvfb-run -a -s "-screen 0 1600x1000x24 -noreset" python -m benchmarks.napari_window

- Blocking: the longest time that the event loop is blocked between the click on Run and the results
  (at most 0.1 s), as the median of five runs, each of which reads the images anew. The same time in
  an idle window is printed beside it, because the machine blocks the event loop now and then
  without our work.
- Adding layers: adding the layer of a result takes at most 1.5 times as long as adding an array of
  zeros of the same shape with `add_image`, as medians of processor seconds over the five runs.
- Cancelling while the plugin reads, solves (in a process) or removes: how long the click takes (at
  most 0.1 s), and how long it takes until the work has ended (at most 0.3 s).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from napari import Viewer
from napari.qt import get_qapp
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QApplication

from benchmarks.common.report import Report, run
from contrast_core.datasets import cells_behind_fringes, digits_on_photos

REPEATS = 5


class Pulse:
    """Timer of the longest pause between two turns of the event loop."""

    def __init__(self) -> None:
        self.restart()
        self._timer = QTimer()
        self._timer.timeout.connect(self._beat)
        self._timer.start(0)

    def _beat(self) -> None:
        now = time.perf_counter()
        self.longest, self._last = max(self.longest, now - self._last), now

    def restart(self) -> None:
        self.longest, self._last = 0.0, time.perf_counter()

    def stop(self) -> None:
        self._timer.stop()


def wait(until: Any = lambda: False, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not until() and time.monotonic() < end:
        QApplication.processEvents()
        time.sleep(0.001)


def runs(report: Report, viewer: Viewer, dock: Any, name: str) -> None:
    """Measure how long five runs block the window, and how long adding their layers takes."""
    found = [one_run(viewer, dock) for _ in range(REPEATS)]
    blocked, idle, added, bare = np.median(found, axis=0)
    what = f"{name}: blocked until results arrive (idle {idle:.3f})"
    report.measured(what, blocked, most=0.1)
    report.measured("  adding a result / a bare layer", added / bare, most=1.5)


def one_run(viewer: Viewer, dock: Any) -> tuple[float, float, float, float]:
    """Return how long a run and an idle window block, and the seconds to add two layers.

    The first layer is the run's result, and the second one is an array of zeros of the same shape.
    """
    pulse = Pulse()
    wait(seconds=2)
    idle = pulse.longest
    added: list[tuple[Any, float, float]] = []
    original = dock.results._make

    def make(shown: Any, kind: str) -> None:
        longest, start = pulse.longest, time.process_time()
        original(shown, kind)
        added.append((shown.layers[kind], longest, time.process_time() - start))

    dock.results._make = make
    pulse.restart()
    dock.run.native.click()
    wait(lambda: not dock.cancel.enabled)
    pulse.stop()
    dock.results._make = original
    wait(lambda: dock._examiner.is_quiet)
    layer, blocked, took = added[0]
    zeros = np.zeros(layer.data.shape, dtype=np.float32)
    start = time.process_time()
    bare = viewer.add_image(zeros, name="bare", contrast_limits=(0, 1), visible=layer.visible)
    beside = time.process_time() - start
    for each in (bare, *(layer for layer, *_ in added)):
        viewer.layers.remove(each)
    wait(seconds=0.05)
    return blocked, idle, took, beside


def cancelled(report: Report, dock: Any, doing: str) -> None:
    """Measure how long it takes to cancel a run."""
    dock.run.native.click()
    wait(lambda: dock.status.text.startswith(doing) or not dock.cancel.enabled)
    if not dock.cancel.enabled:
        print(f"  {doing} was over before it could be cancelled")
        return
    start = time.perf_counter()
    dock.cancel.native.click()
    free = time.perf_counter() - start
    wait(lambda: dock._runner.is_quiet)
    what = f"cancel while {doing.lower()}"
    report.measured(f"{what}: work ended", time.perf_counter() - start, most=0.3)
    report.measured(f"{what}: dock free", free, most=0.1)


def main(report: Report) -> None:
    get_qapp()
    viewer = Viewer()
    dock = viewer.window.add_plugin_dock_widget("contrast-suite", "Contrastive denoising")[1]
    data = cells_behind_fringes()
    viewer.add_image(data.image, name="cells")
    dock.choices.draw.native.click()
    corners = np.array([[8, 8], [8, 145], [145, 145], [145, 8]])
    viewer.layers["background"].add_rectangles(corners)
    runs(report, viewer, dock, "512 x 512 by background removal")
    for doing in ("Reading", "Removing"):
        cancelled(report, dock, doing)

    viewer.layers.clear()
    digits = digits_on_photos(5000)
    for name, rows in (("photographs", digits.background), ("digits", digits.foreground)):
        viewer.add_image(rows.astype(np.float32).reshape(-1, 28, 28), name=name)
    dock.method.method.value = "cpca"
    runs(report, viewer, dock, "5,000 frames by projection")
    dock.method.method.value = "automatic"
    for doing in ("Reading", "Solving"):
        cancelled(report, dock, doing)
    viewer.close()


if __name__ == "__main__":
    run(main)
