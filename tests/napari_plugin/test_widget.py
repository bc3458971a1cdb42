"""The dock in a napari window: from choices to layers."""

from __future__ import annotations

import threading
import time

import dask.array as da
import numpy as np
import pytest
import zarr
from napari.utils import progress
from qtpy.QtCore import QEvent, QObject, QPointF, Qt
from qtpy.QtGui import QKeyEvent, QMouseEvent
from qtpy.QtWidgets import QApplication, QLabel

from contrast_core.images import Patches, suppress_background
from napari_plugin._apply import Denoised
from napari_plugin._choices import FRAMES, PATCHES, RANGE
from napari_plugin._results import place_in
from napari_plugin._runner import Runner, Work
from napari_plugin._settings import Progress


def test_from_the_sample_and_a_rectangle_to_cells_without_fringes(viewer, dock, notified):
    viewer.open_sample("contrast-suite", "cells-behind-fringes")
    source = viewer.layers["cells behind fringes"]
    before = source.data.copy()
    assert dock.choices.foreground.value == source
    assert dock.choices.compare.value == PATCHES
    dock.choices.draw.native.click()
    drawn = viewer.layers["background"]
    assert drawn.mode == "add_rectangle"
    drawn.add_rectangles(np.array([[5, 5], [5, 145], [145, 145], [145, 5]]))

    dock.run()

    assert dock.names == [
        *("cells behind fringes", "background"),
        *(f"cells behind fringes {kind}" for kind in ("weights", "removed", "denoised")),
    ]
    found = viewer.layers["cells behind fringes denoised"]
    mask = np.zeros(before.shape, dtype=bool)
    mask[5:145, 5:145] = True
    expected = suppress_background(before, mask, sampling=Patches())
    assert np.corrcoef(found.data.ravel(), expected.denoised.ravel())[0, 1] > 0.9999
    clean = source.metadata["clean"]
    fit = np.polynomial.Polynomial.fit(found.data.ravel(), clean.ravel(), 1)
    own = np.polynomial.Polynomial.fit(before.ravel(), clean.ravel(), 1)
    error = ((fit(found.data) - clean) ** 2).mean() / ((own(before) - clean) ** 2).mean()
    assert error <= 0.08
    np.testing.assert_array_equal(source.data, before)
    assert [layer.visible for layer in viewer.layers] == [True, True, False, False, True]
    assert dock.words.startswith("Done")
    assert found.metadata["contrast-suite"]["method"] == "automatic"
    dock.wait_for_all()
    assert notified() == []


def test_the_sample_of_digits_is_ready_to_run(viewer, dock):
    viewer.open_sample("contrast-suite", "digits-on-photographs")
    assert dock.choices.foreground.value == viewer.layers["digits on photographs"]
    assert dock.choices.background.value == viewer.layers["photographs"]
    assert dock.choices.compare.value == FRAMES
    assert "0.2 GB" in dock.widget.cost.value


def test_all_of_a_sample_is_shown_beside_the_dock(make_napari_viewer, qtbot):
    viewer = make_napari_viewer(show=True)
    viewer.window.resize(1500, 950)
    qtbot.wait(500)
    viewer.open_sample("contrast-suite", "cells-behind-fringes")
    qtbot.wait(500)
    camera = viewer.scene.camera if hasattr(viewer, "scene") else viewer.camera  # before 0.9
    canvas = viewer.window._qt_viewer.canvas.native
    assert 512 * camera.zoom <= min(canvas.width(), canvas.height())


def test_films_by_background_removal_are_in_memory_and_judged(viewer, ready, notified):
    ready.choices.method.value = "automatic"
    ready.run()
    denoised, weights = viewer.layers["cells denoised"], viewer.layers["cells weights"]
    assert isinstance(denoised.data, np.ndarray)
    assert weights.data.shape[1:] == (1, 6, 5)
    ready.wait_for_all()
    assert "no structure" in ready.words  # white noise is no background to be learnt
    assert notified() == []


def test_a_projection_is_lazy_and_moves_with_the_slider(viewer, ready, film, qtbot):
    ready.run()
    denoised = viewer.layers["cells denoised"]
    ready.wait_for_all()
    first = np.asarray(denoised.data)
    assert isinstance(denoised.data, da.Array)
    assert "Move the suppression" in ready.words
    before = denoised.metadata["contrast-suite"]["strength"]
    ready.choices.suppression.value = 80
    ready.choices.suppression.value = 90
    qtbot.waitUntil(
        lambda: denoised.metadata["contrast-suite"]["suppression"] == 0.9, timeout=60_000
    )
    assert denoised.metadata["contrast-suite"]["strength"] == pytest.approx(9 * before)
    assert ready.names.count("cells denoised") == 1
    assert np.abs(np.asarray(denoised.data) - first).max() > 0
    removed = viewer.layers["cells removed"]
    np.testing.assert_allclose(
        np.asarray(removed.data) + np.asarray(denoised.data), film[0], atol=1e-5
    )
    ready.choices.n_components.value = 1
    qtbot.waitUntil(lambda: denoised.metadata["contrast-suite"]["components"] == 1, timeout=60_000)
    ready.wait_for_all()
    viewer.layers.remove(denoised)  # and then the slider moves nothing, quietly
    ready.choices.suppression.value = 20
    assert ready.is_quiet


def test_the_slider_leaves_a_result_alone_when_another_image_is_chosen(viewer, ready, film):
    viewer.add_image(film[0] + 1, name="others")
    ready.choose("cells", "empty")
    ready.run()
    ready.wait_for_all()
    before = viewer.layers["cells denoised"].data
    ready.choices.foreground.value = viewer.layers["others"]
    ready.choices.suppression.value = 80
    ready.wait_for_all()
    assert viewer.layers["cells denoised"].data is before
    assert ready.words.startswith("Done")


def test_a_second_run_overwrites_nothing_and_reads_nothing(viewer, ready, monkeypatch):
    ready.run()
    first = viewer.layers["cells denoised"]
    ready.wait_for_all()
    monkeypatch.setattr("napari_plugin._model.read", None)  # would fail
    ready.choices.method.value = "pcpca"
    ready.run()
    assert ready.names[2:] == [
        *("cells weights", "cells removed", "cells denoised"),
        *("cells weights [1]", "cells removed [1]", "cells denoised [1]"),
    ]
    assert viewer.layers["cells denoised"] is first
    assert "'cells denoised [1]' was added" in ready.words


def test_results_lie_where_their_source_lies(viewer, dock, film, notified):
    turned = np.eye(4)
    turned[2:, 2:] = [[0.8, -0.6], [0.6, 0.8]]
    affine = np.eye(5)
    affine[2:4, 4] = 7.0, -3.0
    source = viewer.add_image(
        da.from_array(film[0].reshape(10, 4, 6, 5), chunks=(3, 4, 6, 5)),
        name="cells",
        scale=(2.0, 3.0, 0.5, 0.25),
        translate=(5.0, 6.0, 7.0, 8.0),
        rotate=turned,
        shear=(0, 0, 0, 0, 0, 0.2),
        affine=affine,
        units=("s", "um", "um", "um"),
        axis_labels=("t", "z", "y", "x"),
    )
    viewer.add_image(film[1], name="empty", units=("um", "um", "um"))
    viewer.dims.set_point(0, 9.0)
    viewer.dims.last_used = 1
    dock.choose("cells", "empty", method="cpca", n_components=3, compare=FRAMES)
    looked_at = place_in(viewer, source)
    dock.run()

    denoised, weights = viewer.layers["cells denoised"], viewer.layers["cells weights"]
    assert denoised.data.shape == (10, 4, 6, 5)
    assert denoised.units == source.units
    assert denoised.axis_labels == source.axis_labels
    np.testing.assert_allclose(denoised.scale, source.scale)
    np.testing.assert_allclose(denoised.translate, source.translate)
    assert viewer.dims.last_used == 2  # the slider that was active, behind that of the patterns
    assert place_in(viewer, source) == looked_at

    assert weights.data.shape == (3, 1, 1, 6, 5)
    assert weights.units[1:] == source.units
    assert weights.axis_labels == ("component", *source.axis_labels)
    for frame in ((0, 0), (9, 3), (5, 1)):  # every map lies over every frame
        for pixel in ((0, 0), (5, 4), (2, 3)):
            world = source.data_to_world((*frame, *pixel))
            np.testing.assert_allclose(denoised.world_to_data(world), (*frame, *pixel), atol=1e-9)
            index = np.array(weights.world_to_data((2, *world)))
            np.testing.assert_allclose(index[[0, 3, 4]], (2, *pixel), atol=1e-9)
            assert (np.abs(index[1:3]) < 0.5).all()
    dock.wait_for_all()
    assert notified() == []  # such as of units that do not agree


def test_a_rectangle_marks_the_same_pixels_under_any_scale(viewer, picture):
    mask = picture.choices.pair().mask
    assert mask[:60, :30].all()
    assert mask.sum() <= 61 * 31
    labels = viewer.add_labels(mask.astype(int), scale=(0.5, 0.25), translate=(3, 7), name="paint")
    picture.choose("cells", "paint")
    np.testing.assert_array_equal(picture.choices.pair().mask, mask)
    coarse = viewer.add_labels(
        np.ones((30, 15), dtype=int), scale=(1.0, 0.5), translate=(3.25, 7.125), name="coarse"
    )
    picture.choose("cells", "coarse")
    assert picture.choices.pair().mask[:60, :30].all()
    assert picture.choices.pair().mask.sum() == 60 * 30
    assert labels.visible
    assert coarse.visible


def test_preview_is_of_the_part_on_screen_and_in_its_place(viewer, picture):
    source = viewer.layers["cells"]
    source.corner_pixels = np.array([[40, 42], [47, 49]])  # as napari sets it where it draws
    picture.run("preview")
    preview = viewer.layers["cells preview"]
    assert preview.data.shape < (64, 64)
    corner = viewer.layers["cells"].world_to_data(preview.data_to_world((0, 0)))
    top, left = np.rint(corner).astype(int)
    assert top <= 40
    inside = preview.data[44 - top, 44 - left]
    picture.run()
    whole = viewer.layers["cells denoised"].data
    assert inside == pytest.approx(whole[44, 44], rel=0.2)
    picture.run("preview")
    assert [name for name in picture.names if "preview" in name] == ["cells preview"]


def test_preview_of_a_pyramid_is_where_the_screen_is(viewer, picture):
    fine = viewer.layers["cells"].data
    pyramid = viewer.add_image([fine, fine[::2, ::2]], name="pyramid", scale=(0.5, 0.25))
    pyramid.data_level = 1
    pyramid.corner_pixels = np.array([[20, 21], [23, 24]])  # of the level that is drawn
    picture.choose("pyramid", "background")
    picture.run("preview")
    preview = viewer.layers["pyramid preview"]
    corners = [preview.data_to_world(each) for each in ((0, 0), np.array(preview.data.shape) - 1)]
    first, last = (np.rint(pyramid.world_to_data(corner)).astype(int) for corner in corners)
    assert (first <= (40, 42)).all()
    assert (last >= (47, 49)).all()


def test_a_range_of_frames_is_background(viewer, dock, film):
    viewer.add_image(np.concatenate(film), name="all")
    dock.choose("all", RANGE, method="cpca", n_components=2, compare=FRAMES)
    dock.choices.first.value, dock.choices.last.value = 40, 69
    dock.run()
    assert "all denoised" in dock.names
    np.testing.assert_array_equal(np.flatnonzero(dock.choices.pair().mask), range(40, 70))
    dock.choices.first.value, dock.choices.last.value = 50, 40
    dock.run()
    assert "goes from 50 to 40" in dock.words


def test_stored_and_pyramid_layers_are_denoised_too(viewer, dock, film, tmp_path):
    stored = zarr.create_array(str(tmp_path / "z"), data=film[0], chunks=(10, 6, 5))
    viewer.add_image(stored, name="stored", multiscale=False)
    viewer.add_image([np.repeat(film[1], 2, axis=2)[..., ::2], film[1][:, :3, :2]], name="pyramid")
    dock.choose("stored", "pyramid", method="cpca", n_components=2, compare=FRAMES)
    dock.run()
    found = viewer.layers["stored denoised"].data.compute()
    viewer.add_image(film[0], name="cells")
    viewer.add_image(film[1], name="empty")
    dock.choose("cells", "empty", compare=FRAMES)
    dock.run()
    np.testing.assert_allclose(found, viewer.layers["cells denoised"].data.compute(), atol=1e-5)


def test_before_and_after(viewer, picture):
    def shown():
        return [layer.name for layer in viewer.layers if layer.visible]

    original = picture.widget.original.native
    for name in ("cells denoised", "cells denoised [1]"):
        picture.run()
        assert not original.isChecked()
        before = shown()
        assert before[-1] == name
        original.click()
        assert shown() == ["cells", "background"]  # and no result of an earlier run
        original.click()
        assert shown() == before
        original.click()
    viewer.layers.remove("cells")
    original.click()
    assert viewer.layers["cells denoised [1]"].visible


def test_a_click_on_a_frame_goes_there(viewer, ready):
    ready.run()
    ready.wait_for_all()
    widget = ready.widget
    assert not widget.after.curve.isHidden()
    assert len(widget.after.frames._points) == 40
    plot = widget.after.frames
    plot.resize(260, 160)
    where = plot._on_screen(plot._points, plot._points)[17]
    event = QMouseEvent(
        QMouseEvent.Type.MouseButtonPress,
        QPointF(*where),
        QPointF(*where),
        *(Qt.MouseButton.LeftButton, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier),
    )
    plot.mousePressEvent(event)
    frame = place_in(viewer, viewer.layers["cells denoised"])[0]
    assert np.hypot(*(plot._on_screen(plot._points, plot._points)[frame] - where)) < 1
    for key, step in ((Qt.Key.Key_Right, 1), (Qt.Key.Key_Left, 0)):
        plot.keyPressEvent(QKeyEvent(QKeyEvent.Type.KeyPress, key, Qt.KeyboardModifier.NoModifier))
        assert place_in(viewer, viewer.layers["cells denoised"])[0] == (frame + step) % 40
    plot.grab()  # paints without complaint
    widget.after.curve.grab()


def test_files_go_out_and_a_model_comes_back(viewer, picture, tmp_path, monkeypatch):
    files = picture.widget.files
    picture.choices.method.value = "cpca"
    picture.run()
    expected = viewer.layers["cells denoised"].data.compute()
    monkeypatch.setattr(type(files), "ask_for_file", lambda *_: tmp_path / "out.ome.tif")
    files.export.native.click()
    picture.wait()
    assert "Written to" in picture.words
    assert (tmp_path / "out.ome.tif").exists()
    files.script.native.click()
    assert "CPCA(10" in QApplication.clipboard().text()
    monkeypatch.setattr(type(files), "ask_for_file", lambda *_: tmp_path / "m.contrast")
    files.save.native.click()
    assert "Saved as m.contrast" in picture.words
    files.folder.native.click()
    assert "Choose a saved model first" in picture.words
    monkeypatch.setattr(type(files), "ask_for_existing", lambda *_: tmp_path / "m.contrast")
    files.load.native.click()
    picture.choices.background.value = None
    picture.run()
    again = viewer.layers["cells denoised [1]"]
    np.testing.assert_allclose(again.data.compute(), expected, atol=1e-5)
    picture.wait_for_all()
    picture.choices.suppression.value = 75  # and its slider lives on
    picture.qtbot.waitUntil(
        lambda: again.metadata["contrast-suite"].get("suppression") == 0.75, timeout=60_000
    )
    folders = iter([tmp_path, tmp_path / "results"])
    monkeypatch.setattr(type(files), "ask_for_folder", lambda *_: next(folders))
    files.folder.native.click()
    picture.wait()
    assert (tmp_path / "results" / "out.ome.tif").exists(), picture.words
    files.load.native.click()
    assert files.path is None
    assert picture.choices.background.enabled


def test_everything_is_reached_by_the_keyboard_and_titles_fit(viewer, dock):
    for button in ("run", "preview"):
        focus = getattr(dock.widget, button).native.focusPolicy()
        assert focus & Qt.FocusPolicy.TabFocus
    width = dock.widget.native.minimumSizeHint().width()  # enough for its title, and no more
    assert 300 <= width <= 400
    assert dock.widget.after.frames.focusPolicy() & Qt.FocusPolicy.TabFocus


def test_all_of_the_dock_is_reached_on_a_small_screen(make_napari_viewer, qtbot, film):
    viewer = make_napari_viewer(show=True)
    dock = viewer.window.add_plugin_dock_widget("contrast-suite", "Remove background")[1]
    dock.choices.method.value, dock.choices.advanced.value = "cpca", True
    for plot in (dock.after.curve, dock.after.frames):
        plot.setVisible(True)
    viewer.window.resize(1366, 700)
    qtbot.wait(300)
    assert viewer.window._qt_window.height() <= 700
    scroll, inside = dock._scroll, dock._all.native
    dock.choices.suppression.value = 73
    labels = [each for each in inside.findChildren(QLabel) if each.text() == "Suppression 73"]
    assert [each.isVisible() for each in labels] == [True]
    assert inside.height() > scroll.viewport().height()
    assert inside.width() <= scroll.viewport().width()
    bar = scroll.verticalScrollBar()
    assert bar.maximum() == inside.height() - scroll.viewport().height()
    bar.setValue(bar.maximum())
    there = bar.value()
    dock._on_progress(Progress(1, 2, "Reading"))
    qtbot.wait(50)
    assert abs(bar.value() - there) <= 1  # whoever reads on while it works is left there
    bar.setValue(0)
    dock.run.native.click()  # which is refused, in words that are scrolled to
    qtbot.wait(100)
    top = dock.status.native.mapTo(scroll.viewport(), dock.status.native.rect().topLeft()).y()
    assert 0 <= top <= scroll.viewport().height() - dock.status.native.height()


def test_the_window_computes_nothing_of_a_lazy_result(viewer, dock, monkeypatch):
    """What is on screen comes from the thread, which also loads dask's schedulers."""
    stack = np.random.default_rng(0).normal(size=(5, 64, 64)).astype(np.float32)
    viewer.add_image(stack, name="cells", axis_labels=("t", "y", "x"))
    viewer.dims.set_point(0, 3)
    dock.choose("cells", RANGE, method="cpca", n_components=2, compare=PATCHES, last=1)
    read, computed = [], []
    for kind, name, seen in ((da.Array, "__array__", read), (Denoised, "_computed", computed)):
        original = getattr(kind, name)

        def noted(self, *args, original=original, seen=seen, **options):
            seen.append(threading.get_ident())
            return original(self, *args, **options)

        monkeypatch.setattr(kind, name, noted)
    dock.run()
    assert viewer.layers["cells denoised"].visible
    assert np.ptp(viewer.layers["cells denoised"]._slice.image.view) > 0
    assert read
    assert read[0] != threading.get_ident()
    assert threading.get_ident() not in computed


def test_progress_is_shown_at_a_pace_that_can_be_seen(viewer, qtbot, monkeypatch):
    """Two bars are painted for each report, and the window would do little else."""

    def steps():
        for i in range(2000):
            yield Progress(i, 2000, "Reading")
            if i % 700 == 0:
                time.sleep(0.11)
        yield Progress(0, 1, "Solving")

    titles = []
    original = progress.set_description
    monkeypatch.setattr(
        progress, "set_description", lambda bar, text: titles.append(text) or original(bar, text)
    )
    seen, start = [], time.monotonic()
    runner = Runner(seen.append)
    runner.start(Work(steps, lambda _: seen.append("done"), seen.append, "Working"))
    qtbot.waitUntil(lambda: "done" in seen and runner.is_quiet, timeout=60_000)
    assert [each.doing for each in seen[:-1]] == ["Reading"] * (len(seen) - 2) + ["Solving"]
    assert len(seen) <= 3 + 10 * (time.monotonic() - start)
    assert titles[-2:] == ["Reading", "Solving"]
    assert titles.count("Reading") == 1


def test_progress_paints_nothing_at_once(make_napari_viewer, qtbot):
    """A canvas painted amid other events, its layers just removed, brought napari down."""
    viewer = make_napari_viewer(show=True)
    dock = viewer.window.add_plugin_dock_widget("contrast-suite", "Remove background")[1]
    dock.progress.visible = True
    qtbot.wait(200)
    painted = []

    class Filter(QObject):
        def eventFilter(self, _, event):
            painted.append(event.type() == QEvent.Type.Paint)
            return False

    seen = Filter()
    dock.progress.native.installEventFilter(seen)
    for done in range(1, 5):
        dock._on_progress(Progress(done, 4, "Reading"))
    assert not any(painted)
    qtbot.waitUntil(lambda: any(painted), timeout=10_000)
    dock.progress.native.removeEventFilter(seen)


def test_the_choices_follow_the_layers(viewer, ready):
    viewer.layers["empty"].name = "blank"
    names = [str(choice) for choice in ready.choices.background.choices]
    assert set(names) == {"None", "blank", RANGE}
    assert ready.choices.background.value is viewer.layers["blank"]
    viewer.layers.remove("blank")
    assert ready.choices.background.value is None
