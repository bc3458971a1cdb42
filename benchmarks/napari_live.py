"""How live the napari plugin is, without its window: reading, redrawing, removing, memory.

    python benchmarks/napari_live.py [--long [--whole]]

Medians of processor seconds of one thread, so that other work on the machine does not count, beside
the wall time; bounds are those of the window on a quiet machine.

- The slider: another suppression and the image that is looked at, after one reading: 5,000 frames
  of 28 x 28 (0.1 s), 512 x 512 by patches at stride 4 (0.25 s).
- Background removal of 512 x 512, from Run to picture (4 s).
- Reading and fitting 5,000 frames (2 s) and 54 x 512 x 512 by patches (8 s).
- 54 frames of 512 x 512 as frames by projection, from Run to picture (10 s).
- With --long: a lazy stack of 4 GB of uint8, 4 million frames, is read whole and a sixteenth of it
  (with --whole, all: 16 GB of float32) written to an OME-Zarr, in a process of its own, whose
  memory must stay below 2 GB.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from contrast_core.datasets import cells_behind_fringes, digits_on_photos
from contrast_core.images import Frames, Patches
from napari_plugin._export import Calibration, export
from napari_plugin._model import Task, moved, run
from napari_plugin._pair import Images, Pair
from napari_plugin._settings import Settings, no_report
from napari_plugin._solve import fit

GB = 2**30
missed: list[str] = []


def timed(name: str, bound: float, work: Any, repeats: int = 5) -> Any:
    cpu, wall, result = [], [], None
    for _ in range(repeats):
        c, w = time.process_time(), time.perf_counter()
        result = work()
        cpu.append(time.process_time() - c)
        wall.append(time.perf_counter() - w)
    found = statistics.median(cpu)
    word = "reached" if found <= bound else "MISSED"
    print(
        f"  {name}: {found:.3f} s (wall {statistics.median(wall):.3f}), bound {bound:g}: {word}",
        flush=True,
    )
    if found > bound:
        missed.append(name)
    return result


def task(pair: Pair, samples: Any, settings: Settings) -> Task:
    return Task(pair, samples, settings, (0,) * (len(pair.foreground.shape) - 2), 8 * GB)


def film(n: int) -> Pair:
    data = digits_on_photos(n)
    stacks = (
        rows.astype(np.float32).reshape(n, 28, 28) for rows in (data.foreground, data.background)
    )
    return Pair(
        *(
            Images(name, stack)
            for name, stack in zip(("digits", "photographs"), stacks, strict=True)
        )
    )


def slider(name: str, bound: float, outcome: Any, k: int = 10) -> None:
    places = iter(np.linspace(0.2, 0.9, 12))

    def move() -> Any:
        settings = Settings("cpca", float(next(places)), k)
        return moved(outcome, settings, outcome.task.place, no_report)

    timed(name, bound, move, 9)


def live() -> None:
    pair, settings = film(5000), Settings("cpca")
    timed(
        "reading 5,000 + 5,000 frames of 28 x 28",
        2,
        lambda: fit(pair, Frames(), settings, no_report),
        3,
    )
    outcome = run(task(pair, Frames(), settings), no_report)
    slider("slider, 5,000 frames of 28 x 28", 0.1, outcome)

    data = cells_behind_fringes()
    mask = np.zeros(data.empty.shape, dtype=bool)
    mask[8:145, 8:145] = True
    image = Pair(Images("cells", data.image), mask=mask)
    patches = Patches(16, 4)
    outcome = run(task(image, patches, settings), no_report)
    slider("slider, 512 x 512 by patches at stride 4", 0.25, outcome)
    timed(
        "background removal of 512 x 512, from Run to picture",
        4,
        lambda: run(task(image, Patches(16, 2), Settings()), no_report),
        3,
    )

    rng = np.random.default_rng(0)
    stack = rng.integers(0, 255, (54, 512, 512)).astype(np.uint8)
    many = Pair(Images("plate", stack), mask=mask)
    timed(
        "reading 54 x 512 x 512 by patches", 8, lambda: fit(many, patches, settings, no_report), 3
    )
    frames = np.zeros(54, dtype=bool)
    frames[:20] = True
    large = Pair(Images("plate", stack), mask=frames)
    timed(
        "54 frames of 512 x 512 by projection, from Run to picture",
        10,
        lambda: run(task(large, Frames(), settings), no_report),
        3,
    )


def large() -> None:
    """Runs in a process of its own; prints its largest memory in bytes."""
    import dask.array as da

    n = 4 * GB // (32 * 32)
    block = np.random.default_rng(0).integers(0, 255, (16384, 32, 32)).astype(np.uint8)
    lazy = da.concatenate([da.from_array(block)] * (n // len(block)))
    assert lazy.nbytes == 4 * GB
    pair = Pair(Images("film", lazy), Images("empty", block[:2000]))
    outcome = run(task(pair, Frames(), Settings("cpca")), no_report)
    assert outcome.solution.n_used == n
    data = outcome.denoised[: n if "--whole" in sys.argv else n // 16]
    with tempfile.TemporaryDirectory() as folder:
        export(data, Path(folder, "film.ome.zarr"), Calibration.unknown(3))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def memory() -> None:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--large", *sys.argv[2:]],
        capture_output=True,
        text=True,
        check=True,
    )
    most = int(done.stdout.split()[-1]) / GB
    word = "reached" if most < 2 else "MISSED"
    print(
        f"  4 GB of uint8, read whole: {most:.2f} GB, {time.perf_counter() - start:.0f} s: {word}"
    )
    if most >= 2:
        missed.append("memory")


def main() -> int:
    if "--large" in sys.argv:
        large()
        return 0
    live()
    if "--long" in sys.argv:
        memory()
    print("\n" + (f"not reached: {'; '.join(missed)}" if missed else "every bound reached"))
    return bool(missed)


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        sys.exit(main())
