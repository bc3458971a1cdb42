"""Fit a model of signal and background to images, and detect problems of the fit."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from importlib import import_module
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from contrast_core import CPCA, PCPCA, CPCAStar, SecondMoments
from contrast_core.feedback import muted
from contrast_core.images import (
    Frames,
    Patches,
    Verdict,
    block_moments,
    suppress_background,
    verdicts,
)
from napari_plugin._pair import Images, Pair, check, explained_errors, n_pixels
from napari_plugin._settings import (
    AUTOMATIC,
    METHODS,
    SMALL_FRAME,
    WITH_SLIDER,
    FloatImage,
    InputError,
    Remark,
    Report,
    Samples,
    Settings,
    no_report,
    progress_of,
    strength,
)

Estimator: TypeAlias = Any

LONGEST_HERE = 256
"""Largest size of a matrix whose decomposition takes less than a tenth of a second."""

CLASSES: dict[str, tuple[type, str, Any]] = {
    "cpca": (CPCA, "alpha", "denoise"),
    "pca": (CPCA, "alpha", 0.0),
    "pcpca": (PCPCA, "gamma", "auto"),
    "cpca_star": (CPCAStar, "beta", "auto"),
}
"""For each projection (every method except the automatic one): its estimator, the parameter that is
its strength, and the value with which the estimator chooses this strength (0 for PCA)."""

_MOST_VALUES = 2**24  # largest number of pixels of the foreground frames held in memory
_MOST_BACKGROUND = 2**26  # largest number of pixels of the background frames held in memory
# Largest value of pixels * frames**2 for large frames. A fit of this size takes half a second.
_MOST_PRODUCTS = 2e10
# `suppress_background` always denoises something, but the dock needs only its fit. Of patches, it
# therefore denoises only a corner of the first image, with sides of this many pixels.
_CORNER = 64
# The dock warns if the result keeps more than this share of the background's variance. On the
# sample data, contrastive PCA keeps .00 of this variance.
_MUCH_BACKGROUND = 0.25
_POLL = 0.02  # seconds between two checks of the other process
_GRACE = 0.15  # seconds that a cancelled computation may take to end before its process is killed
_IDLE = 60  # seconds without work after which the other process ends


class Judgement:
    """Problems that were detected in a foreground and its background.

    Parameters
    ----------
    known : tuple of Verdict, optional
        The verdicts, if they are known already.
    blocks : list of list of SecondMoments, optional
        Moments of blocks of the foreground and of the background. The verdicts are computed from
        them at the first call of `verdicts`.
    """

    def __init__(self, known: tuple[Verdict, ...] = (), blocks: Any = None) -> None:
        self._known, self._blocks = known, blocks

    def verdicts(self, report: Report) -> tuple[Verdict, ...]:
        """Return the verdicts; the first call may take seconds."""
        if self._blocks is not None:
            self._known = compute(report, self._blocks[0][0].n_features, verdicts, *self._blocks)
            self._blocks = None
        return self._known


@dataclass(frozen=True, eq=False)
class Solution:
    """A fitted model of signal and background.

    Parameters
    ----------
    estimator : fitted estimator
        An estimator of `contrast_core`.
    samples : Patches or Frames
        The parts of images that are the estimator's rows.
    settings : Settings
        The settings of the fit.
    automatic : float, optional
        Automatic strength of a projection.
    brightness : float, default=0
        Constant that the automatic method adds to the signal to preserve the images' brightness.
    n_used : int, optional
        Number of frames that the model was fitted to; None if all were used.
    judgement : Judgement
        Problems detected in the images and their background.
    """

    estimator: Estimator
    samples: Samples
    settings: Settings
    automatic: float | None = None
    brightness: float = 0.0
    n_used: int | None = None
    judgement: Judgement = field(default_factory=Judgement)

    @property
    def is_live(self) -> bool:
        """Whether the slider can change the result.

        This needs a projection that has a contrast strength and whose estimator stores moments.
        """
        has_moments = hasattr(self.estimator, "foreground_moments_")
        return self.settings.method in WITH_SLIDER and has_moments

    @property
    def n_features(self) -> int:
        """Number of pixels of a sample."""
        return int(self.estimator.n_features_in_)

    @property
    def n_components(self) -> int:
        """Number of components that were found; if that is unknown, the requested number."""
        return int(getattr(self.estimator, "n_components_", self.settings.n_components))

    @property
    def has_maps(self) -> bool:
        """Whether the model has components of whole frames, with weight maps and scores."""
        # The method "library" finds components of the background, but none of the signal.
        is_library = getattr(self.estimator, "method_", "") == "library"
        return isinstance(self.samples, Frames) and not is_library and self.n_components > 0

    def at(self, suppression: float, n_components: int, report: Report = no_report) -> Solution:
        """Return the solution at another suppression and number of components.

        It is computed from the moments, so that no pixels are read.
        """
        settings = replace(
            self.settings, suppression=suppression, n_components=n_components, raw_strength=None
        )
        x, y = self.estimator.foreground_moments_, self.estimator.background_moments_
        known = self.automatic
        if settings.method == "pcpca" and n_components != self.settings.n_components:
            known = None  # the range of PCPCA's gamma depends on the number of components
        estimator, automatic = compute(report, x.size, _without_moments, x, y, settings, known)
        estimator.foreground_moments_, estimator.background_moments_ = x, y
        return replace(self, estimator=estimator, settings=settings, automatic=automatic)

    def apply(
        self, images: Images, report: Report = no_report, doing: str = "Removing"
    ) -> FloatImage:
        """Return images without their background, in memory.

        Raises
        ------
        InputError
            If pixels are missing.
        """
        function: Callable[..., Any] = self.estimator.transform
        if self.settings.method != "automatic":
            function = partial(self.estimator.denoise, offset="difference")
        brightness = self.brightness
        return mapped(self.samples, lambda x: function(x) + brightness, images, report, doing)

    def signal_strength(self, images: Images, report: Report) -> FloatImage:
        """Return the strength of the signal around each pixel, for a model of patches."""
        estimator, sides = self.estimator, self.samples.sides  # type: ignore[union-attr]

        def strengths(rows: NDArray[Any]) -> NDArray[np.floating]:
            if self.settings.method == "automatic":
                return np.asarray(estimator.strengths(rows)[:, :1])
            scores = (rows - estimator.mean_) @ estimator.components_.T
            return np.asarray((scores**2).mean(axis=1, keepdims=True))

        wide = Patches(sides, max(1, min(sides) // 2))
        return mapped(wide, strengths, images, report, "Mapping the signal")

    def variance_kept(self, side: str) -> float:
        """Return the share of the variance of "foreground" or "background" that is kept."""
        moments = getattr(self.estimator, f"{side}_moments_", None)
        variance = getattr(self.estimator, f"{side}_variance_", None)
        if moments is None or variance is None:
            return 0.0
        return float(np.sum(variance)) / max(float(moments.total_variance), 1e-300)

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """Remarks on the model that need no further checks."""
        said: list[Remark] = []
        if self.n_used is not None:
            text = f"The model was fitted to only {self.n_used} frames, at even intervals."
            said.append((text, "doubtful"))
        values = getattr(self.estimator, "contrastive_eigenvalues_", np.ones(1))
        if n_negative := int((values < -1e-12 * np.abs(values).max(initial=1e-300)).sum()):
            text = (
                f"{n_negative} of the {len(values)} components show more background than signal. "
                "Keep fewer components, or lower the suppression."
            )
            said.append((text, "doubtful"))
        if (kept := self.variance_kept("background")) > _MUCH_BACKGROUND:
            text = (
                f"{METHODS[self.settings.method]} keeps {kept:.0%} of the background's variance. "
                "Use the automatic method or contrastive PCA, raise the suppression, or keep fewer "
                "components."
            )
            said.append((text, "instead"))
        return tuple(said)


def mapped(
    samples: Samples, function: Callable[..., Any], images: Images, report: Report, doing: str
) -> FloatImage:
    """Apply a function to the samples of images, and assemble the results into images."""
    with explained_errors(Pair(images)):
        found = samples.map(function, images.data, progress=progress_of(report, doing))
    return np.asarray(found, dtype=np.float32)


def fit(
    pair: Pair,
    samples: Samples,
    settings: Settings,
    report: Report,
    part: Images | None = None,
) -> Solution:
    """Fit a model.

    Parameters
    ----------
    pair, samples, settings
        The images, the kind of samples, and the settings.
    report : callable
        Function that is called between blocks. It stops the fit by raising `Cancelled`.
    part : Images, optional
        Part of the images that a preview shows. Patches of the foreground come from it alone.

    Raises
    ------
    InputError
        If the choices cannot be used, pixels are missing, or the background does not vary.
    """
    check(pair, samples, settings)
    make = _automatic if settings.method == "automatic" else _projection
    with explained_errors(pair):
        return make(pair, samples, settings, report, part or pair.foreground)


def _automatic(
    pair: Pair, samples: Samples, settings: Settings, report: Report, part: Images
) -> Solution:
    options = settings.options(samples) | {"progress": progress_of(report)}
    n_features, n_used = 1, None
    if isinstance(samples, Frames):
        image, n_used = pair.foreground.frames(pair.signal, _MOST_VALUES, report)
        background, _ = pair.background_images.frames(pair.mask, _MOST_BACKGROUND, report)
        corner = image[:1]
        if not settings.absorbed and image[0].size <= SMALL_FRAME:
            n_features = image[0].size
    else:
        image = part.data
        background, options["background_mask"] = pair.background_alone(report)
        first = (0,) * (len(part.shape) - 2)
        corner = np.asarray(image[(*first, slice(_CORNER), slice(_CORNER))])
    if n_features > LONGEST_HERE:  # the fit runs in another process, which cannot report progress
        options["progress"] = False
    run = partial(suppress_background, apply_to=corner, **options)
    found = compute(report, n_features, run, image, background)
    return Solution(
        found.estimator,
        found.sampling,
        settings,
        brightness=found.brightness,
        n_used=n_used,
        judgement=Judgement(found.verdicts),
    )


def _projection(
    pair: Pair, samples: Samples, settings: Settings, report: Report, part: Images
) -> Solution:
    sides: list[Any]
    n_features, n_used, judgement = n_pixels(pair, samples), None, Judgement()
    if isinstance(samples, Frames) and n_features > SMALL_FRAME:
        most = max(16, int(math.sqrt(_MOST_PRODUCTS / n_features))) * n_features // 2
        frames, n_used = pair.foreground.frames(pair.signal, most, report)
        others, _ = pair.background_images.frames(pair.mask, most, report)
        x, y = frames.reshape(len(frames), -1), others.reshape(len(others), -1)
    else:
        if isinstance(samples, Frames):
            sides = [(pair.foreground.data, pair.signal), (pair.background_images.data, pair.mask)]
        else:
            sides = [(part.data, None), pair.background_alone(report)]
        progress = progress_of(report)
        blocks = [
            block_moments(samples, stack, mask, name=name, progress=progress)
            for (stack, mask), name in zip(sides, ("the image", "the background"), strict=True)
        ]
        judgement = Judgement(blocks=blocks)
        x, y = (reduce(SecondMoments.merge, each) for each in blocks)
        if not y.varies.any():
            raise ValueError("the background is constant, so there is no pattern to learn.")
    fitted = compute(report, n_features, fit_projection, x, y, settings, None)
    return Solution(fitted[0], samples, settings, fitted[1], n_used=n_used, judgement=judgement)


def fit_projection(
    x: Any, y: Any, settings: Settings, automatic: float | None
) -> tuple[Estimator, float]:
    """Fit a projection to foreground x and background y; return it with its automatic strength.

    x and y are rows or moments.
    """
    kind, parameter, rule = CLASSES[settings.method]
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
        # PCPCA's automatic strength is nine tenths of its largest strength.
        largest = {"alpha": math.inf, "beta": 1.0, "gamma": automatic / 0.9}[parameter]
        value = strength(automatic, settings.suppression, largest=largest)
        return kind(k, **{parameter: value}).fit(x, background=y), automatic


def _without_moments(*arguments: Any) -> tuple[Estimator, float]:
    """Return the result of `fit_projection` without the moments, which the caller has already."""
    estimator, automatic = fit_projection(*arguments)
    del estimator.foreground_moments_, estimator.background_moments_
    return estimator, automatic


_turn = Lock()  # held by the thread whose function the other process computes
_pools: list[Any] = []  # the pool of the other process, if there is one


def compute(report: Report, n_features: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function(*arguments)``, computed in another process if there are many features.

    Decompositions of more than a few hundred features take seconds and cannot be interrupted. Some
    of them hold Python's global lock, so that even in a thread they would freeze the window. The
    process is kept for the next call, because starting it takes seconds. If `report` raises, a
    function that does not end soon is ended with its process. Exceptions of the function are raised
    here.
    """
    if n_features <= LONGEST_HERE:
        return function(*arguments)
    while not _turn.acquire(timeout=_POLL):
        report(0, 0, "Solving")
    try:
        return _computed(report, function, arguments)
    except BrokenExecutor:  # the process was killed, perhaps before this call
        return _computed(report, function, arguments)
    finally:
        _turn.release()


def _computed(report: Report, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    # Unlike multiprocessing, loky does not run the user's main script again in the new process.
    loky: Any = import_module("joblib.externals.loky")  # loky has no type hints
    if not _pools:
        threads = str(max(1, (os.cpu_count() or 1) // 2))  # the other cores are left to the window
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        env = dict.fromkeys(names, threads)
        _pools.append(loky.ProcessPoolExecutor(1, timeout=_IDLE, env=env))
    keep = False
    try:
        job = _pools[0].submit(function, *arguments)
        try:
            while not job.done():
                report(0, 0, "Solving")
                loky.wait([job], timeout=_POLL)
        finally:
            loky.wait([job], timeout=_GRACE)
            keep = job.done() and not isinstance(job.exception(), BrokenExecutor)
        return job.result()
    finally:
        if not keep:
            _pools.pop().shutdown(kill_workers=True)
