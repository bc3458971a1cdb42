"""Results that are computed where they are looked at."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import Frames
from napari_plugin._pair import Images, as_dask
from napari_plugin._settings import FloatImage, Report, no_report
from napari_plugin._solve import Solution

_CHUNK = 2**17  # pixels of whole frames that are computed together


class OnView:
    """Denoises the chunks of a dask array; missing pixels stay missing.

    `report` is called as it works. It is only set while a thread of ours waits for a chunk.
    """

    def __init__(self, solution: Solution, name: str) -> None:
        self._solution, self._name = solution, name
        self.report: Report = no_report

    def __call__(self, block: NDArray[Any]) -> FloatImage:
        bad = ~np.isfinite(block)
        if bad.any():
            block = np.where(bad, 0.0 if bad.all() else block[~bad].mean(), block)
        out = self._solution.apply(Images(self._name, block), self.report)
        out[bad] = np.nan
        return out


def as_lazy(solution: Solution, images: Images) -> tuple[Any, OnView]:
    """Return the denoised images as a dask array, and what computes its chunks.

    The window reads the whole chunk of what it shows, so that chunks are short work.
    """
    da: Any = import_module("dask.array")  # without types
    compute = OnView(solution, images.name)
    left = max(1, _CHUNK // math.prod(images.image_shape))
    left = left if isinstance(solution.samples, Frames) else 1
    chunks: list[int] = []
    for n in reversed(images.shape[:-2]):
        chunks.insert(0, min(n, left))
        left = max(1, left // n)
    source = as_dask(images.data, (*chunks, *images.image_shape))
    meta = np.empty((0,) * source.ndim, np.float32)
    name = f"denoised-{uuid4().hex}"
    return da.map_blocks(compute, source, name=name, dtype=np.float32, meta=meta), compute


def taken(original: Any, denoised: Any, *, is_density: bool = False) -> Any:
    """Return what was taken away; of a density, the light without the absorber."""
    original = original.astype(np.float32)
    return original * np.exp(denoised) if is_density else original - denoised


def removed(images: Images, denoised: Any, *, is_density: bool = False) -> Any:
    """Return what was taken away, as a lazy array."""
    one_by_one = (*(1,) * (len(images.shape) - 2), *images.image_shape)
    original = as_dask(images.data, getattr(denoised, "chunks", one_by_one))
    return taken(original, as_dask(denoised, original.chunks), is_density=is_density)


def display_range(planes: NDArray[np.floating]) -> tuple[float, float]:
    """Return percentiles of some of the pixels, between which an image is shown."""
    finite = planes[np.isfinite(planes)]
    if not finite.size:
        return 0.0, 1.0
    low, high = np.percentile(finite[:: max(1, finite.size // 2**18)], [1.0, 99.8])
    return float(low), float(high) if high > low else float(low) + 1.0
