"""The work of the window, without the window: run, preview, move the slider, check."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import Frames, weight_maps
from napari_plugin._lazy import as_lazy, display_range
from napari_plugin._pair import Images, Pair, check, n_pixels, n_windows
from napari_plugin._settings import (
    SMALL_FRAME,
    FloatImage,
    Report,
    Samples,
    Settings,
    no_report,
    progress_of,
)
from napari_plugin._solve import LONGEST_HERE, Solution, fit

_MOST_POINTS = 5000
_CURVE = tuple(np.linspace(0.05, 0.95, 13).tolist())

# Seconds of one core for a value of a patch or frame, measured; deliberately rough.
_READ = 1.0e-8
_REMOVE = 3.5e-8
_PROJECT = 1.5e-8
_SOLVE_FRAMES = 5e-9  # times the cube of the pixels, with the verdicts
_PROCESS = 2.0
_CHECK = 1.0  # the windows are chosen and the result is checked


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
        """Whether the result is computed on view: projections, and what memory would not hold."""
        large = 4 * math.prod(self.pair.foreground.shape) > self.available // 8
        return self.settings.method != "automatic" or large

    def solution(self, report: Report, part: Images | None = None) -> Solution:
        """Return the saved model, or fit one."""
        if self.saved is not None:
            return self.saved
        few = self.is_lazy and self.settings.method == "automatic"
        return fit(self.pair, self.samples, self.settings, report, part, few)


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
        Weights of the components of whole frames, or how strong the signal is around each pixel.
    shown : (float, float)
        A good range of intensities for the result.
    ready : dict
        The chunk of the dask array that is looked at, by its key, so that the window need not
        compute it.
    """

    task: Task
    solution: Solution
    denoised: Any
    maps: NDArray[np.float32] | None
    shown: tuple[float, float]
    ready: dict[tuple[Any, ...], FloatImage] = field(default_factory=dict)

    @property
    def plane(self) -> FloatImage:
        """The denoised image at the task's place."""
        place = self.task.place
        for block in self.ready.values():
            lengths = (each[0] for each in self.denoised.chunks)
            return np.asarray(block[tuple(i % n for i, n in zip(place, lengths, strict=False))])
        return np.asarray(self.denoised[place])


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
    return solution, solution.apply(part, report, "Previewing")


def _applied(task: Task, solution: Solution, report: Report) -> Outcome:
    images, ready = task.pair.foreground, {}
    denoised: Any
    if task.is_lazy:
        denoised, on_view = as_lazy(solution, images)
        on_view.report = report
        index = [i // lengths[0] for i, lengths in zip(task.place, denoised.chunks, strict=False)]
        index += [0] * (denoised.ndim - len(index))
        plane = np.asarray(denoised.blocks[tuple(index)])
        ready = {(denoised.name, *index): plane}
        on_view.report = no_report
    else:
        denoised = plane = solution.apply(images, report)
        plane = plane.reshape(-1, *images.image_shape)[:: max(1, plane.size // 2**20)]
    maps = None
    if isinstance(solution.samples, Frames):
        if solution.has_maps:
            maps = weight_maps(solution.estimator, images.image_shape).astype(np.float32)
    elif not task.is_lazy or images.n_images == 1:  # else a map for each image that is looked at
        maps = solution.signal_strength(images, report)
    return Outcome(task, solution, denoised, maps, display_range(plane), ready)


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
    solution = outcome.solution
    points = _embed(outcome, report) if has_scores(solution) else None
    curve = None
    if solution.is_live and solution.n_features <= 2 * LONGEST_HERE:
        curve = _curve(solution, report)
    return Checked(curve, points, solution.judgement.sentences(report))


def has_scores(solution: Solution) -> bool:
    """Return whether frames have scores: whole frames, and at least two components."""
    return solution.has_maps and solution.n_components >= 2


def _curve(solution: Solution, report: Report) -> Curve:
    at = progress_of(report, "Drawing the curve")(_CURVE, len(_CURVE))
    kept = [solution.at(each, solution.settings.n_components).variance_kept() for each in at]
    signal, background = zip(*kept, strict=True)
    return Curve(_CURVE, signal, background)


def _embed(outcome: Outcome, report: Report) -> Embedding:
    """Return the scores of the first two components of at most 5,000 frames."""
    images, estimator = outcome.task.pair.foreground, outcome.solution.estimator
    filters = getattr(estimator, "filters_", None)
    filters = estimator.components_[:2].T if filters is None else filters[:, :2]
    chosen = np.arange(images.n_images) % -(-images.n_images // _MOST_POINTS) == 0
    rows = Frames().rows(images.data, chosen.reshape(images.shape[:-2]))
    edges = list(pairwise(rows.edges()))
    blocks = progress_of(report, "Drawing the frames")(edges, len(edges))
    scores = [(rows.read(*ends) - estimator.mean_) @ filters for ends in blocks]
    places = np.stack(np.nonzero(chosen.reshape(images.shape[:-2])), axis=1).tolist()
    return Embedding(np.concatenate(scores), tuple(map(tuple, places)))


def estimate(task: Task) -> str:
    """Return in words how long a run will take and how much memory."""
    pair, samples, automatic = task.pair, task.samples, task.settings.method == "automatic"
    images, pixels = pair.foreground, n_pixels(pair, samples)
    if isinstance(samples, Frames):
        per_image, n_read = pixels, (images.n_images + pair.behind.n_images) * pixels
    else:
        per_image = pixels * n_windows(images.image_shape, samples.sides[-1], samples.stride)
        n_read = 2 * min(images.n_images * per_image, 2**17 * pixels)
    rate = _REMOVE if automatic else _PROJECT
    seconds = (1 if task.is_lazy else images.n_images) * per_image * rate + n_read * _READ
    seconds += _CHECK if automatic else 0
    memory = 150 * 2**20 + (0 if task.is_lazy else 4 * math.prod(images.shape))
    if isinstance(samples, Frames) and automatic and pixels <= SMALL_FRAME:
        seconds += _SOLVE_FRAMES * pixels**3 + _PROCESS
    memory += min(n_read * 8 if isinstance(samples, Frames) else 20 * 8 * pixels**2, 2**31)
    text = f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
    how = "; the result is computed as you look at it" if task.is_lazy else ""
    return f"About {text} and {memory / 2**30:.1f} GB of memory{how}."
