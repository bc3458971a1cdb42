"""The work of the window, without the window: fit, apply, preview, move the slider, check."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import FrameBackgroundRemover, Frames, weight_maps
from napari_plugin._apply import (
    FloatImage,
    as_lazy,
    denoise,
    display_range,
    is_lazy,
    prepare,
    signal_strength,
)
from napari_plugin._pair import Images, Pair, Watched, check, n_pixels, n_windows
from napari_plugin._settings import Report, Samples, Settings
from napari_plugin._solve import LONGEST_HERE, Solution, fit, judge, variance_kept

_MOST_POINTS = 5000
_CURVE = tuple(np.linspace(0.05, 0.95, 13).tolist())

# Seconds of one core for a value of a patch or frame, measured; deliberately rough.
_READ = 1.0e-8
_REMOVE = 3.5e-8
_PROJECT = 1.5e-8
_SOLVE_FRAMES = 1.2e-9  # times the cube of the pixels, with the process that does it
_PROCESS = 2.0
_FIT = 1e-6  # of a large frame to its library


@dataclass(frozen=True, eq=False)
class Task:
    """Images, samples and settings as they were when the run began.

    Parameters
    ----------
    pair : Pair
    samples : Patches or Frames
    settings : Settings
    place : tuple of int
        Index, along the leading axes, of the image that is looked at.
    available : int
        Free memory in bytes.
    saved : Solution, optional
        A model from a file, which is applied as it is.
    """

    pair: Pair
    samples: Samples
    settings: Settings
    place: tuple[int, ...]
    available: int
    saved: Solution | None = None

    def check(self) -> None:
        """Raise InputError if the choices cannot work; no pixel is read."""
        if self.saved is None:
            check(self.pair, self.samples, self.settings)

    @property
    def is_lazy(self) -> bool:
        """Whether the result is computed where it is looked at."""
        return is_lazy(self.pair.foreground, self.settings.method, self.available)

    def solution(self, report: Report, part: Images | None = None) -> Solution:
        """Return the saved model, or fit one."""
        if self.saved is not None:
            return self.saved
        return fit(self.pair, self.samples, self.settings, report, part)


@dataclass(frozen=True, eq=False)
class Embedding:
    """Two scores of frames, (n, 2), and the places of the frames in the stack."""

    scores: NDArray[np.float64]
    places: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a run, or of another position of the slider.

    Parameters
    ----------
    task : Task
    solution : Solution
    denoised : ndarray of float32, or dask array
        In memory, or computed where it is looked at.
    maps : ndarray of shape (k, height, width) or of the images' shape, optional
        Weights of the components of whole frames; how strong the signal is around each pixel.
    shown : (float, float)
        A good range of intensities for the result.
    """

    task: Task
    solution: Solution
    denoised: Any
    maps: NDArray[np.float32] | None
    shown: tuple[float, float]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences for the user that are known without further checks."""
        used, n = self.solution.n_used, self.task.pair.foreground.n_images
        said = self.solution.remarks
        if used is not None and used < n and self.task.pair.mask is None:
            unit = "frames" if isinstance(self.task.samples, Frames) else "images"
            text = f"The patterns were learnt from {used} of the {n} {unit}, evenly spread."
            said = (*said, text)
        return said


def run(task: Task, report: Report) -> Outcome:
    """Fit a model and apply it.

    Raises
    ------
    InputError
        In words for the user.
    """
    return _applied(task, task.solution(report), report)


def moved(outcome: Outcome, settings: Settings, place: tuple[int, ...], report: Report) -> Outcome:
    """Return the outcome at the suppression and number of components of other settings."""
    k = min(settings.n_components, outcome.solution.n_features - 1)
    solution = outcome.solution.at(settings.suppression, k)
    found = _applied(replace(outcome.task, place=place), solution, report)
    return replace(found, shown=outcome.shown)


def preview(task: Task, part: Images, report: Report) -> tuple[Solution, FloatImage]:
    """Return the result on a part of the images; patches of the foreground are learnt from it."""
    solution = task.solution(report, part)
    return solution, denoise(solution, part, report, "Previewing")


def _applied(task: Task, solution: Solution, report: Report) -> Outcome:
    images, denoised = task.pair.foreground, None
    if task.is_lazy:
        denoised, blocks = as_lazy(solution, images)
        plane = prepare(denoised, blocks, solution, images, task.place, report)
        if isinstance(task.samples, Frames):  # a film's frames differ in brightness
            plane = np.asarray(denoised[(*(0,) * (len(images.shape) - 3), slice(0, 32))])
    else:
        denoised = plane = denoise(solution, images, report)
        plane = plane.reshape(-1, *images.image_shape)[:: max(1, plane.size // 2**20)]
    maps = None
    if isinstance(solution.samples, Frames):
        if getattr(solution.estimator, "method_", "") != "library" and n_components(solution):
            maps = weight_maps(solution.estimator, images.image_shape).astype(np.float32)
    elif not task.is_lazy or images.n_images == 1:  # else a map for each image that is looked at
        maps = signal_strength(solution, images, report)
    return Outcome(task, solution, denoised, maps, display_range(plane))


@dataclass(frozen=True, eq=False)
class Curve:
    """Variance kept of signal and background as the suppression rises from 0 to 1."""

    suppression: tuple[float, ...]
    signal: tuple[float, ...]
    background: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Checked:
    """Facts about a result that are known some time after it is shown."""

    curve: Curve | None
    embedding: Embedding | None
    verdicts: tuple[str, ...]


def examine(outcome: Outcome, report: Report) -> Checked:
    """Return curve, scores of the frames, and verdicts."""
    solution, curve, points = outcome.solution, None, None
    if has_scores(outcome):
        points = _embed(outcome, report)
    if solution.is_live and solution.n_features <= 2 * LONGEST_HERE:
        curve = _curve(solution, report)
    said = () if outcome.task.saved else judge(outcome.task.pair, solution, report)
    return Checked(curve, points, said)


def has_scores(outcome: Outcome) -> bool:
    """Return whether frames have scores: whole frames, and at least two components."""
    solution = outcome.solution
    library = getattr(solution.estimator, "method_", "") == "library"
    return isinstance(solution.samples, Frames) and not library and n_components(solution) >= 2


def n_components(solution: Solution) -> int:
    """Return how many components were found, or asked for."""
    return int(getattr(solution.estimator, "n_components_", solution.settings.n_components))


def _curve(solution: Solution, report: Report) -> Curve:
    kept: list[tuple[float, float]] = []
    for done, suppression in enumerate(_CURVE):
        report(done, len(_CURVE), "Drawing the curve")
        kept.append(variance_kept(solution.at(suppression, solution.settings.n_components)))
    signal, background = zip(*kept, strict=True)
    return Curve(_CURVE, signal, background)


def _embed(outcome: Outcome, report: Report) -> Embedding:
    """Return the scores of the first two components of at most 5,000 frames."""
    images, estimator = outcome.task.pair.foreground, outcome.solution.estimator
    if isinstance(estimator, FrameBackgroundRemover):
        filters = estimator.filters_[:, :2]
    else:
        filters = estimator.components_[:2].T
    kept = np.arange(0, images.n_images, -(-images.n_images // _MOST_POINTS))
    rows = Frames().rows(Watched(images, report, "Drawing the frames", kept))
    scores = [(rows.read(*ends) - estimator.mean_) @ filters for ends in pairwise(rows.edges())]
    places = np.stack(np.unravel_index(kept, images.shape[:-2]), axis=1).tolist()
    return Embedding(np.concatenate(scores), tuple(map(tuple, places)))


def estimate(task: Task) -> str:
    """Return in words how long a run will take and how much memory."""
    pair, samples, method = task.pair, task.samples, task.settings.method
    images, pixels = pair.foreground, n_pixels(pair, samples)
    if isinstance(samples, Frames):
        per_image, n_read = pixels, (images.n_images + pair.behind.n_images) * pixels
    else:
        per_image = pixels * n_windows(images.image_shape, samples.sides[-1], samples.stride)
        n_read = 2 * min(images.n_images * per_image, 2**17 * pixels)
    rate = _REMOVE if method == "automatic" else _PROJECT
    seconds = (1 if task.is_lazy else images.n_images) * per_image * rate + n_read * _READ
    memory = 150 * 2**20 + (0 if task.is_lazy else 4 * math.prod(images.shape))
    whole = isinstance(samples, Frames) and method == "automatic"
    if whole:
        seconds += min(_SOLVE_FRAMES * pixels**3 + _PROCESS, images.n_images * _FIT * pixels)
    memory += min(n_read * 8 if whole else 20 * 8 * pixels**2, 2**31)
    text = f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
    how = "; the result is computed as you look at it" if task.is_lazy else ""
    return f"About {text} and {memory / 2**30:.1f} GB of memory{how}."
