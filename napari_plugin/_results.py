"""Result layers in the viewer: added one at a time, moved by the slider, shown before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image
from qtpy.QtCore import QTimer

from napari_plugin._apply import Denoised, removed
from napari_plugin._layers import LayerData, pixels_of, shown_data
from napari_plugin._model import Outcome

if TYPE_CHECKING:
    import napari


class Results:
    """The layers of the last run.

    Parameters
    ----------
    viewer : napari.Viewer
    """

    def __init__(self, viewer: napari.Viewer) -> None:
        self._viewer = viewer
        self.outcome: Outcome | None = None
        self.solution: Any = None
        self.source: Any = None
        """The layer that the last run was of."""
        self._layers: dict[str, Any] = {}
        self._pending: list[tuple[str, Any]] = []
        self._hidden: list[Any] = []

    @property
    def denoised(self) -> Any:
        """The denoised layer, or None if it is gone."""
        layer = self._layers.get("denoised")
        return layer if layer is not None and layer in self._viewer.layers else None

    @property
    def is_live(self) -> bool:
        """Whether the slider moves the result."""
        if self.outcome is None or self.denoised is None:
            return False
        return self.outcome.solution.is_live

    def add(
        self,
        outcome: Outcome,
        layers: dict[str, LayerData],
        source: Any,
        done: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Add the layers of a run, one per turn of the event loop; nothing is replaced."""
        self.outcome, self.solution = outcome, outcome.solution
        self._layers, self.source = {}, source
        pending = self._pending = list(layers.items())
        dims = self._viewer.dims
        used, n_axes, point = dims.last_used, dims.ndim, dims.point

        def step() -> None:
            if self._pending is not pending:
                return
            kind, (data, keywords) = pending[0]
            try:
                self._layers[kind] = self._add_image(data, keywords)
            except Exception as error:
                self.forget()
                failed(error)
                return
            pending.pop(0)
            if pending:
                QTimer.singleShot(0, step)
                return
            extra = dims.ndim - n_axes
            dims.last_used = min(used + extra, dims.ndim - 1)
            if extra >= 0 and n_axes:
                dims.set_point(range(extra, dims.ndim), point)
            done()

        QTimer.singleShot(0, step)

    def _add_image(self, data: Any, keywords: dict[str, Any]) -> Any:
        """Add a layer hidden, for napari reads the first image of one that is shown at once."""
        layer = self._viewer.add_image(data, **(keywords | {"visible": False}))
        layer.visible = keywords.get("visible", True)
        return layer

    def forget(self) -> None:
        """Add nothing more; of layers that are not all there, none stays."""
        if self._pending:
            self._pending = []
            for layer in self._layers.values():
                if layer in self._viewer.layers:
                    self._viewer.layers.remove(layer)
            self._layers = {}

    def move(self, denoised: Denoised) -> None:
        """Show the result of another suppression in the layers of the run."""
        layer = self.denoised
        if layer is None or self.outcome is None:
            return
        self.solution = denoised.solution
        layer.data = shown_data(denoised)
        other = self._layers.get("removed")
        if other is not None and other in self._viewer.layers:
            other.data = removed(denoised.images, layer.data)
        made = dict(layer.metadata.get("contrast-suite", {}))
        made |= {
            "suppression": denoised.solution.settings.suppression,
            "components": denoised.solution.settings.n_components,
            "strength": float(denoised.solution.estimator.strength_),
        }
        layer.metadata = layer.metadata | {"contrast-suite": made}

    def show_original(self, original: bool) -> None:
        """Before and after: the source without the images above it, or all as it was."""
        layers = self._viewer.layers
        for layer in self._hidden:
            layer.visible = True
        self._hidden = []
        if original and self.source in layers:
            self.source.visible = True
            above = layers[layers.index(self.source) + 1 :]
            self._hidden = [each for each in above if each.visible and isinstance(each, Image)]
            for layer in self._hidden:
                layer.visible = False

    def place(self) -> tuple[int, ...] | None:
        """The image that is looked at, by its index in the leading axes of the last result."""
        layer = self.denoised
        return None if layer is None else place_in(self._viewer, layer)

    def go_to(self, place: tuple[int, ...]) -> None:
        """Show an image of the result."""
        layer = self.denoised
        if layer is None:
            return
        world = layer.data_to_world((*place, 0, 0))
        n = self._viewer.dims.ndim
        axes = range(n - layer.ndim, n - 2)
        for axis, value in zip(axes, world[: layer.ndim - 2], strict=True):
            self._viewer.dims.set_point(axis, value)


def place_in(viewer: Any, layer: Any) -> tuple[int, ...]:
    """The image of a layer that is looked at, by its index in the leading axes."""
    if layer.ndim < 3:
        return ()
    shape = pixels_of(layer).shape
    point = viewer.dims.point[viewer.dims.ndim - layer.ndim :]
    where = np.rint(layer.world_to_data(point)[: layer.ndim - 2]).astype(int)
    return tuple(int(i) for i in np.clip(where, 0, np.array(shape[:-2]) - 1))


def visible_part(layer: Any, place: tuple[int, ...], side: int | None) -> tuple[slice, ...]:
    """The part of an image that is on screen, as slices of the layer's data.

    With a margin of a patch's side, and no smaller than three; without a side, all of the image.
    """
    shape = np.array(pixels_of(layer).shape[-2:])
    low, high = np.zeros(2, dtype=int), shape
    if side is not None:
        corners = layer.corner_pixels + np.array([[0], [1]])  # of the resolution that is drawn
        corners = (corners * layer.downsample_factors[layer.data_level])[:, -2:]
        first, last = np.floor(corners[0]).astype(int), np.ceil(corners[1]).astype(int)
        least = np.minimum(3 * side, shape)
        low = np.clip(first - side, 0, shape - least)
        high = np.clip(last + side, low + least, shape)
    span = (slice(int(start), int(stop)) for start, stop in zip(low, high, strict=True))
    return (*(slice(i, i + 1) for i in place), *span)
