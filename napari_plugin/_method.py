"""The section of the dock that chooses the method and its parameters."""

from __future__ import annotations

from magicgui.widgets import CheckBox, ComboBox, FloatSpinBox, Label, Slider, SpinBox, Widget

from contrast_core.images import Frames, Patches
from napari_plugin._parts import Plot, Section, row
from napari_plugin._settings import (
    METHODS,
    WITH_SLIDER,
    Method,
    Samples,
    Settings,
    default_patches,
    default_samples,
)

BY_SIZE, PATCHES, WHOLE = "Automatic choice", "Small patches", "Whole frames"
_TOOLTIPS = {
    "suppression": "How strongly the background is suppressed. At 50 the strength is chosen "
    "automatically.",
    "n_components": "Number of components of the signal that are kept",
    "compare": "Patches suit large or single images. Whole frames suit films of small images whose "
    "signal returns to the same place.",
    "side": "In pixels. With 0, patches are squares of 16 pixels, or strips if the background has "
    "stripes.",
    "step": "Distance from a patch to the next, in pixels. With 0, it is chosen automatically.",
    "dark": "Subtracts the mean of the background too, so that the dark ground of a fluorescence "
    "image becomes 0",
    "constant": "Improves the result a little if the background is equally strong everywhere. "
    "Otherwise it flattens faint signal.",
    "absorbed": "For absorption images and bright field. The result is then an optical density.",
}


class MethodChoices(Section):
    """Widgets to choose the method, its strength, the components, and patches or whole frames."""

    def __init__(self) -> None:
        self.method = ComboBox(label="Method", choices=[(METHODS[each], each) for each in METHODS])
        # napari's style leaves no room for the slider's own number.
        self.suppression = Slider(label="Suppression", value=50, max=99, readout=False)
        self._number = Label(value="50")
        self._slider = row(self.suppression, self._number, label="Suppression")
        self.n_components = SpinBox(label="Components", value=10, min=1, max=10_000)
        self.compare = ComboBox(label="Compare", choices=(BY_SIZE, PATCHES, WHOLE))
        self.side = SpinBox(label="Patch side", max=48)
        self.step = SpinBox(label="Patch step", max=48)
        self.dark = CheckBox(text="Background becomes 0")
        self.constant = CheckBox(text="Background strength is constant")
        self.absorbed = CheckBox(text="Light is absorbed", visible=False)
        self.by_hand = CheckBox(text="Strength as in the papers")
        self.raw = FloatSpinBox(label="Strength (α, γ or β)", value=1.0, max=1e12, step=None)
        widgets: list[Widget] = [self.method, self._slider, self.n_components, self.compare]
        widgets += [self.side, self.step, self.dark, self.constant]
        super().__init__("Method", [*widgets, self.by_hand, self.raw])
        for name, tooltip in _TOOLTIPS.items():
            getattr(self, name).tooltip = tooltip
        number = self._number.native
        number.setFixedWidth(number.fontMetrics().horizontalAdvance("999"))
        self.raw.native.setDecimals(6)
        self.curve = Plot("Variance kept at each suppression")
        self.inside.native.layout().addWidget(self.curve)
        self.curve.set_mark(self.suppression.value / 100)
        self.suppression.changed.connect(self._on_slider)
        for widget in (self.method, self.compare, self.by_hand):
            widget.changed.connect(self.show_what_applies)
        self.show_what_applies()

    def _on_slider(self, value: int) -> None:
        self._number.value = str(value)
        self.curve.set_mark(value / 100)

    def show_what_applies(self) -> None:
        """Show the parameters of the chosen method."""
        method, whole = self.method.value, self.compare.value == WHOLE
        automatic, slides = method == "automatic", method in WITH_SLIDER
        self._slider.visible = self.by_hand.visible = slides
        self._slider.enabled = not self.by_hand.value
        self.n_components.visible = not automatic
        self.side.visible = self.step.visible = not whole
        self.dark.visible = self.constant.visible = automatic and not whole
        self.raw.visible = slides and self.by_hand.value

    def samples(self, shape: tuple[int, ...], background_shape: tuple[int, ...] | None) -> Samples:
        """Return the samples (patches or frames) for images of this shape.

        `background_shape` is the shape of the background stack. It is None if the background is an
        area of the images.
        """
        method: Method = self.method.value
        if self.compare.value == WHOLE:
            return Frames()
        found = default_samples(shape, method, background_shape)
        if self.compare.value == BY_SIZE and isinstance(found, Frames):
            return found
        side, step, default = self.side.value, self.step.value, default_patches(method)
        if not side and not step:
            return default
        side = side or default.sides[-1]
        step = step or max(1, side * default.stride // default.sides[-1])
        return Patches((side, side), min(step, side))

    def settings(self) -> Settings:
        """Return the chosen settings of the background removal."""
        by_hand = self.by_hand.value and self.method.value in WITH_SLIDER
        return Settings(
            self.method.value,
            self.suppression.value / 100,
            self.n_components.value,
            raw_strength=self.raw.value if by_hand else None,
            constant_strength=self.constant.value,
            absorbed=self.absorbed.value,
            brightness="remove" if self.dark.value else "keep",
        )

    def show_settings(self, settings: Settings) -> None:
        """Show the settings with which a saved model was fitted."""
        if settings.method != "automatic":
            self.method.value = settings.method
            self.suppression.value = round(100 * settings.suppression)
            self.n_components.value = settings.n_components
