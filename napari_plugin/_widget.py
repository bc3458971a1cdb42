"""The dock widget, which connects the choices, the computations, the threads and the layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import napari
from magicgui.widgets import CheckBox, ComboBox, Container, ProgressBar, PushButton, SpinBox, Widget
from napari.utils.notifications import notification_manager
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QDockWidget, QFrame

from contrast_core.images import Frames, Patches
from napari_plugin._choices import Choices
from napari_plugin._layers import layer_data, place_of, preview_layer
from napari_plugin._method import MethodChoices
from napari_plugin._model import Checked, Outcome, Task, estimate, examine, moved, preview, run
from napari_plugin._pair import Images, Pair, check
from napari_plugin._parts import Line, Plot, make_accessible, row
from napari_plugin._results import KINDS, Results, Shown, place_in, visible_part
from napari_plugin._reuse import Reuse
from napari_plugin._runner import Job, Runner
from napari_plugin._settings import InputError, Remark, Report, Settings

# A window with this dock fits on a screen of 1920 x 1080 pixels at a scale of two.
_WIDTH, _BAR = 286, 20


class ContrastiveDenoising(Container[Widget]):
    """Dock that removes the patterns of a background from images.

    Parameters
    ----------
    napari_viewer : napari.Viewer
        The viewer whose layers can be chosen, and to which results are added.
    """

    def __init__(self, napari_viewer: napari.Viewer) -> None:
        self._viewer = napari_viewer
        self._preview: Any = None
        self.results = Results(napari_viewer, self._on_gone)
        self.choices = Choices(napari_viewer)
        self.cost = Line()
        self.preview = PushButton(
            text="Preview", tooltip="Compute the result for the part on screen"
        )
        self.run = PushButton(text="Run")
        self.cancel = PushButton(text="Cancel", enabled=False)
        self.progress = ProgressBar(value=0, min=0, max=1, visible=False)
        self.status = Line()
        self.verdict = Line()
        self.view = ComboBox(choices=KINDS, value="Denoised", label="Show")
        self.component = SpinBox(label="Component", max=0)
        self.replaces = CheckBox(text="Replace the last result")
        self.frames = Plot("Frames by components 0 and 1: click one", self.results.go_to)
        self.method = MethodChoices()
        self.reuse = Reuse(self.results)
        self._result = Container[Widget](widgets=[self.view, self.component, self.replaces])
        self._result.margins = (0, 0, 0, 0)
        buttons = row(self.preview, self.run, self.cancel)
        widgets: list[Widget] = [self.choices, self.method.absorbed, self.cost, buttons]
        widgets += [self.progress, self.status, self.verdict, self._result, self.method, self.reuse]
        self._all = Container[Widget](widgets=widgets, labels=False, scrollable=True)
        self._scroll = self._all.root_native_widget
        super().__init__(labels=False)
        self._lay_out()
        self._runner = Runner()
        self._connect()
        self._show_what_applies()
        self._show_cost()

    def _connect(self) -> None:
        self.run.changed.connect(partial(self._attempt, self._on_run))
        self.preview.changed.connect(partial(self._attempt, self._on_preview))
        self.cancel.changed.connect(self._on_cancel)
        self._runner.progressed.connect(self._on_progress)
        self.view.changed.connect(self._on_view)
        self.component.changed.connect(self.results.show_component)
        self.choices.image_changed.connect(self._on_image)
        self.choices.area_changed.connect(self._on_area)
        self.method.suppression.changed.connect(self._on_slider)
        self.method.n_components.changed.connect(self._on_slider)
        for container in (self.choices, self.method):
            container.changed.connect(self._show_cost)
        self.reuse.begun.connect(self._begin)
        self.reuse.said.connect(self._finish)
        self.reuse.failed.connect(self._fail)
        self.reuse.loaded.connect(self._on_loaded)
        self.native.destroyed.connect(self._abandon)

    def _lay_out(self) -> None:
        """Lay out the dock with Qt, so that it scrolls if the window is low."""
        make_accessible(self._all)
        self._result.native.layout().addWidget(self.frames)
        inside = self._all.native
        inside.layout().addStretch()
        inside.setMinimumWidth(_WIDTH)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setMinimumWidth(_WIDTH + _BAR)
        # The dock holds the scroll area, because napari and magicgui would take only the widget
        # inside it.
        self.native.layout().addWidget(self._scroll)
        self.margins = (0, 0, 0, 0)

    def reset_choices(self, *_: Any) -> None:
        """Update the choices to the viewer's layers; napari calls this whenever they change."""
        self.choices.reset_choices()

    # Messages

    def _show_cost(self, *_: object) -> None:
        """Show the time that a run will take, and the box "Light is absorbed" if it applies."""
        words, is_film = "", False
        try:
            images = self.choices.images()
            samples = self.method.samples(images.shape, self.choices.background_shape())
            if isinstance(samples, Patches):
                self.choices.check_area(samples.sides[-1])
            is_film = isinstance(samples, Frames) and self.method.method.value == "automatic"
            words = estimate(Task(Pair(images), samples, self.method.settings(), ()))
        except (TypeError, ValueError):  # the images cannot be used; Run shows the reason
            pass
        self.cost.say(words)
        self.method.absorbed.visible = is_film

    def _fail(self, error: Exception) -> None:
        """Show a message about an error; for an unexpected error, pass the details to napari."""
        text = (
            "An unexpected error occurred, and nothing was changed. The details are among napari's "
            "notifications (lower right corner)."
        )
        if isinstance(error, InputError):
            text = str(error)
        elif isinstance(error, MemoryError):
            text = "There is not enough memory. Crop the images, or take a part of the stack."
        elif isinstance(error, OSError):
            name = f" ({Path(error.filename).name})" if error.filename else ""
            text = (
                f"A file could not be read or written{name}: {error.strerror or error}. Check that "
                "it still exists and that the disk has free space, and try again."
            )
        else:
            notification_manager.receive_error(type(error), error, error.__traceback__)
        self._finish(text)

    def _finish(self, text: str) -> None:
        """Show a message about the last job, and enable the buttons for the next one."""
        self._set_busy(False)
        self.status.say(text)
        QTimer.singleShot(0, partial(self._scroll.ensureWidgetVisible, self.status.native, 0, 0))

    # Run, preview, cancel

    def _tasks(self) -> list[Task]:
        """Return a task for each channel; raise InputError if the choices cannot be used."""
        found = []
        for channel in self.choices.ticked():
            images = self.choices.images(channel)
            place, saved = self.choices.place(images), self.reuse.saved(images.shape)
            if saved is None:
                samples = self.method.samples(images.shape, self.choices.background_shape())
                task = Task(self.choices.pair(channel), samples, self.method.settings(), place)
                check(task.pair, samples, task.settings)
            else:
                task = Task(Pair(images), saved.samples, saved.settings, place, saved)
            found.append(task)
        lazy = found[0].is_lazy and len(images.shape) > 2
        if lazy and self._viewer.dims.ndisplay == 3:
            raise InputError(
                "This result is computed one image at a time, when the image is shown. A view in "
                "3D would need all images at once. Go back to 2D (the cube at the lower left), and "
                "press Run again."
            )
        return found

    def _attempt(self, start: Callable[[], None]) -> None:
        """Call a function that starts a job, and show its error if it raises one."""
        try:
            start()
        except Exception as error:
            self._fail(error)

    def _on_run(self) -> None:
        """Check the choices, and start a run if they are valid."""
        layer = self.choices.image.value
        tasks = [(task, place_of(layer, task.pair.foreground)) for task in self._tasks()]

        def work(report: Report) -> list[Shown]:
            found = []
            for task, places in tasks:
                outcome = run(task, report)
                found.append(Shown(outcome, layer, places, layer_data(outcome, places)))
                report(0, 1, "Showing")
            return found

        self._begin(Job(work, self._on_outcomes, self._fail))

    def _on_preview(self) -> None:
        layer, task = self.choices.image.value, self._tasks()[0]
        side = task.samples.sides[-1] if isinstance(task.samples, Patches) else None
        part = visible_part(layer, task.place, side)
        whole = task.pair.foreground
        images = Images(whole.name, whole.data[(*task.place, *part[-2:])])
        start = [first + each.start for first, each in zip(whole.first, part, strict=True)]
        done = partial(self._on_previewed, layer, start)
        self._begin(Job(partial(preview, task, images), done, self._fail))

    def _begin(self, job: Job) -> None:
        self.choices.settle()
        self._watch_dock()
        self._clear()
        self._finish("Starting")
        self._set_busy(True)
        self._runner.start(job)

    def _on_progress(self, done: int, total: int, doing: str) -> None:
        if not self.cancel.enabled:  # the job only checks or updates a result that is shown already
            return
        bar = self.progress.native
        bar.setUpdatesEnabled(False)  # otherwise the whole window, with its canvas, is repainted
        self.progress.max = total
        self.progress.value = min(done, total)
        bar.setUpdatesEnabled(True)
        self.status.say(doing)  # without `_finish`, which would scroll to this message

    def _on_outcomes(self, found: list[Shown]) -> None:
        self.results.add(found, replaces=self.replaces.value)
        live = " Move the suppression slider to change the result." if self.results.is_live else ""
        names = ", ".join(repr(each.layers["denoised"].name) for each in found)
        self.component.max = max(0, self.results.n_components - 1)
        with self.view.changed.blocked():
            self.view.choices = self.results.kinds
            self.view.value = "Denoised"
        verb = "was" if len(found) == 1 else "were"
        self._finish(f"Done: {names} {verb} added.{live}")
        self._examine()

    def _on_previewed(self, layer: Any, start: list[int], found: Any) -> None:
        solution, pixels = found
        data, keywords = preview_layer(layer, start, pixels)
        self._remove_preview()
        self._preview = self._viewer.add_image(data, **keywords)
        self._finish("This is a preview of the part on screen. Press Run for all of it.")
        self._show_remarks(solution.remarks)

    def _remove_preview(self) -> None:
        if self._preview in self._viewer.layers:
            self._viewer.layers.remove(self._preview)
        self._preview = None

    def _on_cancel(self) -> None:
        """Cancel the job. The dock is free at once, and the thread stops before its next block."""
        self._abandon()
        self._finish("Cancelled; nothing was added.")

    def _abandon(self, *_: object) -> None:
        """Cancel whatever job is running."""
        self._runner.cancel()

    def _watch_dock(self) -> None:
        """Cancel all jobs when the dock is closed.

        The signal of the dock is needed, because closing the dock does not destroy this widget.
        """
        dock = self.native.parent()
        while dock is not None and not isinstance(dock, QDockWidget):
            dock = dock.parent()
        if dock is not None:
            dock.destroyed.connect(self._abandon)  # a second connection does no harm

    def _set_busy(self, busy: bool) -> None:
        self.run.enabled = self.preview.enabled = not busy
        self.cancel.enabled = busy
        self.progress.value = 0
        self.progress.visible = busy
        self._show_what_applies()

    def _show_what_applies(self) -> None:
        busy = self.cancel.enabled
        self._result.visible = bool(self.results.shown)
        self.view.enabled = self.replaces.enabled = not busy
        self.component.visible = self.view.value == "Weights" and self.component.max > 0
        self.reuse.show_what_applies(busy)

    # Reactions to a choice

    def _on_image(self) -> None:
        """Remove the preview, messages and plots of the previous image, and stop its check."""
        self._remove_preview()
        if not self.cancel.enabled:
            self._abandon()
            self.status.say("")
            self._clear()

    def _on_area(self) -> None:
        """Compute the preview again after the area of background has changed."""
        if self._preview in self._viewer.layers and not self.cancel.enabled:
            self._attempt(self._on_preview)

    def _on_view(self, kind: str) -> None:
        self.results.show(kind)
        self._show_what_applies()

    def _on_gone(self) -> None:
        """Update the dock after result layers were deleted.

        If no result is left, the plots and messages of the last run are removed.
        """
        kind, shown = self.view.value.lower(), self.results.shown
        if not shown:
            self._abandon()
            self._clear()
        elif kind != "original" and not any(kind in each.layers for each in shown):
            self.view.value = "Denoised"
        self._show_what_applies()

    def _on_loaded(self, path: Path | None) -> None:
        self.method.method.enabled = self.choices.kind.enabled = path is None
        if path is None:
            return
        try:
            saved = self.reuse.saved(self.choices.images().shape)
        except InputError as error:
            self.reuse.set_path(None)
            self._fail(error)
            return
        if saved is not None:
            self.method.show_settings(saved.settings)
        self._finish(f"{path.name} is loaded. Press Run to apply it; no background is needed.")

    # After a run

    def _clear(self) -> None:
        self.verdict.say("")
        self.method.curve.show_lines({})
        self.frames.show_points(None)

    def _examine(self) -> None:
        outcomes = [each.outcome for each in self.results.shown]

        def work(report: Report) -> list[Checked]:
            return [examine(outcome, report) for outcome in outcomes]

        done = partial(self._on_examined, outcomes)
        self._runner.start(Job(work, done, self._on_not_examined))

    def _on_examined(self, outcomes: list[Outcome], found: list[Checked]) -> None:
        first = found[0]
        self.method.curve.show_lines(first.curve)
        self.frames.show_points(first.scores)
        said: list[Remark] = []
        for outcome, checked in zip(outcomes, found, strict=True):
            name = f"{outcome.task.pair.foreground.name}: " if len(found) > 1 else ""
            said += [(name + text, severity) for text, severity in checked.remarks]
        self.verdict.say("Good: the checks found no problem in this result.", "good")
        self._show_remarks(said)

    def _show_remarks(self, said: Sequence[Remark]) -> None:
        """Show remarks as the verdict, if there are any."""
        if said:
            instead = any(severity == "instead" for _, severity in said)
            text = "Use another method: " if instead else "Doubtful: "
            text += "\n\n".join(sentence for sentence, _ in said)
            self.verdict.say(text, "instead" if instead else "doubtful")

    def _on_not_examined(self, error: Exception) -> None:
        self.verdict.say(
            "The result could not be checked because of an unexpected error. The details are among "
            "napari's notifications (lower right corner).",
            "doubtful",
        )
        notification_manager.receive_error(type(error), error, error.__traceback__)

    # The live slider

    def _on_slider(self) -> None:
        """Update the result to the position of the slider, if the slider applies to it."""
        if not self.results.is_live or self.cancel.enabled:
            return
        shown = self.results.shown[0]
        other = self.method.method.value != shown.outcome.solution.settings.method
        if other or self.choices.image.value not in (None, shown.source):
            return  # the slider was moved for the next run, not for the result that is shown
        current = self._runner.current
        if current is None or not current.is_move:
            self._start_move()

    def _start_move(self) -> None:
        settings, shown = self.method.settings(), self.results.shown
        places = [place_in(self._viewer, each.layers["denoised"]) for each in shown]

        def work(report: Report) -> list[Shown]:
            found = []
            for each, place in zip(shown, places, strict=True):
                outcome = moved(each.outcome, settings, place, report)
                data = layer_data(outcome, each.places)
                found.append(replace(each, outcome=outcome, data=data))
            return found

        done = partial(self._on_moved, settings)
        self._runner.start(Job(work, done, self._fail, is_move=True))

    def _on_moved(self, settings: Settings, found: list[Shown]) -> None:
        self.results.move(found)
        has_moved = self.method.settings() != settings  # the user moved the slider meanwhile
        if has_moved and self.results.is_live:
            self._start_move()
        else:
            self.component.max = max(0, self.results.n_components - 1)
            self._examine()
