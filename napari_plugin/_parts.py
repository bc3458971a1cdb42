"""Pieces that the dock is made of."""

from __future__ import annotations

from html import escape
from typing import Any, Literal, TypeAlias

from magicgui.widgets import ComboBox, Container, Label, PushButton, Widget
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QComboBox, QSizePolicy

Level: TypeAlias = Literal["", "good", "doubtful", "instead"]

_COLORS = {"good": "#4caf50", "doubtful": "#e8a33c", "instead": "#e0605a"}


class Line(Label):
    """Words that wrap and can be copied, behind a coloured light if they are a verdict."""

    def __init__(self) -> None:
        super().__init__(value="")
        self.text, self.level = "", ""
        label = self.native
        label.setWordWrap(True)
        label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Minimum)
        label.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse
            | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )

    def say(self, text: str, level: Level = "") -> None:
        """Show a text, and a light of the level's colour."""
        if (text, level) == (self.text, self.level):
            return
        self.text, self.level = text, level
        shown = escape(text, quote=False).replace("\n", "<br>")
        color = _COLORS.get(level)
        self.value = f'<span style="color:{color}">●</span> {shown}' if color else shown


class Section(Container[Widget]):
    """A title that opens and closes the widgets below it."""

    def __init__(self, title: str, widgets: list[Widget], *, labels: bool = True) -> None:
        self.button, self._title = PushButton(text=f"▸ {title}"), title
        self.inside = Container[Widget](widgets=widgets, labels=labels)
        self.inside.margins = (0, 0, 0, 0)
        super().__init__(widgets=[self.button, self.inside], labels=False)
        self.margins = (0, 0, 0, 0)
        self.button.native.setCheckable(True)
        self.button.native.setStyleSheet("text-align: left")
        self.button.native.toggled.connect(self._on_toggled)
        self.inside.visible = False

    def _on_toggled(self, is_open: bool) -> None:
        self.inside.visible = is_open
        self.button.text = f"{'▾' if is_open else '▸'} {self._title}"


def row(*widgets: Widget, labels: bool = False) -> Container[Widget]:
    """Return widgets beside each other."""
    beside = Container[Widget](widgets=list(widgets), layout="horizontal", labels=labels)
    beside.margins = (0, 0, 0, 0)
    return beside


def make_accessible(container: Any) -> None:
    """Give every widget a name for screen readers, and let boxes be narrower than their texts."""
    for widget in container:
        if isinstance(widget, Container):
            make_accessible(widget)
            continue
        name = widget.label or getattr(widget, "text", "") or widget.tooltip or ""
        widget.native.setAccessibleName(name)
        if isinstance(widget, ComboBox) and isinstance(widget.native, QComboBox):
            widget.native.setSizeAdjustPolicy(
                QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
            )
            widget.native.setMinimumContentsLength(8)
