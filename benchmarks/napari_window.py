"""Measure whether napari's window stays responsive while the plugin works; needs a screen.

    xvfb-run -a -s "-screen 0 1600x1000x24 -noreset" python -m benchmarks.napari_window

- Blocking: the longest time that the event loop is blocked between the click on Run and the results
  (at most 0.1 s), as the median of five runs, each of which reads the images anew. The same time in
  an idle window is printed beside it, because the machine blocks the event loop now and then
  without our work.
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
        self.longest, self._last = 0.0, time.perf_counter()
        self.timer = QTimer()
        self.timer.timeout.connect(self._beat)
        self.timer.start(0)

    def _beat(self) -> None:
        now = time.perf_counter()
        self.longest, self._last = max(self.longest, now - self._last), now


def wait(until: Any = lambda: False, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not until() and time.monotonic() < end:
        QApplication.processEvents()
        time.sleep(0.001)


def runs(report: Report, viewer: Viewer, dock: Any, name: str) -> None:
    """Measure how long five runs block the window until their results are shown."""
    found, own = [], list(viewer.layers)
    for _ in range(REPEATS):
        longest = []
        for start, until in (
            (lambda: None, lambda: False),
            (dock.run.native.click, lambda: not dock.cancel.enabled),
        ):
            pulse = Pulse()
            start()
            wait(until, 2 if not longest else 300)
            pulse.timer.stop()
            longest.append(pulse.longest)
        wait(lambda: dock._examiner.is_quiet)
        found.append(longest)
        for layer in [each for each in viewer.layers if each not in own]:
            viewer.layers.remove(layer)
    idle, blocked = np.median(found, axis=0)
    report.measured(f"{name}: blocked (idle {idle:.3f})", blocked, most=0.1)


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
