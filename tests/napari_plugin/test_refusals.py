"""Tests of wrong input, failures, cancelled runs and removed layers.

In each case the dock shows a message, and neither layers nor threads are left behind.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from napari.layers import Image

from napari_plugin import _layers, _widget
from napari_plugin._method import PATCHES, WHOLE
from napari_plugin._results import Results
from napari_plugin._runner import Job, Runner
from tests.napari_plugin.conftest import stripes


def layer(*shape, **options):
    return lambda: Image(np.zeros(shape, dtype="f4"), name="cells", **options)


WRONG = [
    (layer(40, 6, 4), WHOLE, "6 x 4; give frames of the same"),
    (layer(6, 5), WHOLE, "1 frames with signal"),
    (layer(40, 6, 5, 3, rgb=True), PATCHES, "has RGB colours. Split it into channels"),
    (layer(40, 6, 5), PATCHES, "6 x 5 pixels, in which no window of 16 x 16 fits"),
    (layer(3, 6, 5, axis_labels=("t", "y", "x")), WHOLE, "3 frames with signal"),
]


def test_a_wrong_layer_gives_advice_in_the_dock_and_changes_nothing(viewer, dock, film, notified):
    viewer.add_image(film[1], name="empty")
    for make, compare, message in WRONG:
        viewer.add_layer(make())
        dock.choose("cells", "empty", compare=compare)
        dock.run()
        assert dock.names == ["empty", "cells"]
        assert message in dock.words
        viewer.layers.remove("cells")
    assert notified() == []  # a notification would cut the advice after 38 characters


def test_a_missing_choice_gives_advice(viewer, dock, film):
    dock.widget.run.native.click()
    assert "Choose a layer under Image" in dock.words
    viewer.add_image(film[0], name="cells")
    dock.widget.run.native.click()
    assert "No background is marked" in dock.words
    dock.choices.draw.native.click()
    for compare, words in ((PATCHES, "Nothing is marked in 'background'"), (WHOLE, "Nothing")):
        dock.method.compare.value = compare
        dock.widget.run.native.click()
        assert words in dock.words
    dock.draw((0, 0), (3, 3))
    dock.widget.run.native.click()
    assert "A box marks pixels" in dock.words
    dock.choices.axis.value = 0
    for tick in dock.choices.ticks:
        tick.value = False
    dock.widget.run.native.click()
    assert "No channel is ticked" in dock.words


def test_a_view_in_3d_does_not_freeze_the_window(viewer, ready):
    viewer.dims.ndisplay = 3
    ready.widget.run.native.click()
    assert ready.is_idle
    assert "Go back to 2D" in ready.words
    ready.choices.draw.native.click()
    assert viewer.dims.ndisplay == 2
    assert viewer.layers["background"].mode == "add_rectangle"


def test_swapped_layers_and_data_without_signal_are_reported(viewer, ready):
    ready.choose("empty", "cells")
    ready.run()
    ready.wait_for_all()
    assert "probably swapped" in ready.verdict
    viewer.layers["cells"].data = np.random.default_rng(1).normal(size=(60, 6, 5))
    ready.choose("cells", "empty")
    ready.run()
    ready.wait_for_all()
    assert "Nothing was found" in ready.verdict
    ready.run()
    assert "Nothing was found" not in ready.verdict  # each run clears the verdict


def fail_with(error):
    def fail(*_):
        raise error

    return fail


FAILURES = [
    ("run", RuntimeError("no luck"), "unexpected error", "no luck"),
    ("run", StopIteration("no luck"), "unexpected error", "no luck"),
    ("run", MemoryError("no luck"), "not enough memory", None),
    ("layer_data", ValueError("no room"), "unexpected error", "no room"),
]


def test_a_failure_is_reported_and_leaves_the_dock_usable(ready, notified, monkeypatch):
    told = []
    for name, error, words, details in FAILURES:
        with monkeypatch.context() as patch:
            patch.setattr(_widget, name, fail_with(error))
            ready.run()
        assert words in ready.words
        told += [] if details is None else [("error", details)]
        assert notified() == told
        assert ready.names == ["cells", "empty"]
    monkeypatch.setattr(_widget, "examine", fail_with(RuntimeError("no verdict")))
    ready.run()
    ready.qtbot.waitUntil(lambda: "could not be checked" in ready.verdict, timeout=10_000)
    # The result stays in the viewer although its check failed.
    assert ready.words.startswith("Done: 'cells denoised' was added")
    assert notified()[len(told) :] == [("error", "no verdict")]


def test_results_are_added_all_or_none(viewer, dock, notified, monkeypatch):
    viewer.add_image(np.stack([stripes(), stripes().T]), name="cells", axis_labels=("c", "y", "x"))
    dock.draw((0, 0), (30, 30))
    dock.choose("cells", "background", side=8)
    original, before = Results._make, (viewer.dims.point, viewer.dims.last_used)

    def make(results, shown, kind):
        if shown.outcome.task.pair.foreground.name == "cells channel 1":
            raise RuntimeError("no room")
        original(results, shown, kind)

    monkeypatch.setattr(Results, "_make", make)
    dock.run()
    assert "nothing was changed" in dock.words
    assert dock.names == ["cells", "background"]
    assert (viewer.dims.point, viewer.dims.last_used) == before
    assert [text for _, text in notified()] == ["no room"]


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


def test_a_file_that_cannot_be_written_is_reported_in_the_dock(picture, notified, monkeypatch):
    picture.run()
    reuse = picture.widget.reuse
    for button, name in (("export", "out.ome.tif"), ("export", "out.png"), ("save", "m.contrast")):
        picture.answer(monkeypatch, Path("nowhere", name))
        getattr(reuse, button).native.click()
        picture.wait()
        assert name in picture.words
    assert notified() == []


def test_cancel_acts_at_once_in_each_step_and_adds_nothing(
    viewer, picture, monkeypatch, notified, make_endless
):
    for step in ("_model.fit", "_solve.Solution.signal_strength", "_solve.Solution.apply"):
        endless = make_endless()
        with monkeypatch.context() as patch:
            patch.setattr(f"napari_plugin.{step}", endless)
            picture.widget.run.native.click()
            picture.qtbot.waitUntil(endless.started.is_set, timeout=60_000)
            picture.qtbot.waitUntil(lambda: picture.words == "Reading", timeout=60_000)
            assert not picture.widget.progress.native.isHidden()
            picture.widget.cancel.native.click()
            assert picture.is_idle
            assert picture.words == "Cancelled; nothing was added."
            picture.qtbot.waitUntil(endless.stopped.is_set, timeout=10_000)
            picture.qtbot.waitUntil(lambda: picture.is_quiet, timeout=10_000)
        assert picture.names == ["cells", "background"]
    picture.run()  # the dock is ready for the next run
    assert "cells denoised" in picture.names
    assert notified() == []


def test_the_next_run_waits_until_the_cancelled_run_has_ended(ready, paused_run):
    ready.widget.run.native.click()
    ready.qtbot.waitUntil(paused_run.begun.is_set, timeout=60_000)
    ready.widget.cancel.native.click()
    ready.widget.run.native.click()
    ready.qtbot.wait(100)
    assert len(paused_run.threads) == 1
    assert ready.widget.cancel.enabled
    paused_run.go_on.set()
    ready.wait()
    assert len(paused_run.threads) == 2
    assert "cells denoised" in ready.names
    assert threading.get_ident() not in paused_run.threads


def test_a_result_that_comes_after_cancel_is_dropped(ready, monkeypatch):
    ended = threading.Event()

    def layer_data(outcome, places):
        found = _layers.layer_data(outcome, places)
        ended.set()
        return found

    monkeypatch.setattr(_widget, "layer_data", layer_data)
    ready.widget.run.native.click()
    assert ended.wait(60)  # Qt handles no events here, so the run's signals stay queued
    time.sleep(0.1)
    ready.widget.cancel.native.click()
    ready.qtbot.wait(100)
    assert ready.names == ["cells", "empty"]
    assert ready.words == "Cancelled; nothing was added."


def test_layers_may_be_renamed_or_removed_during_a_run(viewer, ready, paused_run, notified):
    ready.widget.run.native.click()
    ready.qtbot.waitUntil(paused_run.begun.is_set, timeout=60_000)
    viewer.layers["cells"].name = "renamed"
    viewer.layers.remove("empty")
    viewer.layers.remove("renamed")
    paused_run.go_on.set()
    ready.wait_for_all()
    assert ready.names == ["cells denoised"]
    ready.widget.view.value = "Original"
    assert notified() == []


@pytest.mark.parametrize("what", ["dock", "window"])
def test_closing_the_dock_stops_the_run_without_an_error(
    viewer, ready, qtbot, monkeypatch, notified, make_endless, what
):
    endless = make_endless()
    monkeypatch.setattr(_widget, "run", endless)
    ready.widget.run.native.click()
    qtbot.waitUntil(endless.started.is_set, timeout=60_000)
    if what == "dock":
        viewer.window.remove_dock_widget(ready.widget.native)
    else:
        viewer.close()
    qtbot.waitUntil(endless.stopped.is_set, timeout=10_000)
    qtbot.wait(50)
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
