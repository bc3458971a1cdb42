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
from contrast_core.datasets import cells_behind_fringes, digits_on_photos
from contrast_core.images import Frames, Patches
from napari_plugin._files import Calibration, export
from napari_plugin._model import Task, moved, run
from napari_plugin._pair import Images, Pair
from napari_plugin._settings import Settings, no_report
from napari_plugin._solve import fit

GB = 2**30
PROJECTION = Settings("cpca")


def task(pair: Pair, samples: Any, settings: Settings = PROJECTION) -> Task:
    return Task(pair, samples, settings, (0,) * (len(pair.foreground.shape) - 2), 8 * GB)


def live(report: Report) -> None:
    """Times of reading and fitting, of moving the slider, and from Run to the picture."""

    def timed(name: str, most: float, work: Any, repeats: int = 3) -> None:
        [(taken, _)] = seconds(work, repeats=repeats)
        report.measured(f"{name}: seconds", taken, most=most)

    def slider(name: str, most: float, outcome: Any) -> None:
        places = iter(np.linspace(0.2, 0.9, 12))

        def move() -> Any:
            settings = Settings("cpca", float(next(places)), 10)
            return moved(outcome, settings, outcome.task.place, no_report)

        timed(f"slider, {name}", most, move, 9)

    data = digits_on_photos(5000)
    stacks = (
        rows.astype(np.float32).reshape(-1, 28, 28) for rows in (data.foreground, data.background)
    )
    film = Pair(*map(Images, ("digits", "photographs"), stacks))
    what = "reading 5,000 + 5,000 frames of 28 x 28"
    timed(what, 2, lambda: fit(film, Frames(), PROJECTION, no_report))
    slider("5,000 frames of 28 x 28", 0.1, run(task(film, Frames()), no_report))

    cells = cells_behind_fringes()
    mask = np.zeros(cells.empty.shape, dtype=bool)
    mask[8:145, 8:145] = True
    image, patches = Pair(Images("cells", cells.image), mask=mask), Patches(16, 4)
    name = "512 x 512 by patches at stride 4"
    slider(name, 0.25, run(task(image, patches), no_report))
    removal = task(image, Patches(16, 2), Settings())
    what = "background removal of 512 x 512, from Run to picture"
    timed(what, 4, lambda: run(removal, no_report))

    stack = np.random.default_rng(0).integers(0, 255, (54, 512, 512)).astype(np.uint8)
    many = Pair(Images("plate", stack), mask=mask)
    what = "reading 54 x 512 x 512 by patches"
    timed(what, 8, lambda: fit(many, patches, PROJECTION, no_report))
    large = task(Pair(Images("plate", stack), mask=np.arange(54) < 20), Frames())
    what = "54 frames of 512 x 512 by projection, from Run to picture"
    timed(what, 10, lambda: run(large, no_report))


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
