"""Tests of wrong input, failures, cancelled runs and removed layers.

In each case the dock shows a message, and neither layers nor threads are left behind.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from napari_plugin import _model, _widget
from napari_plugin._choices import FRAMES
from napari_plugin._method import PATCHES, WHOLE
from napari_plugin._runner import Job, Runner
from napari_plugin._solve import Solution
from tests.napari_plugin.conftest import Pause, Watched

WRONG = [
    ((6, 5), {}, "1 frames with signal"),
    ((3, 6, 5), {"axis": -1}, "3 frames with signal"),
    ((40, 6, 5), {"kind": FRAMES, "first": 3, "last": 5}, "37 frames with signal and 3"),
    ((40, 6, 5), {"kind": FRAMES, "first": 5, "last": 4}, "goes from 5 to 4"),
    ((6, 6, 5), {"method": "cpca", "n_components": 6}, "6 components are to be kept"),
]


def test_a_choice_that_cannot_work_gives_advice_before_a_pixel_is_read(
    viewer, dock, film, notified
):
    viewer.add_image(film[1], name="empty")
    hidden = {"visible": False, "contrast_limits": (0, 1), "multiscale": False}
    for shape, choices, message in WRONG:
        data = Watched(np.zeros(shape))
        viewer.add_image(data, name="cells", **hidden)
        dock.choose("cells", "empty", compare=WHOLE, **choices)
        data.reads.clear()
        dock.run()
        assert message in dock.words
        assert data.reads == []
        assert dock.names == ["empty", "cells"]
        viewer.layers.remove("cells")
    assert notified() == []  # a notification would cut the advice after 38 characters


def test_a_choice_that_is_missing_or_does_not_fit_gives_advice(viewer, dock, film):
    def check(words):
        dock.run()
        assert words in dock.words

    check("Choose a layer under Image")
    viewer.add_image(np.zeros((40, 6, 5, 3)), name="rgb", rgb=True)
    check("has RGB colours. Split it into channels")
    viewer.layers.remove("rgb")
    viewer.add_image(film[1], name="cells")
    check("No background is marked")
    viewer.add_image(film[1][..., :4], name="small")
    dock.choose("small", "cells", compare=PATCHES)
    check("6 x 5 pixels, in which no window of 16 x 16 fits")
    dock.method.compare.value = WHOLE
    check("6 x 4; give frames of the same")
    dock.choose("cells")
    dock.press("draw")
    check("Nothing is marked in 'background'")
    dock.draw((0, 0), (3, 3))
    check("A box marks pixels")
    dock.choices.axis.value = 0
    for tick in dock.choices.ticks:
        tick.value = False
    check("No channel is ticked")


@pytest.mark.slow
def test_a_view_in_3d_does_not_freeze_the_window(viewer, ready):
    viewer.dims.ndisplay = 3
    ready.press("run")
    assert ready.is_idle
    assert "Go back to 2D" in ready.words
    ready.press("draw")
    assert viewer.dims.ndisplay == 2
    assert viewer.layers["background"].mode == "add_rectangle"


@pytest.mark.slow
def test_swapped_layers_and_data_without_signal_are_reported(viewer, ready, film):
    ready.choose("empty", "cells")
    ready.run()
    assert "probably swapped" in ready.verdict
    viewer.layers["cells"].data = film[1][::2]
    ready.choose("cells", "empty")
    ready.run()
    assert "Nothing was found" in ready.verdict
    ready.press("run")
    assert ready.verdict == ""  # each run clears the verdict


FAILURES = [
    ("run", RuntimeError("no luck"), "unexpected error"),
    ("run", StopIteration("no luck"), "unexpected error"),
    ("run", MemoryError("no luck"), "not enough memory"),
    ("layer_data", ValueError("no room"), "unexpected error"),
]


def test_a_failure_is_reported_and_leaves_the_dock_usable(ready, notified, monkeypatch):
    told = []
    for name, error, words in FAILURES:
        with monkeypatch.context() as patch:
            patch.setattr(_widget, name, Mock(side_effect=error))
            ready.run()
        assert words in ready.words
        told += [("error", str(error))] if words == "unexpected error" else []
        assert notified() == told
        assert ready.names == ["cells", "empty"]
    monkeypatch.setattr(_widget, "examine", Mock(side_effect=RuntimeError("no verdict")))
    ready.run()
    assert "could not be checked" in ready.verdict
    assert ready.words.startswith("Done: 'cells denoised' was added")
    assert notified() == [*told, ("error", "no verdict")]


def test_failures_before_a_run_are_reported_in_the_dock(viewer, picture, notified):
    pyramid = [np.ones((64, 64), dtype=int), np.ones((32, 32), dtype=int)]
    viewer.add_labels(pyramid, name="painted", multiscale=True, visible=False)
    picture.choose("cells", "painted")
    for button in ("run", "preview"):
        picture.run(button)
        assert "is marked as background" in picture.words
    picture.choices.pair = None  # causes an error that the dock does not expect
    for n_told, button in enumerate(("run", "preview"), start=1):
        picture.run(button)
        assert "unexpected error" in picture.words
        assert [severity for severity, _ in notified()] == ["error"] * n_told


def test_a_file_that_cannot_be_written_is_reported_in_the_dock(picture, notified):
    picture.run()
    for button, name in (("export", "out.ome.tif"), ("export", "out.png"), ("save", "m.contrast")):
        picture.run(button, Path("nowhere", name))
        assert name in picture.words
    assert notified() == []


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (_model, "fit"),
        *(
            pytest.param(Solution, step, marks=pytest.mark.slow)
            for step in ("signal_strength", "apply")
        ),
    ],
)
def test_cancel_acts_at_once_in_each_step_and_adds_nothing(
    picture, monkeypatch, notified, owner, step
):
    paused = Pause(monkeypatch, owner, step)
    picture.start(paused)
    picture.until(lambda: picture.words == "Reading")
    assert not picture.widget.progress.native.isHidden()
    picture.press("cancel")
    assert picture.is_idle
    assert picture.words == "Cancelled; nothing was added."
    picture.wait()
    assert paused.ended.is_set()
    assert picture.names == ["cells", "background"]
    paused.go_on.set()
    picture.run()  # the dock is ready for the next run
    assert "cells denoised" in picture.names
    assert notified() == []


def test_the_next_run_waits_until_the_cancelled_run_has_ended(ready, monkeypatch):
    paused = Pause(monkeypatch, _widget, "run", reports=False)
    ready.start(paused)
    ready.press("cancel")
    ready.press("run")
    ready.qtbot.wait(100)
    assert len(paused.threads) == 1
    assert ready.widget.cancel.enabled
    paused.go_on.set()
    ready.wait()
    assert len(paused.threads) == 2
    assert threading.get_ident() not in paused.threads
    assert "cells denoised" in ready.names


def test_a_result_that_comes_after_cancel_is_dropped(ready):
    ready.press("run")
    while not ready.widget._runner.is_quiet:
        time.sleep(0.01)  # Qt handles no events here, so the run's signals stay queued
    ready.press("cancel")
    ready.qtbot.wait(100)
    assert ready.names == ["cells", "empty"]
    assert ready.words == "Cancelled; nothing was added."


@pytest.mark.slow
def test_layers_may_be_renamed_or_removed_during_a_run(viewer, ready, monkeypatch, notified):
    paused = Pause(monkeypatch, _widget, "run")
    ready.start(paused)
    viewer.layers["cells"].name = "renamed"
    viewer.layers.remove("empty")
    viewer.layers.remove("renamed")
    paused.go_on.set()
    ready.wait()
    assert ready.names == ["cells denoised"]
    ready.widget.view.value = "Original"
    assert notified() == []


@pytest.mark.parametrize("what", ["dock", pytest.param("window", marks=pytest.mark.slow)])
def test_closing_the_dock_stops_the_run_without_an_error(
    viewer, ready, monkeypatch, notified, what
):
    paused = Pause(monkeypatch, _widget, "run")
    ready.start(paused)
    if what == "dock":
        viewer.window.remove_dock_widget(ready.widget.native)
    else:
        viewer.close()
    ready.until(paused.ended.is_set)
    ready.qtbot.wait(50)
    assert notified() == []
    if what == "dock":
        assert ready.names == ["cells", "empty"]
        viewer.add_image(np.zeros((4, 4)))  # the closed dock no longer reacts to new layers


def test_the_progress_bar_is_painted_at_most_ten_times_a_second(qtbot):
    """Check that the window stays fast because the progress bar is seldom painted."""

    def run(report):
        for i in range(2000):
            report(i, 2000, "Reading")
            if i % 700 == 0:
                time.sleep(0.11)
        report(0, 1, "Solving")

    seen, start = [], time.monotonic()
    runner = Runner()
    runner.progressed.connect(lambda done, total, doing: seen.append(doing))
    runner.start(Job(run, lambda _: seen.append("done"), seen.append))
    qtbot.waitUntil(lambda: "done" in seen and runner.is_quiet, timeout=60_000)
    assert seen == ["Reading"] * (len(seen) - 2) + ["Solving", "done"]
    assert len(seen) <= 3 + 10 * (time.monotonic() - start)
