"""A small plot in the dock, painted by Qt itself: lines, or points that can be clicked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QPointF, QRectF, QSize, Qt
from qtpy.QtGui import QColor, QPainter, QPen, QPolygonF
from qtpy.QtWidgets import QSizePolicy, QWidget

_MARGIN = 22
_COLORS = ("#4c9be8", "#e8924c")


class Plot(QWidget):
    """Lines over a common axis, or points that can be chosen.

    Parameters
    ----------
    title : str
    on_click : callable of int, optional
        Called with the number of the point that was clicked, or reached by the arrow keys.
    """

    def __init__(self, title: str, on_click: Callable[[int], None] | None = None) -> None:
        super().__init__()
        self._title, self._on_click = title, on_click
        self._lines: list[tuple[str, NDArray[Any], NDArray[Any]]] = []
        self._points: NDArray[Any] | None = None
        self._chosen: int | None = None
        self._at: float | None = None
        self.setMinimumHeight(150)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(title)

    def sizeHint(self) -> QSize:
        """Return the preferred size."""
        return QSize(260, 160)

    def set_lines(
        self, x: Sequence[float], lines: Mapping[str, Sequence[float]], at: float
    ) -> None:
        """Draw lines, and a mark at a place of the axis."""
        self._lines = [(name, np.asarray(x), np.asarray(y)) for name, y in lines.items()]
        self._at = at
        self.update()

    def set_mark(self, at: float) -> None:
        """Move the mark."""
        self._at = at
        self.update()

    def set_points(self, points: NDArray[Any]) -> None:
        """Draw points (n, 2)."""
        self._points, self._chosen = np.asarray(points, dtype=np.float64), None
        self.update()

    def choose(self, number: int) -> None:
        """Choose a point, and call `on_click`."""
        if self._points is None or not len(self._points):
            return
        self._chosen = number % len(self._points)
        self.update()
        if self._on_click is not None:
            self._on_click(self._chosen)

    def mousePressEvent(self, event: Any) -> None:
        """Choose the nearest point."""
        if self._points is None or not len(self._points):
            return
        where = np.array([event.position().x(), event.position().y()])
        distances = ((self._on_screen(self._points, self._points) - where) ** 2).sum(axis=1)
        self.choose(int(distances.argmin()))

    def keyPressEvent(self, event: Any) -> None:
        """Go to the next or the previous point."""
        step = {Qt.Key.Key_Right: 1, Qt.Key.Key_Left: -1}.get(event.key())
        if step is None or self._points is None:
            super().keyPressEvent(event)
        else:
            self.choose((-1 if self._chosen is None else self._chosen) + step)

    def paintEvent(self, _event: Any) -> None:
        """Draw."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        ink = self.palette().text().color()
        painter.setPen(ink)
        painter.drawText(4, 14, self._title)
        width, height = self.width(), self.height()
        painter.drawRect(_MARGIN, _MARGIN, width - 2 * _MARGIN, height - 2 * _MARGIN)
        if self._lines:
            self._paint_lines(painter)
        if self._points is not None and len(self._points):
            self._paint_points(painter)
        painter.end()

    def _paint_lines(self, painter: QPainter) -> None:
        frame = np.array([[0.0, 0.0], [1.0, 1.0]])
        for i, (name, x, y) in enumerate(self._lines):
            painter.setPen(QPen(QColor(_COLORS[i]), 2))
            places = self._on_screen(np.column_stack([x, y]), frame)
            painter.drawPolyline(QPolygonF([QPointF(*place) for place in places.tolist()]))
            right = self.width() - _MARGIN - 6  # where lines that fall leave room
            room = QRectF(_MARGIN, _MARGIN + 14 * i + 2, right - _MARGIN, 14)
            painter.drawText(room, Qt.AlignmentFlag.AlignRight, name)
        if self._at is not None:
            ends = self._on_screen(np.array([[self._at, 0.0], [self._at, 1.0]]), frame)
            painter.setPen(QPen(self.palette().text().color(), 1, Qt.PenStyle.DashLine))
            painter.drawLine(QPointF(*ends[0].tolist()), QPointF(*ends[1].tolist()))

    def _paint_points(self, painter: QPainter) -> None:
        assert self._points is not None
        places = self._on_screen(self._points, self._points)
        painter.setPen(QPen(QColor(_COLORS[0]), 3))
        painter.drawPoints(QPolygonF([QPointF(*place) for place in places.tolist()]))
        if self._chosen is not None:
            painter.setPen(QPen(QColor(_COLORS[1]), 2))
            painter.drawEllipse(QPointF(*places[self._chosen].tolist()), 5, 5)

    def _on_screen(self, points: NDArray[Any], frame: NDArray[Any]) -> NDArray[np.float64]:
        """Return places in the window; the points are scaled to the corners of a frame."""
        low, high = frame.min(axis=0), frame.max(axis=0)
        share = (points - low) / np.where(high > low, high - low, 1.0)
        size = np.array([self.width(), self.height()]) - 2 * _MARGIN - 8
        return np.asarray(
            _MARGIN + 4 + np.column_stack([share[:, 0], 1 - share[:, 1]]) * size, dtype=np.float64
        )
