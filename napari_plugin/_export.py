"""Results written to files block by block, with their scale: OME-TIFF and OME-Zarr."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from napari_plugin._settings import InputError, Progress, Steps

FORMATS = (".ome.tif", ".ome.tiff", ".tif", ".tiff", ".ome.zarr", ".zarr")
_PIXELS = 2**20  # that are written together
_LEADING = {0: "", 1: "T", 2: "TZ", 3: "TCZ"}
_KINDS = {"T": "time", "C": "channel", "Z": "space", "Y": "space", "X": "space"}


@dataclass(frozen=True)
class Calibration:
    """What a pixel measures: one scale, unit and label for every axis.

    Parameters
    ----------
    scale : tuple of float
    units : tuple of str
        Full names, "micrometer", or "pixel" where nothing is known.
    labels : tuple of str
        Names of the axes, of which t, c, z are understood.
    """

    scale: tuple[float, ...]
    units: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def unknown(cls, ndim: int) -> Calibration:
        """Of images of which nothing is known."""
        return cls((1.0,) * ndim, ("pixel",) * ndim, ("",) * ndim)

    def axes(self) -> str:
        """A letter for each axis, in the order that the formats want."""
        n = len(self.scale) - 2
        if n not in _LEADING:
            raise InputError(
                f"Images of {n + 2} axes cannot be written: the formats know time, channels, "
                "depth, height and width. Export a part of the stack."
            )
        named = "".join(label[:1].upper() for label in self.labels[:-2])
        known = len(set(named)) == n and named == "".join(sorted(named, key="TCZ".find))
        return (named if known and set(named) <= set("TCZ") else _LEADING[n]) + "YX"


Place: TypeAlias = tuple[int | slice, ...]
Put: TypeAlias = Callable[[Place, NDArray[Any]], None]


def export(data: Any, path: Path, calibration: Calibration, doing: str = "Writing") -> Steps[Path]:
    """Write an array, in memory or lazy; the file appears when it is complete.

    Raises
    ------
    InputError
        If the name has no known ending, or the array too many axes.
    """

    def block(place: Place) -> Steps[NDArray[Any]]:
        yield from ()
        return np.asarray(data[place])

    return (yield from write(block, data.shape, data.dtype, path, calibration, doing))


def write(
    block: Callable[[Place], Steps[NDArray[Any]]],
    shape: tuple[int, ...],
    dtype: Any,
    path: Path,
    calibration: Calibration,
    doing: str = "Writing",
) -> Steps[Path]:
    """Write what is computed block by block, of which no more than one is held.

    Parameters
    ----------
    block : callable
        From a place of the array to the steps that compute it.
    shape, dtype
        Of the whole array.
    path, calibration, doing
        As for `export`.
    """
    name = path.name.lower()
    if not name.endswith(FORMATS):
        raise InputError(
            f"{path.name!r} has an ending that is not known. Use .ome.tif for TIFF or .ome.zarr."
        )
    axes = calibration.axes()
    shape, dtype = tuple(map(int, shape)), np.dtype(dtype)
    blocks = list(_blocks(shape))
    unfinished = path.with_name(f".{path.name}.unfinished-{os.getpid()}")
    open_file = _open_zarr if name.endswith("zarr") else _open_tiff
    try:
        put, close = open_file(unfinished, shape, dtype, axes, calibration)
        try:
            yield Progress(0, len(blocks), doing)
            for done, place in enumerate(blocks, start=1):
                put(place, (yield from block(place)))
                yield Progress(done, len(blocks), doing)
        finally:
            close()
        if path.is_dir():
            shutil.rmtree(path)
        unfinished.replace(path)
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        else:
            unfinished.unlink(missing_ok=True)
    return path


def _together(shape: tuple[int, ...]) -> int:
    """How many images along the innermost of the leading axes are written together."""
    return max(1, min(_PIXELS // math.prod(shape[-2:]), shape[-3])) if len(shape) > 2 else 1


def _blocks(shape: tuple[int, ...]) -> Iterator[Place]:
    if len(shape) == 2:
        yield (slice(None),)
        return
    step = _together(shape)
    for outer in product(*map(range, shape[:-3])):
        for start in range(0, shape[-3], step):
            yield (*outer, slice(start, min(start + step, shape[-3])))


def _open_tiff(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], axes: str, calibration: Calibration
) -> tuple[Put, Callable[[], None]]:
    import tifffile

    metadata: dict[str, Any] = {"axes": axes}
    for axis, scale, unit in zip(axes, calibration.scale, calibration.units, strict=True):
        if axis in "ZYX" and unit != "pixel":
            metadata[f"PhysicalSize{axis}"] = scale
            metadata[f"PhysicalSize{axis}Unit"] = _symbol(unit)
        elif axis == "T" and unit != "pixel":
            metadata |= {"TimeIncrement": scale, "TimeIncrementUnit": _symbol(unit)}
    big = math.prod(shape) * dtype.itemsize > 2**32 - 2**25
    made = tifffile.memmap(path, shape=shape, dtype=dtype, ome=True, bigtiff=big, metadata=metadata)
    dtype, first = made.dtype, made.offset
    del made  # what is written to a map stays in memory as long as there is room
    file = path.open("r+b")

    def put(place: Place, plane: NDArray[Any]) -> None:
        start = [each.start or 0 if isinstance(each, slice) else each for each in place]
        start += [0] * (len(shape) - len(start))
        file.seek(first + int(np.ravel_multi_index(start, shape)) * dtype.itemsize)
        file.write(np.ascontiguousarray(plane, dtype=dtype).data)

    return put, file.close


def _open_zarr(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], axes: str, calibration: Calibration
) -> tuple[Put, Callable[[], None]]:
    try:
        import zarr
    except ImportError as error:
        raise InputError(
            "OME-Zarr needs the package zarr, which this installation of napari lacks. Write a "
            "TIFF instead, or install napari with its optional packages."
        ) from error
    described: list[Any] = []
    for axis, unit in zip(axes, calibration.units, strict=True):
        entry = {"name": axis.lower(), "type": _KINDS[axis]}
        described.append(entry if unit == "pixel" or axis == "C" else entry | {"unit": unit})
    scale = {"type": "scale", "scale": list(map(float, calibration.scale))}
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    together = (_together(shape),) if len(shape) > 2 else ()
    array = group.create_array(
        "0",
        shape=shape,
        dtype=dtype,
        chunks=(*(1,) * (len(shape) - 3), *together, min(1024, shape[-2]), min(1024, shape[-1])),
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )
    multiscales: Any = [
        {
            "version": "0.4",
            "axes": described,
            "datasets": [{"path": "0", "coordinateTransformations": [scale]}],
        }
    ]
    group.attrs["multiscales"] = multiscales

    def put(place: Place, plane: NDArray[Any]) -> None:
        array[place] = plane

    return put, lambda: None


def _symbol(unit: str) -> str:
    known = {"micrometer": "µm", "micron": "µm", "nanometer": "nm", "millimeter": "mm"}
    return known.get(unit, {"second": "s", "minute": "min", "millisecond": "ms"}.get(unit, unit))
