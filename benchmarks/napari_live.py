"""Measure speed and memory of the napari plugin, and whether its window stays responsive.

    python -m benchmarks.napari_live live memory
    xvfb-run -a -s "-screen 0 1600x1000x24 -noreset" python -m benchmarks.napari_live window

"live" and "memory" measure the plugin's computations without its window; their times are medians of
processor seconds on one thread. "window" needs a screen, and its times are wall seconds. The bounds
are the delays that a user of the window may see on a quiet machine.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.measures import in_a_process, peak_memory, seconds
from benchmarks.common.report import Report
from benchmarks.common.report import run as run_studies
from contrast_core.datasets import cells_behind_fringes, digits_on_photos
from contrast_core.images import Frames, Patches
from napari_plugin._files import Calibration, export
from napari_plugin._model import Task, moved, run
from napari_plugin._pair import Images, Pair
from napari_plugin._settings import Settings, no_report

GB = 2**30
BOX = 8, 145  # first and last + 1 row, and column, of the empty corner of the image of cells


def task(pair: Pair, samples: Any, settings: Settings) -> Task:
    return Task(pair, samples, settings, (0,) * (len(pair.foreground.shape) - 2), available=8 * GB)


def live(report: Report) -> None:
    """Measure the times of a slider move and of a run on an image of 512 x 512 pixels."""
    cells = cells_behind_fringes()
    mask = np.zeros(cells.empty.shape, dtype=bool)
    mask[slice(*BOX), slice(*BOX)] = True
    image = Pair(Images("cells", cells.image), mask=mask)
    outcome = run(task(image, Patches(16, 4), Settings("cpca")), no_report)
    places = iter(np.linspace(0.2, 0.9, 12))

    def move() -> Any:
        settings = Settings("cpca", float(next(places)), 10)
        return moved(outcome, settings, outcome.task.place, no_report)

    [(taken, _)] = seconds(move, repeats=9)
    report.measured("slider, by patches at stride 4: seconds", taken, most=0.25)
    removal = task(image, Patches(16, 2), Settings())
    [(taken, _)] = seconds(lambda: run(removal, no_report))
    report.measured("background removal, from Run to picture: seconds", taken, most=4)


def memory(report: Report) -> None:
    """Measure memory while 4 GB of lazy uint8 frames are read and a sixteenth is exported."""
    report.measured("reading 4 GB of uint8: GB of memory", in_a_process(largest_memory), most=2)


def largest_memory() -> float:
    """Return the largest memory, in GB, of a process that reads and writes the stack."""
    import dask.array as da

    n = 4 * GB // (32 * 32)
    block = np.random.default_rng(0).integers(0, 255, (16384, 32, 32)).astype(np.uint8)
    lazy = da.concatenate([da.from_array(block)] * (n // len(block)))
    pair = Pair(Images("film", lazy), Images("empty", block[:2000]))
    outcome = run(task(pair, Frames(), Settings("cpca")), no_report)
    with tempfile.TemporaryDirectory() as folder:
        data = outcome.denoised[: n // 16]
        export(data, Path(folder, "film.ome.zarr"), Calibration.unknown(3))
    return peak_memory()


def window(report: Report) -> None:
    """Measure how long a run blocks the event loop, and how long it takes to cancel a run.

    A run is judged by the longest pause of the event loop between the click on Run and the results.
    The figure is the median of five runs, each of which reads the images anew. Two other figures
    are printed beside it: the longest pause during two idle seconds, because other processes also
    delay the event loop, and the time that napari alone takes to add a layer of the result.
    """
    from napari import Viewer
    from napari.qt import get_qapp
    from qtpy.QtWidgets import QApplication

    get_qapp()
    viewer = Viewer()
    dock = viewer.window.add_plugin_dock_widget("contrast-suite", "Contrastive denoising")[1]

    def pause(until: Any, most: float = 300.0) -> float:
        """Run the event loop until a condition holds, and return its longest pause."""
        start = last = time.perf_counter()
        longest = 0.0
        while not until() and last - start < most:
            QApplication.processEvents()
            time.sleep(0.001)  # so that the worker thread can run
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        return longest

    def blocked(name: str) -> None:
        found: list[tuple[float, ...]] = []
        inputs = list(viewer.layers)
        for _ in range(5):
            idle = pause(lambda: False, 2.0)
            dock.run.native.click()
            found.append((idle, pause(lambda: not dock.cancel.enabled)))
            pause(lambda: dock._runner.is_quiet)
            [layer] = [each for each in viewer.layers if each not in inputs]
            viewer.layers.remove(layer)
            start = time.perf_counter()
            viewer.layers.append(layer)
            QApplication.processEvents()
            found[-1] += (time.perf_counter() - start,)
            viewer.layers.remove(layer)
        idle, longest, napari = np.median(found, axis=0)
        text = f"{name}: pause in s (idle {idle:.3f}, napari alone {napari:.3f})"
        report.measured(text, longest, most=0.1)

    def cancelled(doing: str) -> None:
        dock.run.native.click()
        pause(lambda: dock.status.text.startswith(doing) or not dock.cancel.enabled)
        start = time.perf_counter()
        dock.cancel.native.click()
        pause(lambda: dock._runner.is_quiet)
        what = f"cancel while {doing.lower()}: seconds until the work ends"
        report.measured(what, time.perf_counter() - start, most=0.3)

    viewer.add_image(cells_behind_fringes().image, name="cells")
    dock.choices.draw.native.click()
    corners = [[0, 0], [0, 1], [1, 1], [1, 0]]
    viewer.layers["background"].add_rectangles(np.take(BOX, corners))
    blocked("512 x 512 by background removal")
    for doing in ("Reading", "Removing"):
        cancelled(doing)
    viewer.layers.clear()
    digits = digits_on_photos(5000)
    for name, rows in (("photographs", digits.background), ("digits", digits.foreground)):
        viewer.add_image(rows.astype(np.float32).reshape(-1, 28, 28), name=name)
    dock.method.method.value = "cpca"
    blocked("5,000 frames by projection")
    dock.method.method.value = "automatic"
    for doing in ("Reading", "Solving"):
        cancelled(doing)
    viewer.close()


if __name__ == "__main__":
    run_studies(live, memory, window)
