"""Drive the real napari window from the menu to the result, and take a picture at each step.

    xvfb-run -a -s "-screen 0 1600x1000x24 -noreset" python scripts/napari_window.py [FOLDER]

The script counts the clicks of the mouse on menus and buttons, and one click for the drag of a box.
Submenus open when the mouse hovers over them, which takes no click. The script prints how many
clicks each sample took, and the relative error of the result for cells behind fringes. The bounds
are five clicks and an error of .08 for cells behind fringes, three clicks for digits on photographs
(and two more to show the weights of the pixels), and four clicks for two layers of cold atoms.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
from napari import Viewer
from napari.qt import get_qapp
from qtpy.QtCore import QEvent, QPoint, QPointF, Qt
from qtpy.QtGui import QMouseEvent
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication

TITLE = "Contrastive denoising"


class Hands:
    """Methods that act as a user does, count the clicks, and save pictures of the window."""

    def __init__(self, viewer: Viewer, folder: Path, name: str) -> None:
        self.viewer, self.folder, self.name = viewer, folder, name
        self.clicks = self.pictures = 0
        self.window = viewer.window._qt_window

    def wait(self, until=lambda: False, seconds: float = 0.3) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            QApplication.processEvents()
            time.sleep(0.005)

    def look(self, step: str) -> None:
        self.wait()
        self.pictures += 1
        path = self.folder / f"{self.name}-{self.pictures}-{step}.png"
        self.viewer.screenshot(path, canvas_only=False, flash=False)
        print(f"   {path}")

    def picture_of_screen(self, step: str) -> None:
        """Save a picture of the screen, because a picture of the window lacks the open menus."""
        self.wait()
        self.pictures += 1
        path = self.folder / f"{self.name}-{self.pictures}-{step}.png"
        self.window.screen().grabWindow(0).save(str(path))
        print(f"   {path}")

    def choose(self, *path: str) -> None:
        """Open a menu, hover over its submenus, and click on the last entry (two clicks)."""
        bar = self.window.menuBar()
        action = self._entry(bar, path[0])
        self._click(bar, bar.actionGeometry(action).center())
        menu = action.menu()
        for title in path[1:-1]:
            self.wait(menu.isVisible, 10)
            action = self._entry(menu, title)
            QTest.mouseMove(menu, menu.actionGeometry(action).center() - QPoint(5, 0))
            QTest.mouseMove(menu, menu.actionGeometry(action).center())
            menu = action.menu()
        self.wait(menu.isVisible, 10)
        if not menu.isVisible():
            raise RuntimeError(f"hovering did not open {path[-2]!r}")
        self.picture_of_screen("menu")
        self._click(menu, menu.actionGeometry(self._entry(menu, path[-1])).center())
        self.wait(seconds=1.0)

    def _click(self, widget, where) -> None:
        self.clicks += 1
        QTest.mouseClick(widget, Qt.MouseButton.LeftButton, pos=where)

    def _entry(self, menu, title: str):
        found = [a for a in menu.actions() if a.text().replace("&", "").startswith(title)]
        if not found:
            raise LookupError(f"{title!r} is not among {[a.text() for a in menu.actions()]}")
        return found[0]

    def press(self, button) -> None:
        where = button.native.rect().center()
        # A tick box may be wider than its mark and text, so the click goes to its left end.
        self._click(button.native, QPoint(min(where.x(), 20), where.y()))
        self.wait()

    def pick(self, box, text: str) -> None:
        """Open a combo box and choose one of its entries (two clicks)."""
        native = box.native
        self._click(native, native.rect().center())
        view = native.view()
        self.wait(view.isVisible, 5)
        # A second click right after the first one counts as a double click, which Qt ignores here.
        self.wait(seconds=1.0)
        index = native.model().index(native.findText(text), 0)
        self._click(view.viewport(), view.visualRect(index).center())
        self.wait()

    def drag(self, first: tuple[float, float], last: tuple[float, float]) -> None:
        """Drag the mouse between two places of the image, which are given in pixels."""
        self.clicks += 1
        canvas = self.viewer.window._qt_viewer.canvas.native
        ends = [self._on_canvas(place, canvas) for place in (first, last)]
        steps = [
            QPoint(*(np.round(ends[0] + share * (ends[1] - ends[0])).astype(int).tolist()))
            for share in np.linspace(0, 1, 6)
        ]
        left, none = Qt.MouseButton.LeftButton, Qt.MouseButton.NoButton
        self._mouse(canvas, QEvent.Type.MouseMove, steps[0], none, none)
        self._mouse(canvas, QEvent.Type.MouseButtonPress, steps[0], left, left)
        for step in steps[1:]:
            self._mouse(canvas, QEvent.Type.MouseMove, step, none, left)
        self._mouse(canvas, QEvent.Type.MouseButtonRelease, steps[-1], left, none)
        self.wait()

    def _mouse(self, canvas, kind, where, button, buttons) -> None:
        far = QPointF(canvas.mapToGlobal(where))
        event = QMouseEvent(
            kind, QPointF(where), far, button, buttons, Qt.KeyboardModifier.NoModifier
        )
        QApplication.sendEvent(canvas, event)
        self.wait(seconds=0.05)

    def _on_canvas(self, place, canvas):
        viewer, size = self.viewer, np.array([canvas.width(), canvas.height()])
        # Before version 0.9 of napari, the viewer has no `scene`.
        camera = viewer.scene.camera if hasattr(viewer, "scene") else viewer.camera
        offset = (np.asarray(place) - np.asarray(camera.center)[-2:]) * camera.zoom
        return size / 2 + offset[::-1]


def relative_error(estimate, clean, noisy) -> float:
    def error(image) -> float:
        fit = np.polynomial.Polynomial.fit(image.ravel(), clean.ravel(), 1)
        return float(((fit(image) - clean) ** 2).mean())

    return error(estimate) / error(noisy)


def dock_of(viewer):
    return viewer.window.add_plugin_dock_widget("contrast-suite", TITLE)[1]  # the open dock


def run(hands: Hands, dock) -> float:
    start = time.monotonic()
    hands.press(dock.run)
    hands.wait(lambda: not dock.cancel.enabled, seconds=300)
    return time.monotonic() - start


def cells_behind_fringes(hands: Hands) -> bool:
    viewer = hands.viewer
    hands.choose("File", "Open Sample", "contrast-suite", "Cells behind fringes")
    hands.look("sample")
    dock = dock_of(viewer)
    hands.press(dock.choices.draw)
    hands.look("draw")
    hands.drag((8, 8), (145, 145))
    hands.look("box")
    seconds = run(hands, dock)
    clicks = hands.clicks
    hands.wait(lambda: dock._runner.is_quiet, seconds=300)
    hands.look("result")
    source = viewer.layers["cells behind fringes"]
    found = viewer.layers["cells behind fringes denoised"].data
    error = relative_error(found, source.metadata["clean"], source.data)
    print(f"   {clicks} clicks (bound 5), relative error {error:.3f} (bound .08), {seconds:.1f} s")
    dock.view.value = "Original"
    hands.look("original")
    return clicks <= 5 and error <= 0.08


def digits_on_photographs(hands: Hands) -> bool:
    viewer = hands.viewer
    hands.choose("File", "Open Sample", "contrast-suite", "Digits on photographs")
    hands.look("sample")
    dock = dock_of(viewer)
    seconds = run(hands, dock)
    clicks = hands.clicks
    hands.wait(lambda: dock._runner.is_quiet, seconds=300)
    hands.look("result")
    hands.pick(dock.view, "Weights")
    hands.look("weights")
    print(f"   {clicks} clicks (bound 3), {hands.clicks} with weights (bound 5), {seconds:.1f} s")
    print(f"   {dock.status.text!r} {dock.verdict.text!r}")
    reached = clicks <= 3 and hands.clicks <= 5 and dock.view.value == "Weights"
    dock.method.button.native.click()
    dock.method.method.value = "cpca"
    run(hands, dock)
    hands.wait(lambda: dock._runner.is_quiet, seconds=300)
    dock.method.suppression.value = 90
    hands.wait(lambda: dock._runner.is_quiet, seconds=300)
    hands.pick(dock.view, "Weights")
    hands.look("slider")
    return reached


def cold_atoms(hands: Hands) -> bool:
    """Remove the probe light from images of atoms, if CONTRAST_DATA names a folder with these."""
    path = Path(os.environ.get("CONTRAST_DATA", ""), "atoms", "cold_atoms_14.npz")
    if not path.is_file():
        print(f"   skipped: {path} does not exist")
        return True
    viewer = hands.viewer
    with np.load(path) as data:
        for name in ("atoms", "probe"):
            viewer.add_image(data[name], name=name, axis_labels=("shot", "y", "x"))
    hands.choose("Plugins", TITLE)
    hands.look("dock")
    dock = dock_of(viewer)
    hands.press(dock.method.absorbed)
    seconds = run(hands, dock)
    clicks = hands.clicks
    hands.wait(lambda: dock._runner.is_quiet, seconds=300)
    hands.look("result")
    print(f"   {clicks} clicks (bound 4), {seconds:.1f} s; {dock.verdict.text!r}")
    return clicks <= 4 and dock.method.absorbed.value and "atoms denoised" in viewer.layers


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output")
    folder.mkdir(parents=True, exist_ok=True)
    get_qapp()
    reached = True
    for part in (cells_behind_fringes, digits_on_photographs, cold_atoms):
        print(part.__name__.replace("_", " "), flush=True)
        viewer = Viewer()
        hands = Hands(viewer, folder, part.__name__.split("_")[0])
        # If the window were resized before it is shown, its docks would take the new width.
        hands.wait(seconds=2)
        viewer.window.resize(1500, 950)
        reached &= part(hands)
        viewer.close()
    return not reached


if __name__ == "__main__":
    sys.exit(main())
