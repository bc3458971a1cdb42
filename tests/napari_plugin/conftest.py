"""Fixtures that open a window with the dock, make small images, and act as a user does."""

from __future__ import annotations

import gc
import threading
from itertools import count
from unittest.mock import Mock

import numpy as np
import pytest
from napari.layers import Image
from napari.utils.notifications import notification_manager

from contrast_core.datasets import cells_behind_fringes
from napari_plugin._choices import BOX, OTHER
from napari_plugin._pair import Images, Pair
from napari_plugin._settings import Cancelled
from napari_plugin._solve import Solution

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

    def press(self, name):
        """Press a button."""
        owners = (self.widget, self.widget.reuse, self.choices)
        next(getattr(each, name) for each in owners if hasattr(each, name)).native.click()

    def run(self, button="run", *paths):
        """Press a button, answer its dialogs for files and folders, and wait for everything.

        Return the mock of the dialogs, which records their arguments.
        """
        ask = self.widget.reuse.ask = Mock(side_effect=paths)
        self.press(button)
        self.wait()
        assert self.is_idle
        assert self.widget.progress.native.isHidden()
        return ask

    def wait(self):
        """Wait until no job is running, not even a cancelled job or the check of a result."""
        runner = self.widget._runner
        self.until(lambda: runner.is_quiet and runner.current is None)

    def start(self, pause):
        """Press Run, and wait until the run has reached the pause."""
        self.press("run")
        self.until(pause.begun.is_set)

    def until(self, condition):
        self.qtbot.waitUntil(condition, timeout=120_000)

    def data(self, name):
        return np.asarray(self.viewer.layers[name].data)

    def draw(self, *corners):
        """Draw a box between two corners, in pixels."""
        self.press("draw")
        (top, left), (bottom, right) = corners
        box = np.array([[top, left], [top, right], [bottom, right], [bottom, left]])
        self.choices.area.value.add_rectangles(box)


@pytest.fixture(scope="module", autouse=True)
def fewer_objects():
    """Exempt imported modules from garbage collection, which napari often asks for."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def viewer(make_napari_viewer):
    return make_napari_viewer()


@pytest.fixture
def dock(viewer, qtbot):
    found = Dock(viewer, qtbot)
    yield found
    found.widget._abandon()
    found.wait()


@pytest.fixture
def ready(viewer, dock, film):
    """Return the dock with two films chosen, for a projection with two components."""
    viewer.add_image(film[0], name="cells")
    viewer.add_image(film[1], name="empty")
    dock.choose("cells", "empty", method="cpca", n_components=2)
    return dock


@pytest.fixture
def picture(viewer, dock):
    """Return the dock with an image of stripes and a square, and a box over stripes alone."""
    viewer.add_image(stripes(), name="cells", scale=(0.5, 0.25), translate=(3, 7))
    dock.draw((0, 0), (60, 30))
    dock.choose("cells", "background", side=8)
    return dock


def stripes(*leading):
    """Return images with stripes everywhere and a bright square at the lower right."""
    rng = np.random.default_rng(0)
    image = np.sin(np.arange(64) * 0.9)[:, None] + 0.1 * rng.normal(size=(*leading, 64, 64))
    image[..., 40:50, 40:50] += 4
    return image


@pytest.fixture(scope="session")
def fringes():
    return cells_behind_fringes((160, 160))


@pytest.fixture(scope="session")
def film():
    """Return frames of 6 x 5 pixels that show two blinking squares, and frames without them.

    A pattern whose strength varies from frame to frame is in both.
    """
    rng = np.random.default_rng(0)
    common = rng.normal(size=(1, 6, 5))
    foreground = 40 + 3 * rng.normal(size=(80, 1, 1)) * common + rng.normal(size=(80, 6, 5))
    for square in (foreground[:, 1:3, 1:3], foreground[:, 4:6, 3:5]):
        square += 20 * rng.random(size=(80, 1, 1))
    background = 30 + 3 * rng.normal(size=(60, 1, 1)) * common + rng.normal(size=(60, 6, 5))
    return foreground, background


def pair_of(film):
    """Return the pair of the foreground and the background of a film."""
    return Pair(Images("cells", film[0]), Images("empty", film[1]))


@pytest.fixture
def notified():
    """Return a function that lists the severity and text of the notifications of this test."""
    start = len(notification_manager.records)
    return lambda: [(str(x.severity), x.message) for x in notification_manager.records[start:]]


class Watched:
    """Array that lists, in `reads`, the thread and the number of pixels of every access."""

    def __init__(self, data):
        self.data, self.reads = data, []
        self.shape, self.dtype, self.ndim, self.size = data.shape, data.dtype, data.ndim, data.size

    def __getitem__(self, where):
        found = self.data[where]
        self.reads.append((threading.get_ident(), np.size(found)))
        return found

    def __array__(self, dtype=None, copy=None):
        return self[...]


@pytest.fixture
def applied(monkeypatch):
    """Return a list of the thread and the number of pixels for every use of a model."""
    seen, original = [], Solution.apply

    def apply(solution, images, *others):
        seen.append((threading.get_ident(), images.data.size))
        return original(solution, images, *others)

    monkeypatch.setattr(Solution, "apply", apply)
    return seen


class Pause:
    """Pause before a function, which ends when the test sets `go_on` or cancels the run."""

    def __init__(self, monkeypatch, owner, name, *, reports=True):
        self.begun, self.go_on, self.ended = (threading.Event() for _ in range(3))
        self.threads, original = [], getattr(owner, name)

        def paused(*args):
            report = next(each for each in args if callable(each))
            self.threads.append(threading.get_ident())
            self.begun.set()
            try:
                while not self.go_on.wait(0.01):
                    if reports:
                        report(1, 4, "Reading")
                return original(*args)
            finally:
                self.ended.set()

        monkeypatch.setattr(owner, name, paused)


def cancel_at(last):
    """Return a report that cancels the job at its call with this number."""
    calls = count(1)

    def report(*_):
        if next(calls) == last:
            raise Cancelled

    return report
