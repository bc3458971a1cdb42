"""Convert layers to images and regions, and results to layers."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from napari.layers import Image, Labels, Shapes
from napari.utils.transforms import Affine
from numpy.typing import NDArray

from napari_plugin._files import Calibration
from napari_plugin._model import Outcome, display_range, removed, taken
from napari_plugin._pair import Images, sliceable
from napari_plugin._settings import BoolArray, InputError

KEY = "contrast-suite"
"""Key of the plugin's entries in the metadata of layers."""

# Keywords of a layer that say where its pixels lie.
_SPATIAL = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
# Keywords that a layer of results does not copy from the layer of its images.
_OWN = ("name", "metadata", "visible", "contrast_limits", "multiscale", "rgb")
# Names that mark an axis as the axis of channels.
_CHANNELS = ("c", "ch", "channel", "channels", "colour", "color", "wavelength")
_FEW = 4  # an unnamed axis of at most this length probably holds channels
_MOST_CHANNELS = 64  # a longer axis is not offered, because each channel gets a tick box


@dataclass(frozen=True)
class Channel:
    """One channel of a layer."""

    axis: int
    number: int


def pixels_of(layer: Image | Labels) -> Any:
    """Return the data of a layer, at the finest resolution if it has several."""
    return layer.data[0] if layer.multiscale else layer.data


def known(layer: Any) -> dict[str, Any]:
    """Return the plugin's entry in the metadata of a layer."""
    found: dict[str, Any] = layer.metadata.get(KEY, {})
    return found


def images_of(layer: Image | None, channel: Channel | None = None) -> Images:
    """Return the images of a layer, or of one of its channels, without reading pixels.

    Raises
    ------
    InputError
        If there is no layer, or it has RGB colours.
    """
    if layer is None:
        raise InputError("Choose a layer under Image: the one whose background is to be removed.")
    if layer.rgb:
        raise InputError(
            f"{layer.name!r} has RGB colours. Split it into channels (right-click the layer: "
            "Split RGB), and choose one of them."
        )
    data = pixels_of(layer)
    if data.ndim < 2:
        raise InputError(f"{layer.name!r} holds no image. Choose a layer that holds an image.")
    before, n = ("", 0) if channel is None else (":, " * channel.axis, channel.number)

    def code() -> str:
        finest = "[0]" if layer.multiscale else ""
        part = "" if channel is None else f"[{before}{n}:{n + 1}]"
        return f"viewer.layers[{layer.name!r}].data{finest}{part}"

    first = [0] * data.ndim
    if channel is None:
        return Images(layer.name, data, code, tuple(first))
    first[channel.axis] = n
    where = (slice(None),) * channel.axis + (slice(n, n + 1),)
    return Images(f"{layer.name} channel {n}", sliceable(data)[where], code, tuple(first))


def leading_axes(layer: Image) -> list[tuple[str, int]]:
    """Return the names and the numbers of the axes of a layer that can hold channels."""
    if layer.rgb or layer.ndim < 3:
        return []
    named = enumerate(zip(layer.axis_labels[:-2], pixels_of(layer).shape, strict=False))
    return [
        (f"{f'axis {i}' if _is_unnamed(label) else label} (of length {n})", i)
        for i, (label, n) in named
        if n <= _MOST_CHANNELS
    ]


def channel_axis(layer: Image) -> int:
    """Return the axis that probably holds channels, or -1 if there is none.

    An axis with a name like "channel" is preferred to a short axis without a name.
    """
    sizes = pixels_of(layer).shape
    axes = [(i, layer.axis_labels[i]) for _, i in leading_axes(layer)]
    named = [i for i, label in axes if label.lower() in _CHANNELS]
    short = [i for i, label in axes if _is_unnamed(label) and 2 <= sizes[i] <= _FEW]
    return next(iter(named + short), -1)


def _is_unnamed(label: str) -> bool:
    """Return whether the label is a number, which napari gives to axes without a name."""
    return label.lstrip("-").isdigit()


def calibration_of(layer: Image) -> Calibration:
    """Return the size of a pixel of a layer."""
    return Calibration(
        tuple(float(abs(scale)) for scale in layer.scale),
        tuple(str(unit) for unit in layer.units),
        tuple(str(label) for label in layer.axis_labels),
    )


def region_of(layer: Image, region: Shapes | Labels) -> BoolArray:
    """Return a mask of the pixels of an image that a drawn or painted layer marks.

    Returns
    -------
    ndarray of bool
        Shape (height, width). If `region` is a Labels layer that lies exactly on the image and has
        the shape of its whole stack, the mask has the shape of the stack.

    Raises
    ------
    InputError
        If nothing is marked within the image.
    """
    shape = tuple(map(int, pixels_of(layer).shape))
    find = _painted if isinstance(region, Labels) else _drawn
    mask = find(layer, region, shape)
    if not mask.any():
        raise InputError(
            f"Nothing is marked in {region.name!r} within {layer.name!r}. Draw a box over an area "
            "that shows background and no signal."
        )
    return mask


def _painted(layer: Image, labels: Any, shape: tuple[int, ...]) -> BoolArray:
    data = np.asarray(pixels_of(labels)) > 0
    matrix, shift = _affine_map(layer, labels)
    if data.shape == shape and np.allclose(matrix, np.eye(2)) and np.allclose(shift, 0):
        return data
    ndimage: Any = import_module("scipy.ndimage")  # SciPy has no type hints
    # A pixel counts as marked if it is painted in any frame or plane.
    flat = data.any(axis=tuple(range(data.ndim - 2))).astype(np.uint8)
    placed = {"output_shape": shape[-2:], "order": 0, "mode": "grid-constant"}
    return np.asarray(ndimage.affine_transform(flat, matrix, shift, **placed) > 0)


def _drawn(layer: Image, shapes: Any, shape: tuple[int, ...]) -> BoolArray:
    # This code takes half a second for 10,000 x 10,000 pixels. napari's own `to_labels` takes five
    # times as long.
    draw: Any = import_module("skimage.draw")  # scikit-image has no type hints
    matrix, shift = _affine_map(shapes, layer)
    mask = np.zeros(shape[-2:], dtype=bool)
    for vertices, kind in zip(shapes.data, shapes.shape_type, strict=True):
        if kind in ("line", "path"):
            continue
        corners = np.asarray(vertices)[:, -2:]
        if kind == "ellipse":
            centre, half = corners.mean(axis=0), np.ptp(corners, axis=0) / 2
            turn = np.linspace(0, 2 * np.pi, 60)[:, None]
            corners = centre + half * np.hstack([np.sin(turn), np.cos(turn)])
        mask |= draw.polygon2mask(shape[-2:], corners @ matrix.T + shift)
    return mask


def _world_of(layer: Any) -> Affine:
    """Return the map from a layer's pixels to world coordinates."""
    return layer.affine.compose(_physical_of(layer))


def _physical_of(layer: Any) -> Affine:
    """Return the map from a layer's pixels to its physical coordinates."""
    return Affine(
        scale=layer.scale, rotate=layer.rotate, shear=layer.shear, translate=layer.translate
    )


def _affine_map(one: Any, other: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the affine map from the pixels of one layer to the pixels of another.

    The map consists of a matrix (2, 2) and a shift (2,).
    """
    start, end = (_world_of(each).affine_matrix[-3:, -3:] for each in (one, other))
    found = np.linalg.solve(end, start)
    return found[:2, :2], found[:2, 2]


def look_of(layer: Image, start: Any) -> dict[str, Any]:
    """Return keywords for a layer that looks like `layer` and begins at its pixel `start`."""
    keywords = {k: v for k, v in layer.as_layer_data_tuple()[1].items() if k not in _OWN}
    return keywords | {"translate": _physical_of(layer)(start)}


def place_of(layer: Image, images: Images) -> dict[str, dict[str, Any]]:
    """Return keywords that place results and weights on the part of a layer that holds the images.

    The keywords are computed when a run starts, because the user may rename, move or remove layers
    during the run.
    """
    first, lengths = np.array(images.first), np.array([*images.shape[:-2], 1, 1])
    # Along the axes of frames, one pixel of the weights layer covers all frames.
    world, affine = _world_of(layer), np.eye(layer.ndim + 2)
    affine[1:-1, 1:-1] = world.linear_matrix * lengths
    affine[1:-1, -1] = world(first + (lengths - 1) / 2)
    weights = {
        "affine": affine,
        "units": ("pixel", *layer.units),
        "axis_labels": ("component", *layer.axis_labels),
    }
    return {"weights": weights, "denoised": look_of(layer, first)}


def layer_data(
    outcome: Outcome, places: dict[str, dict[str, Any]]
) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the data and the keywords of each result layer, by kind of result.

    `places` comes from `place_of`. The weights of all k components form one layer, of shape
    (k, 1, height, width) if the images have shape (time, height, width). If the shape were
    (k, height, width), components and frames would share one slider, and frame 3 would show
    component 3. Separate layers for the k components would crowd the list of layers.
    """
    images, task = outcome.task.pair.foreground, outcome.task
    density, look = outcome.is_density, places["denoised"]
    found: dict[str, tuple[Any, dict[str, Any]]] = {}
    if (maps := outcome.maps) is not None:
        if outcome.solution.has_maps:
            top, place = 1.0, places["weights"]
            maps = maps.reshape(len(maps), *[1] * (len(images.shape) - 2), *maps.shape[1:])
        else:
            top = float(np.percentile(maps.flat[:: max(1, maps.size // 2**16)], 99.5)) or 1.0
            place = {key: look[key] for key in _SPATIAL}
        signed = bool(maps.min() < 0)
        limits = {"contrast_limits": (-top if signed else 0.0, top)}
        found["weights"] = maps, place | limits | {"colormap": "PiYG" if signed else "magma"}
    plane = taken(np.asarray(images.data[task.place]), outcome.plane, is_density=density)
    limits = {"contrast_limits": display_range(plane)}
    found["removed"] = removed(images, outcome.denoised, is_density=density), look | limits
    found["denoised"] = outcome.denoised, look | {"contrast_limits": outcome.shown}
    return found


def preview_layer(layer: Image, start: list[int], found: Any) -> tuple[Any, dict[str, Any]]:
    """Return the pixels of a preview, and the keywords that place it at the pixel `start`."""
    data = found.reshape(*[1] * (layer.ndim - 2), *found.shape[-2:])
    own = {"name": f"{layer.name} preview", "metadata": {KEY: {"role": "preview"}}}
    return data, look_of(layer, start) | own | {"multiscale": False, "rgb": False}
