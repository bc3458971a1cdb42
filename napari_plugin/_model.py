"""What the window does, without the window: read, solve and apply, in steps that can be dropped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import FrameBackgroundRemover, Frames, weight_maps
from napari_plugin._apply import (
    Denoised,
    FloatImage,
    denoise,
    display_range,
    signal_strength,
)
from napari_plugin._cache import ReadingCache
from napari_plugin._estimate import is_lazy
from napari_plugin._pair import Images, Pair, check
from napari_plugin._read import LARGEST_MATRIX, read
from napari_plugin._reading import ELEMENTS, Reading
from napari_plugin._settings import Progress, Samples, Settings, Steps, is_frames
from napari_plugin._solve import Solution, solve

_MOST_POINTS = 5000
_CURVE = tuple(np.linspace(0.05, 0.95, 13).tolist())


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be done: images, samples and settings as they were when the run began.

    Parameters
    ----------
    pair : Pair
    samples : Patches or Frames
    settings : Settings
    place : tuple of int
        The image that is looked at, by its index of the leading axes.
    available : int
        Bytes of memory that are free.
    saved : Solution, optional
        A model from a file, which is applied as it is.
    """

    pair: Pair
    samples: Samples
    settings: Settings
    place: tuple[int, ...]
    available: int
    saved: Solution | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run found.

    Parameters
    ----------
    task : Task
    solution : Solution
    denoised : ndarray of float32, or Denoised
        In memory, or computed where it is looked at.
    maps : ndarray of shape (k, height, width) or of the images' shape, optional
        Weights of the patterns of whole frames; how strong the signal is around each pixel.
    shown : (float, float)
        A good range of intensities for the result.
    reading : Reading, optional
        None for a saved model.
    """

    task: Task
    solution: Solution
    denoised: FloatImage | Denoised
    maps: NDArray[np.float32] | None
    shown: tuple[float, float]
    reading: Reading | None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences for the user that are known without further checks."""
        found = self.solution.remarks
        if self.reading is not None and self.reading.n_used < self.reading.n_images:
            unit = "frames" if is_frames(self.task.samples) else "images"
            used = f"{self.reading.n_used} of the {self.reading.n_images} {unit}, evenly spread"
            found = (*found, f"The patterns were learnt from {used}.")
        return found


class RemovalModel:
    """Background removal with what was read kept between runs."""

    def __init__(self) -> None:
        self._cache = ReadingCache()

    def is_read(self, task: Task) -> bool:
        """Whether a run would read nothing."""
        if task.saved is not None:
            return True
        return self._cache.get(task.pair, task.samples, task.settings) is not None

    def run(self, task: Task) -> Steps[Outcome]:
        """Read what was not read, solve and apply; a generator that may be dropped.

        Raises
        ------
        InputError
            In words for the user.
        """
        reading, solution = yield from self._solved(task)
        images = task.pair.foreground
        denoised: FloatImage | Denoised
        if is_lazy(task.pair, solution.settings, task.available):
            denoised = Denoised(solution, images)
            plane = yield from denoised.prepared(task.place)
            if is_frames(task.samples):  # a film's frames differ in brightness
                plane = denoised[(*(0,) * (len(images.shape) - 3), slice(0, 32))]
        else:
            denoised = yield from denoise(solution, images)
            plane = _some(denoised)
        maps = yield from self._maps(solution, images, denoised)
        return Outcome(task, solution, denoised, maps, display_range(plane), reading)

    def preview(self, task: Task, part: Images) -> Steps[tuple[Solution, FloatImage]]:
        """The result on a part of the images only; the reading is kept for the run."""
        _, solution = yield from self._solved(task)
        found = yield from denoise(solution, part, "Previewing")
        return solution, found

    def _solved(self, task: Task) -> Steps[tuple[Reading | None, Solution]]:
        if task.saved is not None:
            return None, task.saved
        check(task.pair, task.samples, task.settings)
        known = (task.pair, task.samples, task.settings)
        reading = self._cache.get(*known)
        if reading is None:
            reading = yield from read(*known)
            self._cache.put(*known, reading)
        reading = replace(reading, samples=task.samples)
        return reading, (yield from solve(reading, task.settings))

    def _maps(
        self, solution: Solution, images: Images, denoised: Any
    ) -> Steps[NDArray[np.float32] | None]:
        if isinstance(solution.samples, Frames):
            estimator: Any = solution.estimator
            if isinstance(estimator, FrameBackgroundRemover) and not estimator.n_components_:
                return None
            return weight_maps(estimator, images.image_shape).astype(np.float32)
        if isinstance(denoised, Denoised) and images.n_images > 1:
            return None  # a map for every image, of a result that is computed on view
        return (yield from signal_strength(solution, images))


def moved(
    outcome: Outcome, suppression: float, n_components: int, place: tuple[int, ...]
) -> Steps[Denoised]:
    """The result at another suppression, with the image that is looked at computed already."""
    yield Progress(0, 1, "Updating")
    solution = outcome.solution.at(suppression, n_components)
    denoised = Denoised(solution, outcome.task.pair.foreground)
    yield from denoised.prepared(place)
    return denoised


@dataclass(frozen=True, eq=False)
class Curve:
    """What is kept of signal and background as the suppression rises, from 0 to 1."""

    suppression: tuple[float, ...]
    signal: tuple[float, ...]
    background: tuple[float, ...]


def contrast_curve(solution: Solution) -> Steps[Curve]:
    """How much variance the patterns keep of foreground and background, over the suppression."""
    signal: list[float] = []
    background: list[float] = []
    for done, suppression in enumerate(_CURVE):
        yield Progress(done, len(_CURVE), "Drawing the curve")
        found: Any = solution.at(suppression, solution.settings.n_components).estimator
        for values, side in ((signal, "foreground"), (background, "background")):
            moments = getattr(found, f"{side}_moments_")
            kept = float(getattr(found, f"{side}_variance_").sum())
            values.append(kept / max(float(moments.total_variance), 1e-300))
    return Curve(_CURVE, tuple(signal), tuple(background))


@dataclass(frozen=True, eq=False)
class Embedding:
    """Two scores of frames, (n, 2), and the places of the frames in the stack."""

    scores: NDArray[np.float64]
    places: tuple[tuple[int, ...], ...]


def embed_frames(outcome: Outcome) -> Steps[Embedding]:
    """Frames as points: the scores of the first two patterns, of at most 5,000 frames."""
    images = outcome.task.pair.foreground
    estimator: Any = outcome.solution.estimator
    rows = Frames().rows(images.data, name=images.name, elements=ELEMENTS)
    step = -(-images.n_images // _MOST_POINTS)
    scores: list[NDArray[np.float64]] = []
    kept: list[int] = []
    for start, stop in pairwise(rows.edges()):
        yield Progress(start, images.n_images, "Drawing the frames")
        block = rows.read(start, stop, check=False)[-start % step :: step]
        if len(block):
            scores.append(_two_scores(estimator, np.nan_to_num(block)))
            kept.extend(range(start + -start % step, stop, step))
    leading = images.shape[:-2]
    places = tuple(tuple(map(int, np.unravel_index(i, leading))) for i in kept)
    return Embedding(np.concatenate(scores), places)


def can_embed(outcome: Outcome) -> bool:
    """Whether frames have scores: whole frames, with two patterns that were found."""
    n = getattr(outcome.solution.estimator, "n_components_", None)
    if n is None:
        n = outcome.solution.settings.n_components
    return is_frames(outcome.solution.samples) and n >= 2


def has_curve(outcome: Outcome) -> bool:
    """Whether a curve of contrasts is drawn in a moment: small live projections."""
    large = outcome.solution.estimator.n_features_in_ > LARGEST_MATRIX // 4
    return outcome.solution.is_live and not large


def _two_scores(estimator: Any, rows: NDArray[Any]) -> NDArray[np.float64]:
    if isinstance(estimator, FrameBackgroundRemover):
        return np.asarray((rows - estimator.mean_) @ estimator.filters_[:, :2])
    return np.asarray((rows - estimator.mean_) @ estimator.components_[:2].T)


def _some(stack: FloatImage) -> FloatImage:
    """Whole images evenly spread, about a million pixels."""
    images = stack.reshape(-1, *stack.shape[-2:])
    return images[:: max(1, stack.size // 2**20)]
