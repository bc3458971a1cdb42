"""From images to a fitted model, and what speaks against it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contrast_core import CPCA, PCPCA, CPCAStar, SecondMoments
from contrast_core.feedback import muted
from contrast_core.images import (
    FrameBackgroundRemover,
    Frames,
    Patches,
    StructuredBackgroundRemover,
    block_moments,
    library_verdicts,
    stationary_moments,
    verdicts,
)
from napari_plugin._pair import BoolArray, Images, Pair, Watched, box_of, check
from napari_plugin._process import compute
from napari_plugin._settings import (
    AUTOMATIC,
    METHODS,
    SMALL_FRAME,
    WITH_SLIDER,
    InputError,
    Report,
    Samples,
    Settings,
    no_report,
    strength,
)

Estimator: TypeAlias = Any

LARGEST_MATRIX = 4096
"""Most pixels of a frame whose covariances are formed: 128 MiB each."""
LONGEST_HERE = 512
"""Most features of decompositions that stop the window for less than a tenth of a second."""

_MOST_VALUES = 2**24  # of frames that are held in memory
_MOST_PRODUCTS = 2e10  # pixels times frames squared, for large frames: half a second
_WINDOWS = 2**16  # more patches improve moments of a few hundred features no further
_FEW_IMAGES = 64  # of a stack, evenly spread: they show how its background looks
_MUCH_BACKGROUND = 0.25  # share of its variance; contrastive PCA keeps .00 on the samples

_CLASSES: dict[str, tuple[type, str, Any]] = {
    "cpca": (CPCA, "alpha", "denoise"),
    "pca": (CPCA, "alpha", 0.0),
    "pcpca": (PCPCA, "gamma", "auto"),
    "cpca_star": (CPCAStar, "beta", "auto"),
}


@dataclass(frozen=True, eq=False)
class Solution:
    """A fitted model of signal and background.

    Parameters
    ----------
    estimator : fitted estimator
        An estimator of the core.
    samples : Patches or Frames
        What the estimator's rows are.
    settings : Settings
        How it was fitted.
    automatic : float, optional
        For a projection: the strength chosen automatically.
    n_used : int, optional
        How many of the images were read to learn from; None for a model from a file.
    """

    estimator: Estimator
    samples: Samples
    settings: Settings
    automatic: float | None = None
    n_used: int | None = None

    @property
    def is_live(self) -> bool:
        """Whether the slider can solve it anew: a projection that has its moments."""
        return (
            self.settings.method in WITH_SLIDER
            and self.automatic is not None
            and hasattr(self.estimator, "foreground_moments_")
        )

    @property
    def n_features(self) -> int:
        """Pixels of a sample."""
        return int(self.estimator.n_features_in_)

    def at(self, suppression: float, n_components: int) -> Solution:
        """Return the solution for another suppression and number of components; nothing is read."""
        settings = replace(
            self.settings, suppression=suppression, n_components=n_components, raw_strength=None
        )
        moments = self.estimator.foreground_moments_, self.estimator.background_moments_
        known = self.automatic
        if settings.method == "pcpca" and n_components != self.settings.n_components:
            known = None  # its range depends on the number of components
        estimator, automatic = fit_projection(*moments, settings, known)
        return replace(self, estimator=estimator, settings=settings, automatic=automatic)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on what speaks against the model, known without further checks."""
        estimator, said = self.estimator, []
        if getattr(estimator, "method_", "") == "filter" and not estimator.n_components_:
            said.append(TOO_FEW)
        values = np.asarray(getattr(estimator, "contrastive_eigenvalues_", [1.0]), np.float64)
        if n_negative := int((values < -1e-12 * np.abs(values).max(initial=1e-300)).sum()):
            said.append(
                f"{n_negative} of the {len(values)} components show more background than signal: "
                "keep fewer, or lower the background suppression."
            )
        if (kept := _kept(estimator, "background")) > _MUCH_BACKGROUND:
            said.append(
                f"{METHODS[self.settings.method]} keeps {kept:.0%} of the background's variance. "
                "Use the automatic method or contrastive PCA, raise the suppression, or keep fewer "
                "components."
            )
        return tuple(said)


TOO_FEW = (
    "There are too few frames: nothing of the signal stands out of their noise, and the result is "
    "little more than the mean signal. Take more frames; some hundreds are enough for a faint "
    "signal."
)


def fit(
    pair: Pair, samples: Samples, settings: Settings, report: Report, part: Images | None = None
) -> Solution:
    """Fit a model; `report` is called between blocks and may stop it.

    Parameters
    ----------
    pair, samples, settings
        The images and the choices.
    report : callable
    part : Images, optional
        For a preview: the part of the images that patches of the foreground are learnt from.

    Raises
    ------
    InputError
        If the choices cannot work, pixels are missing, or the background does not vary.
    """
    check(pair, samples, settings)
    sides = _sides(pair, samples, settings, report, part)
    n_used = sides[0][0].shape[0]
    if isinstance(samples, Frames):
        rows = [samples.rows(stack) for stack, _ in sides]
    else:
        try:
            rows = [_stride(samples, *side).rows(*side) for side in sides]
        except ValueError as error:
            raise InputError(
                f"No patch of {samples.sides[0]} x {samples.sides[1]} pixels lies in the "
                "background area. Draw a larger one; about 100 x 100 pixels are enough."
            ) from error
    estimator: Any
    x: Any
    y: Any
    if _is_library(pair, samples, settings):
        x, y = rows  # of which the core reads the background, some 512 MB of it
    elif _holds_frames(pair, samples, settings):
        x, y = map(_in_memory, rows)
        if (y == y[0]).all():
            raise _constant(pair)
    else:
        x, y = map(SecondMoments.from_data, rows)
        if not y.varies.any():
            raise _constant(pair)
    report(0, 0, "Solving")
    if settings.method != "automatic":
        moments = isinstance(x, SecondMoments)
        run = partial(compute, report) if moments and x.n_features > LONGEST_HERE else _call
        estimator, automatic = run(fit_projection, x, y, settings, None)
        return Solution(estimator, samples, settings, automatic, n_used)
    if isinstance(samples, Frames):
        estimator = FrameBackgroundRemover(
            pair.foreground.image_shape,
            stationary_signal=settings.signal_anywhere,
            multiplicative=settings.absorbed,
        )
    else:
        strengths = "constant" if settings.constant_strength else "varying"
        y = stationary_moments(y, samples.sides)
        estimator = StructuredBackgroundRemover(background_strength=strengths)  # type: ignore[arg-type]
    library = _is_library(pair, samples, settings)
    long = rows[0].shape[1] > LONGEST_HERE // 2 and not library
    run = partial(compute, report) if long else _call
    return Solution(run(_fitted, estimator, x, y), samples, settings, None, n_used)


def judge(pair: Pair, solution: Solution, report: Report) -> tuple[str, ...]:
    """Return sentences on what speaks against a result; long, so asked for after it is shown."""
    sides = _sides(pair, solution.samples, solution.settings, report, doing="Checking")
    if getattr(solution.estimator, "method_", "") == "library":
        rows = [solution.samples.rows(stack) for stack, _ in sides]
        return tuple(each.sentence for each in library_verdicts(solution.estimator, *rows))
    if solution.n_features > LARGEST_MATRIX:
        return ()  # covariances of large frames are not formed
    blocks = [block_moments(solution.samples, *side) for side in sides]
    run = partial(compute, report) if solution.n_features > LONGEST_HERE // 2 else _call
    return tuple(verdict.sentence for verdict in run(verdicts, *blocks))


def denoiser(solution: Solution) -> Callable[[NDArray[Any]], NDArray[np.floating]]:
    """Return the function from samples to their signal over a background of zero."""
    if solution.settings.method == "automatic":
        function: Callable[..., Any] = solution.estimator.transform
    else:
        function = partial(solution.estimator.denoise, offset="difference")
    return function


def fit_projection(
    x: Any, y: Any, settings: Settings, automatic: float | None
) -> tuple[Estimator, float]:
    """Return a projection of moments or rows, and the strength that is chosen automatically."""
    kind, parameter, rule = _CLASSES[settings.method]
    k, raw = settings.n_components, settings.raw_strength
    with muted():
        if raw is not None:
            try:
                return kind(k, **{parameter: raw}).fit(x, background=y), float(raw)
            except ValueError as error:
                raise InputError(
                    f"A strength of {raw:g} is out of range for this method and these images. Use "
                    "the background suppression instead, which is always in range."
                ) from error
        if automatic is None:
            fitted = kind(k, **{parameter: rule}).fit(x, background=y)
            automatic = fitted.strength_
            if rule == 0.0 or settings.suppression == AUTOMATIC:
                return fitted, automatic
            x, y = fitted.foreground_moments_, fitted.background_moments_
        largest = {"alpha": math.inf, "beta": 1.0}.get(parameter)
        if largest is None:  # PCPCA's automatic strength is nine tenths of its largest
            largest = automatic / 0.9
        value = strength(automatic, settings.suppression, largest=largest)
        return kind(k, **{parameter: value}).fit(x, background=y), automatic


def strides(pair: Pair, solution: Solution) -> list[Patches]:
    """Return the patches that foreground and background were read by."""
    sides = _sides(pair, solution.samples, solution.settings, no_report)
    return [_stride(solution.samples, *side) for side in sides]  # type: ignore[arg-type]


def variance_kept(solution: Solution) -> tuple[float, float]:
    """Return the shares of the foreground's and background's variance that a projection keeps."""
    return _kept(solution.estimator, "foreground"), _kept(solution.estimator, "background")


def _kept(estimator: Any, side: str) -> float:
    moments = getattr(estimator, f"{side}_moments_", None)
    variance = getattr(estimator, f"{side}_variance_", None)
    if moments is None or variance is None:
        return 0.0
    return float(np.sum(variance)) / max(float(moments.total_variance), 1e-300)


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _fitted(estimator: Any, x: Any, y: Any) -> Any:
    return estimator.fit(x, background=y)


def _is_library(pair: Pair, samples: Samples, settings: Settings) -> bool:
    large = settings.absorbed or math.prod(pair.foreground.image_shape) > SMALL_FRAME
    return isinstance(samples, Frames) and settings.method == "automatic" and large


def _holds_frames(pair: Pair, samples: Samples, settings: Settings) -> bool:
    large = math.prod(pair.foreground.image_shape) > LARGEST_MATRIX
    return isinstance(samples, Frames) and (settings.method == "automatic" or large)


def _sides(
    pair: Pair,
    samples: Samples,
    settings: Settings,
    report: Report,
    part: Images | None = None,
    doing: str = "Reading",
) -> list[tuple[Watched, BoolArray | None]]:
    """Return the images to learn from, of foreground and background, and masks of their pixels."""
    mask, images = pair.mask, (pair.foreground, pair.behind)
    numbers = [np.arange(each.n_images) for each in images]
    within: list[Any] = [(None, None), (None, None)]
    if pair.masks_frames:
        marked = mask.ravel()  # type: ignore[union-attr]
        numbers[1] = np.flatnonzero(marked)
        if isinstance(samples, Frames):
            numbers[0] = np.flatnonzero(~marked)
    elif mask is not None:
        planes: BoolArray = mask.reshape(-1, *mask.shape[-2:])
        if mask.ndim > 2:
            numbers[1] = np.flatnonzero(planes.any(axis=(1, 2)))
        rows, columns = box = box_of(mask)
        planes = planes[:, rows.start : rows.stop, columns.start : columns.stop]
        within[1] = box, planes if mask.ndim > 2 else planes[0]
    if part is not None and isinstance(samples, Patches):
        images, numbers[0] = (part, pair.behind), np.arange(part.n_images)
    most = _most_images(pair, samples, settings, numbers)
    found = []
    for each, chosen, n, (area, marks) in zip(images, numbers, most, within, strict=True):
        chosen = _spread(chosen, n)
        marks = marks[chosen] if marks is not None and marks.ndim > 2 else marks
        stack = Watched(each, report, f"{doing} {each.name}", chosen, area)
        found.append((stack, None if marks is None or marks.all() else marks))
    return found


def _most_images(
    pair: Pair, samples: Samples, settings: Settings, numbers: list[NDArray[np.intp]]
) -> list[int]:
    pixels = math.prod(pair.foreground.image_shape)
    if isinstance(samples, Patches):
        return [max(_FEW_IMAGES, 4 * _WINDOWS // math.prod(pair.behind.image_shape))] * 2
    held = _holds_frames(pair, samples, settings)
    if not held or _is_library(pair, samples, settings):
        return [len(each) for each in numbers]
    most = max(16, _MOST_VALUES // pixels)
    if pixels > LARGEST_MATRIX:
        most = max(16, int(math.sqrt(_MOST_PRODUCTS / pixels)))
    n = sum(map(len, numbers))
    return [max(8, min(len(each), len(each) * most // n)) for each in numbers]


def _spread(numbers: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return at most so many of the numbers, evenly spread."""
    if len(numbers) <= most:
        return numbers
    return np.asarray(numbers[np.linspace(0, len(numbers) - 1, most).round().astype(int)])


def _stride(samples: Patches, stack: Watched, mask: BoolArray | None) -> Patches:
    """Return patches at the stride that leaves enough of them, and in large stacks not too many."""
    n = math.prod(stack.shape) if mask is None else int(mask.sum())
    if mask is not None and mask.ndim == 2:
        n *= stack.shape[0]
    wide = min(max(1, math.ceil(math.sqrt(n / _WINDOWS))), *samples.sides)
    large = stack.shape[0] > 1 or wide > 2 * samples.stride
    return Patches(samples.size, wide if large else min(samples.stride, wide))


def _in_memory(rows: Any) -> NDArray[np.floating]:
    """Return rows in memory, as float32 where that is exact."""
    out = np.empty(rows.shape, np.result_type(rows.dtype, np.float32))
    for start, stop in pairwise(rows.edges()):
        out[start:stop] = rows.read(start, stop)
    return out


def _constant(pair: Pair) -> InputError:
    where = f" ({pair.background.name!r})" if pair.background else ""
    return InputError(
        f"The background{where} is the same everywhere, so that it has no pattern to be learnt. "
        "Choose an area, frames or a layer in which the disturbance can be seen."
    )
