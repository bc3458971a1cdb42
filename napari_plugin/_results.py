"""Result layers in the viewer: added one at a time, moved by the slider, shown before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QTimer

from napari_plugin._apply import Denoised, removed
from napari_plugin._layers import LayerData, shown_data
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
        self._layers: dict[str, Any] = {}
        self._source: Any = None
        self._pending: list[tuple[str, Any]] = []
        self._shows_original = False

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
        self._layers, self._source, self._shows_original = {}, source, False
        self._pending = list(layers.items())
        dims = self._viewer.dims
        used, n_axes, point = dims.last_used, dims.ndim, dims.point

        def step() -> None:
            if self.outcome is not outcome or not self._pending:
                return
            kind, (data, keywords) = self._pending.pop(0)
            try:
                self._layers[kind] = self._viewer.add_image(data, **keywords)
            except Exception as error:
                self._pending = []
                failed(error)
                return
            if self._pending:
                QTimer.singleShot(0, step)
                return
            extra = dims.ndim - n_axes
            dims.last_used = min(used + extra, dims.ndim - 1)
            if extra >= 0 and n_axes:
                dims.set_point(range(extra, dims.ndim), point)
            done()

        QTimer.singleShot(0, step)

    def forget(self) -> None:
        """Add nothing more, and let the slider rest."""
        self._pending = []

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
        """Before and after: the source alone, or the result."""
        layer = self.denoised
        if layer is None:
            return
        self._shows_original = original
        layer.visible = not original
        if self._source is not None and self._source in self._viewer.layers:
            self._source.visible = True

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
    shape = layer.data[0].shape if layer.multiscale else layer.data.shape
    point = viewer.dims.point[viewer.dims.ndim - layer.ndim :]
    where = np.rint(layer.world_to_data(point)[: layer.ndim - 2]).astype(int)
    return tuple(int(i) for i in np.clip(where, 0, np.array(shape[:-2]) - 1))


def visible_part(layer: Any, place: tuple[int, ...], side: int | None) -> tuple[slice, ...]:
    """The part of an image that is on screen, as slices of the layer's data.

    With a margin of a patch's side, and no smaller than three; without a side, all of the image.
    """
    shape = np.array((layer.data[0] if layer.multiscale else layer.data).shape[-2:])
    low, high = np.zeros(2, dtype=int), shape
    if side is not None:
        first, last = np.asarray(layer.corner_pixels)[:, -2:].astype(int)
        least = np.minimum(3 * side, shape)
        low = np.clip(first - side, 0, shape - least)
        high = np.clip(last + 1 + side, low + least, shape)
    span = (slice(int(start), int(stop)) for start, stop in zip(low, high, strict=True))
    return (*(slice(i, i + 1) for i in place), *span)
