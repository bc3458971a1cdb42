"""Layers to images and regions, and results to layers."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from contrast_core.images import Frames
from napari_plugin._export import Calibration
from napari_plugin._lazy import display_range, removed, taken
from napari_plugin._model import Outcome
from napari_plugin._pair import Images, as_dask
from napari_plugin._settings import BoolArray, InputError, parameters

if TYPE_CHECKING:
    from napari.layers import Image, Labels, Shapes

LayerData = tuple[Any, dict[str, Any]]

KEY = "contrast-suite"
"""Key of the plugin's entries in the metadata of layers."""

_SPATIAL = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
_LOOK = ("colormap", "blending", "gamma", "opacity", "interpolation2d")
_CHANNELS = ("c", "ch", "channel", "channels", "colour", "color", "wavelength")
_FEW = 4  # of a short axis without a name: it probably holds channels


@dataclass(frozen=True)
class Channel:
    """One channel of a layer."""

    axis: int
    number: int


@dataclass(frozen=True, eq=False)
class Place:
    """Where and how results are shown: as the layer was when the run started.

    Layers may be renamed, moved or removed while the run goes on.
    """

    spatial: dict[str, Any]
    map_spatial: dict[str, Any]
    """Placement of maps of components, which get a leading axis of their own."""
    look: dict[str, Any]


def place_of(layer: Image, channel: Channel | None = None) -> Place:
    """Return where a layer, or one channel of it, lies, and how it looks."""
    start = np.zeros(layer.ndim)
    if channel is not None:
        start[channel.axis] = channel.number
    spatial = _moved_to(layer, start)
    maps = _map_spatial(layer, channel) if layer.ndim > 2 else spatial
    return Place(spatial, maps, {key: getattr(layer, key) for key in _LOOK})


def _moved_to(layer: Image, start: Any) -> dict[str, Any]:
    """Return the place of a part of a layer that starts at these pixels."""
    from napari.utils.transforms import Affine

    moved = Affine(
        scale=layer.scale, rotate=layer.rotate, shear=layer.shear, translate=layer.translate
    )(start)
    return {key: getattr(layer, key) for key in _SPATIAL} | {"translate": tuple(moved)}


def pixels_of(layer: Image | Labels) -> Any:
    """Return the data of a layer, the finest of several resolutions."""
    return layer.data[0] if layer.multiscale else layer.data


def images_of(layer: Image | None, what: str, channel: Channel | None = None) -> Images:
    """Return the images of a layer, or of one of its channels, without reading pixels.

    Raises
    ------
    InputError
        If there is no layer, or it has RGB colours.
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
    if channel is None:
        return Images(layer.name, data)
    if not isinstance(data, np.ndarray):  # slicing others may read them
        data = as_dask(data)
    where = [slice(None)] * data.ndim
    where[channel.axis] = slice(channel.number, channel.number + 1)
    return Images(f"{layer.name} channel {channel.number}", data[tuple(where)])


def leading_axes(layer: Image) -> list[str]:
    """Return the names of the axes of a layer that can hold channels."""
    if layer.rgb or layer.ndim < 3:
        return []
    shape, labels = pixels_of(layer).shape, map(str, layer.axis_labels)
    names = [
        f"axis {i}" if label.lstrip("-").isdigit() else label for i, label in enumerate(labels)
    ]
    return [f"{name} (of length {n})" for name, n in zip(names[:-2], shape, strict=False)]


def channel_axis(layer: Image) -> int | None:
    """Return the axis that is named as channels, or is short and has no name."""
    labels, shape = [str(label).lower() for label in layer.axis_labels], pixels_of(layer).shape
    leading = range(len(leading_axes(layer)))
    named = [i for i in leading if labels[i] in _CHANNELS]
    short = [i for i in leading if labels[i].lstrip("-").isdigit() and 2 <= shape[i] <= _FEW]
    return next(iter([*named, *short]), None)


def calibration_of(layer: Image) -> Calibration:
    """Return the size of a pixel of a layer."""
    return Calibration(
        tuple(float(abs(scale)) for scale in layer.scale),
        tuple(str(unit) for unit in layer.units),
        tuple(str(label) for label in layer.axis_labels),
    )


def region_of(layer: Image, region: Shapes | Labels) -> BoolArray:
    """Return where a drawn or painted layer marks the pixels of an image.

    Returns
    -------
    ndarray of bool
        Of shape (height, width), or of the stack's shape for labels of that shape.

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
            f"Nothing is marked in {region.name!r} within {layer.name!r}. Draw a box over an area "
            "that shows background and no signal."
        )
    return mask


def _painted(layer: Image, labels: Any, shape: tuple[int, ...]) -> BoolArray:
    data = np.asarray(pixels_of(labels)) > 0
    matrix, shift = _between(layer, labels)
    if data.shape == shape and np.allclose(matrix, np.eye(2)) and np.allclose(shift, 0):
        return data
    ndimage: Any = import_module("scipy.ndimage")  # without types
    flat = data.any(axis=tuple(range(data.ndim - 2))).astype(np.uint8)  # at any time or depth
    placed = {"output_shape": shape[-2:], "order": 0, "mode": "grid-constant"}
    return np.asarray(ndimage.affine_transform(flat, matrix, shift, **placed) > 0)


def _drawn(layer: Image, shapes: Any, shape: tuple[int, ...]) -> BoolArray:
    draw: Any = import_module("skimage.draw")  # without types
    matrix, shift = _between(shapes, layer)
    mask = np.zeros(shape, dtype=bool)
    for vertices, kind in zip(shapes.data, shapes.shape_type, strict=True):
        if kind in ("line", "path"):
            continue
        corners = np.asarray(vertices)[:, -2:]
        if kind == "ellipse":
            centre, half = corners.mean(axis=0), np.ptp(corners, axis=0) / 2
            turn = np.linspace(0, 2 * np.pi, 60)[:, None]
            corners = centre + half * np.hstack([np.sin(turn), np.cos(turn)])
        mask |= draw.polygon2mask(shape, corners @ matrix.T + shift)
    return mask


def _plane(layer: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the map of the last two axes to the world: matrix (2, 2) and shift (2,)."""
    corners = np.zeros((3, layer.ndim))
    corners[1, -2], corners[2, -1] = 1, 1
    world = np.array([layer.data_to_world(corner) for corner in corners])[:, -2:]
    return (world[1:] - world[0]).T, world[0]


def _between(one: Any, other: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the map from pixels of one layer to those of another: matrix (2, 2) and shift (2,)."""
    (matrix, shift), (onto, start) = _plane(one), _plane(other)
    return np.linalg.solve(onto, matrix), np.linalg.solve(onto, shift - start)


def result_layers(outcome: Outcome, place: Place) -> dict[str, LayerData]:
    """Return the new layers by kind; the denoised images are last and so added on top.

    Maps of components are one layer, (k, 1, H, W) for images (T, H, W). As a stack (k, H, W) they
    would share the frames' slider, component 3 showing at frame 3; as k layers they would bury the
    others in the list. So components get a slider of their own, and each map shows at every frame.
    """
    images = outcome.task.pair.foreground
    layers: dict[str, LayerData] = {}
    for kind, (data, limits) in layer_data(outcome).items():
        keywords: dict[str, Any] = {"name": f"{images.name} {kind}", "contrast_limits": limits}
        keywords |= {"metadata": {KEY: described(outcome)}, "multiscale": False, "rgb": False}
        if kind == "denoised":
            keywords |= place.look
        elif kind == "weights":
            keywords["colormap"] = "PiYG" if limits[0] < 0 else "magma"
        of_components = kind == "weights" and isinstance(outcome.task.samples, Frames)
        keywords |= place.map_spatial if of_components else place.spatial
        layers[kind] = data, keywords | {"visible": kind == "denoised"}
    return layers


def layer_data(outcome: Outcome) -> dict[str, tuple[Any, tuple[float, float]]]:
    """Return the data of the result layers by kind, each with a range of intensities."""
    images, task = outcome.task.pair.foreground, outcome.task
    found: dict[str, tuple[Any, tuple[float, float]]] = {}
    if (maps := outcome.maps) is not None:
        top = 1.0
        if isinstance(task.samples, Frames):
            maps = maps.reshape(len(maps), *[1] * (len(images.shape) - 2), *maps.shape[1:])
        else:
            top = float(np.percentile(maps.flat[:: max(1, maps.size // 2**16)], 99.5)) or 1.0
        found["weights"] = maps, (-top if maps.min() < 0 else 0.0, top)
    density = task.settings.absorbed and isinstance(task.samples, Frames)
    limits = display_range(
        taken(np.asarray(images.data[task.place]), outcome.plane, is_density=density)
    )
    found["removed"] = removed(images, outcome.denoised, is_density=density), limits
    found["denoised"] = outcome.denoised, outcome.shown
    return found


def described(outcome: Outcome) -> dict[str, Any]:
    """Return what the metadata of result layers say of how they were made."""
    pair, solution = outcome.task.pair, outcome.solution
    behind = "frames" if pair.masks_frames else "area"
    if pair.background is not None:
        behind = pair.background.name
    made = parameters(solution.settings, solution.samples) | {
        "foreground": pair.foreground.name,
        "background": "saved model" if outcome.task.saved is not None else behind,
    }
    if solution.automatic is not None:
        made["strength"] = float(solution.estimator.strength_)
    return made


def preview_layer(layer: Image, crop: tuple[slice, ...], found: Any) -> LayerData:
    """Return a part of an image (height, width) as a layer over its place."""
    start = [each.start for each in crop]
    data = found.reshape(*[1] * (layer.ndim - 2), *found.shape[-2:])
    keywords = {"name": f"{layer.name} preview", "multiscale": False, "rgb": False}
    keywords |= {key: getattr(layer, key) for key in _LOOK} | _moved_to(layer, start)
    return data, keywords


def _map_spatial(layer: Image, channel: Channel | None) -> dict[str, Any]:
    """Place (k, 1, ..., H, W) over the frames of a layer (..., H, W).

    In the plane they lie as the layer does; along the frames' axes one voxel spans the whole layer,
    along the channels' axis one channel.
    """
    first, last = np.asarray(layer.extent.world)[:, :-2]
    scale = last - first + np.abs(layer.scale[:-2])
    translate = (first + last) / 2
    if channel is not None:
        step = layer.scale[channel.axis]
        scale[channel.axis] = step
        translate[channel.axis] = layer.translate[channel.axis] + step * channel.number
    matrix, shift = _plane(layer)
    affine = np.diag([1.0, *scale, 1.0, 1.0, 1.0])
    affine[-3:-1, -3:-1] = matrix
    affine[:-1, -1] = [0.0, *translate, *shift]
    return {
        "affine": affine,
        "units": ("pixel", *layer.units),
        "axis_labels": ("component", *layer.axis_labels),
    }
