"""The upper half of the dock: which images, where their background is, and which method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from magicgui.widgets import (
    CheckBox,
    ComboBox,
    Container,
    FloatSpinBox,
    PushButton,
    Slider,
    SpinBox,
    Widget,
)
from napari.layers import Image, Labels, Shapes

from contrast_core.images import Frames, Patches
from napari_plugin._layers import check_channels, images_of, is_unnamed, pixels_of, region_of
from napari_plugin._pair import BoolArray, Images, Pair
from napari_plugin._settings import (
    METHODS,
    WITH_SLIDER,
    InputError,
    Method,
    Samples,
    Settings,
    default_patches,
    default_samples,
    is_frames,
)

if TYPE_CHECKING:
    import napari

RANGE = "A range of frames"
PATCHES, FRAMES = "Small patches of the images", "Whole frames"
NO_CHANNELS = "No axis (time, depth, positions)"


class Choices(Container[Widget]):
    """Layers, background and method.

    Parameters
    ----------
    viewer : napari.Viewer
        Its layers are offered.
    """

    def __init__(self, viewer: napari.Viewer) -> None:
        self._viewer = viewer
        self._settled = self._selecting = False
        self.foreground = ComboBox(
            label="Image",
            choices=self._images,
            nullable=True,
            tooltip="The image or stack whose background is to be removed",
        )
        self.background = ComboBox(
            label="Background",
            choices=self._backgrounds,
            nullable=True,
            tooltip="Where the background is alone: another layer, a drawn rectangle, painted "
            "labels, or some frames of the stack",
        )
        self.draw = PushButton(
            text="Draw background",
            tooltip="Make a layer to draw a rectangle on, over an area that shows no signal",
        )
        self.first = SpinBox(label="First frame", value=0, min=0, max=0)
        self.last = SpinBox(label="Last frame", value=0, min=0, max=0)
        self.channels = ComboBox(
            label="Channels are",
            choices=self._axes,
            tooltip="The layer's axes have no names: say whether one of them holds channels",
        )
        self.compare = ComboBox(
            label="Compare",
            choices=(PATCHES, FRAMES),
            tooltip="Patches for large or single images; whole frames for films of small ones, "
            "whose signal returns to the same place",
        )
        self.advanced = CheckBox(text="Advanced", value=False)  # first: the methods ask for it
        self.method = ComboBox(label="Method", choices=self._methods)
        self.suppression = Slider(
            label="Suppression 50",
            value=50,
            min=0,
            max=99,
            readout=False,  # whose number napari's style leaves no room for
            tooltip="How strongly the background is suppressed; 50 is chosen automatically",
        )
        self.n_components = SpinBox(
            label="Patterns kept",
            value=10,
            min=1,
            max=10_000,
            tooltip="How many patterns of the signal are kept",
        )
        self.side = SpinBox(label="Patch side", value=16, min=4, max=48)
        self.step = SpinBox(
            label="Patch step",
            value=0,
            min=0,
            max=48,
            tooltip="From a patch to the next; 0 is automatic",
        )
        self.constant = CheckBox(
            text="Background equally strong everywhere",
            tooltip="A little better where that is true; flattens faint signal where it is not",
        )
        self.anywhere = CheckBox(
            text="Signal may be anywhere in the frame",
            tooltip="For spots and vesicles, which do not return to the same place",
        )
        self.by_hand = CheckBox(text="Strength as in the papers", value=False)
        self.raw = FloatSpinBox(
            label="Strength (α, γ or β)", value=1.0, min=0.0, max=1e12, step=None
        )
        super().__init__(
            widgets=[
                *(self.foreground, self.background, self.draw, self.first, self.last),
                *(self.channels, self.compare, self.method, self.suppression),
                *(self.n_components, self.advanced, self.side, self.step, self.constant),
                *(self.anywhere, self.by_hand, self.raw),
            ]
        )
        self.margins = (0, 0, 0, 0)
        self.raw.native.setDecimals(6)
        self.foreground.changed.connect(self._on_foreground)
        for box in (self.foreground, self.background):
            box.changed.connect(self.settle)
        for widget in (self.background, self.compare, self.method, self.advanced, self.by_hand):
            widget.changed.connect(self._show_what_applies)
        self.advanced.changed.connect(self.method.reset_choices)
        self.suppression.changed.connect(self._show_number)
        self.draw.changed.connect(self.draw_background)
        self._preselect()
        self._on_foreground()

    # What is offered

    def _images(self, _widget: object = None) -> list[Image]:
        return [layer for layer in self._viewer.layers if isinstance(layer, Image)]

    def _backgrounds(self, _widget: object = None) -> list[Any]:
        kinds = (Image, Shapes, Labels)
        layers = [
            layer
            for layer in self._viewer.layers
            if isinstance(layer, kinds) and layer != self._layer()
        ]
        return [*layers, RANGE]

    def _axes(self, _widget: object = None) -> list[str]:
        layer = self._layer()
        if layer is None or not is_unnamed(layer):
            return [NO_CHANNELS]
        shape = pixels_of(layer).shape
        return [NO_CHANNELS, *(f"Axis {i}, of length {n}" for i, n in enumerate(shape))]

    def _methods(self, _widget: object = None) -> list[tuple[str, Method]]:
        shown = [m for m in METHODS if m != "cpca_star" or self.advanced.value]
        return [(METHODS[method], method) for method in shown]

    def _layer(self) -> Image | None:
        try:
            return self.foreground.value
        except AttributeError:  # while it is made
            return None

    def reset_choices(self, *_: Any) -> None:
        """Offer the layers that there are now; napari calls this whenever they change."""
        boxes = (self.foreground, self.background)
        chosen = [box.value for box in boxes]
        self._selecting = True  # which is nobody's choice
        super().reset_choices()
        for box, layer in zip(boxes, chosen, strict=True):
            if layer in box.choices:  # under a new name, perhaps, by which magicgui loses it
                box.value = layer
        self._selecting = False
        self._preselect()

    def settle(self, *_: object) -> None:
        """The user has chosen: nothing is preselected any more, while the layers are there."""
        self._settled = self._settled or not self._selecting

    def _preselect(self) -> None:
        """The newest image, and a stack of equal frames or a drawn area as its background."""
        images = self._images()
        if (self._settled and self.foreground.value is not None) or not images:
            return
        self._settled, self._selecting = False, True
        self.foreground.value = layer = images[-1]
        alike = [
            other
            for other in images[:-1]
            if layer.ndim > 2 and other.data.shape[-2:] == layer.data.shape[-2:]
        ]
        drawn = [
            other
            for other in self._backgrounds()
            if isinstance(other, Shapes | Labels) and other.name.startswith("background")
        ]
        if drawn:
            self.background.value = drawn[-1]
        elif len(images) == 2 and alike:
            self.background.value = alike[0]
        self._selecting = False

    # What applies

    def _on_foreground(self) -> None:
        layer = self._layer()
        chosen = self.background.value
        self.background.reset_choices()
        if chosen in self.background.choices:
            self.background.value = chosen
        self.channels.reset_choices()
        if layer is not None and not layer.rgb and layer.ndim > 1:
            shape = pixels_of(layer).shape
            self.compare.value = FRAMES if is_frames(default_samples(shape)) else PATCHES
            n = int(np.prod(shape[:-2]))
            for box in (self.first, self.last):
                box.max = max(0, n - 1)
            self.last.value = min(n - 1, max(3, n // 10)) if n > 1 else 0
        self._show_what_applies()

    def _show_number(self, value: int) -> None:
        self.suppression.label = f"Suppression {value}"

    def _show_what_applies(self) -> None:
        method, advanced = self.method.value, self.advanced.value
        frames = self.compare.value == FRAMES
        for box in (self.first, self.last):
            box.visible = self.background.value == RANGE
        self.draw.visible = not frames
        self.channels.visible = len(self.channels.choices) > 1
        self.suppression.visible = method in WITH_SLIDER
        self.suppression.enabled = not (advanced and self.by_hand.value)
        self.n_components.visible = method != "automatic"
        self.side.visible = self.step.visible = advanced and not frames
        self.constant.visible = advanced and method == "automatic" and not frames
        self.anywhere.visible = advanced and method == "automatic" and frames
        self.by_hand.visible = advanced and method in WITH_SLIDER
        self.raw.visible = self.by_hand.visible and self.by_hand.value

    def draw_background(self) -> None:
        """Make a layer for a rectangle over the image, with the tool in hand."""
        layer = self._layer()
        spatial: dict[str, Any] = {}
        if layer is not None:
            spatial = {"scale": layer.scale[-2:], "translate": layer.translate[-2:]}
            spatial |= {"units": layer.units[-2:], "axis_labels": layer.axis_labels[-2:]}
        drawn = self._viewer.add_shapes(
            name="background",
            ndim=2,
            face_color="transparent",
            edge_color="#e8924c",
            edge_width=2,
            **spatial,
        )
        self._viewer.dims.ndisplay = 2  # where rectangles can be drawn
        drawn.mode = "add_rectangle"
        self._viewer.layers.selection.active = drawn
        self.background.value = drawn

    # What was chosen

    def samples(self) -> Samples:
        """What is compared."""
        if self.compare.value == FRAMES:
            return Frames()
        side = self.side.value
        step = self.step.value if self.advanced.value else 0
        return Patches(side, min(step, side)) if step else default_patches(self.method.value, side)

    def settings(self) -> Settings:
        """How the background is removed."""
        advanced = self.advanced.value
        raw = self.raw.value if advanced and self.by_hand.value else None
        return Settings(
            self.method.value,
            self.suppression.value / 100,
            self.n_components.value,
            raw_strength=raw if self.method.value in WITH_SLIDER else None,
            constant_strength=advanced and self.constant.value,
            signal_anywhere=advanced and self.anywhere.value,
        )

    def images(self) -> Images:
        """The chosen images.

        Raises
        ------
        InputError
            If there are none, or they hold colours or channels.
        """
        layer = self.foreground.value
        images = images_of(layer, "under Image: the one whose background is to be removed")
        choice = self.channels.value
        axis = None if choice in (None, NO_CHANNELS) else self.channels.choices.index(choice) - 1
        check_channels(layer, axis)
        return images

    def pair(self) -> Pair:
        """The chosen images and their background, without reading pixels.

        Raises
        ------
        InputError
            If a choice is missing, or cannot work.
        """
        images, layer, chosen = self.images(), self.foreground.value, self.background.value
        if chosen is None:
            return Pair(images)
        if chosen == RANGE:
            return Pair(images, mask=self._frame_range(images))
        if isinstance(chosen, Shapes | Labels):
            if self.compare.value == FRAMES:
                raise InputError(
                    "A drawn area marks pixels, but whole frames are compared: choose a range of "
                    "frames without signal or another layer as the background, or compare small "
                    "patches."
                )
            return Pair(images, mask=region_of(layer, chosen))
        check_channels(chosen, None)
        return Pair(images, images_of(chosen, "under Background"))

    def _frame_range(self, images: Images) -> BoolArray:
        first, last = self.first.value, self.last.value
        if images.n_images < 2:
            raise InputError("A single image has no range of frames. Draw a rectangle instead.")
        if first > last:
            raise InputError(
                f"The range of background frames goes from {first} to {last}. Put the earlier "
                "frame first."
            )
        mask = np.zeros(images.n_images, dtype=bool)
        mask[first : last + 1] = True
        return mask.reshape(images.shape[:-2])
