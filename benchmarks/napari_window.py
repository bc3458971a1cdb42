"""Measure whether napari's window stays responsive while the plugin works; needs a screen.

    xvfb-run -a -s "-screen 0 1600x1000x24 -noreset" python -m benchmarks.napari_window

- Blocking: the longest time that the event loop is blocked between the click on Run and the results
  (at most 0.1 s). The tasks are the projection of 5,000 frames of 28 x 28 pixels, background
  removal from an image of 512 x 512, and the projection of patches of 54 x 512 x 512. Each figure
  is the median of five runs, and every run reads the images anew. The same time in an idle window
  is printed beside it, because the machine blocks the event loop now and then without our work.
- Adding layers: adding the layer of a result takes at most 1.5 times as long as adding an array of
  zeros of the same shape with `add_image`. The array of zeros is in memory; for a lazy layer, a
  lazy array is measured too. Each figure is the median over the five runs, in processor seconds, so
  that other work on the machine does not count. The ratio of wall times is printed beside it, and
  so are the wall times of the first run, in which napari draws this kind of image for the first
  time.
- Cancelling while the plugin reads, solves (in a process) or removes: how long the click takes (at
  most 0.1 s), and how long it takes until the work has ended (at most 0.3 s).
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import dask.array as da
import numpy as np
from napari import Viewer
from napari.qt import get_qapp
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QApplication

from benchmarks.common.report import Report, run
from contrast_core.datasets import cells_behind_fringes, digits_on_photos

REPEATS = 5
Times = tuple[float, float]  # processor time and wall time, in seconds


class Pulse:
    """Timer of the longest pause between two turns of the event loop."""

    def __init__(self) -> None:
        self.longest, self._last = 0.0, time.perf_counter()
        self._timer = QTimer()
        self._timer.timeout.connect(self._beat)
        self._timer.start(0)

    def _beat(self) -> None:
        now = time.perf_counter()
        self.longest, self._last = max(self.longest, now - self._last), now

    def restart(self) -> None:
        self.longest, self._last = 0.0, time.perf_counter()

    def stop(self) -> float:
        self._timer.stop()
        return self.longest


def now() -> Times:
    return time.process_time(), time.perf_counter()


def since(start: Times) -> Times:
    cpu, wall = now()
    return cpu - start[0], wall - start[1]


def wait(until: Any, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not until() and time.monotonic() < end:
        QApplication.processEvents()
        time.sleep(0.001)


def runs(report: Report, viewer: Viewer, dock: Any, name: str) -> None:
    """Measure how long five runs block the window, and how long adding their layers takes."""
    blocked: list[float] = []
    idle: list[float] = []
    found: dict[str, list[Times]] = {}
    beside: dict[tuple[str, str], list[Times]] = {}
    for _ in range(REPEATS):
        longest, at_rest, added = one_run(viewer, dock)
        blocked.append(longest)
        idle.append(at_rest)
        for layer, took in added:
            found.setdefault(layer.name.split()[-1], []).append(took)
            viewer.layers.remove(layer)
        for layer, _ in added * 2:
            kind = layer.name.split()[-1]
            like = np.zeros(layer.data.shape, dtype=np.float32)
            beside.setdefault((kind, "in memory"), []).append(bare(viewer, layer, like))
            if isinstance(layer.data, da.Array):
                like = da.from_array(like, chunks=layer.data.chunks, name=False)
                beside.setdefault((kind, "of its kind"), []).append(bare(viewer, layer, like))
    middle = statistics.median
    what = f"{name}: blocked until results arrive (idle {middle(idle):.3f})"
    report.measured(what, middle(blocked), most=0.1)
    for (kind, what), others in beside.items():
        (cpu, wall), (bare_cpu, bare_wall) = (
            [middle(each) for each in zip(*times, strict=True)] for times in (found[kind], others)
        )
        first = f"{found[kind][0][1]:.2f} s : {others[0][1]:.2f} s"
        text = f"  {kind} / a bare layer {what} (wall {wall / bare_wall:.2f}, first {first})"
        report.measured(text, cpu / bare_cpu, most=1.5)


def bare(viewer: Viewer, layer: Any, like: Any) -> Times:
    options = {"contrast_limits": (0, 1), "visible": layer.visible}
    start = now()
    made = viewer.add_image(like, name="bare", **options)
    took = since(start)
    wait(lambda: False, 0.05)
    viewer.layers.remove(made)
    wait(lambda: False, 0.05)
    return took


def one_run(viewer: Viewer, dock: Any) -> tuple[float, float, list[tuple[Any, Times]]]:
    """Return how long a run blocks the window, how long an idle one blocks, and layer times."""
    pulse = Pulse()
    wait(lambda: False, 2)
    idle = pulse.longest
    added: list[tuple[Any, Times]] = []
    original = dock.results._make

    def make(shown: Any, kind: str) -> None:
        if not added:
            arrived.append(pulse.longest)
        start = now()
        original(shown, kind)
        added.append((shown.layers[kind], since(start)))

    arrived: list[float] = []
    dock.results._make = make
    pulse.restart()
    dock.run.native.click()
    wait(lambda: not dock.cancel.enabled)
    pulse.stop()
    dock.results._make = original
    wait(lambda: dock._examiner.is_quiet)
    return arrived[0], idle, added


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

    viewer.layers.clear()
    plate = np.random.default_rng(0).integers(0, 255, (54, 512, 512)).astype(np.uint8)
    viewer.add_image(plate, name="plate")
    dock.choices.draw.native.click()
    viewer.layers["background"].add_rectangles(corners)
    dock.method.method.value = "cpca"
    dock.method.side.value = 16
    runs(report, viewer, dock, "54 x 512 x 512 by patches")
    viewer.close()


if __name__ == "__main__":
    run(main)
