"""Tests of the dock in a napari window, from the choices to the layers of results."""

from __future__ import annotations

import gc
import threading
import weakref
from itertools import product
from unittest.mock import Mock

import dask.array as da
import numpy as np
import pytest
from qtpy.QtCore import QEvent, QObject, QPointF, Qt
from qtpy.QtGui import QKeyEvent, QMouseEvent
from qtpy.QtWidgets import QApplication, QDockWidget

from contrast_core import CPCA, PCPCA, CPCAStar
from contrast_core.feedback import muted
from contrast_core.images import FrameBackgroundRemover, Patches, suppress_background, weight_maps
from napari_plugin import _results, _solve, _widget
from napari_plugin._choices import FRAMES, OTHER, THIS_FRAME
from napari_plugin._method import PATCHES, WHOLE
from napari_plugin._results import place_in
from napari_plugin._settings import METHODS, strength
from napari_plugin._widget import _WIDTH
from tests.napari_plugin.conftest import TITLE, Dock, Pause, Watched, stripes


def test_the_sample_from_the_hint_on_its_box_to_the_verdict(viewer, dock, notified):
    viewer.open_sample("contrast-suite", "cells-behind-fringes")
    source = viewer.layers["cells behind fringes"]
    before, clean = source.data.copy(), source.metadata["clean"]
    lights = ((200, 320, "doubtful"), (5, 25, "instead"), (5, 60, "doubtful"), (5, 145, "good"))
    for first, last, light in lights:  # the first box holds cells
        dock.draw((first, first), (last, last))
        dock.until(lambda light=light: dock.choices.hint.light == light)
    assert dock.choices.hint.text == "141 x 141 pixels: enough."

    dock.run()
    expected = suppress_background(before, dock.choices.pair().mask)
    found = dock.data("cells behind fringes denoised")
    np.testing.assert_allclose(found, expected.denoised, atol=1e-5)
    errors = [1 - np.corrcoef(image.ravel(), clean.ravel())[0, 1] ** 2 for image in (found, before)]
    assert errors[0] <= 0.08 * errors[1]
    np.testing.assert_array_equal(source.data, before)
    dock.widget.view.value = "Weights"
    weights = dock.data("cells behind fringes weights")
    assert weights[clean > 0.5].mean() > 5 * weights[5:145, 5:145].mean()
    assert dock.words.startswith("Done")
    assert (dock.widget.verdict.light, notified()) == ("good", [])

    # At its default strength, PCPCA leaves nine tenths of the error.
    dock.choose(source.name, method="pcpca")
    dock.run()
    assert "of the background's variance. Use the automatic method" in dock.verdict
    assert dock.widget.verdict.light == "instead"


def test_the_sample_of_digits_is_ready_to_run_and_no_second_dock_opens(viewer, dock):
    viewer.open_sample("contrast-suite", "digits-on-photographs")
    assert dock.choices.image.value == viewer.layers["digits on photographs"]
    assert dock.choices.other.value == viewer.layers["photographs"]
    assert dock.choices.kind.value == OTHER
    assert "0.2 GB" in dock.widget.cost.text
    menu = viewer.window._qt_window.menuBar().actions()
    plugins = next(each for each in menu if "Plugins" in each.text()).menu()
    next(each for each in plugins.actions() if each.text().startswith(TITLE)).trigger()
    docks = viewer.window._qt_window.findChildren(QDockWidget)
    assert len([each for each in docks if TITLE in each.windowTitle()]) == 1


def test_the_first_image_stays_chosen_and_choices_follow_the_layers(viewer, dock, film):
    viewer.add_image(film[0], name="digits")
    viewer.add_image(film[1], name="grass")
    choices = dock.choices
    assert (choices.image.value.name, choices.other.value.name) == ("digits", "grass")
    dock.press("swap")
    assert (choices.image.value.name, choices.other.value.name) == ("grass", "digits")
    viewer.layers["digits"].name = "blank"
    assert [str(choice) for choice in choices.other.choices] == ["None", "blank"]
    assert (choices.other.value.name, choices.kind.value) == ("blank", OTHER)
    viewer.layers.remove("blank")
    assert choices.other.value is None
    viewer.add_image(film[1], name="phase preview")
    assert choices.other.choices[-1].name == "phase preview"  # the user's layer, not the dock's
    viewer.add_image(np.zeros((65, 6, 5)), name="film", axis_labels=("t", "y", "x"))
    dock.choose("film")
    assert choices.axis.choices == (-1,)  # 65 frames are not channels with a tick box each


@pytest.mark.slow
def test_a_dock_opened_after_two_films_runs_the_automatic_method(viewer, film, qtbot, notified):
    for name, stack in zip(("cells", "empty"), film, strict=True):
        viewer.add_image(stack, name=name)
    ready = Dock(viewer, qtbot)
    assert ready.choices.kind.value == OTHER
    assert "GB of memory" in ready.widget.cost.text
    assert not ready.method.absorbed.native.isHidden()
    ready.run()
    X, Y = (stack.reshape(-1, 30) for stack in film)
    expected = FrameBackgroundRemover((6, 5)).fit(X, background=Y)
    denoised = viewer.layers["cells denoised"].data
    truth = expected.transform(X).reshape(80, 6, 5)
    np.testing.assert_allclose(denoised, truth, rtol=1e-3, atol=1e-3)
    scores = (X - expected.mean_) @ expected.filters_[:, :2]
    np.testing.assert_allclose(ready.widget.frames.points, scores, atol=1e-3)
    ready.widget.view.value = "Removed"
    removed = viewer.layers["cells removed"].data
    for data in (denoised, removed):  # a lazy array would make the window load dask's schedulers
        assert isinstance(data, np.ndarray)
    np.testing.assert_allclose(removed + denoised, film[0], atol=1e-5)
    ready.widget.view.value = "Weights"
    assert viewer.layers["cells weights"].data.shape == (expected.n_components_, 1, 6, 5)
    assert notified() == []


@pytest.mark.slow
@pytest.mark.parametrize("absorbed", [False, True])
def test_large_frames_are_compared_with_a_library_of_background_frames(viewer, dock, absorbed):
    rng = np.random.default_rng(0)
    patterns = rng.random((3, 60, 50))
    frames, empty = (np.einsum("nk,khw->nhw", 1 + rng.random((n, 3)), patterns) for n in (9, 30))
    frames[:, 20:30, 20:30] *= 0.5
    viewer.add_image(frames, name="cells")
    viewer.add_image(empty, name="empty")
    dock.choose("cells", "empty", absorbed=absorbed)
    dock.run()
    expected = suppress_background(frames, empty, sampling="frames", multiplicative=absorbed)
    found = dock.data("cells denoised")
    np.testing.assert_allclose(found, expected.denoised, rtol=1e-3, atol=1e-4)
    assert all(each.sentence in dock.verdict for each in expected.verdicts)
    assert dock.widget.view.choices == ("Original", "Denoised", "Removed")
    dock.widget.view.value = "Removed"
    light = dock.data("cells removed")
    if absorbed:  # the layer shows the light that would arrive without the cells
        np.testing.assert_allclose(light, frames * np.exp(expected.denoised), rtol=0.01)
        square = (light / frames)[:, 20:30, 20:30]
        assert abs(np.median(square) - 2) < 0.02  # it absorbs half of the light
    else:
        np.testing.assert_allclose(light, frames - expected.denoised, atol=1e-3)


@pytest.mark.slow
def test_strips_along_lines_give_the_result_of_the_core(viewer, dock):
    rng = np.random.default_rng(0)
    image = 2 * rng.normal(size=(160, 1)) + 0.2 * rng.normal(size=(160, 160))
    image[100:120, 100:120] += 4
    mask = np.arange(160) < np.full((160, 1), 80)
    strips = suppress_background(image, mask).sampling
    assert strips.sides == (6, 64)
    # If `sampling` is given, the core filters the image only once, as the plugin does.
    expected = suppress_background(image, mask, sampling=strips)
    viewer.add_image(image, name="cells")
    viewer.add_labels(mask.astype(int), name="marked")
    dock.choose("cells", "marked")
    dock.run()
    np.testing.assert_allclose(dock.data("cells denoised"), expected.denoised, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "kind", "parameter", "rule"),
    [
        pytest.param("cpca_star", CPCAStar, "beta", "auto", marks=pytest.mark.slow),
        ("cpca", CPCA, "alpha", "denoise"),
        pytest.param("pcpca", PCPCA, "gamma", "auto", marks=pytest.mark.slow),
        pytest.param("pca", CPCA, "alpha", 0.0, marks=pytest.mark.slow),
    ],
)
def test_image_weights_and_scatter_agree_with_the_core_at_every_position_of_the_slider(
    viewer, ready, film, monkeypatch, method, kind, parameter, rule
):
    X, Y = (stack.reshape(-1, 30) for stack in film)
    ready.choose("cells", "empty", method=method, n_components=3)
    if method == "cpca_star":
        monkeypatch.setattr(_solve, "LONGEST_HERE", 0)
    ready.run()
    if method == "cpca_star":  # its decompositions, which block Python, are done elsewhere
        monkeypatch.setattr(_solve, "fit_projection", None)
    words, is_live = ready.words, method != "pca"
    assert ("Move the suppression" in words) == is_live
    for view in ("Weights", "Removed"):
        ready.widget.view.value = view
    denoised, outcomes = viewer.layers["cells denoised"], weakref.WeakSet()
    for position, k in ((50, 3), *(((0, 3), (99, 2), (30, 3), (90, 3)) if is_live else ())):
        ready.method.suppression.value, ready.method.n_components.value = position, k
        ready.wait()
        outcomes.add(ready.widget.results.current.outcome)
        with muted():
            automatic = kind(k, **{parameter: rule}).fit(X, background=Y).strength_
            largest = {"pcpca": automatic / 0.9, "cpca_star": 1.0}.get(method, np.inf)
            value = strength(automatic, position / 100, largest=largest)
            expected = kind(k, **{parameter: value}).fit(X, background=Y)
        made = denoised.metadata["contrast-suite"]
        assert (made["strength"], made["suppression"]) == pytest.approx((value, position / 100))
        found, truth = ready.data("cells denoised"), expected.denoise(X, offset="difference")
        np.testing.assert_allclose(found.reshape(80, 30), truth, rtol=1e-4, atol=1e-4)
        maps = weight_maps(expected, (6, 5))
        np.testing.assert_allclose(ready.data("cells weights")[:, 0], maps, atol=1e-4)
        scores = (X - expected.mean_) @ expected.components_[:2].T
        np.testing.assert_allclose(abs(ready.widget.frames.points), abs(scores), atol=1e-3)
        np.testing.assert_allclose(ready.data("cells removed") + found, film[0], atol=1e-4)
        assert (ready.words, ready.widget.progress.native.isHidden()) == (words, True)
    assert ready.names[2:] == ["cells denoised", "cells weights", "cells removed"]
    viewer.layers.remove(denoised)  # the dock forgets the result, and the slider has no effect
    assert (ready.widget.results.shown, ready.verdict) == ([], "")
    gc.collect()
    assert not outcomes  # nothing else keeps the results in memory
    assert viewer.layers["cells"].visible
    ready.method.suppression.value = 20
    assert ready.widget._runner.is_quiet


def test_another_image_hides_the_last_result_and_the_slider_does_not_change_it(
    viewer, ready, film, monkeypatch
):
    viewer.add_image(film[0] + 1, name="others")
    ready.run("preview")
    assert viewer.layers["cells preview"].data.shape == (1, 6, 5)
    ready.run()
    widget, before = ready.widget, viewer.layers["cells denoised"].data
    assert widget.verdict.text
    ready.choose("others")
    assert "cells preview" not in ready.names
    assert (ready.words, ready.verdict) == ("", "")
    assert widget.frames.isHidden()
    assert widget.method.curve.isHidden()
    ready.method.suppression.value = 80
    ready.wait()
    assert viewer.layers["cells denoised"].data is before
    ready.choose("cells")
    paused = Pause(monkeypatch, _widget, "examine")
    ready.start(paused)
    ready.choose("others")
    paused.go_on.set()
    ready.wait()
    assert (ready.verdict, widget.frames.isHidden()) == ("", True)  # the check was cancelled


def test_one_control_shows_each_kind_of_result_of_the_last_run(viewer, ready):
    def shown():
        return [layer.name for layer in viewer.layers if layer.visible]

    view = ready.widget.view
    for number in ("", " [1]"):
        ready.run()
        assert f"'cells denoised{number}' was added" in ready.words
        assert view.value == "Denoised"
        for kind in ("Denoised", "Removed", "Weights"):
            view.value = kind
            assert shown() == ["empty", f"cells {kind.lower()}{number}"]
        ready.widget.component.value = 1
        assert viewer.dims.point[0] == 1
        view.value = "Original"
        assert shown() == ["cells"]  # no other image covers it
    view.value = "Weights"
    viewer.layers.remove("cells weights [1]")
    assert view.value == "Denoised"
    assert shown() == ["empty", "cells denoised [1]"]
    ready.widget.replaces.value = True
    ready.run()
    assert "cells denoised" in ready.names  # only the result of the last run is replaced
    assert [name for name in ready.names if "[" in name] == ["cells denoised [2]"]


def test_results_have_the_position_scale_and_look_of_their_source(viewer, dock, film, notified):
    turned, affine = np.eye(4), np.eye(5)
    turned[2:, 2:] = [[0.8, -0.6], [0.6, 0.8]]
    affine[2:4, 4] = 7.0, -3.0
    look = {"blending": "additive", "gamma": 0.5, "colormap": "green"}
    place = {"scale": (2.0, 3.0, 0.5, 0.25), "translate": (5.0, 6.0, 7.0, 8.0), "affine": affine}
    place |= {"rotate": turned, "shear": (0, 0, 0, 0, 0, 0.2), "units": ("s", "um", "um", "um")}
    stack = da.from_array(film[0].reshape(20, 4, 6, 5), chunks=(3, 4, 6, 5))
    labels = ("t", "z", "y", "x")
    source = viewer.add_image(stack, name="cells", axis_labels=labels, **look, **place)
    viewer.add_image(film[1], name="empty", units=("um", "um", "um"))
    viewer.dims.set_point(0, 9.0)
    viewer.dims.last_used = 1
    dock.choose("cells", "empty", method="cpca", n_components=3, compare=WHOLE)
    looked_at = place_in(viewer, source)
    dock.run()
    dock.widget.view.value = "Weights"

    denoised, weights = viewer.layers["cells denoised"], viewer.layers["cells weights"]
    assert (denoised.blending, denoised.gamma, denoised.colormap.name) == tuple(look.values())
    assert (denoised.units, denoised.axis_labels) == (source.units, source.axis_labels)
    np.testing.assert_allclose(denoised.scale, source.scale)
    assert viewer.dims.last_used == 2  # the same axis, now after the axis of components
    assert place_in(viewer, source) == looked_at

    assert weights.data.shape == (3, 1, 1, 6, 5)
    assert weights.axis_labels == ("component", *source.axis_labels)
    frames_and_pixels = product(((0, 0), (19, 3), (5, 1)), ((0, 0), (5, 4), (2, 3)))
    for frame, pixel in frames_and_pixels:  # each map covers every frame
        world = source.data_to_world((*frame, *pixel))
        np.testing.assert_allclose(denoised.world_to_data(world), (*frame, *pixel), atol=1e-9)
        index = np.array(weights.world_to_data((2, *world)))
        np.testing.assert_allclose(index[[0, 3, 4]], (2, *pixel), atol=1e-9)
        assert (np.abs(index[1:3]) < 0.5).all()
    assert notified() == []  # units that disagree would be notified


@pytest.mark.slow
def test_a_box_marks_the_same_pixels_under_any_scale_in_all_frames_or_in_one(viewer, dock):
    stack = stripes(10)
    stack[[0, 3], :30, :30] += 5
    where = {"scale": (1, 0.5, 0.25), "translate": (0, 3, 7)}
    viewer.add_image(stack, name="cells", axis_labels=("t", "y", "x"), **where)
    viewer.dims.set_point(0, 4)
    dock.draw((0, 0), (30, 28))
    dock.choose("cells", "background", side=8)
    mask = dock.choices.pair().mask
    assert mask[:30, :28].all()
    assert mask.sum() <= 31 * 29
    viewer.add_labels(mask.astype(int), scale=(0.5, 0.25), translate=(3, 7), name="paint")
    dock.choose("cells", "paint")
    np.testing.assert_array_equal(dock.choices.pair().mask, mask)
    coarse = {"scale": (1.0, 0.5), "translate": (3.25, 7.125)}
    viewer.add_labels(np.ones((15, 14), dtype=int), name="coarse", **coarse)
    dock.choose("cells", "coarse")
    mask = dock.choices.pair().mask
    assert mask[:30, :28].all()
    assert mask.sum() == 30 * 28
    assert not dock.choices.span.native.isHidden()
    dock.choices.span.value = THIS_FRAME
    for area in ("background", "coarse"):
        dock.choose("cells", area)
        mask = dock.choices.pair().mask
        assert np.flatnonzero(mask.any(axis=(1, 2))).tolist() == [4]
    dock.run()
    expected = suppress_background(stack, mask, sampling=Patches(8, 1)).denoised
    corner = (slice(None), slice(38, 52), slice(38, 52))
    found = dock.data("cells denoised")[corner]
    assert np.corrcoef(found.ravel(), expected[corner].ravel())[0, 1] > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
def test_channels_are_run_one_by_one_and_their_results_are_added_all_or_none(
    viewer, dock, notified, monkeypatch, axis
):
    images = np.stack([stripes(), 3 * stripes().T[::-1], stripes()[:, ::-1]])[:, None]
    stack = np.repeat(images, 2, axis=1) if axis == 0 else images.swapaxes(0, 1)
    labels = ("c", "t", "y", "x") if axis == 0 else ("t", "-3", "y", "x")
    viewer.add_image(stack, name="cells", axis_labels=labels, multiscale=False)
    mask = np.zeros((64, 64), dtype=bool)
    mask[:30, :30] = True
    viewer.add_labels(mask.astype(int), name="marked")
    dock.choose("cells", "marked", side=8)
    assert dock.choices.axis.value == axis
    assert len(dock.choices.axis.choices) == 3  # height and width are not offered
    dock.choices.ticks[1].value = False
    before = viewer.dims.point, viewer.dims.last_used
    with monkeypatch.context() as patch:  # the second of two results cannot be shown
        patch.setattr(_results, "_keep_ready", Mock(side_effect=[None, RuntimeError("no room")]))
        dock.run()
    assert "nothing was changed" in dock.words
    assert dock.names == ["cells", "marked"]
    assert (viewer.dims.point, viewer.dims.last_used) == before
    assert notified() == [("error", "no room")]
    dock.run()
    names = ["cells channel 0 denoised", "cells channel 2 denoised"]
    assert dock.names[2:] == names
    assert f"{names[0]!r}, {names[1]!r} were added" in dock.words
    for number, name in zip((0, 2), names, strict=True):
        one = stack.take([number], axis=axis)
        expected = suppress_background(one, mask, sampling=Patches(8, 1)).denoised
        assert np.corrcoef(dock.data(name).ravel(), expected.ravel())[0, 1] > 0.999
        np.testing.assert_allclose(viewer.layers[name].translate, number * np.eye(4)[axis])


def put_on_screen(layer, corners):
    """Set the corner pixels of the visible part, and disable napari's redraw, which resets them."""
    layer._update_draw = lambda *_, **__: None
    layer.corner_pixels = np.array(corners)


def test_the_preview_shows_the_visible_part_in_place_and_follows_the_box(viewer, picture):
    source = viewer.layers["cells"]
    put_on_screen(source, [[40, 42], [47, 49]])
    picture.run("preview")
    preview = viewer.layers["cells preview"]
    assert preview.data.shape < (64, 64)
    corner = source.world_to_data(preview.data_to_world((0, 0)))
    top, left = np.rint(corner).astype(int)
    assert top <= 40
    inside = preview.data[44 - top, 44 - left]
    picture.run()
    assert inside == pytest.approx(picture.data("cells denoised")[44, 44], rel=0.2)
    picture.run("preview")
    assert [name for name in picture.names if "preview" in name] == ["cells preview"]
    last = viewer.layers["cells preview"]
    drawn = viewer.layers["background"]
    drawn.data = [drawn.data[0] * 0.7]
    picture.until(lambda: picture.is_idle and viewer.layers["cells preview"] is not last)


@pytest.mark.slow
def test_the_preview_of_a_large_pyramid_reads_only_the_visible_part(viewer, dock):
    fine = Watched(np.tile(stripes(), (40, 40)))
    levels = [fine, fine.data[::4, ::4]]
    pyramid = viewer.add_image(levels, name="pyramid", scale=(0.5, 0.25))
    viewer.add_labels(np.ones((30, 30), dtype=int), scale=(0.5, 0.25), name="marked")
    pyramid.data_level = 1
    put_on_screen(pyramid, [[200, 210], [230, 240]])  # in pixels of the displayed level
    dock.choose("pyramid", "marked", side=8)
    fine.reads.clear()
    dock.run("preview")
    # napari itself reads in the main thread, which does not count.
    read = [n for thread, n in fine.reads if thread != threading.get_ident()]
    assert 0 < sum(read) < fine.size / 20
    preview = viewer.layers["pyramid preview"]
    corners = [preview.data_to_world(each) for each in ((0, 0), np.array(preview.data.shape) - 1)]
    first, last = (np.rint(pyramid.world_to_data(corner)).astype(int) for corner in corners)
    assert (first <= (800, 840)).all()
    assert (last >= (920, 960)).all()
    put_on_screen(pyramid, [[0, 0], [639, 639]])
    dock.run("preview")  # the visible part is too large, so the preview shows its middle
    assert viewer.layers["pyramid preview"].data.size <= 1000**2


def test_a_range_of_frames_can_be_the_background_and_renaming_changes_no_choice(viewer, dock, film):
    viewer.add_image(np.concatenate(film), name="all")
    dock.choose("all", FRAMES, compare=PATCHES)
    for frame, button in ((80, "from_here"), (139, "to_here")):
        viewer.dims.set_point(0, frame)
        dock.press(button)
    viewer.layers["all"].name = "renamed"
    choices, compare = dock.choices, dock.method.compare
    assert (choices.first.value, choices.last.value, compare.value) == (80, 139, PATCHES)
    assert choices.image.value.name == "renamed"
    np.testing.assert_array_equal(np.flatnonzero(choices.pair().mask), range(80, 140))


@pytest.mark.slow
def test_at_most_5000_evenly_spaced_frames_are_plotted_and_a_click_shows_one(viewer, dock):
    plot = dock.widget.frames
    plot.resize(260, 160)
    left, none = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    for n, step in ((5000, 1), (5001, 2), (10_001, 3)):
        stack = np.random.default_rng(0).normal(size=(n, 3, 2))
        viewer.add_image(stack, name=f"{n}", axis_labels=("t", "y", "x"))
        dock.choose(f"{n}", FRAMES, method="cpca", n_components=2)
        dock.run()
        assert len(plot.points) == -(-n // step)
        where = QPointF(*plot.places()[17])
        press = QMouseEvent(QMouseEvent.Type.MouseButtonPress, where, where, left, left, none)
        right = QKeyEvent(QKeyEvent.Type.KeyPress, Qt.Key.Key_Right, none)
        back = QKeyEvent(QKeyEvent.Type.KeyPress, Qt.Key.Key_Left, none)
        for act, event, number in (
            (plot.mousePressEvent, press, 17),
            (plot.keyPressEvent, right, 18),
            (plot.keyPressEvent, back, 17),
        ):
            act(event)
            assert place_in(viewer, viewer.layers[f"{n} denoised"])[0] == number * step
    plot.grab()  # Qt paints it without an error
    dock.method.curve.grab()


@pytest.mark.parametrize(
    "method",
    [
        "pca",
        *(pytest.param(one, marks=pytest.mark.slow) for one in METHODS if one != "pca"),
    ],
)
def test_a_copied_script_gives_the_result_of_the_dock(viewer, dock, film, method):
    fine = stripes()
    channels = np.stack([fine, fine.T, fine[::-1]])
    viewer.add_image([fine, fine[::2, ::2]], name="pyramid")
    viewer.add_image(stripes(4, 2), name="stack", axis_labels=("t", "z", "y", "x"))
    viewer.add_image(channels, name="channels", axis_labels=("c", "y", "x"))
    for name, frames in zip(("film", "empty"), film, strict=True):
        viewer.add_image(frames, name=name, axis_labels=("t", "y", "x"))
    viewer.add_labels(np.pad(np.ones((38, 27), int), ((2, 24), (3, 34))), name="box")
    dock.press("draw")
    viewer.layers["background"].add_ellipses(np.array([[2, 2], [2, 36], [36, 36], [36, 2]]))
    dock.widget.replaces.value = True
    pairs = [("stack", "box"), ("film", FRAMES)]
    if method == "automatic":
        pairs += [("pyramid", "background"), ("stack", FRAMES)]
        pairs += [("channels", "box"), ("film", "empty")]
    for image, background in pairs:
        dock.choose(image, background, side=8, method=method, n_components=3)
        for tick in dock.choices.ticks[:2]:
            tick.value = False
        dock.run()
        dock.press("script")
        names = {}
        exec(QApplication.clipboard().text(), names)
        found = np.asarray(dock.widget.results.current.layers["denoised"].data)
        np.testing.assert_allclose(names["denoised"], found, rtol=1e-3, atol=1e-3)


def _all_of(container):
    for each in container:
        yield from _all_of(each) if hasattr(each, "margins") else [each]


def test_every_control_of_the_dock_can_be_reached_on_a_small_screen(make_napari_viewer, qtbot):
    """Check a screen of 960 x 540 logical pixels, which is 1920 x 1080 at a scale of two."""
    opened = Dock(make_napari_viewer(show=True), qtbot)
    dock, wait_for = opened.widget, opened.until
    dock.method.method.value = "cpca"
    for section in (dock.method, dock.reuse):
        section.button.native.click()
    dock.method.constant.visible = True  # the longest text, which only the automatic method has
    for plot in (dock.method.curve, dock.frames):
        plot.setVisible(True)
    for widget in _all_of(dock._all):
        assert widget.native.accessibleName() or not widget.label, widget
    for native in (dock.run.native, dock.preview.native, dock.frames):
        assert native.focusPolicy() & Qt.FocusPolicy.TabFocus
    assert dock._all.native.minimumSizeHint().width() <= _WIDTH
    # napari's other docks and its canvas need 651 of the 960 pixels.
    assert dock.native.minimumSizeHint().width() <= 308
    assert dock.native.minimumSizeHint().height() < 400  # the content scrolls
    opened.viewer.window.resize(1280, 720)
    scroll, inside, slider = dock._scroll, dock._all.native, dock.method.suppression.native
    bar = scroll.verticalScrollBar()
    wait_for(lambda: 0 < scroll.viewport().height() < inside.height())
    wait_for(lambda: bar.maximum() == inside.height() - scroll.viewport().height())
    wait_for(lambda: inside.width() <= scroll.viewport().width())
    for widget in _all_of(dock._all):
        if getattr(widget, "text", "") and widget.native.isVisible():
            assert widget.native.width() >= widget.native.minimumSizeHint().width(), widget.text
    before = slider.geometry(), inside.height()
    dock.method.suppression.value = 7
    QApplication.processEvents()
    assert (slider.geometry(), inside.height()) == before  # nothing is laid out anew
    bar.setValue(bar.maximum())
    there = bar.value()
    dock._on_progress(1, 2, "Reading")
    QApplication.processEvents()
    assert abs(bar.value() - there) <= 1  # progress does not scroll the dock back
    bar.setValue(0)
    dock.run.native.click()  # the run is refused, and the dock scrolls to the message
    words = dock.status.native

    def top():
        return words.mapTo(scroll.viewport(), words.rect().topLeft()).y()

    wait_for(lambda: 0 <= top() <= scroll.viewport().height() - words.height())


@pytest.mark.parametrize(
    ("shape", "compare", "largest"),
    [
        ((5, 64, 64), PATCHES, 64 * 64),
        pytest.param((20_000, 6, 5), WHOLE, 2**17, marks=pytest.mark.slow),
    ],
)
def test_only_what_is_shown_of_a_lazy_result_is_computed_and_not_by_the_main_thread(
    viewer, dock, monkeypatch, applied, shape, compare, largest
):
    """Check that the worker thread computes the visible part and loads dask's schedulers."""
    stack = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    viewer.add_image(stack, name="cells", axis_labels=("t", "y", "x"))
    viewer.dims.set_point(0, 3)
    dock.choose("cells", FRAMES, method="cpca", n_components=2, compare=compare, last=3)
    threads, original = [], da.Array.__array__

    def read(array, *args, **options):
        threads.append(threading.get_ident())
        return original(array, *args, **options)

    monkeypatch.setattr(da.Array, "__array__", read)
    dock.run()
    assert threads[0] != threading.get_ident()
    assert threading.get_ident() not in dict(applied)
    denoised = viewer.layers["cells denoised"]
    assert denoised.visible
    assert np.ptp(denoised._slice.image.view) > 0
    viewer.dims.set_point(0, shape[0] - 1)
    assert [n_pixels for _, n_pixels in applied if n_pixels > largest] == []
    assert sum(n_pixels for _, n_pixels in applied) <= 2 * largest
    # A lazy stack that is compared by patches has no weights: it would need a map for each image.
    assert ("Weights" in dock.widget.view.choices) == (compare == WHOLE)


@pytest.mark.slow
def test_a_progress_report_does_not_repaint_the_canvas_at_once(make_napari_viewer, qtbot):
    """Check that the repaint is delayed.

    Repainting at once crashed napari if layers had just been removed.
    """
    dock = Dock(make_napari_viewer(show=True), qtbot)
    progress, painted = dock.widget.progress, []
    progress.visible = True

    class Filter(QObject):
        def eventFilter(self, _, event):
            painted.append(event.type() == QEvent.Type.Paint)
            return False

    seen = Filter()
    dock.until(progress.native.isVisible)
    QApplication.processEvents()
    progress.native.installEventFilter(seen)
    for done in range(1, 5):
        dock.widget._on_progress(done, 4, "Reading")
    assert not any(painted)
    dock.until(lambda: any(painted))
    progress.native.removeEventFilter(seen)
