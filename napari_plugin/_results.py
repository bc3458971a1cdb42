"""Result layers in the viewer: added one at a time, moved by the slider, shown and compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image
from qtpy.QtCore import QTimer

from napari_plugin._layers import KEY, LayerData, described, pixels_of
from napari_plugin._model import Outcome

if TYPE_CHECKING:
    import napari

KINDS = ("Original", "Denoised", "Removed", "Weights")
_HALF = 480  # pixels, half of the side of a preview: a few seconds of work


@dataclass(eq=False)
class Shown:
    """An outcome, the layer it is of, and its own layers by kind."""

    outcome: Outcome
    source: Any
    layers: dict[str, Any] = field(default_factory=dict)


class Results:
    """The layers of the last run; several outcomes where several channels were run.

    Parameters
    ----------
    viewer : napari.Viewer
    on_gone : callable
        Called when the user has deleted the last run's results.
    """

    def __init__(self, viewer: napari.Viewer, on_gone: Callable[[], None]) -> None:
        self._viewer, self._on_gone = viewer, on_gone
        self.shown: list[Shown] = []
        self._pending: list[tuple[Shown, str, LayerData]] = []
        self._ours: list[Any] = []  # layers of all runs
        self._hidden: list[Any] = []
        viewer.layers.events.removed.connect(self._on_removed)

    @property
    def denoised(self) -> Any:
        """The denoised layer: the active one of several, or None if there is none."""
        layers = [each.layers["denoised"] for each in self.shown if "denoised" in each.layers]
        active = self._viewer.layers.selection.active
        return active if active in layers else next(iter(layers), None)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of that layer."""
        layer = self.denoised
        found = [each for each in self.shown if layer in each.layers.values()]
        return found[0].outcome if layer is not None else None

    @property
    def is_live(self) -> bool:
        """Whether the slider moves the result."""
        return bool(self.shown) and all(each.outcome.solution.is_live for each in self.shown)

    def add(
        self,
        found: list[tuple[Shown, dict[str, LayerData]]],
        replaces: bool,
        done: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Add the layers of a run, one per turn of the event loop."""
        old = [layer for each in self.shown for layer in each.layers.values()] if replaces else []
        self.shown = [shown for shown, _ in found]
        pending = self._pending = [
            (shown, kind, data) for shown, layers in found for kind, data in layers.items()
        ]
        dims = self._viewer.dims
        used, n_axes, point = dims.last_used, dims.ndim, dims.point

        def step() -> None:
            if self._pending is not pending:
                return
            shown, kind, (data, keywords) = pending[0]
            try:
                layer = shown.layers[kind] = self._add_image(data, keywords)
            except Exception as error:
                self.forget()
                failed(error)
                return
            self._ours.append(layer)
            pending.pop(0)
            if pending:
                QTimer.singleShot(0, step)
                return
            extra = dims.ndim - n_axes
            dims.last_used = min(used + extra, dims.ndim - 1)
            if extra >= 0 and n_axes:
                dims.set_point(range(extra, dims.ndim), point)
            for layer in old:
                if layer in self._viewer.layers:
                    self._viewer.layers.remove(layer)
            self.show("Denoised")
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
            added = [layer for each in self.shown for layer in each.layers.values()]
            self.shown = []
            for layer in added:
                if layer in self._viewer.layers:
                    self._viewer.layers.remove(layer)

    def _on_removed(self, event: Any) -> None:
        """Hold nothing of layers that the user has deleted."""
        layer, had = event.value, bool(self.shown)
        self._ours = [each for each in self._ours if each != layer]
        self._hidden = [each for each in self._hidden if each != layer]
        for shown in self.shown:
            shown.layers = {k: each for k, each in shown.layers.items() if each != layer}
        if not self._pending:
            gone = [each for each in self.shown if "denoised" not in each.layers]
            self.shown = [each for each in self.shown if each not in gone]
            for each in gone:
                if each.source in self._viewer.layers:
                    each.source.visible = True
            if had and not self.shown:
                self._on_gone()

    def move(self, found: list[tuple[Outcome, dict[str, Any]]]) -> None:
        """Show the outcomes of another position of the slider in the layers of the run."""
        for shown, (outcome, layers) in zip(self.shown, found, strict=False):
            shown.outcome = outcome
            for kind, (data, _) in layers.items():
                if (layer := shown.layers.get(kind)) is not None:
                    layer.data = data
                    layer.metadata = layer.metadata | {KEY: described(outcome)}

    def show(self, kind: str) -> None:
        """Show one kind of layers of the last run, and hide those of all other runs."""
        layers = self._viewer.layers
        for layer in self._hidden:
            layer.visible = True
        self._hidden = []
        wanted = [each.layers.get(kind.lower()) for each in self.shown]
        for layer in self._ours:
            layer.visible = layer in wanted
        for source in {id(each.source): each.source for each in self.shown}.values():
            if source not in layers:
                continue
            source.visible = kind == "Original"
            if kind == "Original":
                above = layers[layers.index(source) + 1 :]
                self._hidden += [x for x in above if x.visible and isinstance(x, Image)]
        for layer in self._hidden:
            layer.visible = False

    def n_components(self) -> int:
        """Return how many maps of components there are to choose from."""
        counts = [
            len(each.layers["weights"].data)
            for each in self.shown
            if "weights" in each.layers
            and each.layers["weights"].ndim > each.layers["denoised"].ndim
        ]
        return min(counts, default=0)

    def show_component(self, number: int) -> None:
        """Show the map of a component."""
        self._viewer.dims.set_point(0, number)

    def sources(self) -> tuple[str, str]:
        """Return Python expressions for the arrays of the image and of the background's layer."""
        found = [each for each in self.shown if self.denoised in each.layers.values()]
        pair = found[0].outcome.task.pair
        names = [found[0].source.name, pair.background.name if pair.background else ""]
        texts = []
        for name in names:
            pyramid = name in self._viewer.layers and self._viewer.layers[name].multiscale
            finest = "[0]" if pyramid else ""
            texts.append(f"viewer.layers[{name!r}].data{finest}")
        return texts[0], texts[1]

    def place(self, shown: Shown) -> tuple[int, ...]:
        """Return the image of an outcome that is looked at, by its index in the leading axes."""
        return place_in(self._viewer, shown.layers["denoised"])

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
    """Return the image of a layer that is looked at, by its index in the leading axes."""
    if layer.ndim < 3:
        return ()
    shape = pixels_of(layer).shape
    point = viewer.dims.point[viewer.dims.ndim - layer.ndim :]
    where = np.rint(layer.world_to_data(point)[: layer.ndim - 2]).astype(int)
    return tuple(int(i) for i in np.clip(where, 0, np.array(shape[:-2]) - 1))


def visible_part(layer: Any, place: tuple[int, ...], side: int | None) -> tuple[slice, ...]:
    """Return the part of an image that is on screen, as slices of the layer's data.

    It has a margin of a patch's side and is no smaller than three, and at most about a million
    pixels in the middle of the screen. Without a side it is the whole image.
    """
    shape = np.array(pixels_of(layer).shape[-2:])
    low, high = np.zeros(2, dtype=int), shape
    if side is not None:
        corners = layer.corner_pixels + np.array([[0], [1]])  # of the resolution that is drawn
        corners = (corners * layer.downsample_factors[layer.data_level])[:, -2:]
        first, last = np.floor(corners[0]).astype(int), np.ceil(corners[1]).astype(int)
        middle = (first + last) // 2
        first, last = np.maximum(first, middle - _HALF), np.minimum(last, middle + _HALF)
        least = np.minimum(3 * side, shape)
        low = np.clip(first - side, 0, shape - least)
        high = np.clip(last + side, low + least, shape)
    span = (slice(int(start), int(stop)) for start, stop in zip(low, high, strict=True))
    return (*(slice(i, i + 1) for i in place), *span)
