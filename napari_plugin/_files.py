"""Read and write images with their scale, as TIFF and OME-Zarr files, block by block."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from napari_plugin._pair import as_dask, chunks_of
from napari_plugin._settings import InputError, Report, no_report

FORMATS = (".ome.tif", ".ome.tiff", ".tif", ".tiff", ".ome.zarr", ".zarr")
UNITS = {"micrometer": "µm", "nanometer": "nm", "millimeter": "mm", "second": "s", "minute": "min"}
_PIXELS = 2**20  # number of pixels that are written together
# For each number of leading axes, their letters in the file if the layer does not name its axes.
_LEADING = {0: "", 1: "T", 2: "TZ", 3: "TCZ"}
# Types of axes in the metadata of OME-Zarr.
_KINDS = {"T": "time", "C": "channel", "Z": "space", "Y": "space", "X": "space"}


@dataclass(frozen=True)
class Calibration:
    """Size of a pixel, with a scale, a unit and a label for each axis.

    Parameters
    ----------
    scale : tuple of float
    units : tuple of str
        Full names such as "micrometer", or "pixel" if the unit is not known.
    labels : tuple of str
        Names of the axes. Leading axes whose names begin with t, c and z, in this order and each at
        most once, are written as time, channel and depth. Other names are not used.
    """

    scale: tuple[float, ...]
    units: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def unknown(cls, ndim: int) -> Calibration:
        """Return a calibration in pixels, for images whose calibration is not known."""
        return cls((1.0,) * ndim, ("pixel",) * ndim, ("",) * ndim)

    def axes(self) -> str:
        """Return a letter for each axis, in the order that the formats require."""
        n = len(self.scale) - 2
        if n not in _LEADING:
            raise InputError(
                f"Images of {n + 2} axes cannot be written: the formats have axes for time, "
                "channels, depth, height and width only. Export a part of the stack."
            )
        named = "".join(label[:1].upper() for label in self.labels[:-2])
        known = len(set(named)) == n and named == "".join(sorted(named, key="TCZ".find))
        return (named if known and set(named) <= set("TCZ") else _LEADING[n]) + "YX"


def export(data: Any, path: Path, calibration: Calibration, report: Report = no_report) -> Path:
    """Write an in-memory or lazy array to a file, and return the file's path.

    The file gets its final name only when it is complete.

    Raises
    ------
    InputError
        If the name has no known ending, or the array has too many axes.
    """
    if not path.name.lower().endswith(FORMATS):
        raise InputError(f"{path.name!r} has an unknown ending. Use .ome.tif or .ome.zarr.")
    axes = calibration.axes()
    if isinstance(data, np.ndarray):
        data = as_dask(data, chunks_of(data.shape, _PIXELS))
    write = _write_zarr if path.name.lower().endswith("zarr") else _write_tiff
    with TemporaryDirectory(prefix=f"{path.name}.unfinished-", dir=path.parent) as folder:
        unfinished = Path(folder, path.name)
        write(unfinished, data, axes, calibration, report)
        if path.is_dir():
            shutil.rmtree(path)
        unfinished.replace(path)
    return path


def _blocks(data: Any, report: Report) -> Iterator[tuple[tuple[slice, ...], NDArray[Any]]]:
    """Yield the slices and the values of each chunk of a dask array, in order."""
    da: Any = import_module("dask.array")  # dask has no type hints
    places = da.core.slices_from_chunks(data.chunks)
    for done, place in enumerate(places):
        report(done, len(places), "Writing")
        yield place, np.asarray(data[place])


def _write_tiff(path: Path, data: Any, axes: str, calibration: Calibration, report: Report) -> None:
    import tifffile

    metadata: dict[str, Any] = {"axes": axes}
    for axis, scale, unit in zip(axes, calibration.scale, calibration.units, strict=True):
        name = "TimeIncrement" if axis == "T" else f"PhysicalSize{axis}"
        if axis != "C" and unit != "pixel":
            metadata |= {name: scale, f"{name}Unit": UNITS.get(unit, unit)}
    tifffile.imwrite(
        path,
        (
            plane
            for _, block in _blocks(data, report)
            for plane in block.reshape(-1, *data.shape[-2:])
        ),
        shape=data.shape,
        dtype=data.dtype,
        ome=True,
        bigtiff=data.nbytes > 2**32 - 2**25,
        photometric="minisblack",
        metadata=metadata,
    )


def _write_zarr(path: Path, data: Any, axes: str, calibration: Calibration, report: Report) -> None:
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
    scale: Any = {"type": "scale", "scale": list(map(float, calibration.scale))}
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    array = group.create_array(
        "0",
        shape=data.shape,
        dtype=data.dtype,
        chunks=(*data.chunksize[:-2], *(min(1024, n) for n in data.shape[-2:])),
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )
    dataset: Any = {"path": "0", "coordinateTransformations": [scale]}
    group.attrs["multiscales"] = [{"version": "0.4", "axes": described, "datasets": [dataset]}]
    for place, block in _blocks(data, report):
        array[place] = block


@contextmanager
def open_images(path: Path) -> Iterator[tuple[Any, Calibration]]:
    """Open the images of a TIFF file or an OME-Zarr folder, with their calibration.

    Raises
    ------
    InputError
        If the images have RGB colours or several channels.
    """
    if path.name.lower().endswith("zarr"):
        data, calibration = _read_zarr(path)
        _check_channels(path, calibration.labels, data.shape)
        yield data, calibration
        return
    import tifffile

    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        if series.axes.endswith("S") or series.keyframe.photometric == tifffile.PHOTOMETRIC.RGB:
            raise InputError(f"{path.name} has RGB colours: convert it to intensities first.")
        labels = tuple(axis.lower() for axis in series.axes)
        _check_channels(path, labels, series.shape)
        sizes = _tiff_sizes(file)
        scale, units = zip(*(sizes.get(axis, (1.0, "pixel")) for axis in series.axes), strict=True)
        try:
            import zarr
        except ImportError:  # without zarr, tifffile can only read whole files
            yield series.asarray(), Calibration(scale, units, labels)
            return
        with closing(series.aszarr(level=0)) as store:
            yield zarr.open_array(store, mode="r"), Calibration(scale, units, labels)


def _check_channels(path: Path, labels: tuple[str, ...], shape: tuple[int, ...]) -> None:
    n = dict(zip(labels, shape, strict=True)).get("c", 1)
    if n > 1:
        raise InputError(
            f"{path.name} holds {n} channels, but files with one channel are expected, because "
            "each channel has its own background. Save each channel in a separate file."
        )


def _tiff_sizes(file: Any) -> dict[str, tuple[float, str]]:
    """Return the size of a pixel along each axis, and its unit."""
    sizes: dict[str, tuple[float, str]] = {}
    if file.is_ome:
        import tifffile

        names = {symbol: name for name, symbol in UNITS.items()}
        pixels = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]
        pixels = (pixels[0] if isinstance(pixels, list) else pixels)["Pixels"]
        for axis in "ZYX":
            if size := pixels.get(f"PhysicalSize{axis}"):
                unit = pixels.get(f"PhysicalSize{axis}Unit", "µm")
                sizes[axis] = float(size), names.get(unit, unit)
    elif file.is_imagej and (unit := file.imagej_metadata.get("unit", "")):
        unit = "micrometer" if unit in ("um", "micron", "\\u00B5m") else unit
        for axis, n_per_unit in zip("XY", file.pages[0].resolution, strict=True):
            sizes[axis] = 1 / (n_per_unit or 1.0), unit
        if "spacing" in file.imagej_metadata:
            sizes["Z"] = float(file.imagej_metadata["spacing"]), unit
    return sizes


def _read_zarr(path: Path) -> tuple[Any, Calibration]:
    da: Any = import_module("dask.array")  # dask has no type hints

    data = da.from_zarr(str(path / "0") if (path / "0").is_dir() else str(path))
    attributes = path / ".zattrs"
    if not attributes.exists():
        return data, Calibration.unknown(data.ndim)
    [image, *_] = json.loads(attributes.read_text(encoding="utf-8"))["multiscales"]
    axes = image["axes"]
    return data, Calibration(
        tuple(map(float, image["datasets"][0]["coordinateTransformations"][0]["scale"])),
        tuple(axis.get("unit", "pixel") for axis in axes),
        tuple(axis["name"] for axis in axes),
    )
