"""Results written to files block by block, with their scale: OME-TIFF and OME-Zarr."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

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


def export(data: Any, path: Path, calibration: Calibration, doing: str = "Writing") -> Steps[Path]:
    """Write an array, in memory or lazy; the file appears when it is complete.

    Raises
    ------
    InputError
        If the name has no known ending, or the array too many axes.
    """
    name = path.name.lower()
    if not name.endswith(FORMATS):
        raise InputError(
            f"{path.name!r} has an ending that is not known. Use .ome.tif for TIFF or .ome.zarr."
        )
    axes = calibration.axes()
    blocks = list(_blocks(tuple(map(int, data.shape))))
    unfinished = path.with_name(f".{path.name}.unfinished-{os.getpid()}")
    open_file = _open_zarr if name.endswith("zarr") else _open_tiff
    try:
        put, close = open_file(unfinished, data, axes, calibration)
        yield Progress(0, len(blocks), doing)
        for done, place in enumerate(blocks, start=1):
            put(place, np.asarray(data[place]))
            yield Progress(done, len(blocks), doing)
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


Place = tuple[int | slice, ...]
Put = Callable[[Place, NDArray[Any]], None]


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
    path: Path, data: Any, axes: str, calibration: Calibration
) -> tuple[Put, Callable[[], None]]:
    import tifffile

    metadata: dict[str, Any] = {"axes": axes}
    for axis, scale, unit in zip(axes, calibration.scale, calibration.units, strict=True):
        if axis in "ZYX" and unit != "pixel":
            metadata[f"PhysicalSize{axis}"] = scale
            metadata[f"PhysicalSize{axis}Unit"] = _symbol(unit)
        elif axis == "T" and unit != "pixel":
            metadata |= {"TimeIncrement": scale, "TimeIncrementUnit": _symbol(unit)}
    dtype, shape = np.dtype(data.dtype), tuple(map(int, data.shape))
    big = math.prod(shape) * dtype.itemsize > 2**32 - 2**25
    file = tifffile.memmap(path, shape=shape, dtype=dtype, ome=True, bigtiff=big, metadata=metadata)

    def put(place: Place, plane: NDArray[Any]) -> None:
        file[place] = plane

    return put, file.flush


def _open_zarr(
    path: Path, data: Any, axes: str, calibration: Calibration
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
    shape = tuple(map(int, data.shape))
    together = (_together(shape),) if len(shape) > 2 else ()
    array = group.create_array(
        "0",
        shape=shape,
        dtype=np.dtype(data.dtype),
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


def read_images(path: Path) -> tuple[Any, Calibration]:
    """Images of a TIFF file or an OME-Zarr folder, lazily, and what is known of their scale.

    Raises
    ------
    InputError
        If there are none, or they have colours.
    """
    if path.name.lower().endswith("zarr"):
        return _read_zarr(path)
    import tifffile

    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        if "S" in series.axes:
            raise InputError(f"{path.name} has RGB colours: convert it to intensities first.")
        data = series.asarray()
        labels = tuple(axis.lower() for axis in series.axes)
        scale, units = _tiff_scale(file, series.axes)
    return data, Calibration(scale, units, labels)


def _tiff_scale(file: Any, axes: str) -> tuple[tuple[float, ...], tuple[str, ...]]:
    from xml.etree import ElementTree

    sizes: dict[str, tuple[float, str]] = {}
    if file.is_ome:
        names = {"µm": "micrometer", "nm": "nanometer", "mm": "millimeter"}
        for element in ElementTree.fromstring(file.ome_metadata).iter():
            if element.tag.endswith("}Pixels"):
                for axis in "ZYX":
                    if size := element.get(f"PhysicalSize{axis}"):
                        unit = element.get(f"PhysicalSize{axis}Unit", "µm")
                        sizes[axis] = float(size), names.get(unit, unit)
                break
    elif file.is_imagej:
        unit = file.imagej_metadata.get("unit", "")
        unit = "micrometer" if unit in ("um", "micron", "\\u00B5m") else unit
        tags = file.pages[0].tags
        for axis, tag in (("X", "XResolution"), ("Y", "YResolution")):
            if unit and tag in tags and tags[tag].value[0]:
                pixels, length = tags[tag].value
                sizes[axis] = length / pixels, unit
        if unit and "spacing" in file.imagej_metadata:
            sizes["Z"] = float(file.imagej_metadata["spacing"]), unit
    found = [sizes.get(axis, (1.0, "pixel")) for axis in axes]
    return tuple(size for size, _ in found), tuple(unit for _, unit in found)


def _read_zarr(path: Path) -> tuple[Any, Calibration]:
    da: Any = import_module("dask.array")  # without types

    data = da.from_zarr(str(path / "0") if (path / "0").is_dir() else str(path))
    calibration = Calibration.unknown(data.ndim)
    attributes = path / ".zattrs"
    if attributes.exists():
        [image, *_] = json.loads(attributes.read_text(encoding="utf-8"))["multiscales"]
        scale = image["datasets"][0]["coordinateTransformations"][0]["scale"]
        axes = image["axes"]
        calibration = Calibration(
            tuple(map(float, scale)),
            tuple(axis.get("unit", "pixel") for axis in axes),
            tuple(axis["name"] for axis in axes),
        )
    return data, calibration
