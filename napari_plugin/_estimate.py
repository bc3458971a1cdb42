"""How long a run will take and how much memory, before it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass

from napari_plugin._pair import Pair, n_pixels, n_windows
from napari_plugin._read import reads_frames
from napari_plugin._settings import Samples, Settings, is_frames

# Seconds of one core for a value of a patch or frame, measured; rough on purpose.
_READ = 1.0e-8
_REMOVE = 3.5e-8
_PROJECT = 1.5e-8
_SOLVE_FRAMES = 1.2e-9  # times the cube of the pixels, with the process that does it
_PROCESS = 2.0


@dataclass(frozen=True)
class Estimate:
    """Seconds and bytes; whether the result is computed only where it is looked at."""

    seconds: float
    memory: int
    lazy: bool

    def text(self) -> str:
        """In words."""
        seconds = f"{max(1, round(self.seconds))} s"
        if self.seconds >= 90:
            seconds = f"{round(self.seconds / 60)} min"
        how = "; the result is computed as you look at it" if self.lazy else ""
        return f"About {seconds} and {self.memory / 2**30:.1f} GB of memory{how}."


def estimate(
    pair: Pair, samples: Samples, settings: Settings, available: int, *, read: bool = True
) -> Estimate:
    """What a run will cost.

    Parameters
    ----------
    pair, samples, settings
        As for `read`.
    available : int
        Bytes of memory that are free.
    read : bool, default=True
        Whether the data have to be read, rather than having been.
    """
    pixels = n_pixels(pair, samples)
    images = pair.foreground
    if is_frames(samples):
        per_image, n_read = pixels, (images.n_images + pair.behind.n_images) * pixels
    else:
        side = samples.sides[-1]  # type: ignore[union-attr]
        per_image = pixels * n_windows(images.image_shape, side, samples.stride)  # type: ignore[union-attr]
        n_read = 2 * min(images.n_images * per_image, 2**17 * pixels)
    result = 4 * math.prod(images.shape)
    lazy = is_lazy(pair, settings, available)
    rate = _REMOVE if settings.method == "automatic" else _PROJECT
    seconds = (1 if lazy else images.n_images) * per_image * rate + (n_read * _READ if read else 0)
    memory = 150 * 2**20 + (0 if lazy else result)
    if is_frames(samples) and settings.method == "automatic":
        seconds += _SOLVE_FRAMES * pixels**3 + _PROCESS
    held = n_read * 8 if reads_frames(pair, samples, settings) else 20 * 8 * pixels**2
    return Estimate(seconds, memory + min(held, 2**31), lazy)


def is_lazy(pair: Pair, settings: Settings, available: int) -> bool:
    """Whether results are computed on view: projections, and what memory would not hold."""
    return settings.method != "automatic" or 4 * math.prod(pair.foreground.shape) > available // 4
