"""Fixtures that open a window with the dock, make small layers, and act as a user does."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from napari.layers import Image
from napari.utils.notifications import notification_manager

from napari_plugin import _widget
from napari_plugin._choices import BOX, OTHER

TITLE = "Contrastive denoising"


class Dock:
    """Dock that is opened as from the Plugins menu, with methods that act as a user does."""

    def __init__(self, viewer, qtbot):
        self.viewer, self.qtbot = viewer, qtbot
        self.widget = viewer.window.add_plugin_dock_widget("contrast-suite", TITLE)[1]
        self.choices, self.method = self.widget.choices, self.widget.method

    @property
    def names(self):
        return [layer.name for layer in self.viewer.layers]

    @property
    def words(self):
        return self.widget.status.text

    @property
    def verdict(self):
        return self.widget.verdict.text

    @property
    def is_idle(self):
        """Whether a run can be started."""
        return self.widget.run.enabled and not self.widget.cancel.enabled

    @property
    def is_quiet(self):
        """Whether no job is running, not even a cancelled job or the check of a result."""
        runner = self.widget._runner
        return runner.is_quiet and runner.current is None

    def choose(self, image, background=None, **others):
        """Choose an image and its background: the name of a layer, "Frames", or None.

        The other arguments are values of further controls of the dock.
        """
        self.choices.image.value = self.viewer.layers[image]
        if background in self.names:
            layer = self.viewer.layers[background]
            is_image = isinstance(layer, Image)
            self.choices.kind.value = OTHER if is_image else BOX
            (self.choices.other if is_image else self.choices.area).value = layer
        elif background is not None:
            self.choices.kind.value = background
        for name, value in others.items():
            owner = self.method if hasattr(self.method, name) else self.choices
            getattr(owner, name).value = value

    def run(self, button="run"):
        getattr(self.widget, button).native.click()
        self.wait()

    def wait(self):
        """Wait until the run has ended; the result may not have been checked yet."""
        self.qtbot.waitUntil(lambda: self.is_idle, timeout=120_000)
        assert self.widget.progress.native.isHidden()

    def wait_for_all(self):
        """Wait until the run has ended and its result has been checked."""
        self.qtbot.waitUntil(lambda: self.is_idle and self.is_quiet, timeout=120_000)

    def answer(self, monkeypatch, *paths):
        """Let each dialog for a file or folder return the next of these paths."""
        answers = iter(paths)
        monkeypatch.setattr(type(self.widget.reuse), "ask", lambda *_: next(answers))

    def data(self, name):
        return np.asarray(self.viewer.layers[name].data)

    def draw(self, *corners):
        """Draw a box between two corners, in pixels."""
        self.choices.draw.native.click()
        (top, left), (bottom, right) = corners
        box = np.array([[top, left], [top, right], [bottom, right], [bottom, left]])
        self.choices.area.value.add_rectangles(box)


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
    """Return frames of 6 x 5 pixels that show a blinking square, and frames without it."""
    rng = np.random.default_rng(0)
    foreground = rng.normal(size=(40, 6, 5)).astype(np.float32)
    foreground[:, 1:3, 1:3] += 6 * rng.random(size=(40, 1, 1))
    return foreground, rng.normal(size=(30, 6, 5)).astype(np.float32)


@pytest.fixture
def ready(viewer, dock, film):
    """Return the dock with two films chosen, for a projection with two components."""
    viewer.add_image(film[0], name="cells")
    viewer.add_image(film[1], name="empty")
    dock.choose("cells", "empty", method="cpca", n_components=2)
    return dock


def stripes(*leading):
    """Return images with stripes everywhere and a bright square at the lower right."""
    rng = np.random.default_rng(0)
    image = np.sin(np.arange(64) * 0.9)[:, None] + 0.1 * rng.normal(size=(*leading, 64, 64))
    image[..., 40:50, 40:50] += 4
    return image


@pytest.fixture
def picture(viewer, dock):
    """Return the dock with an image of stripes and a square, and a box over stripes alone."""
    viewer.add_image(stripes(), name="cells", scale=(0.5, 0.25), translate=(3, 7))
    dock.draw((0, 0), (60, 30))
    dock.choose("cells", "background", side=8)
    return dock


@pytest.fixture
def notified():
    """Return a function that lists the severity and text of the notifications of this test."""
    start = len(notification_manager.records)
    return lambda: [
        (str(record.severity), record.message) for record in notification_manager.records[start:]
    ]


class Endless:
    """Function that runs until it is cancelled, and reports the text `doing`."""

    def __init__(self, doing="Reading"):
        self.started, self.stopped = threading.Event(), threading.Event()
        self.doing = doing

    def __call__(self, *args):
        report = next(each for each in args if callable(each) and each is not self)
        try:
            while True:
                self.started.set()
                time.sleep(0.01)
                report(1, 4, self.doing)
        finally:
            self.stopped.set()


@pytest.fixture
def make_endless():
    return Endless


class PausedRun:
    """Replacement of `run` that waits until the test sets `go_on`."""

    def __init__(self, monkeypatch):
        self.begun, self.go_on, self.threads = threading.Event(), threading.Event(), []
        self._run = _widget.run
        monkeypatch.setattr(_widget, "run", self)

    def __call__(self, task, report):
        self.threads.append(threading.get_ident())
        self.begun.set()
        self.go_on.wait(60)
        return self._run(task, report)


@pytest.fixture
def paused_run(monkeypatch):
    return PausedRun(monkeypatch)
