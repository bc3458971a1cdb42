"""Add layers of results to the viewer when they are needed, update them, and hide them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import napari
import numpy as np
from napari.layers import Image
from napari.utils import resize_dask_cache

from napari_plugin._layers import KEY, known, pixels_of
from napari_plugin._model import Outcome, plotted_frames

KINDS = ("Original", "Denoised", "Removed", "Weights")
# Half of the longest side of the part that a preview shows, in pixels. A preview of this size takes
# a few seconds.
_HALF = 480


@dataclass(eq=False)
class Shown:
    """An outcome, the image layer that it was computed from, and the layers that show it.

    Parameters
    ----------
    outcome : Outcome
    source : napari.layers.Image
    places : dict
        Keywords that place results on the source, see `place_of`.
    data : dict
        Data and keywords of each kind of result, see `layer_data`.
    layers : dict
        The layers that exist, by kind; a layer is made when its kind is first shown.
    """

    outcome: Outcome
    source: Any
    places: dict[str, dict[str, Any]]
    data: dict[str, tuple[Any, dict[str, Any]]]
    layers: dict[str, Any] = field(default_factory=dict)


class Results:
    """The layers of the last run, with one outcome for each channel.

    Parameters
    ----------
    viewer : napari.Viewer
    on_gone : callable
        Function that is called when the user has deleted a layer of the last run.
    """

    def __init__(self, viewer: napari.Viewer, on_gone: Callable[[], None]) -> None:
        self._viewer, self._on_gone = viewer, on_gone
        self.shown: list[Shown] = []
        self._hidden: list[Any] = []
        viewer.layers.events.removed.connect(self._on_removed)

    @property
    def current(self) -> Shown:
        """The outcome of the active layer, or the first outcome if no result layer is active."""
        active = self._viewer.layers.selection.active
        found = [each for each in self.shown if active in each.layers.values()]
        return (found or self.shown)[0]

    @property
    def is_live(self) -> bool:
        """Whether the suppression slider of the dock can change the results."""
        return bool(self.shown) and all(each.outcome.solution.is_live for each in self.shown)

    @property
    def n_components(self) -> int:
        """Number of weight maps of components to choose from."""
        solutions = [each.outcome.solution for each in self.shown]
        return min((each.n_components if each.has_maps else 0 for each in solutions), default=0)

    @property
    def kinds(self) -> list[str]:
        """The kinds of layers that can be shown; some results have no weights."""
        there = [each.data for each in self.shown]
        return [x for x in KINDS if x == "Original" or any(x.lower() in data for data in there)]

    def add(self, found: list[Shown], *, replaces: bool) -> None:
        """Add the denoised layers of a run; if one of them fails, add none."""
        old = [layer for each in self.shown for layer in each.layers.values()] if replaces else []
        try:
            for each in found:
                self._make(each, "denoised")
        except Exception:
            self._remove([layer for each in found for layer in each.layers.values()])
            raise
        self.shown = found
        self._remove(old)
        self.show("Denoised")

    def _make(self, shown: Shown, kind: str) -> None:
        """Add a layer without moving napari's sliders."""
        outcome, dims = shown.outcome, self._viewer.dims
        _keep_ready(outcome)
        data, keywords = shown.data[kind]
        used, n_axes, point = dims.last_used, dims.ndim, dims.point
        # The layer is hidden at first, because napari would read the first image of a visible layer
        # at once.
        shown.layers[kind] = self._viewer.add_image(
            data,
            name=f"{outcome.task.pair.foreground.name} {kind}",
            metadata={KEY: outcome.described()},
            multiscale=False,
            rgb=False,
            visible=False,
            **keywords,
        )
        extra = dims.ndim - n_axes
        dims.last_used = min(used + extra, dims.ndim - 1)
        dims.set_point(range(extra, dims.ndim), point)

    def _remove(self, layers: list[Any]) -> None:
        for layer in layers:
            if layer in self._viewer.layers:
                self._viewer.layers.remove(layer)

    def _on_removed(self, event: Any) -> None:
        """Forget the layers that the user has deleted."""
        self._hidden = [each for each in self._hidden if each != event.value]
        for each in [x for x in self.shown if event.value in x.layers.values()]:
            del each.layers[next(k for k, layer in each.layers.items() if layer == event.value)]
            if "denoised" not in each.layers:
                self.shown = [other for other in self.shown if other is not each]
                if each.source in self._viewer.layers:
                    each.source.visible = True
            self._on_gone()

    def move(self, found: list[Shown]) -> None:
        """Show the outcomes at another position of the suppression slider in the same layers."""
        self.shown = [each for each in found if "denoised" in each.layers]  # others were deleted
        for each in self.shown:
            _keep_ready(each.outcome)
            for kind, layer in each.layers.items():
                layer.data = each.data[kind][0]
                layer.metadata = layer.metadata | {KEY: each.outcome.described()}

    def show(self, name: str) -> None:
        """Show one kind of layer of the last run, and hide all other result layers."""
        kind, layers = name.lower(), self._viewer.layers
        wanted = dict.fromkeys(self._hidden, True)
        self._hidden = []
        for each in self.shown:
            if kind in each.data and kind not in each.layers:
                self._make(each, kind)
        shown = [each.layers.get(kind) for each in self.shown]
        wanted |= {layer: layer in shown for layer in layers if "method" in known(layer)}
        source = self.shown[0].source
        if source in layers:
            wanted[source] = kind == "original"
            if wanted[source]:  # images above the original would cover it, so they are hidden
                above = [x for x in layers[layers.index(source) + 1 :] if isinstance(x, Image)]
                self._hidden = [x for x in above if wanted.get(x, x.visible)]
        for layer, visible in (wanted | dict.fromkeys(self._hidden, False)).items():
            if layer.visible != visible:  # napari lays out the scene anew for every assignment
                layer.visible = visible

    def show_component(self, number: int) -> None:
        """Show the weight map of a component."""
        self._viewer.dims.set_point(0, number)

    def go_to(self, number: int) -> None:
        """Move napari's sliders to the frame of a point in the plot of frames."""
        layer, dims = self.current.layers["denoised"], self._viewer.dims
        images = self.current.outcome.task.pair.foreground
        place = np.unravel_index(plotted_frames(images)[number], images.shape[:-2])
        world = layer.data_to_world((*place, 0, 0))[:-2]
        dims.set_point(range(dims.ndim - layer.ndim, dims.ndim - 2), world)


def _keep_ready(outcome: Outcome) -> None:
    """Put the chunk that the viewer shows into napari's cache."""
    for key, block in outcome.ready.items():
        resize_dask_cache().cache.put(key, block, cost=1.0, nbytes=block.nbytes)


def place_in(viewer: Any, layer: Any, shape: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return the index, along a layer's leading axes, of the image that the viewer shows.

    The index lies within `shape`, which is by default the shape of the layer's data.
    """
    if layer.ndim < 3:
        return ()
    most = np.array((shape or pixels_of(layer).shape)[:-2]) - 1
    point = viewer.dims.point[viewer.dims.ndim - layer.ndim :]
    where = np.rint(layer.world_to_data(point)[: layer.ndim - 2]).astype(int)
    return tuple(np.clip(where, 0, most).tolist())


def visible_part(layer: Any, place: tuple[int, ...], side: int | None) -> tuple[slice, ...]:
    """Return the part of an image that is on screen, as slices of the layer's data.

    Along each axis, at most 960 pixels around the middle of the screen are used. A margin of `side`
    pixels, the side length of a patch, is added. The part is at least ``3 * side`` pixels high and
    wide, unless the image is smaller. If `side` is None, the whole image is returned.
    """
    shape = np.array(pixels_of(layer).shape[-2:])
    low, high = np.zeros(2, dtype=int), shape
    if side is not None:
        corners = layer.corner_pixels + np.array([[0], [1]])  # in pixels of the drawn resolution
        corners = (corners * layer.downsample_factors[layer.data_level])[:, -2:]
        first, last = np.floor(corners[0]).astype(int), np.ceil(corners[1]).astype(int)
        middle = (first + last) // 2
        first, last = np.maximum(first, middle - _HALF), np.minimum(last, middle + _HALF)
        least = np.minimum(3 * side, shape)
        low = np.clip(first - side, 0, shape - least)
        high = np.clip(last + side, low + least, shape)
    span = (slice(int(start), int(stop)) for start, stop in zip(low, high, strict=True))
    return (*(slice(i, i + 1) for i in place), *span)
