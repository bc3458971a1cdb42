"""A model applied to images: in memory, or plane by plane when it is looked at."""

from __future__ import annotations

import math
from collections import OrderedDict
from importlib import import_module
from threading import Lock
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import Frames, Patches
from napari_plugin._pair import Images, Watched
from napari_plugin._settings import Report, no_report
from napari_plugin._solve import Solution, denoiser

FloatImage = NDArray[np.float32]

_CHUNK = 2**17  # pixels of whole frames that are computed together
_LARGE = 2**15  # pixels of a frame, of which one takes a tenth of a second
_KEPT = 4  # chunks


def denoise(
    solution: Solution, images: Images, report: Report = no_report, doing: str = "Removing"
) -> FloatImage:
    """Return all images without their background, in memory.

    Raises
    ------
    InputError
        If pixels are missing.
    """
    return _mapped(denoiser(solution), solution.samples, images, report, doing)


def signal_strength(solution: Solution, images: Images, report: Report) -> FloatImage:
    """Return how strong the signal is around each pixel; the samples are patches."""
    side, estimator = solution.samples.sides[-1], solution.estimator  # type: ignore[union-attr]

    def strength(rows: NDArray[Any]) -> NDArray[np.floating]:
        if solution.settings.method == "automatic":
            return np.asarray(estimator.strengths(rows)[:, :1])
        scores = (rows - estimator.mean_) @ estimator.components_.T
        return np.asarray((scores**2).mean(axis=1, keepdims=True))

    return _mapped(strength, Patches(side, max(1, side // 2)), images, report, "Mapping the signal")


def _mapped(function: Any, samples: Any, images: Images, report: Report, doing: str) -> FloatImage:
    stack = Watched(images, report, doing)
    if isinstance(samples, Frames) and math.prod(images.image_shape) > _LARGE:  # a frame at a time
        frames = [function(stack[i].reshape(1, -1)) for i in range(stack.shape[0])]
        return np.asarray(frames, dtype=np.float32).reshape(images.shape)
    out = samples.map(function, stack)
    return np.asarray(out, dtype=np.float32).reshape(images.shape)


class _Blocks:
    """Denoises the chunks of a dask array, and keeps the last few results.

    The window reads the whole chunk of what it shows, so that chunks are short work.
    """

    def __init__(self, solution: Solution, name: str, report: Report) -> None:
        self._solution, self._name, self._report = solution, name, report
        self._kept: OrderedDict[Any, FloatImage] = OrderedDict()
        self._lock = Lock()  # dask computes in several threads

    def __call__(self, block: NDArray[Any], block_info: Any = None) -> FloatImage:
        key = tuple(map(tuple, block_info[0]["array-location"]))
        with self._lock:
            found = self._kept.get(key)
        if found is None:
            found = self._computed(block)
            self.keep(key, found)
        return found

    def keep(self, key: Any, result: FloatImage) -> None:
        """Keep the result for the chunk at this location."""
        with self._lock:
            self._kept[key] = result
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    def _computed(self, block: NDArray[Any]) -> FloatImage:
        """Denoise images in memory; missing pixels stay missing, for nobody can be asked here."""
        bad = None
        if block.dtype.kind == "f" and not (finite := np.isfinite(block)).all():
            bad = ~finite
            block = np.where(bad, block[finite].mean() if finite.any() else 0.0, block)
        out = denoise(self._solution, Images(self._name, block), self._report)
        if bad is not None:
            out[bad] = np.nan
        return out


def as_lazy(solution: Solution, images: Images, report: Report = no_report) -> tuple[Any, _Blocks]:
    """Return the denoised images as a dask array, and what computes its chunks."""
    da: Any = import_module("dask.array")  # without types
    blocks = _Blocks(solution, images.name, report)
    height, width = images.image_shape
    left = max(1, _CHUNK // (height * width)) if isinstance(solution.samples, Frames) else 1
    chunks: list[int] = []
    for n in reversed(images.shape[:-2]):
        chunks.insert(0, min(n, left))
        left = max(1, left // n)
    source = as_dask(images.data, (*chunks, height, width))
    name = f"denoised-{uuid4().hex}"
    meta = np.empty((0,) * source.ndim, np.float32)
    return da.map_blocks(blocks, source, name=name, dtype=np.float32, meta=meta), blocks


def as_dask(data: Any, chunks: tuple[int, ...]) -> Any:
    """Return an array as a dask array of these chunks; nothing is read."""
    da: Any = import_module("dask.array")  # without types
    if isinstance(data, da.Array):
        return data.rechunk(chunks)
    return da.from_array(data, chunks=chunks, name=False)


def prepare(
    lazy: Any,
    blocks: _Blocks,
    solution: Solution,
    images: Images,
    place: tuple[int, ...],
    report: Report,
) -> FloatImage:
    """Compute the image at a place, so that the window finds it ready."""
    if isinstance(solution.samples, Patches):
        plane = Images(images.name, np.asarray(images.data[place]))
        if plane.data.dtype.kind != "f" or np.isfinite(plane.data).all():
            found = denoise(solution, plane, report)
            key = tuple((i, i + 1) for i in place) + tuple((0, n) for n in images.image_shape)
            blocks.keep(key, found[(None,) * len(place)])
    return np.asarray(lazy[place])


def removed(images: Images, denoised: Any) -> Any:
    """Return what was taken away, as a lazy array."""
    leading = (1,) * (len(images.shape) - 2)
    chunks = getattr(denoised, "chunks", (*leading, *images.image_shape))
    original = as_dask(images.data, chunks)
    return original.astype(np.float32) - as_dask(denoised, original.chunks)


def display_range(planes: NDArray[np.floating]) -> tuple[float, float]:
    """Return percentiles of some of the pixels, between which an image is shown."""
    finite = planes[np.isfinite(planes)]
    if not finite.size:
        return 0.0, 1.0
    low, high = np.percentile(finite[:: max(1, finite.size // 2**18)], [1.0, 99.8])
    return float(low), float(high) if high > low else float(low) + 1.0


def is_lazy(images: Images, method: str, available: int) -> bool:
    """Return whether a result is computed on view: projections, and what memory would not hold."""
    return method != "automatic" or 4 * math.prod(images.shape) > available // 4
