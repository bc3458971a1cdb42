"""A window with the dock open, small layers, and what a user does with them."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from napari.utils.notifications import notification_manager

from napari_plugin._settings import Progress


class Dock:
    """The dock in a viewer, as the Plugins menu opens it, and a user's hands."""

    def __init__(self, viewer, qtbot):
        self.viewer, self.qtbot = viewer, qtbot
        self.widget = viewer.window.add_plugin_dock_widget("contrast-suite", "Remove background")[1]
        self.choices = self.widget.choices

    @property
    def names(self):
        return [layer.name for layer in self.viewer.layers]

    @property
    def words(self):
        return self.widget.status.value

    @property
    def is_idle(self):
        widget = self.widget
        return widget.run.enabled and not widget.cancel.enabled and not widget._runner.is_busy

    @property
    def is_quiet(self):
        widget = self.widget
        return all(each.is_quiet for each in (widget._runner, widget.slider, widget.after))

    def choose(self, foreground, background, **others):
        self.choices.foreground.value = self.viewer.layers[foreground]
        if background in self.names:
            background = self.viewer.layers[background]
        self.choices.background.value = background
        for name, value in others.items():
            getattr(self.choices, name).value = value

    def run(self, button="run"):
        getattr(self.widget, button).native.click()
        self.wait()

    def wait(self):
        self.qtbot.waitUntil(lambda: self.is_idle, timeout=120_000)
        assert self.widget.progress.native.isHidden()

    def wait_for_all(self):
        self.qtbot.waitUntil(lambda: self.is_idle and self.is_quiet, timeout=120_000)


@pytest.fixture
def viewer(make_napari_viewer):
    return make_napari_viewer()


@pytest.fixture
def dock(viewer, qtbot):
    found = Dock(viewer, qtbot)
    yield found
    found.widget._abandon()
    qtbot.waitUntil(lambda: found.is_quiet, timeout=60_000)


@pytest.fixture
def film():
    """A blinking square on frames of 6 x 5 pixels, and frames without it."""
    rng = np.random.default_rng(0)
    foreground = rng.normal(size=(40, 6, 5)).astype(np.float32)
    foreground[:, 1:3, 1:3] += 6 * rng.random(size=(40, 1, 1))
    return foreground, rng.normal(size=(30, 6, 5)).astype(np.float32)


@pytest.fixture
def ready(viewer, dock, film):
    """The dock with two films chosen, for a projection of few patterns."""
    viewer.add_image(film[1], name="empty")
    viewer.add_image(film[0], name="cells")
    dock.choose("cells", "empty", method="cpca", n_components=2, compare="Whole frames")
    return dock


@pytest.fixture
def picture(viewer, dock):
    """The dock with an image of stripes and a square, and a rectangle over stripes alone."""
    rng = np.random.default_rng(0)
    image = np.sin(np.arange(64) * 0.9)[:, None] + 0.1 * rng.normal(size=(64, 64))
    image[40:50, 40:50] += 4
    viewer.add_image(image, name="cells", scale=(0.5, 0.25), translate=(3, 7))
    dock.choices.draw.native.click()
    corners = np.array([[0, 0], [0, 30], [60, 30], [60, 0]])
    viewer.layers["background"].add_rectangles(corners)
    dock.choose("cells", "background", advanced=True, side=8)
    return dock


@pytest.fixture
def notified():
    """A function that returns severity and text of the notifications since the test began."""
    start = len(notification_manager.records)
    return lambda: [
        (str(record.severity), record.message) for record in notification_manager.records[start:]
    ]


class Endless:
    """Steps that go on until they are dropped, and say when; `doing` as a work's first argument."""

    def __init__(self, doing="Reading"):
        self.started, self.stopped = threading.Event(), threading.Event()
        self.doing = doing

    def __call__(self, *args, **options):
        try:
            while True:
                self.started.set()
                time.sleep(0.01)
                yield Progress(1, 4, self.doing)
        finally:
            self.stopped.set()


@pytest.fixture
def endless():
    return Endless()


@pytest.fixture
def make_endless():
    return Endless
