"""Small data, and helpers for tests that need no window."""

from __future__ import annotations

import numpy as np

from napari_plugin._model import Task
from napari_plugin._pair import Images, Pair
from napari_plugin._settings import Settings, no_report
from napari_plugin._solve import fit

MEMORY = 2**33  # in bytes


def task_of(pair, samples, settings=None, place=()):
    """Return a task that may use `MEMORY`, which is more than any test needs."""
    return Task(pair, samples, settings or Settings(), place, available=MEMORY)


def run(pair, samples, settings=None):
    """Return the solution and the denoised images in memory."""
    solution = fit(pair, samples, settings or Settings(), no_report)
    return solution, solution.apply(pair.foreground)


def pair_of(film):
    """Return the pair of the foreground and the background of a film."""
    return Pair(Images("cells", film[0]), Images("empty", film[1]))


def marked(n, *background):
    """Return a mask of `n` frames that marks a range of background frames."""
    mask = np.zeros(n, dtype=bool)
    mask[slice(*background)] = True
    return mask


def make_film():
    """Return frames of 6 x 5 pixels that show a blinking square, and frames without it.

    A pattern whose strength varies from frame to frame is in both.
    """
    rng = np.random.default_rng(0)
    common = rng.normal(size=(1, 6, 5))
    foreground = 40 + 10 * rng.normal(size=(80, 1, 1)) * common + rng.normal(size=(80, 6, 5))
    foreground[:, 1:3, 1:3] += 6 * rng.random(size=(80, 1, 1))
    background = 30 + 10 * rng.normal(size=(60, 1, 1)) * common + rng.normal(size=(60, 6, 5))
    return foreground, background
