"""From what was read to a fitted model, within a second or in a process that can be ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
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
    verdicts,
)
from contrast_core.images._window_choice import stationary_moments
from napari_plugin._process import Process
from napari_plugin._read import LARGEST_MATRIX
from napari_plugin._reading import Reading
from napari_plugin._settings import (
    AUTOMATIC,
    WITH_SLIDER,
    InputError,
    Progress,
    Samples,
    Settings,
    Steps,
    strength,
)

Estimator: TypeAlias = Any
LONGEST_HERE = 1000
"""Most pixels of a sample whose decompositions are so short that they need no process."""
SHORT_FRAMES = 256
"""Most pixels of frames whose background removal is solved here."""

_CLASSES: dict[str, tuple[type, str, Any]] = {
    "cpca": (CPCA, "alpha", "denoise"),
    "pca": (CPCA, "alpha", 0.0),
    "pcpca": (PCPCA, "gamma", "auto"),
    "cpca_star": (CPCAStar, "beta", "auto"),
}


@dataclass(frozen=True, eq=False)
class Solution:
    """A model of signal and background, fitted, and what to tell of it.

    Parameters
    ----------
    estimator : fitted estimator
        Of the core.
    samples : Patches or Frames
        What its rows are.
    settings : Settings
        How it was solved.
    automatic : float, optional
        Of a projection: the strength chosen automatically.
    remarks : tuple of str
        Sentences for the user.
    """

    estimator: Estimator
    samples: Samples
    settings: Settings
    automatic: float | None = None
    remarks: tuple[str, ...] = ()

    @property
    def is_live(self) -> bool:
        """Whether the slider can solve it anew: a projection that has its moments."""
        return (
            self.settings.method in WITH_SLIDER
            and self.automatic is not None
            and hasattr(self.estimator, "foreground_moments_")
        )

    def at(self, suppression: float, n_components: int) -> Solution:
        """The same with another suppression and number of patterns; nothing is read."""
        settings = replace(
            self.settings, suppression=suppression, n_components=n_components, raw_strength=None
        )
        estimator = self.estimator
        moments = estimator.foreground_moments_, estimator.background_moments_
        known = self.automatic
        if settings.method == "pcpca" and n_components != self.settings.n_components:
            known = None  # its range depends on the number of patterns
        return _projection(*moments, settings, self.samples, known)


def solve(reading: Reading, settings: Settings) -> Steps[Solution]:
    """Fit a model; what is long is done in a process, which ends when the steps are dropped.

    Raises
    ------
    InputError
        If there is no model, in words.
    """
    yield Progress(0, 1, "Solving")
    if settings.method == "automatic" and reading.holds_frames:
        return (yield from _frame_remover(reading, settings))
    if settings.method == "automatic":
        remover = StructuredBackgroundRemover(
            background_strength="constant" if settings.constant_strength else "varying"
        )
        sides = reading.samples.sides if isinstance(reading.samples, Patches) else ()
        remover.fit(reading.foreground, background=stationary_moments(reading.background, sides))
        return Solution(remover, reading.samples, settings)
    if isinstance(reading.foreground, SecondMoments) and _size(reading) > LONGEST_HERE:
        with Process() as process:
            fitted = yield from process.call(
                "projection",
                models={"x": reading.foreground, "y": reading.background},
                options=_options(settings, None),
            )
        return _described(fitted["model"], fitted["automatic"], settings, reading.samples)
    return _projection(reading.foreground, reading.background, settings, reading.samples, None)


def judge(reading: Reading) -> Steps[tuple[str, ...]]:
    """Sentences on what speaks against the result; long for frames, so after it is shown."""
    yield Progress(0, 1, "Checking")
    if not any(reading.blocks) and not reading.holds_frames:
        return ()
    if _size(reading) > LARGEST_MATRIX:
        return ()  # of large frames there are no covariances to be judged by
    if _size(reading) <= SHORT_FRAMES:
        blocks = reading.blocks if any(reading.blocks) else frame_blocks(reading)
        return tuple(verdict.sentence for verdict in verdicts(*blocks))
    models: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    if reading.holds_frames:
        arrays = {"x": reading.foreground, "y": reading.background}
    else:
        models = {
            f"{side}{i}": block
            for side, blocks in zip("xy", reading.blocks, strict=True)
            for i, block in enumerate(blocks)
        }
    with Process() as process:
        found = yield from process.call("verdicts", models=models, arrays=arrays)
    return tuple(found["sentences"])


def frame_blocks(reading: Reading) -> Any:
    """Moments of stretches of the frames that were held."""
    return [
        block_moments(Frames(), frames[:, None, :])
        for frames in (reading.foreground, reading.background)
    ]


def denoiser(solution: Solution) -> Callable[[NDArray[Any]], NDArray[np.floating]]:
    """The function from samples to their signal over a background of zero."""
    if solution.settings.method == "automatic":
        function: Callable[..., Any] = solution.estimator.transform
    else:
        function = partial(solution.estimator.denoise, offset="difference")
    return function


def _frame_remover(reading: Reading, settings: Settings) -> Steps[Solution]:
    shape, anywhere = reading.image_shape, settings.signal_anywhere
    remover = FrameBackgroundRemover(shape, stationary_signal=anywhere)
    if _size(reading) <= SHORT_FRAMES:
        remover.fit(reading.foreground, background=reading.background)
    else:
        with Process() as process:
            found = yield from process.call(
                "frames",
                arrays={"x": reading.foreground, "y": reading.background},
                options={"frame_shape": list(shape), "stationary_signal": anywhere},
            )
        remover = found["model"]
    remarks = () if remover.n_components_ else (TOO_FEW,)
    return Solution(remover, Frames(), settings, remarks=remarks)


TOO_FEW = (
    "There are too few frames: nothing of the signal stands out of their noise, and the result is "
    "little more than the mean signal. Take more frames; some hundreds are enough for a faint "
    "signal."
)


def _projection(
    x: Any, y: Any, settings: Settings, samples: Samples, automatic: float | None
) -> Solution:
    return _described(*fit_projection(x, y, _options(settings, automatic)), settings, samples)


def fit_projection(x: Any, y: Any, options: dict[str, Any]) -> tuple[Estimator, float]:
    """A projection and its automatic strength, from moments or rows."""
    kind, parameter, rule = _CLASSES[options["method"]]
    k, suppression, known = (options[name] for name in ("n_components", "suppression", "automatic"))
    with muted():
        if (raw := options["raw"]) is not None:
            return _with_raw_strength(kind, parameter, k, raw, x, y)
        if known is not None:
            fitted = None
        else:
            fitted = kind(k, **{parameter: rule}).fit(x, background=y)
            known = fitted.strength_
            x, y = fitted.foreground_moments_, fitted.background_moments_
            if rule == 0.0 or suppression == AUTOMATIC:
                return fitted, known
        largest = {"alpha": float("inf"), "beta": 1.0}.get(parameter)
        if largest is None:  # PCPCA's automatic strength is nine tenths of it
            largest = known / 0.9
        value = strength(known, suppression, largest=largest)
        return kind(k, **{parameter: value}).fit(x, background=y), known


def _with_raw_strength(
    kind: type, parameter: str, k: int, raw: float, x: Any, y: Any
) -> tuple[Estimator, float]:
    try:
        fitted = kind(k, **{parameter: raw}).fit(x, background=y)
    except ValueError as error:
        raise InputError(
            f"A strength of {raw:g} is out of range for this method and these images. Use the "
            "background suppression instead, which always is in range."
        ) from error
    return fitted, float(raw)


def _described(
    estimator: Estimator, automatic: float, settings: Settings, samples: Samples
) -> Solution:
    values = np.asarray(
        getattr(estimator, "contrastive_eigenvalues_", np.ones(1)), dtype=np.float64
    )
    n_negative = int((values < -1e-12 * np.abs(values).max(initial=1e-300)).sum())
    remarks: tuple[str, ...] = ()
    if n_negative:
        remarks = (
            f"{n_negative} of the {len(values)} patterns show more background than signal: keep "
            "fewer, or lower the background suppression.",
        )
    return Solution(estimator, samples, settings, automatic, remarks)


def _options(settings: Settings, automatic: float | None) -> dict[str, Any]:
    return {
        "method": settings.method,
        "n_components": settings.n_components,
        "suppression": settings.suppression,
        "automatic": automatic,
        "raw": settings.raw_strength,
    }


def _size(reading: Reading) -> int:
    if isinstance(reading.foreground, SecondMoments):
        return reading.foreground.n_features
    return int(np.prod(reading.image_shape))
