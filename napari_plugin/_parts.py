"""Widgets from which the dock is built: texts, sections, rows and a small plot."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any, Literal, TypeAlias

import numpy as np
from magicgui.widgets import ComboBox, Container, Label, PushButton, Widget
from numpy.typing import NDArray
from qtpy.QtCore import QPointF, QRectF, Qt
from qtpy.QtGui import QColor, QPainter, QPen, QPolygonF
from qtpy.QtWidgets import QComboBox, QSizePolicy, QWidget

Light: TypeAlias = Literal["", "good", "doubtful", "instead"]
"""No light, or a green, orange or red one. Red means that another choice should be made instead."""

_LIGHTS = {"good": "#4caf50", "doubtful": "#e8a33c", "instead": "#e0605a"}
_COLORS = ("#4c9be8", "#e8924c")
_MARGIN, _HEIGHT = 26, 160


class Line(Label):
    """Text that wraps and can be copied, with a coloured light in front of it for a verdict."""

    def __init__(self) -> None:
        super().__init__(value="")
        self.text, self.light = "", ""
        label, flag = self.native, Qt.TextInteractionFlag
        label.setWordWrap(True)
        label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Minimum)
        label.setTextInteractionFlags(flag.TextSelectableByMouse | flag.TextSelectableByKeyboard)

    def say(self, text: str, light: Light = "") -> None:
        """Show a text, with a light in front of it unless `light` is empty."""
        self.text, self.light = text, light
        shown = escape(text, quote=False).replace("\n", "<br>")
        color = _LIGHTS.get(light)
        self.value = f'<span style="color:{color}">●</span> {shown}' if color else shown


class Section(Container[Widget]):
    """Section whose title, when clicked, shows or hides the widgets below it."""

    def __init__(self, title: str, widgets: list[Widget], *, labels: bool = True) -> None:
        self.button, self._title = PushButton(text=f"▸ {title}"), title
        self.inside = Container[Widget](widgets=widgets, labels=labels)
        super().__init__(widgets=[self.button, self.inside], labels=False)
        self.margins = self.inside.margins = (0, 0, 0, 0)
        self.button.native.setCheckable(True)
        self.button.native.setStyleSheet("text-align: left")
        self.button.native.toggled.connect(self._on_toggled)
        self.inside.visible = False

    def _on_toggled(self, is_open: bool) -> None:
        self.inside.visible = is_open
        self.button.text = f"{'▾' if is_open else '▸'} {self._title}"


def row(*widgets: Widget, label: str = "") -> Container[Widget]:
    """Return a container that shows widgets beside each other."""
    beside = Container[Widget](
        widgets=list(widgets), layout="horizontal", labels=False, label=label
    )
    beside.margins = (0, 0, 0, 0)
    return beside


def make_accessible(container: Any) -> None:
    """Name every widget for screen readers, and let combo boxes be narrower than their texts."""
    for widget in container:
        if isinstance(widget, Container):
            make_accessible(widget)
            continue
        name = widget.label or getattr(widget, "text", "") or widget.tooltip or ""
        widget.native.setAccessibleName(name)
        if isinstance(widget, ComboBox) and isinstance(widget.native, QComboBox):
            narrow = QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
            widget.native.setSizeAdjustPolicy(narrow)
            widget.native.setMinimumContentsLength(8)


class Plot(QWidget):
    """Plot of lines over a common axis, or of points that a click or the arrow keys can choose.

    It is painted by Qt, because matplotlib takes too long to load and to draw.

    Parameters
    ----------
    title : str
    on_click : callable of int, optional
        Function that is called with the index of the chosen point.
    """

    def __init__(self, title: str, on_click: Callable[[int], None] | None = None) -> None:
        super().__init__()
        self._title, self._on_click = title, on_click
        self._lines: dict[str, NDArray[Any]] = {}
        self.points = np.empty((0, 2))
        self._chosen, self._mark = -1, 0.0
        self.setFixedHeight(_HEIGHT)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(title)
        self.setVisible(False)

    def show_lines(self, lines: dict[str, NDArray[Any]]) -> None:
        """Draw lines (n, 2) over axes from 0 to 1; the plot is hidden if there are none."""
        self._lines = lines
        self.setVisible(bool(lines))

    def set_mark(self, mark: float) -> None:
        """Draw a mark at this position of the x axis."""
        self._mark = mark
        self.update()

    def show_points(self, points: NDArray[Any] | None) -> None:
        """Draw points (n, 2), scaled to the plot; the plot is hidden if there are none."""
        self.points, self._chosen = np.empty((0, 2)) if points is None else points, -1
        self.setVisible(points is not None)
        self.update()

    def choose(self, number: int) -> None:
        """Choose a point by its index, and call `on_click`."""
        if len(self.points) and self._on_click is not None:
            self._chosen = number % len(self.points)
            self.update()
            self._on_click(self._chosen)

    def mousePressEvent(self, event: Any) -> None:
        """Choose the nearest point."""
        if len(self.points):
            where = np.array([event.position().x(), event.position().y()])
            self.choose(int(((self.places() - where) ** 2).sum(axis=1).argmin()))

    def keyPressEvent(self, event: Any) -> None:
        """Go to the next or the previous point."""
        step = {Qt.Key.Key_Right: 1, Qt.Key.Key_Left: -1}.get(event.key())
        if step is None:
            super().keyPressEvent(event)
        else:
            self.choose(self._chosen + step)

    def places(self) -> NDArray[np.float64]:
        """Return the positions of the points in the widget, in screen pixels."""
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        return self._on_screen((self.points - low) / np.where(high > low, high - low, 1.0))

    def _on_screen(self, shares: Any) -> NDArray[np.float64]:
        """Convert points (n, 2) between 0 and 1 to positions in the widget, in screen pixels."""
        size = np.array([self.width(), self.height()]) - 2 * _MARGIN
        return np.asarray(_MARGIN + (np.asarray(shares) * [1, -1] + [0, 1]) * size, np.float64)

    def paintEvent(self, _event: Any) -> None:
        """Draw the plot."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ink, right = self.palette().text().color(), self.width() - _MARGIN
        painter.setPen(ink)
        painter.drawText(4, 14, self._title)
        painter.drawRect(QRectF(20, 20, self.width() - 40, self.height() - 40))
        for i, (name, line) in enumerate(self._lines.items()):
            painter.setPen(QPen(QColor(_COLORS[i]), 2))
            painter.drawPolyline(_polygon(self._on_screen(line)))
            room = QRectF(_MARGIN, 24 + 14 * i, right - _MARGIN, 14)
            painter.drawText(room, Qt.AlignmentFlag.AlignRight, name)
        if self._lines:
            painter.setPen(QPen(ink, 1, Qt.PenStyle.DashLine))
            painter.drawPolyline(_polygon(self._on_screen([[self._mark, 0], [self._mark, 1]])))
        if len(self.points):
            places = self.places()
            painter.setPen(QPen(QColor(_COLORS[0]), 3))
            painter.drawPoints(_polygon(places))
            if self._chosen >= 0:
                painter.setPen(QPen(QColor(_COLORS[1]), 2))
                painter.drawEllipse(QPointF(*places[self._chosen].tolist()), 5, 5)
        painter.end()


def _polygon(places: NDArray[np.float64]) -> QPolygonF:
    return QPolygonF([QPointF(*place) for place in places.tolist()])
