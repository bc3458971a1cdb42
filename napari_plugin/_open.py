"""Images of files, read where they are sliced, and what is known of their scale."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from napari_plugin._export import UNITS, Calibration
from napari_plugin._settings import InputError


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Calibration]]:
    """Open the images of a TIFF file or an OME-Zarr folder, with their calibration.

    Raises
    ------
    InputError
        If there are none, or they have colours or channels.
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
        except ImportError:  # which tifffile needs to read parts of a file
            yield series.asarray(), Calibration(scale, units, labels)
            return
        store = series.aszarr(level=0)
        try:
            yield zarr.open_array(store, mode="r"), Calibration(scale, units, labels)
        finally:
            store.close()


def _check_channels(path: Path, labels: tuple[str, ...], shape: tuple[int, ...]) -> None:
    n = dict(zip(labels, shape, strict=True)).get("c", 1)
    if n > 1:
        raise InputError(
            f"{path.name} holds {n} channels, and each has a background of its own: save each "
            "channel in a file of its own."
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
        tags = file.pages[0].tags
        for axis, tag in (("X", "XResolution"), ("Y", "YResolution")):
            if tag in tags and tags[tag].value[0]:
                pixels, length = tags[tag].value
                sizes[axis] = length / pixels, unit
        if "spacing" in file.imagej_metadata:
            sizes["Z"] = float(file.imagej_metadata["spacing"]), unit
    return sizes


def _read_zarr(path: Path) -> tuple[Any, Calibration]:
    da: Any = import_module("dask.array")  # without types

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
