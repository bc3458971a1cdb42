"""Measure time and memory for an image of 10,000 x 10,000 pixels and a recording of 2,000 frames.

    python -m benchmarks.large_images [image] [recording]

The image shows cells behind a grid, and its chunks of 1,000 x 1,000 pixels are all alike. The
denoised pixels are written to a file. The recording has frames of 512 x 512 pixels with four
flickering patterns. Its background has 300 frames. Memory is the anonymous memory of the process
(RssAnon), so pages of memory-mapped files do not count.

Bounds: each chunk of the image is loaded at most four times, and the image takes at most ten
minutes of one core. The recording takes at most 2 GB.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.common.measures import in_a_process
from benchmarks.common.report import Report, run
from contrast_core.images import suppress_background
from tests.core.images.pictures import grid, scene

SIDE, CHUNK, EMPTY = 10_000, 1000, 250
FRAMES, BACKGROUND, FRAME = 2000, 300, (512, 512)


class StoredImage:
    """An image that consists of equal chunks. It counts how often each chunk is loaded."""

    def __init__(self) -> None:
        self.chunk = np.tile(scene(grid, (500, 500), EMPTY)[0], (2, 2)).astype(np.float32)
        self.shape, self.dtype, self.chunks = (SIDE, SIDE), np.dtype("f4"), (CHUNK, CHUNK)
        self.loads = np.zeros((SIDE // CHUNK, SIDE // CHUNK), dtype=int)

    def __getitem__(self, index: Any) -> Any:
        parts = (*index, slice(None))[:2]  # `index` is a tuple of one or two slices
        spans = [part.indices(SIDE) for part in parts]
        self.loads[tuple(slice(a // CHUNK, -(-b // CHUNK)) for a, b, _ in spans)] += 1
        return self.chunk[np.ix_(*(np.arange(a, b) % CHUNK for a, b, _ in spans))]


class Recording:
    """Frames of flickering patterns and noise, which are generated when they are read."""

    def __init__(self, n_frames: int, first: int, *, signal: float) -> None:
        self.shape, self.dtype = (n_frames, *FRAME), np.dtype("f4")
        self._first, self._signal = first, signal
        self._patterns = np.random.default_rng(0).normal(size=(4, *FRAME)).astype(np.float32)

    def __getitem__(self, index: Any) -> Any:
        which, *rest = index if isinstance(index, tuple) else (index,)
        frames = np.stack([self._frame(self._first + i) for i in range(self.shape[0])[which]])
        return frames[(slice(None), *rest)]

    def _frame(self, number: int) -> Any:
        rng = np.random.default_rng([1, number])
        strength = rng.normal([1, 0, 0, 0], 0.4)
        frame = np.einsum("k,kyx->yx", strength.astype(np.float32), self._patterns)
        frame += 0.3 * rng.standard_normal(FRAME, dtype=np.float32)
        y = number % (FRAME[0] - 20)
        frame[y : y + 20, 200:240] += self._signal
        return frame


def measured(call: Callable[[str], Any]) -> tuple[Any, float, float]:
    """Return the result of a call, its CPU seconds, and its peak memory in GB.

    The call receives the path of a temporary folder.
    """
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            status = Path("/proc/self/status").read_text(encoding="utf-8")
            [line] = [line for line in status.splitlines() if line.startswith("RssAnon")]
            peak[0] = max(peak[0], int(line.split()[1]) * 1024 / 1e9)

    watcher = threading.Thread(target=watch)
    watcher.start()
    cpu = time.process_time()
    with TemporaryDirectory() as folder:
        found = call(folder)
    done.set()
    watcher.join()
    return found, time.process_time() - cpu, peak[0]


def whole_image(folder: str) -> int:
    stored, mask = StoredImage(), np.zeros((SIDE, SIDE), dtype=bool)
    mask[:EMPTY, :EMPTY] = True
    out = np.memmap(Path(folder) / "out", np.float32, "w+", shape=stored.shape)
    suppress_background(stored, mask, out=out)
    return int(stored.loads.max())


def whole_recording(folder: str) -> None:
    frames = Recording(FRAMES, BACKGROUND, signal=2.0)
    out = np.memmap(Path(folder) / "out", np.float32, "w+", shape=frames.shape)
    suppress_background(frames, Recording(BACKGROUND, 0, signal=0.0), sampling="frames", out=out)


def image(report: Report) -> None:
    """Denoise a stored image of 10,000 x 10,000 pixels."""
    loads, cpu, memory = in_a_process(measured, whole_image)
    report.measured("times that a chunk is loaded", loads, most=4)
    report.measured("seconds of CPU", cpu, most=600)
    report.measured("GB", memory)


def recording(report: Report) -> None:
    """Denoise a recording of 2,000 frames of 512 x 512 pixels."""
    _, cpu, memory = in_a_process(measured, whole_recording)
    report.measured("seconds of CPU for a frame", cpu / FRAMES)
    report.measured("GB", memory, most=2)


if __name__ == "__main__":
    run(image, recording)
