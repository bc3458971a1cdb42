"""The widget in a napari window: what a user does, sees and may do wrong."""

from __future__ import annotations

import threading
import time

import dask.array as da
import numpy as np
import pytest
from napari.layers import Image
from napari.utils.notifications import notification_manager

from napari_plugin._model import DenoisingModel, Progress


@pytest.fixture
def viewer(make_napari_viewer):
    return make_napari_viewer()


@pytest.fixture
def widget(viewer):
    return open_widget(viewer)


def open_widget(viewer):
    """Open the widget as the Plugins menu does."""
    return viewer.window.add_plugin_dock_widget("contrast-suite", "Contrastive denoising")[1]


@pytest.fixture
def notified():
    """A function that returns severity and text of the notifications since the test began."""
    start = len(notification_manager.records)
    return lambda: [
        (str(record.severity), record.message) for record in notification_manager.records[start:]
    ]


@pytest.fixture
def stacks():
    rng = np.random.default_rng(0)
    foreground = rng.normal(size=(40, 6, 5)).astype(np.float32)
    foreground[:, 1:3, 1:3] += 6 * rng.random(size=(40, 1, 1))
    return foreground, rng.normal(size=(30, 6, 5)).astype(np.float32)


@pytest.fixture
def ready(viewer, widget, stacks):
    """The widget with two layers chosen and few components."""
    viewer.add_image(stacks[0], name="cells")
    viewer.add_image(stacks[1], name="empty")
    choose(widget, viewer, "cells", "empty")
    widget.n_components.value = 2
    return widget


def choose(widget, viewer, foreground, background):
    widget.foreground.value = viewer.layers[foreground]
    widget.background.value = viewer.layers[background]


def names(viewer):
    return [layer.name for layer in viewer.layers]


def is_idle(widget):
    return widget.run.enabled and not widget.cancel.enabled and widget.progress.value == 0


def click_and_wait(widget, qtbot):
    widget.run.native.click()
    assert not widget.run.enabled
    assert widget.cancel.enabled
    qtbot.waitUntil(lambda: is_idle(widget), timeout=60_000)
    assert widget.progress.native.isHidden()


def endless(started, stopped):
    """Steps that go on until they are dropped, and say when."""

    def steps(self, foreground, background):
        try:
            while True:
                started.set()
                time.sleep(0.01)
                yield Progress(1, 4, "Reading")
        finally:
            stopped.set()

    return steps


def test_from_sample_to_layers(viewer, widget, qtbot, notified):
    assert widget.foreground.choices == (None,)
    viewer.open_sample("contrast-suite", "digits-on-photographs")
    choose(widget, viewer, "digits on photographs", "photographs")
    source = viewer.layers["digits on photographs"]
    before = source.data.copy()

    click_and_wait(widget, qtbot)

    assert names(viewer) == [
        "photographs",
        "digits on photographs",
        "digits on photographs weights",
        "digits on photographs denoised",
    ]
    denoised = viewer.layers["digits on photographs denoised"]
    weights = viewer.layers["digits on photographs weights"]
    np.testing.assert_array_equal(source.data, before)
    assert denoised.data.shape == source.data.shape
    assert weights.data.shape == (10, 1, 28, 28)
    np.testing.assert_allclose(weights.data.max(axis=(1, 2, 3)), 1.0)
    parameters = denoised.metadata["contrast-suite"]
    assert parameters == {
        "alpha": pytest.approx(5.051, abs=1e-3),
        "alpha_rule": "denoise",
        "n_components": 10,
        "offset": "difference",
        "foreground": "digits on photographs",
        "background": "photographs",
    }
    eigenvalues = weights.metadata["contrast-suite"]["contrastive_eigenvalues"]
    assert eigenvalues == sorted(eigenvalues, reverse=True)
    assert "alpha 5.051 (automatic)" in widget.status.value
    assert widget.alpha.value == pytest.approx(parameters["alpha"], abs=1e-4)
    assert notified() == []


def test_alpha_given_by_hand(viewer, ready, qtbot):
    assert not ready.alpha.enabled
    ready.automatic.value = False
    assert ready.alpha.enabled
    ready.alpha.value = 2.5
    click_and_wait(ready, qtbot)
    parameters = viewer.layers["cells denoised"].metadata["contrast-suite"]
    assert (parameters["alpha"], parameters["alpha_rule"]) == (2.5, "given")
    assert "alpha 2.5 (given)" in ready.status.value


def test_a_second_run_overwrites_nothing(viewer, ready, qtbot):
    click_and_wait(ready, qtbot)
    first = viewer.layers["cells denoised"]
    data = first.data
    before = data.copy()
    ready.n_components.value = 3
    click_and_wait(ready, qtbot)
    assert names(viewer) == [
        *["cells", "empty", "cells weights", "cells denoised"],
        *["cells weights [1]", "cells denoised [1]"],
    ]
    assert viewer.layers["cells denoised"] is first
    assert first.data is data
    np.testing.assert_array_equal(data, before)


def test_results_lie_where_their_source_lies(viewer, widget, stacks, qtbot, notified):
    turned = np.eye(4)
    turned[2:, 2:] = [[0.8, -0.6], [0.6, 0.8]]
    affine = np.eye(5)
    affine[2:4, 4] = 7.0, -3.0
    source = viewer.add_image(
        da.from_array(stacks[0].reshape(10, 4, 6, 5), chunks=(3, 4, 6, 5)),
        name="cells",
        scale=(2.0, 3.0, 0.5, 0.25),
        translate=(5.0, 6.0, 7.0, 8.0),
        rotate=turned,
        shear=(0, 0, 0, 0, 0, 0.2),
        affine=affine,
        units=("s", "um", "um", "um"),
        axis_labels=("t", "z", "y", "x"),
    )
    viewer.add_image(stacks[1], name="empty", units=("um", "um", "um"))
    choose(widget, viewer, "cells", "empty")
    widget.n_components.value = 3
    click_and_wait(widget, qtbot)

    denoised, weights = viewer.layers["cells denoised"], viewer.layers["cells weights"]
    assert isinstance(denoised.data, np.ndarray)
    assert denoised.data.shape == (10, 4, 6, 5)
    assert denoised.units == source.units
    assert denoised.axis_labels == source.axis_labels
    np.testing.assert_allclose(denoised.scale, source.scale)
    np.testing.assert_allclose(denoised.translate, source.translate)

    assert weights.data.shape == (3, 1, 1, 6, 5)
    assert weights.units[1:] == source.units
    assert weights.axis_labels == ("component", *source.axis_labels)
    np.testing.assert_allclose(weights.scale[-2:], source.scale[-2:])
    for frame in ((0, 0), (9, 3), (5, 1)):  # every map lies over every frame
        for pixel in ((0, 0), (5, 4), (2, 3)):
            world = source.data_to_world((*frame, *pixel))
            np.testing.assert_allclose(denoised.world_to_data(world), (*frame, *pixel), atol=1e-9)
            index = np.array(weights.world_to_data((2, *world)))
            np.testing.assert_allclose(index[[0, 3, 4]], (2, *pixel), atol=1e-9)
            assert (np.abs(index[1:3]) < 0.5).all()
    assert notified() == []  # such as of units that do not agree


def test_weights_show_at_every_frame(viewer, ready, stacks, qtbot):
    click_and_wait(ready, qtbot)
    weights = viewer.layers["cells weights"]
    for frame in (0, len(stacks[0]) - 1):
        for component in (0, 1):
            viewer.dims.set_point((0, 1), (component, frame))
            shown = weights.get_value((component, frame, 1, 1), world=True)
            assert shown == weights.data[component, 0, 1, 1]


def test_the_choices_follow_the_layers(viewer, ready):
    viewer.add_labels(np.ones((4, 6, 5), dtype=int))
    viewer.layers["empty"].name = "blank"
    assert [str(choice) for choice in ready.background.choices] == ["None", "cells", "blank"]
    assert ready.background.value is viewer.layers["blank"]
    viewer.layers.remove("blank")
    assert ready.background.value is None


def zeros(*shape, **keywords):
    return lambda: Image(np.zeros(shape), name="cells", **keywords)


@pytest.mark.parametrize(
    ("make_layer", "message"),
    [
        (zeros(40, 6, 4), "Choose stacks with frames of the same size"),
        (zeros(6, 5), "a single frame. Choose a stack of two or more"),
        (zeros(2, 6, 5), "2 components were asked for, but 2 frames"),
        (zeros(40, 6, 5, 3, rgb=True), "has RGB colours. Split it into channels"),
        (
            lambda: Image([np.zeros((40, 6, 5)), np.zeros((40, 3, 2))], name="cells"),
            "has several resolutions. Add one of them as a layer of its own",
        ),
    ],
)
def test_a_wrong_layer_gives_advice_and_changes_nothing(
    viewer, widget, stacks, notified, make_layer, message
):
    viewer.add_layer(make_layer())
    viewer.add_image(stacks[1], name="empty")
    choose(widget, viewer, "cells", "empty")
    widget.n_components.value = 2
    widget.run.native.click()
    assert is_idle(widget)
    assert names(viewer) == ["cells", "empty"]
    ((severity, text),) = notified()
    assert severity == "warning"
    assert message in text
    assert "cells" in text


@pytest.mark.parametrize(
    ("foreground", "background", "message"),
    [
        (None, "empty", "No foreground was chosen. Choose two image layers"),
        ("cells", None, "No background was chosen. Choose two image layers"),
        ("cells", "cells", "'cells' is both foreground and background. Choose as background"),
    ],
)
def test_a_wrong_pair_gives_advice_and_changes_nothing(
    viewer, ready, notified, foreground, background, message
):
    ready.foreground.value = foreground and viewer.layers[foreground]
    ready.background.value = background and viewer.layers[background]
    ready.run.native.click()
    assert is_idle(ready)
    assert names(viewer) == ["cells", "empty"]
    ((severity, text),) = notified()
    assert severity == "warning"
    assert message in text


def test_missing_pixels_found_on_the_way_give_advice(viewer, ready, qtbot, notified):
    viewer.layers["empty"].data[4, 2, 2] = np.nan
    click_and_wait(ready, qtbot)
    assert names(viewer) == ["cells", "empty"]
    ((severity, text),) = notified()
    assert severity == "warning"
    assert "'empty' has NaN or infinite pixels, first in frame 4. Fill them" in text
    assert ready.status.value == "The run failed"


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, StopIteration])
def test_an_unforeseen_failure_is_shown_and_leaves_the_widget_usable(
    viewer, ready, qtbot, notified, monkeypatch, error
):
    def steps(self, foreground, background):
        yield Progress(1, 2, "Reading")
        raise error("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr(DenoisingModel, "steps", steps)
        click_and_wait(ready, qtbot)
    assert names(viewer) == ["cells", "empty"]
    ((severity, text),) = notified()
    assert severity == "error"
    assert "out of luck" in text or "StopIteration" in text
    click_and_wait(ready, qtbot)
    assert "cells denoised" in names(viewer)


def test_a_failure_to_add_the_result_is_shown_too(viewer, ready, qtbot, notified, monkeypatch):
    def fail(*args):
        raise RuntimeError("no room")

    monkeypatch.setattr("napari_plugin._widget.result_layers", fail)
    click_and_wait(ready, qtbot)
    assert [text for _, text in notified()] == ["no room"]
    assert names(viewer) == ["cells", "empty"]


def test_negative_contrast_is_told(viewer, ready, qtbot, notified):
    ready.automatic.value = False
    ready.alpha.value = 50.0
    ready.n_components.value = 12
    click_and_wait(ready, qtbot)
    ((severity, text),) = notified()
    assert severity == "warning"
    assert "negative contrast" in text
    assert "cells denoised" in names(viewer)


def test_all_computing_is_in_a_thread(ready, qtbot, monkeypatch):
    original, seen = DenoisingModel.steps, set()

    def steps(self, foreground, background):
        generator = original(self, foreground, background)
        while True:
            seen.add(threading.get_ident())
            try:
                progress = next(generator)
            except StopIteration as stop:
                return stop.value
            yield progress

    monkeypatch.setattr(DenoisingModel, "steps", steps)
    click_and_wait(ready, qtbot)
    assert seen
    assert threading.get_ident() not in seen


def test_progress_is_shown_while_it_runs(ready, qtbot, monkeypatch):
    started, stopped = threading.Event(), threading.Event()
    monkeypatch.setattr(DenoisingModel, "steps", endless(started, stopped))
    ready.run.native.click()
    qtbot.waitUntil(lambda: ready.progress.value == 1, timeout=10_000)
    assert ready.progress.max == 4
    assert not ready.progress.native.isHidden()
    assert ready.status.value == "Reading"
    ready.cancel.native.click()
    qtbot.waitUntil(stopped.is_set, timeout=10_000)


def test_cancel_acts_at_once_and_adds_nothing(viewer, ready, qtbot, monkeypatch, notified):
    started, stopped = threading.Event(), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(DenoisingModel, "steps", endless(started, stopped))
        ready.run.native.click()
        qtbot.waitUntil(started.is_set, timeout=10_000)
        ready.cancel.native.click()
    assert is_idle(ready)
    assert ready.progress.native.isHidden()
    assert ready.status.value == "Cancelled; nothing was added"
    qtbot.waitUntil(stopped.is_set, timeout=10_000)
    assert names(viewer) == ["cells", "empty"]
    assert notified() == []
    click_and_wait(ready, qtbot)  # and the widget is ready for the next run
    assert "cells denoised" in names(viewer)


def test_a_result_that_comes_after_cancel_is_dropped(viewer, ready, qtbot):
    ready.run.native.click()
    worker = ready._running.worker
    while worker in worker._worker_set and not worker.is_running:
        time.sleep(0.001)
    while worker.is_running:  # no events are processed here: its signals wait in the queue
        time.sleep(0.01)
    ready.cancel.native.click()
    qtbot.wait(100)
    assert names(viewer) == ["cells", "empty"]
    assert ready.status.value == "Cancelled; nothing was added"


@pytest.mark.parametrize("what", ["widget", "window"])
def test_closing_during_a_run_stops_it_quietly(viewer, ready, qtbot, monkeypatch, notified, what):
    started, stopped = threading.Event(), threading.Event()
    monkeypatch.setattr(DenoisingModel, "steps", endless(started, stopped))
    ready.run.native.click()
    qtbot.waitUntil(started.is_set, timeout=10_000)
    if what == "widget":
        viewer.window.remove_dock_widget(ready.native)
    else:
        viewer.close()
    qtbot.waitUntil(stopped.is_set, timeout=10_000)
    qtbot.wait(50)
    assert notified() == []
    if what == "widget":
        assert names(viewer) == ["cells", "empty"]
        viewer.add_image(np.zeros((4, 4)))  # nothing is left that would hear of it
