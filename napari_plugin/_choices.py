"""The upper part of the dock, where the user chooses an image and marks its background."""

from __future__ import annotations

from functools import partial
from typing import Any

import napari
import numpy as np
from magicgui.widgets import CheckBox, ComboBox, Container, PushButton, SpinBox, Widget
from napari.layers import Image, Labels, Shapes
from psygnal import Signal
from qtpy.QtCore import QTimer

from napari_plugin._layers import (
    Channel,
    channel_axis,
    images_of,
    known,
    leading_axes,
    pixels_of,
    region_of,
)
from napari_plugin._pair import Images, Pair, box_of, holds_signal
from napari_plugin._parts import Light, Line, row
from napari_plugin._results import place_in
from napari_plugin._settings import BoolArray, InputError

BOX, FRAMES, OTHER = "Box", "Frames", "Other layer"
ALL_FRAMES, THIS_FRAME = "all frames", "this frame"
NO_CHANNELS = "none"
_ROW = 4  # number of tick boxes for channels in a row
_MOST = 512  # largest number of pixels along a side of the box that are checked for signal
_PAUSE = 250  # milliseconds without a change after which the drawn area is evaluated


_TOOLTIPS = {
    "image": "The image or stack whose background is to be removed",
    "axis": "The axis that holds channels. The background of each channel is removed separately.",
    "kind": "Which part of the data shows the background without signal",
    "draw": "Press this, and drag a box over an area that shows no signal",
    "area": "A layer of shapes or labels that mark the background",
    "from_here": "Use the frame on screen as the first frame of the background",
    "to_here": "Use the frame on screen as the last frame of the background",
    "other": "Images that show the background only",
}


class Choices(Container[Widget]):
    """Widgets to choose the image, its channels, and where its background is.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose layers can be chosen.
    """

    image_changed = Signal()
    """Signal that another image was chosen."""
    area_changed = Signal()
    """Signal that the area of background was drawn, moved or painted."""

    def __init__(self, viewer: napari.Viewer) -> None:
        self._viewer, self._side = viewer, 16
        self._layer: Image | None = None
        self._settled = False
        self.image = ComboBox(label="Image", choices=lambda _: self._images(), nullable=True)
        self.axis = ComboBox(label="Channels", choices=self._axes)
        self.channels = Container[Widget](labels=False)
        self.ticks: list[CheckBox] = []
        self.kind = ComboBox(label="Background is", choices=(BOX, FRAMES, OTHER))
        self.draw = PushButton(text="Draw a box")
        drawn = partial(self._layers_of, Shapes, Labels)
        self.area = ComboBox(label="Drawn in", choices=lambda _: drawn(), nullable=True)
        self.span = ComboBox(label="Valid for", choices=(ALL_FRAMES, THIS_FRAME))
        self.first = SpinBox(label="From frame", max=0)
        self.last = SpinBox(label="To frame", max=0)
        self.from_here, self.to_here = PushButton(text="From here"), PushButton(text="To here")
        self.other = ComboBox(label="Layer", choices=lambda _: self._other_images(), nullable=True)
        self.swap = PushButton(text="Swap image and background")
        self.hint = Line()
        for name, tooltip in _TOOLTIPS.items():
            getattr(self, name).tooltip = tooltip
        stack = (self.first, self.last, row(self.from_here, self.to_here))
        self._parts = {BOX: (self.draw, self.area), FRAMES: stack, OTHER: (self.other, self.swap)}
        parts = [*self._parts[BOX], self.span, *self._parts[FRAMES], *self._parts[OTHER], self.hint]
        super().__init__(widgets=[self.image, self.axis, self.channels, self.kind, *parts])
        self.margins = self.channels.margins = (0, 0, 0, 0)
        self._timer = QTimer(self.native, singleShot=True, interval=_PAUSE)
        self._timer.timeout.connect(self._on_area_finished)
        self.image.changed.connect(self._on_image)
        self.axis.changed.connect(self._make_ticks)
        self.area.changed.connect(self._watch_area)
        for box in (self.image, self.other, self.area, self.kind):
            box.changed.connect(self.settle)
        for widget in (self.kind, self.area, self.span):
            widget.changed.connect(self._show_what_applies)
        self.draw.changed.connect(self.draw_box)
        self.swap.changed.connect(self._on_swap)
        self.from_here.changed.connect(lambda: self._take(self.first))
        self.to_here.changed.connect(lambda: self._take(self.last))
        self._preselect()
        self._on_image()

    # The choices that the widgets offer

    def _layers_of(self, *kinds: type) -> list[Any]:
        """Return the layers of the given kinds, except results of the plugin."""
        layers: list[Any] = [each for each in self._viewer.layers if isinstance(each, kinds)]
        return [x for x in layers if "method" not in known(x) and known(x).get("role") != "preview"]

    def _images(self) -> list[Image]:
        return [each for each in self._viewer.layers if isinstance(each, Image)]

    def _other_images(self) -> list[Any]:
        return [each for each in self._layers_of(Image) if each != self.image.value]

    def _axes(self, _widget: object = None) -> list[tuple[str, int]]:
        return [(NO_CHANNELS, -1), *([] if self._layer is None else leading_axes(self._layer))]

    def _refresh(self, *boxes: ComboBox) -> None:
        """Update the choices of the boxes. A chosen value is kept if it can still be chosen."""
        settled = self._settled
        for box in boxes:
            chosen = box.value
            with box.changed.blocked():  # a box loses its value for a moment if a layer is renamed
                box.reset_choices()
                if chosen in box.choices:
                    box.value = chosen
            if box.value != chosen:
                box.changed.emit(box.value)
        self._settled = settled  # the user has not made these choices

    def reset_choices(self, *_: Any) -> None:
        """Update the choices to the viewer's layers; napari calls this whenever they change."""
        self._refresh(self.area, self.other, self.image)
        self._preselect()

    def settle(self, *_: object) -> None:
        """Record that the user has made a choice.

        From then on, nothing is preselected as long as the chosen image exists.
        """
        self._settled = True

    def _preselect(self) -> None:
        """Choose the first image, and a drawn area or another stack as its background.

        If a second image is opened, the first one stays chosen. The second becomes its background
        if the first is a stack and both have frames of the same size. The metadata of the sample
        data name the layer that is the background.
        """
        images = self._layers_of(Image)
        if (self._settled and self.image.value is not None) or not images:
            return
        layer = next((x for x in images if known(x).get("role") != "background"), images[0])
        others = [each for each in images if each != layer]
        is_stack = layer.ndim > 2
        drawn = [x for x in self._layers_of(Shapes, Labels) if x.name.startswith("background")]
        self.image.value = layer
        if drawn:
            self.area.value, self.kind.value = drawn[-1], BOX
        elif len(others) == 1 and others[0].data.shape[-2:] == layer.data.shape[-2:] and is_stack:
            self.other.value, self.kind.value = others[0], OTHER
        self._settled = False  # the user has not made these choices

    # Reactions to a choice

    def _on_image(self) -> None:
        layer = self.image.value
        if layer == self._layer:
            return
        self._layer = layer
        self._refresh(self.other, self.axis)
        if layer is not None and not layer.rgb and layer.ndim > 1:
            self.axis.value = channel_axis(layer)
            n = int(np.prod(pixels_of(layer).shape[:-2]))
            self.first.max = self.last.max = max(0, n - 1)
            self.first.value, self.last.value = 0, min(n - 1, max(3, n // 10))
        self._make_ticks()
        self._show_what_applies()
        self.image_changed.emit()

    def _make_ticks(self) -> None:
        self.channels.clear()
        axis, layer = self.axis.value, self._layer
        n = pixels_of(layer).shape[axis] if layer is not None and axis >= 0 else 0
        self.ticks = [CheckBox(text=str(i), value=True) for i in range(n)]
        for start in range(0, n, _ROW):
            self.channels.append(row(*self.ticks[start : start + _ROW]))
        self.channels.visible = n > 0

    def _show_what_applies(self) -> None:
        chosen, layer = self.kind.value, self._layer
        self.axis.visible = len(self.axis.choices) > 1
        for kind, widgets in self._parts.items():
            for widget in widgets:
                widget.visible = kind == chosen
        self.span.visible = chosen == BOX and layer is not None and layer.ndim > 2
        self.hint.say(*self._judge_box())

    def _judge_box(self) -> tuple[str, Light]:
        """Return the hint about the size and content of the box, and the colour of its light."""
        layer, area = self._layer, self.area.value
        if layer is None or self.kind.value != BOX or area is None:
            return "", ""
        try:
            mask = region_of(layer, area)
        except InputError:
            return "Drag a box over an area that shows no signal.", ""
        box = box_of(mask)[-2:]
        text = f"{' x '.join(str(side.stop - side.start) for side in box)} pixels"
        n_patches = mask.sum() / self._side**2
        if n_patches < 4:
            return f"{text}: too small. About 100 x 100 pixels are enough.", "instead"
        corner = (slice(each.start, min(each.stop, each.start + _MOST)) for each in box)
        pixels = np.asarray(pixels_of(layer)[(*place_in(self._viewer, layer), *corner)])
        if holds_signal(pixels):
            return f"{text}: one part differs from the rest. Does it hold signal?", "doubtful"
        if n_patches < 16:
            return f"{text}: small. A larger box gives a better result.", "doubtful"
        return f"{text}: enough.", "good"

    def _watch_area(self) -> None:
        area = self.area.value
        if area is not None:
            events = area.events.paint if isinstance(area, Labels) else area.events.data
            events.connect(self._on_drawn)  # napari connects a function at most once

    def _on_drawn(self, event: Any) -> None:
        if event.source == self.area.value:
            self._timer.start()

    def _on_area_finished(self) -> None:
        self._show_what_applies()
        self.area_changed.emit()

    def _on_swap(self) -> None:
        image, other = self.image.value, self.other.value
        if other is not None:
            self.image.value = other
            self.other.value = image

    def _take(self, box: SpinBox) -> None:
        if self._layer is not None and self._layer.ndim > 2:
            shape = pixels_of(self._layer).shape[:-2]
            box.value = int(np.ravel_multi_index(place_in(self._viewer, self._layer), shape))

    def draw_box(self) -> None:
        """Add a shapes layer over the image, with the rectangle tool selected."""
        spatial: dict[str, Any] = {}
        if self._layer is not None:
            keys = ("scale", "translate", "units", "axis_labels")
            spatial = {key: getattr(self._layer, key)[-2:] for key in keys}
        look = {"face_color": "transparent", "edge_color": "#e8924c", "edge_width": 2}
        drawn = self._viewer.add_shapes(name="background", ndim=2, **look, **spatial)
        self._viewer.dims.ndisplay = 2  # boxes cannot be drawn in the 3D view
        drawn.mode = "add_rectangle"
        self._viewer.layers.selection.active = drawn
        self.kind.value, self.area.value = BOX, drawn

    # The choices of the user

    def check_area(self, side: int) -> None:
        """Update the hint about the size of the box, for patches with sides of this length."""
        if side != self._side:
            self._side = side
            self._show_what_applies()

    def background_shape(self) -> tuple[int, ...] | None:
        """Return the shape of the background stack, or None if the background is an area."""
        if self.kind.value == OTHER and self.other.value is not None:
            return tuple(map(int, pixels_of(self.other.value).shape))
        if self.kind.value == FRAMES and self._layer is not None and self._layer.ndim > 2:
            n = self.last.value - self.first.value + 1
            return (max(n, 0), *map(int, pixels_of(self._layer).shape[-2:]))
        return None

    def ticked(self) -> list[Channel | None]:
        """Return the channels to run, or [None] if the image has no channels.

        Raises
        ------
        InputError
            If no channel is ticked.
        """
        found = [Channel(self.axis.value, i) for i, tick in enumerate(self.ticks) if tick.value]
        if self.ticks and not found:
            raise InputError("No channel is ticked. Tick at least one under Channels.")
        return [*found] or [None]

    def images(self, channel: Channel | None = None) -> Images:
        """Return the chosen images, or one channel of them.

        Raises
        ------
        InputError
            If no image is chosen, or the image has RGB colours.
        """
        return images_of(self.image.value, channel)

    def place(self, images: Images) -> tuple[int, ...]:
        """Return the index, along the leading axes, of the image that the viewer shows."""
        return place_in(self._viewer, self.image.value, images.shape)

    def pair(self, channel: Channel | None = None) -> Pair:
        """Return the chosen images and their background, without reading pixels.

        Raises
        ------
        InputError
            If a choice is missing or cannot be used.
        """
        images, layer = self.images(channel), self.image.value
        if self.kind.value == FRAMES:
            return Pair(images, mask=self._frame_range(images))
        if self.kind.value == OTHER:
            other = self.other.value
            if other is None:
                return Pair(images)
            if channel is not None:  # the background's layer may lack this channel
                alike = other.ndim == layer.ndim
                alike = alike and pixels_of(other).shape[channel.axis] > channel.number
                channel = channel if alike else None
            return Pair(images, images_of(other, channel))
        if self.area.value is None:
            return Pair(images)
        mask = region_of(layer, self.area.value)
        if channel is not None and mask.ndim > 2:
            mask = mask.take([channel.number], axis=channel.axis)
        if self.span.value == THIS_FRAME and layer.ndim > 2 and mask.ndim == 2:
            whole = np.zeros(images.shape, dtype=bool)
            whole[self.place(images)] = mask
            mask = whole
        return Pair(images, mask=mask)

    def _frame_range(self, images: Images) -> BoolArray:
        first, last = self.first.value, self.last.value
        if images.n_images < 2:
            raise InputError("A single image has no range of frames. Draw a box instead.")
        if first > last:
            raise InputError(
                f"The range of background frames goes from {first} to {last}. Put the earlier "
                "frame first."
            )
        mask = np.zeros(images.n_images, dtype=bool)
        mask[first : last + 1] = True
        return mask.reshape(images.shape[:-2])
