"""The model's steps without a window, and small data for them."""

from __future__ import annotations

import numpy as np

from napari_plugin._apply import denoise
from napari_plugin._pair import Images, Pair, check
from napari_plugin._read import read
from napari_plugin._solve import solve


def finish(steps):
    """The result of steps, and what they reported."""
    reports = []
    while True:
        try:
            reports.append(next(steps))
        except StopIteration as stop:
            return stop.value, reports


def run(pair, samples, settings):
    """Reading, solution and denoised images."""
    check(pair, samples, settings)
    reading, _ = finish(read(pair, samples, settings))
    solution, _ = finish(solve(reading, settings))
    return reading, solution, finish(denoise(solution, pair.foreground))[0]


def pair_of(film):
    """Cells, and frames without them."""
    return Pair(Images("cells", film[0]), Images("empty", film[1]))


def marked(n, *background):
    """A mask of frames."""
    mask = np.zeros(n, dtype=bool)
    mask[slice(*background)] = True
    return mask


def make_film():
    """A blinking square on frames of 6 x 5 pixels, and frames without it; both share a pattern."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(1, 6, 5))
    foreground = 40 + 10 * rng.normal(size=(80, 1, 1)) * common + rng.normal(size=(80, 6, 5))
    foreground[:, 1:3, 1:3] += 6 * rng.random(size=(80, 1, 1))
    background = 30 + 10 * rng.normal(size=(60, 1, 1)) * common + rng.normal(size=(60, 6, 5))
    return foreground, background
