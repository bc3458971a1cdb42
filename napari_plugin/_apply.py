"""A model applied to images: block by block in memory, or plane by plane when it is looked at."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise, product
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import Frames, Patches
from napari_plugin._pair import Images
from napari_plugin._reading import ELEMENTS
from napari_plugin._settings import InputError, Progress, Samples, Steps, is_frames
from napari_plugin._solve import Solution, denoiser

FloatImage = NDArray[np.float32]
Function = Callable[[NDArray[Any]], NDArray[np.floating]]

_CHUNK = 2**17  # pixels of whole frames that are computed together
_KEPT = 4  # planes


def denoise(solution: Solution, images: Images, doing: str = "Removing") -> Steps[FloatImage]:
    """All images freed of their background, in memory; may be dropped between blocks.

    Raises
    ------
    InputError
        If pixels are missing.
    """
    return (yield from apply(denoiser(solution), solution.samples, images, doing))


def apply(function: Function, samples: Samples, images: Images, doing: str) -> Steps[FloatImage]:
    """A function of samples, its results put back in their place."""
    stack = images.data if len(images.shape) > 2 or not is_frames(samples) else images.data[None]
    rows = samples.rows(stack, name=images.name, elements=ELEMENTS)
    out = np.zeros(images.shape, dtype=np.float32)
    total = rows.shape[0]
    yield Progress(0, total, doing)
    for start, stop in pairwise(rows.edges()):
        block = rows.read(start, stop, check=False)
        if block.dtype.kind == "f" and not np.isfinite(block).all():
            raise InputError(
                f"{images.name!r} has empty (NaN) or infinite pixels. Fill them with the value of "
                "empty background, or crop them away."
            )
        results = np.asarray(function(block), dtype=np.float32)
        rows.put_back(out.reshape(stack.shape), start, stop, results)
        yield Progress(stop, total, doing)
    return out


def signal_strength(solution: Solution, images: Images) -> Steps[FloatImage]:
    """How strong the signal is around each pixel, by patches."""
    assert isinstance(solution.samples, Patches)
    side = solution.samples.sides[-1]
    estimator = solution.estimator
    if solution.settings.method == "automatic":

        def strength(rows: NDArray[Any]) -> NDArray[np.floating]:
            return np.asarray(estimator.strengths(rows)[:, :1])
    else:

        def strength(rows: NDArray[Any]) -> NDArray[np.floating]:
            scores = (rows - estimator.mean_) @ estimator.components_.T
            return np.asarray((scores**2).mean(axis=1, keepdims=True))

    coarse = Patches(side, max(1, side // 2))
    return (yield from apply(strength, coarse, images, "Mapping the signal"))


class Denoised:
    """Images freed of their background when they are sliced: an array that is computed on view.

    Parameters
    ----------
    solution : Solution
        What is applied.
    images : Images
        What it is applied to.

    Attributes
    ----------
    shape, dtype, ndim
        As of an array of float32.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, solution: Solution, images: Images) -> None:
        self.solution, self.images = solution, images
        self.shape, self.ndim = images.shape, len(images.shape)
        self._function = denoiser(solution)
        self._kept: OrderedDict[tuple[int, ...], FloatImage] = OrderedDict()
        self._lock = Lock()  # dask slices in several threads

    def plane(self, index: tuple[int, ...]) -> FloatImage:
        """The image at an index of the leading axes; the last few are kept."""
        with self._lock:
            found = self._kept.get(index)
        if found is None:
            found = self._computed(np.asarray(self.images.data[index])[None])[0]
            self._keep(index, found)
        return found

    def prepared(self, index: tuple[int, ...]) -> Steps[FloatImage]:
        """The same in steps, which may be dropped: a large image takes its time."""
        plane = np.asarray(self.images.data[index])
        if plane.dtype.kind == "f" and not np.isfinite(plane).all():
            return self.plane(index)
        images = Images(self.images.name, plane)
        found = yield from apply(self._function, self.solution.samples, images, "Removing")
        self._keep(index, found)
        return found

    def _keep(self, index: tuple[int, ...], plane: FloatImage) -> None:
        with self._lock:
            self._kept[index] = plane
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    def __getitem__(self, index: Any) -> FloatImage:
        """The images at slices or numbers, one for each of the first axes."""
        index = index if isinstance(index, tuple) else (index,)
        if Ellipsis in index:
            at = index.index(Ellipsis)
            missing = self.ndim - len(index) + 1
            index = (*index[:at], *(slice(None),) * missing, *index[at + 1 :])
        index = (*index, *(slice(None),) * (self.ndim - len(index)))
        *leading, rows, columns = index
        chosen = [np.arange(n)[where] for where, n in zip(leading, self.shape[:-2], strict=True)]
        grid = tuple(map(np.atleast_1d, chosen))
        planes = self._planes(grid)[..., rows, columns]
        lengths = tuple(map(len, grid))
        kept = tuple(n for n, each in zip(lengths, chosen, strict=True) if np.ndim(each))
        return np.asarray(planes.reshape(*kept, *planes.shape[1:]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = self[...]
        return found if dtype is None else found.astype(dtype)

    def _planes(self, grid: tuple[NDArray[np.intp], ...]) -> FloatImage:
        places = [tuple(map(int, place)) for place in product(*grid)]
        image = self.shape[-2:]
        if not is_frames(self.solution.samples) or len(places) == 1:
            return np.stack([self.plane(place) for place in places])
        out = np.empty((len(places), *image), dtype=np.float32)
        step = max(1, ELEMENTS // math.prod(image))
        for start in range(0, len(places), step):  # frames together: one product
            part = places[start : start + step]
            first = part[0][:-1]
            same = all(place[:-1] == first for place in part)
            if same and [p[-1] for p in part] == list(range(part[0][-1], part[-1][-1] + 1)):
                frames = np.asarray(
                    self.images.data[(*first, slice(part[0][-1], part[-1][-1] + 1))]
                )
            else:
                frames = np.stack([np.asarray(self.images.data[place]) for place in part])
            out[start : start + step] = self._computed(frames)
        return out

    def _computed(self, planes: NDArray[Any]) -> FloatImage:
        """Of images in memory; missing pixels stay missing, for here nobody can be told."""
        bad = None
        if planes.dtype.kind == "f" and not (finite := np.isfinite(planes)).all():
            bad = ~finite
            planes = np.where(bad, planes[finite].mean() if finite.any() else 0.0, planes)
        samples: Samples = self.solution.samples
        if isinstance(samples, Frames):
            rows = planes.reshape(len(planes), -1)
            out = np.asarray(self._function(rows), dtype=np.float32).reshape(planes.shape)
        else:
            out = np.stack([samples.map(self._function, plane) for plane in planes])
            out = out.astype(np.float32, copy=False)
        if bad is not None:
            out[bad] = np.nan
        return out


def as_layer_data(denoised: Denoised) -> Any:
    """What napari and other plugins take for a lazy array: a dask array over it.

    Its chunks are short work, for napari's window reads all of the chunk that an image is in.
    """
    da: Any = import_module("dask.array")  # without types

    *leading, height, width = denoised.shape
    frames = is_frames(denoised.solution.samples)
    chunks, left = [], max(1, _CHUNK // (height * width)) if frames else 1
    for n in reversed(leading):
        step = min(n, left)
        chunks.append(step)
        left = max(1, left // max(1, n))
    whole = (*reversed(chunks), height, width)
    return da.from_array(denoised, chunks=whole, name=False, meta=np.empty((), np.float32))


def removed(images: Images, denoised: Any) -> Any:
    """What was taken away, as a lazy array."""
    da: Any = import_module("dask.array")  # without types

    original = images.data
    if not isinstance(original, da.Array):
        chunks = getattr(denoised, "chunks", None) or as_chunks(images.shape)
        original = da.from_array(original, chunks=chunks, name=False)
    if not isinstance(denoised, da.Array):
        denoised = da.from_array(denoised, chunks=original.chunks, name=False)
    return original.astype(np.float32) - denoised


def as_chunks(shape: tuple[int, ...]) -> tuple[int, ...]:
    """An image to a chunk."""
    return (*(1,) * (len(shape) - 2), *shape[-2:])


def display_range(planes: NDArray[np.floating]) -> tuple[float, float]:
    """Between percentiles of a part of the pixels."""
    finite = planes[np.isfinite(planes)]
    if not finite.size:
        return 0.0, 1.0
    low, high = np.percentile(finite[:: max(1, finite.size // 2**18)], [1.0, 99.8])
    return float(low), float(high) if high > low else float(low) + 1.0
