"""Speed and memory of the napari plugin's computations, measured without its window.

    python -m benchmarks.napari_live [live] [memory]

Times are medians of processor seconds on one thread, so that other work on the machine does not
count. The bounds are the delays that a user of the window may see on a quiet machine.
"""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.measures import in_a_process, seconds
from benchmarks.common.report import Report
from benchmarks.common.report import run as run_studies
from contrast_core.datasets import cells_behind_fringes
from contrast_core.images import Frames, Patches
from napari_plugin._files import Calibration, export
from napari_plugin._model import Task, moved, run
from napari_plugin._pair import Images, Pair
from napari_plugin._settings import Settings, no_report

GB = 2**30


def task(pair: Pair, samples: Any, settings: Settings | None = None) -> Task:
    """Return a task with at most 8 GB of memory; by default it is a projection."""
    settings = settings or Settings("cpca")
    return Task(pair, samples, settings, (0,) * (len(pair.foreground.shape) - 2), 8 * GB)


def live(report: Report) -> None:
    """Times of moving the slider, and from Run to the picture, on an image of 512 x 512."""
    cells = cells_behind_fringes()
    mask = np.zeros(cells.empty.shape, dtype=bool)
    mask[8:145, 8:145] = True
    image = Pair(Images("cells", cells.image), mask=mask)
    outcome = run(task(image, Patches(16, 4)), no_report)
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
    """A lazy stack of 4 GB of uint8 is read whole, and a sixteenth is written to an OME-Zarr."""
    report.measured("4 GB of uint8: GB", in_a_process(largest_memory) / GB, most=2)


def largest_memory() -> int:
    """Return the largest memory, in bytes, of a process that reads and writes the stack."""
    import dask.array as da

    n = 4 * GB // (32 * 32)
    block = np.random.default_rng(0).integers(0, 255, (16384, 32, 32)).astype(np.uint8)
    lazy = da.concatenate([da.from_array(block)] * (n // len(block)))
    pair = Pair(Images("film", lazy), Images("empty", block[:2000]))
    outcome = run(task(pair, Frames()), no_report)
    assert outcome.solution.n_used == n
    with tempfile.TemporaryDirectory() as folder:
        data = outcome.denoised[: n // 16]
        export(data, Path(folder, "film.ome.zarr"), Calibration.unknown(3))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    run_studies(live, memory)
