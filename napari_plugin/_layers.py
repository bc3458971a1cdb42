"""Layers to images and regions, and results to layers: what napari knows beyond the pixels."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from napari_plugin._apply import Denoised, as_layer_data, display_range, removed
from napari_plugin._export import Calibration
from napari_plugin._model import Outcome
from napari_plugin._pair import BoolArray, Images
from napari_plugin._settings import InputError, is_frames, parameters

if TYPE_CHECKING:
    from napari.layers import Image, Labels, Shapes

LayerData = tuple[Any, dict[str, Any]]

_SPATIAL = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
_METADATA_KEY = "contrast-suite"
_CHANNELS = ("c", "ch", "channel", "channels", "colour", "color", "wavelength")


@dataclass(frozen=True, eq=False)
class Place:
    """Where and how results are shown: as the layer was when the run started.

    Layers may be renamed, moved or removed while the run goes on.
    """

    spatial: dict[str, Any]
    map_spatial: dict[str, Any]
    """The same for maps of components, which get a leading axis of their own."""
    colormap: Any


def place_of(layer: Image) -> Place:
    """Where a layer lies."""
    spatial = {key: getattr(layer, key) for key in _SPATIAL}
    maps = _map_spatial(layer) if layer.ndim > 2 else spatial
    return Place(spatial, maps, layer.colormap)


def pixels_of(layer: Image | Labels) -> Any:
    """What a layer holds, the finest of several resolutions."""
    return layer.data[0] if layer.multiscale else layer.data


def images_of(layer: Image | None, what: str) -> Images:
    """The images of a layer, without reading pixels.

    Raises
    ------
    InputError
        If there is no layer, or it has colours or channels.
    """
    if layer is None:
        raise InputError(f"Choose a layer {what}.")
    if layer.rgb:
        raise InputError(
            f"{layer.name!r} has RGB colours. Split it into channels (right-click the layer: "
            "Split RGB), and choose one of them."
        )
    data = pixels_of(layer)
    if data.ndim < 2:
        raise InputError(f"{layer.name!r} holds no image. Choose a layer with one.")
    return Images(layer.name, data)


def is_unnamed(layer: Image) -> bool:
    """Whether the leading axes of a layer have no names of their own."""
    if layer.ndim < 3 or layer.rgb:
        return False
    return all(label.lstrip("-").isdigit() for label in map(str, layer.axis_labels))


def check_channels(layer: Image, axis: int | None) -> None:
    """Refuse channels, of which each has a background of its own.

    Raises
    ------
    InputError
        With the way to split them.
    """
    names = [str(label).lower() for label in layer.axis_labels]
    if axis is None:
        found = [i for i, name in enumerate(names) if name in _CHANNELS]
        axis = found[0] if found else None
    if axis is not None:
        raise InputError(
            f"{layer.name!r} holds channels, and each has a background of its own. Split it "
            f"(right-click the layer: Split Stack, along axis {axis}), and run each channel."
        )


def calibration_of(layer: Image) -> Calibration:
    """What a pixel of a layer measures."""
    return Calibration(
        tuple(float(abs(scale)) for scale in layer.scale),
        tuple(str(unit) for unit in layer.units),
        tuple(str(label) for label in layer.axis_labels),
    )


def region_of(layer: Image, region: Shapes | Labels) -> BoolArray:
    """Where a drawn or painted layer marks the pixels of an image.

    Returns
    -------
    ndarray of bool
        Of height and width; or of the stack's shape, for labels of that shape.

    Raises
    ------
    InputError
        If nothing is marked within the image.
    """
    shape = tuple(map(int, pixels_of(layer).shape))
    mask = _painted(layer, region, shape) if hasattr(region, "brush_size") else None
    if mask is None:
        mask = _drawn(layer, region, shape[-2:])
    if not mask.any():
        raise InputError(
            f"Nothing is marked in {region.name!r} within {layer.name!r}. Draw a rectangle over an "
            "area that shows background and no signal."
        )
    return mask


def _painted(layer: Image, labels: Any, shape: tuple[int, ...]) -> BoolArray:
    data = np.asarray(pixels_of(labels)) > 0
    same = np.allclose(layer.scale[-2:], labels.scale[-2:]) and np.allclose(
        layer.translate[-2:], labels.translate[-2:]
    )
    if data.shape == shape and same:
        return data
    if data.ndim > 2:  # marked at any time or depth
        data = np.asarray(data.any(axis=tuple(range(data.ndim - 2))))
    if data.shape == shape[-2:] and same:
        return data
    index = _other_coordinates(layer, labels, shape[-2:])
    rows, columns = (np.rint(each).astype(int) for each in index)
    inside = (rows >= 0) & (rows < data.shape[0]) & (columns >= 0) & (columns < data.shape[1])
    mask = np.zeros(shape[-2:], dtype=bool)
    mask[inside] = data[rows[inside], columns[inside]]
    return mask


def _drawn(layer: Image, shapes: Any, shape: tuple[int, ...]) -> BoolArray:
    draw: Any = import_module("skimage.draw")  # without types

    mask = np.zeros(shape, dtype=bool)
    for vertices, kind in zip(shapes.data, shapes.shape_type, strict=True):
        if kind in ("line", "path"):
            continue
        corners = np.asarray(vertices)[:, -2:]
        if kind == "ellipse":
            centre, half = corners.mean(axis=0), np.ptp(corners, axis=0) / 2
            turn = np.linspace(0, 2 * np.pi, 60)[:, None]
            corners = centre + half * np.hstack([np.sin(turn), np.cos(turn)])
        world = _to_world(shapes, corners)
        mask |= draw.polygon2mask(shape, _from_world(layer, world))
    return mask


def _plane(layer: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The last two axes' map to the world: matrix (2, 2) and shift (2,)."""
    n = layer.ndim
    origin = np.zeros((1, n))
    corners = np.repeat(origin, 3, axis=0)
    corners[1, -2], corners[2, -1] = 1, 1
    world = np.array([layer.data_to_world(corner) for corner in corners])[:, -2:]
    return (world[1:] - world[0]).T, world[0]


def _to_world(layer: Any, points: NDArray[Any]) -> NDArray[np.float64]:
    matrix, shift = _plane(layer)
    return np.asarray(points @ matrix.T + shift)


def _from_world(layer: Any, points: NDArray[Any]) -> NDArray[np.float64]:
    matrix, shift = _plane(layer)
    return np.asarray(np.linalg.solve(matrix, (points - shift).T).T, dtype=np.float64)


def _other_coordinates(layer: Any, other: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Where the pixels of one layer lie in another, (2, height, width)."""
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 2)
    return _from_world(other, _to_world(layer, grid)).T.reshape(2, *shape)


def result_layers(outcome: Outcome, place: Place) -> dict[str, LayerData]:
    """The new layers by kind, in the order to add them: the denoised images last and so on top.

    Maps of components are one layer, (k, 1, H, W) for images (T, H, W). As a stack (k, H, W) they
    would share the frames' slider, component 3 showing at frame 3; as k layers they would bury the
    others in the list. So components get a slider of their own, and each map shows at every frame.
    """
    task, images = outcome.task, outcome.task.pair.foreground
    made = parameters(outcome.solution.settings, outcome.solution.samples)
    made |= {"foreground": images.name, "background": _background_name(outcome)}
    if outcome.solution.automatic is not None:
        made["strength"] = float(outcome.solution.estimator.strength_)
    layers: dict[str, LayerData] = {}

    def put(kind: str, data: Any, limits: tuple[float, float], **options: Any) -> None:
        keywords: dict[str, Any] = {"name": f"{images.name} {kind}", "contrast_limits": limits}
        keywords |= {"metadata": {_METADATA_KEY: made}, "multiscale": False, "rgb": False}
        layers[kind] = data, keywords | place.spatial | options

    if (maps := outcome.maps) is not None:
        options: dict[str, Any] = {"colormap": "magma", "visible": False}
        limits = 0.0, 1.0
        if is_frames(task.samples):
            k, *frame = maps.shape
            maps = maps.reshape(k, *[1] * (len(images.shape) - 2), *frame)
            options |= place.map_spatial
        else:
            limits = (
                0.0,
                float(np.percentile(maps.flat[:: max(1, maps.size // 2**16)], 99.5)) or 1.0,
            )
        put("weights", maps, limits, **options)
    data = shown_data(outcome.denoised)
    put("removed", removed(images, data), removed_range(images, outcome), visible=False)
    put("denoised", data, outcome.shown, colormap=place.colormap)
    return layers


def look_at(layers: dict[str, LayerData], place: tuple[int, ...]) -> None:
    """Read what will be on screen as the window will read it, but in the thread that calls.

    The planes are kept; and the very first reading loads dask's schedulers, which takes a second.
    """
    for data, keywords in layers.values():
        if keywords.get("visible", True):
            np.asarray(data[place])


def shown_data(denoised: Any) -> Any:
    """What a layer holds: an array, or a lazy one."""
    return as_layer_data(denoised) if isinstance(denoised, Denoised) else denoised


def removed_range(images: Images, outcome: Outcome) -> tuple[float, float]:
    """A range of intensities for what was removed, from the image that is looked at."""
    place = outcome.task.place
    plane = np.asarray(images.data[place], dtype=np.float32)
    return display_range(plane - outcome.denoised[place])


def _background_name(outcome: Outcome) -> str:
    pair = outcome.task.pair
    if outcome.task.saved is not None:
        return "saved model"
    if pair.background is not None:
        return pair.background.name
    return "frames" if pair.masks_frames else "area"


def preview_layer(layer: Image, crop: tuple[slice, ...], found: Any) -> LayerData:
    """A part of an image (height, width), as a layer over the place that it is a part of."""
    from napari.utils.transforms import Affine

    start = [each.start for each in crop]
    moved = Affine(
        scale=layer.scale, rotate=layer.rotate, shear=layer.shear, translate=layer.translate
    )(start)
    spatial = {key: getattr(layer, key) for key in _SPATIAL} | {"translate": tuple(moved)}
    data = found.reshape(*[1] * (layer.ndim - 2), *found.shape[-2:])
    return data, {"name": f"{layer.name} preview", "multiscale": False, "rgb": False, **spatial}


def _map_spatial(layer: Image) -> dict[str, Any]:
    """Place (k, 1, ..., H, W) over the frames of a layer (..., H, W).

    In the plane as the layer is (napari composes rotation, shear and scale in this order, so their
    last 2 x 2 blocks do it); along the frames' axes one voxel spans the whole layer.
    """
    ndim = layer.ndim + 1
    first, last = np.asarray(layer.extent.world)[:, :-2]
    rotate, shear, affine = np.eye(ndim), np.zeros(ndim * (ndim - 1) // 2), np.eye(ndim + 1)
    rotate[-2:, -2:] = np.asarray(layer.rotate)[-2:, -2:]
    shear[-1] = layer.shear[-1]  # of the upper triangle, row by row
    affine[-3:-1, -3:] = np.asarray(layer.affine.affine_matrix)[-3:-1, -3:]
    return {
        "scale": (1.0, *(last - first + np.abs(layer.scale[:-2])), *layer.scale[-2:]),
        "translate": (0.0, *((first + last) / 2), *layer.translate[-2:]),
        "rotate": rotate,
        "shear": shear,
        "affine": affine,
        "units": ("pixel", *layer.units),
        "axis_labels": ("component", *layer.axis_labels),
    }
