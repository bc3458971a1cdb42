"""Layers to stacks, and results to layers: what napari knows of a stack beyond its pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from napari_plugin._model import (
    OFFSET,
    Denoised,
    DenoisingModel,
    FrameStack,
    InputError,
)

if TYPE_CHECKING:
    from napari.layers import Image

LayerData = tuple[Any, dict[str, Any], str]

_SPATIAL = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
_METADATA_KEY = "contrast-suite"


@dataclass(frozen=True, eq=False)
class Source:
    """A pair of chosen layers as they were when the run started.

    Layers may be renamed, moved or removed while the run goes on.
    """

    foreground: FrameStack
    background: FrameStack
    spatial: dict[str, Any]
    """Keywords that place a layer of the foreground's shape where the foreground is."""
    map_spatial: dict[str, Any]
    """The same for weight maps, which get a leading axis of their own."""


def read_layers(foreground: Image | None, background: Image | None) -> Source:
    """Take what a run needs from two image layers, without reading pixels.

    Raises
    ------
    InputError
        If a layer is missing or both are the same, or it has colours or several resolutions.
    """
    if foreground is None or background is None:
        missing = "foreground" if foreground is None else "background"
        raise InputError(
            f"No {missing} was chosen. Choose two image layers: a foreground stack to denoise, and "
            "a background stack of frames of the same size without the signal."
        )
    if foreground == background:  # not `is`: napari hands proxies of layers to plugins
        raise InputError(
            f"{foreground.name!r} is both foreground and background. Choose as background another "
            "stack, of frames without the signal."
        )
    for layer in (foreground, background):
        if layer.rgb:
            raise InputError(
                f"{layer.name!r} has RGB colours. Split it into channels (right-click the layer: "
                "Split RGB), or convert it to grey values, and choose the result."
            )
        if layer.multiscale:
            raise InputError(
                f"{layer.name!r} has several resolutions. Add one of them as a layer of its own, "
                "such as viewer.add_image(layer.data[0]), and choose that."
            )
    return Source(
        FrameStack(foreground.name, foreground.data),
        FrameStack(background.name, background.data),
        spatial={key: getattr(foreground, key) for key in _SPATIAL},
        map_spatial=_map_spatial(foreground),
    )


def result_layers(source: Source, model: DenoisingModel, result: Denoised) -> list[LayerData]:
    """Build the new layers, in the order to add them: weight maps below, the denoised stack on top.

    The weight maps are one layer, (k, 1, H, W) for a foreground (T, H, W). As a stack (k, H, W)
    they would share the frames' slider, component 3 showing at frame 3 and nothing beyond the last
    component; as k layers they would bury the others in the list. So components get a slider of
    their own, and each map shows at every frame.
    """
    name = source.foreground.name
    parameters = {
        "alpha": result.alpha,
        "alpha_rule": model.alpha if isinstance(model.alpha, str) else "given",
        "n_components": model.n_components,
        "offset": OFFSET,
        "foreground": name,
        "background": source.background.name,
    }
    n_components, *frame_shape = result.weight_maps.shape
    leading = [1] * (len(source.foreground.shape) - 2)
    maps = {
        "name": f"{name} weights",
        "contrast_limits": (0.0, 1.0),
        "colormap": "magma",
        "metadata": {
            _METADATA_KEY: parameters | {"contrastive_eigenvalues": result.eigenvalues.tolist()}
        },
        **source.map_spatial,
    }
    denoised = {
        "name": f"{name} denoised",
        "contrast_limits": result.display_range,
        "metadata": {_METADATA_KEY: parameters},
        **source.spatial,
    }
    return [
        (result.weight_maps.reshape(n_components, *leading, *frame_shape), maps, "image"),
        (result.stack, denoised, "image"),
    ]


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
