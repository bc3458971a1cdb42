"""Computations of the dock that need no Qt: runs, previews, moves of the slider, and checks."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
import psutil
from numpy.typing import NDArray

from contrast_core.images import Frames, Patches, weight_maps
from napari_plugin._pair import Images, Pair, as_dask, chunks_of
from napari_plugin._settings import (
    SMALL_FRAME,
    FloatImage,
    Remark,
    Report,
    Samples,
    Settings,
    no_report,
    progress_of,
)
from napari_plugin._solve import Solution, fit

_MOST_POINTS = 5000  # largest number of frames in the plot of scores
# The dock draws a curve of the variance that is kept at each position of the slider. With more
# features than this, it is not drawn, because each of its points needs an eigendecomposition.
_MOST_FEATURES = 1024
# Positions of the slider at which the curve is computed.
_CURVE = tuple(np.linspace(0.05, 0.95, 13).tolist())
_CHUNK = 2**17  # number of pixels of whole frames that are computed together

# Rough measurements of computing times on one core, in seconds. The first three are times for one
# pixel of a patch or frame.
_READ = 1.0e-8  # to read it
_REMOVE = 3.5e-8  # to apply the automatic method
_PROJECT = 1.5e-8  # to apply any other method
# To fit the automatic method to whole frames and find the verdicts: this time is multiplied by the
# cube of the number of pixels.
_SOLVE_FRAMES = 5e-9
_PROCESS = 2.0  # to start another process
_CHECK = 1.0  # to choose the patches and check the result


@dataclass(frozen=True, eq=False)
class Task:
    """Images, samples and settings of a run, as they were when it began.

    Parameters
    ----------
    pair : Pair
    samples : Patches or Frames
    settings : Settings
    place : tuple of int
        Index, along the leading axes, of the image that is shown.
    saved : Solution, optional
        A model from a file. If it is given, no model is fitted.
    available : int, optional
        Free memory in bytes. By default, it is read from the operating system.
    """

    pair: Pair
    samples: Samples
    settings: Settings
    place: tuple[int, ...]
    saved: Solution | None = None
    available: int = field(default_factory=lambda: psutil.virtual_memory().available)

    @property
    def is_lazy(self) -> bool:
        """Whether denoised images are computed only when they are shown.

        This is so for all methods except the automatic one, and for results that would fill more
        than an eighth of the free memory.
        """
        large = 4 * math.prod(self.pair.foreground.shape) > self.available // 8
        return self.settings.method != "automatic" or large

    def solution(self, report: Report, part: Images | None = None) -> Solution:
        """Return the saved model if there is one, or else fit a model."""
        if self.saved is not None:
            return self.saved
        return fit(self.pair, self.samples, self.settings, report, part)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Result of a run, or of moving the slider after a run.

    Parameters
    ----------
    task : Task
    solution : Solution
    denoised : ndarray of float32, or dask array
        The denoised images, in memory or computed when they are shown.
    plane : ndarray of shape (height, width)
        The denoised image at the task's place.
    maps : ndarray of shape (k, height, width) or of the images' shape, optional
        Weights of the components of whole frames, or the strength of the signal around each pixel.
    shown : (float, float)
        Lowest and highest intensity of the display.
    ready : dict
        The chunk of the dask array that the window shows first, under the key that dask gives it.
        The window takes it from here and need not compute it again.
    """

    task: Task
    solution: Solution
    denoised: Any
    plane: FloatImage
    maps: NDArray[np.float32] | None
    shown: tuple[float, float]
    ready: dict[tuple[Any, ...], FloatImage] = field(default_factory=dict)

    @property
    def is_density(self) -> bool:
        """Whether the denoised images are optical densities."""
        return self.task.settings.absorbed and isinstance(self.task.samples, Frames)

    def described(self) -> dict[str, Any]:
        """Return a description of how the result was made, for the metadata of its layers."""
        pair, solution = self.task.pair, self.solution
        background = "frames" if pair.masks_frames else "area"
        if pair.background is not None:
            background = pair.background.name
        made = asdict(solution.settings) | {
            "samples": repr(solution.samples),
            "foreground": pair.foreground.name,
            "background": "saved model" if self.task.saved is not None else background,
        }
        if solution.settings.method != "automatic":
            made["strength"] = float(solution.estimator.strength_)
        return made


def run(task: Task, report: Report) -> Outcome:
    """Fit a model and apply it.

    Raises
    ------
    InputError
        If the run fails for a reason that the user can correct. The dock shows the message.
    """
    return _applied(task, task.solution(report), report)


def moved(outcome: Outcome, settings: Settings, place: tuple[int, ...], report: Report) -> Outcome:
    """Return the outcome at the suppression and number of components of `settings`."""
    k = min(settings.n_components, outcome.solution.n_features - 1)
    solution = outcome.solution.at(settings.suppression, k, report)
    return _applied(replace(outcome.task, place=place), solution, report)


def preview(task: Task, part: Images, report: Report) -> tuple[Solution, FloatImage]:
    """Return the model and the result on a part of the images.

    The fit takes patches of the foreground from this part only.
    """
    solution = task.solution(report, part)
    stack = Images(part.name, part.data[None])  # whole frames need an axis of frames
    return solution, solution.apply(stack, report, "Previewing")[0]


def _applied(task: Task, solution: Solution, report: Report) -> Outcome:
    images, ready = task.pair.foreground, {}
    denoised: Any
    if task.is_lazy:
        denoised = as_lazy(solution, images)
        within = [
            divmod(i, lengths[0]) for i, lengths in zip(task.place, denoised.chunks, strict=False)
        ]
        index = (*(number for number, _ in within), 0, 0)
        # dask loads its schedulers when it first computes an array. The next line makes it load
        # them in this thread, because loading them in the window's thread would delay the window.
        original = np.asarray(as_dask(images.data, denoised.chunks).blocks[index])
        some = on_view(solution, images.name, original, report)
        ready = {(denoised.name, *index): some}
        plane = some[tuple(place for _, place in within)]
    else:
        denoised = solution.apply(images, report)
        plane = denoised[task.place]
        some = denoised.reshape(-1, *images.image_shape)[:: max(1, denoised.size // 2**20)]
    maps = None
    if solution.has_maps:
        maps = weight_maps(solution.estimator, images.image_shape).astype(np.float32)
    elif isinstance(solution.samples, Patches) and (not task.is_lazy or images.n_images == 1):
        maps = solution.signal_strength(images, report)  # a lazy stack would need many maps
    return Outcome(task, solution, denoised, plane, maps, display_range(some), ready)


def as_lazy(solution: Solution, images: Images, report: Report = no_report) -> Any:
    """Return the denoised images as a dask array with small chunks.

    Chunks are small because the window computes whole chunks of the images that it shows. `report`
    is called while a chunk is computed.
    """
    da: Any = import_module("dask.array")  # dask has no type hints
    chunks = chunks_of(images.shape, _CHUNK if isinstance(solution.samples, Frames) else 1)
    source = as_dask(images.data, chunks)
    meta, name = np.empty((0,) * source.ndim, np.float32), f"denoised-{uuid4().hex}"
    function = partial(on_view, solution, images.name, report=report)
    return da.map_blocks(function, source, name=name, dtype=np.float32, meta=meta)


def on_view(solution: Solution, name: str, block: NDArray[Any], report: Report) -> FloatImage:
    """Return a denoised chunk, in which missing pixels stay missing."""
    bad = ~np.isfinite(block)
    if bad.any():
        block = np.where(bad, 0.0 if bad.all() else block[~bad].mean(), block)
    out = solution.apply(Images(name, block), report)
    out[bad] = np.nan
    return out


def taken(original: Any, denoised: Any, *, is_density: bool = False) -> Any:
    """Return the removed part of an image.

    If `denoised` is an optical density, this is the light that would arrive without an absorber.
    """
    original = original.astype(np.float32)
    return original * np.exp(denoised) if is_density else original - denoised


def removed(images: Images, denoised: Any, *, is_density: bool = False) -> Any:
    """Return the removed part of the images, which is lazy unless both arrays are in memory."""
    original = images.data
    if not (isinstance(original, np.ndarray) and isinstance(denoised, np.ndarray)):
        original = as_dask(original, getattr(denoised, "chunks", chunks_of(images.shape, 1)))
        denoised = as_dask(denoised, original.chunks)
    return taken(original, denoised, is_density=is_density)


def display_range(planes: NDArray[np.floating]) -> tuple[float, float]:
    """Return the lowest and highest intensity of the display, from percentiles of some pixels."""
    finite = planes[np.isfinite(planes)]
    if not finite.size:
        return 0.0, 1.0
    low, high = np.percentile(finite[:: max(1, finite.size // 2**18)], [1.0, 99.8])
    return float(low), float(high) if high > low else float(low) + 1.0


@dataclass(frozen=True, eq=False)
class Checked:
    """Checks of a result, computed after it is shown.

    Parameters
    ----------
    remarks : tuple of (str, {"doubtful", "instead"})
        Reasons to doubt the result: the remarks of the model and the verdicts of `contrast_core`.
    curve : dict of ndarray of shape (n, 2)
        For "signal" (the foreground) and "background", positions of the slider from 0 to 1, and the
        share of the variance that is kept at each position. It is empty if no curve is drawn.
    scores : ndarray of shape (n, 2), optional
        The first two scores of the `plotted_frames`.
    """

    remarks: tuple[Remark, ...]
    curve: dict[str, NDArray[np.float64]]
    scores: NDArray[np.float64] | None


def examine(outcome: Outcome, report: Report) -> Checked:
    """Compute the curve, the scores of the frames, and the verdicts."""
    solution = outcome.solution
    has_plot = solution.has_maps and solution.n_components >= 2
    scores = frame_scores(outcome, report) if has_plot else None
    curve: dict[str, NDArray[np.float64]] = {}
    if solution.is_live and solution.n_features <= _MOST_FEATURES:
        at = progress_of(report, "Drawing the curve")(_CURVE, len(_CURVE))
        k = solution.settings.n_components
        kept = [solution.at(each, k, report) for each in at]
        for name, side in (("signal", "foreground"), ("background", "background")):
            curve[name] = np.column_stack([_CURVE, [each.variance_kept(side) for each in kept]])
    found = [(each.sentence, each.severity) for each in solution.judgement.verdicts(report)]
    return Checked((*solution.remarks, *found), curve, scores)


def plotted_frames(images: Images) -> range:
    """Return the numbers of at most 5,000 frames at even intervals, which the plot shows."""
    return range(0, images.n_images, -(-images.n_images // _MOST_POINTS))


def frame_scores(outcome: Outcome, report: Report) -> NDArray[np.float64]:
    """Return the first two scores of the `plotted_frames`."""
    images, estimator = outcome.task.pair.foreground, outcome.solution.estimator
    filters = getattr(estimator, "filters_", None)
    filters = estimator.components_[:2].T if filters is None else filters[:, :2]
    rows = Frames().rows(images.data).take(np.array(plotted_frames(images)))
    edges = list(pairwise(rows.edges()))
    blocks = progress_of(report, "Drawing the frames")(edges, len(edges))
    scores = [(rows.read(*ends) - estimator.mean_) @ filters for ends in blocks]
    return np.concatenate(scores)


def estimate(task: Task) -> str:
    """Return a text that says how much time and memory a run will take.

    Raises
    ------
    TypeError, ValueError
        If no such samples can be cut from the images.
    """
    images, automatic = task.pair.foreground, task.settings.method == "automatic"
    n, pixels = task.samples.rows(images.data).shape
    n_read, memory, seconds = 2 * min(n, 2**17) * pixels, 20 * 8 * pixels**2, 0.0
    if isinstance(task.samples, Frames):
        n_read = (n + task.pair.background_images.n_images) * pixels
        memory = n_read * 8
        if automatic and pixels <= SMALL_FRAME:
            seconds += _SOLVE_FRAMES * pixels**3 + _PROCESS
    n_applied = n * pixels / (images.n_images if task.is_lazy else 1)
    seconds += n_applied * (_REMOVE if automatic else _PROJECT) + n_read * _READ
    seconds += _CHECK if automatic else 0
    memory = min(memory, 2**31) + 150 * 2**20
    memory += 0 if task.is_lazy else 4 * math.prod(images.shape)
    text = f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
    how = "; each image is computed when it is shown" if task.is_lazy else ""
    return f"About {text} and {memory / 2**30:.1f} GB of memory{how}."
