"""The dock widget: it binds choices, model, threads and result layers, and holds no science."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
from magicgui.widgets import Container, Label, ProgressBar, PushButton, Widget
from napari.utils.notifications import notification_manager
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QComboBox, QDockWidget, QSizePolicy

from contrast_core.images import Patches
from napari_plugin._choices import Choices
from napari_plugin._estimate import estimate
from napari_plugin._files import FileActions, row
from napari_plugin._layers import LayerData, Place, place_of, preview_layer, result_layers
from napari_plugin._model import (
    Curve,
    Embedding,
    Outcome,
    RemovalModel,
    Task,
    can_embed,
    contrast_curve,
    embed_frames,
    has_curve,
    moved,
)
from napari_plugin._pair import Images, Pair, check
from napari_plugin._plot import Plot
from napari_plugin._results import Results, place_in, visible_part
from napari_plugin._runner import Runner, Work
from napari_plugin._saved import load_model
from napari_plugin._settings import WITH_SLIDER, InputError, Progress, Steps
from napari_plugin._solve import judge

if TYPE_CHECKING:
    import napari

_WIDTH = 350
_NOTE = (
    "Uneven illumination multiplies: correct it first (flat field). Results are for viewing and "
    "segmentation, not for measuring intensities."
)


class BackgroundRemoval(Container[Widget]):
    """Remove from images what is also seen where there is no signal.

    Parameters
    ----------
    napari_viewer : napari.Viewer
        Its layers are offered, and results are added to it.
    """

    def __init__(self, napari_viewer: napari.Viewer) -> None:
        self._viewer = napari_viewer
        self._model = RemovalModel()
        self.results = Results(napari_viewer)
        self._preview: Any = None
        self._watched: Any = None
        self._wanted: tuple[float, int] | None = None
        self._places: tuple[tuple[int, ...], ...] = ()
        self._said: list[str] = []
        self.choices = Choices(napari_viewer)
        self.cost = Label(value="")
        self.preview = PushButton(text="Preview", tooltip="Try it on the part that is on screen")
        self.run = PushButton(text="Run")
        self.cancel = PushButton(text="Cancel", enabled=False)
        self.progress = ProgressBar(value=0, min=0, max=1, visible=False)
        self.status = Label(value="")
        self.original = PushButton(text="Show original", enabled=False)
        self.original.native.setCheckable(True)
        self.files = FileActions(self)
        self.curve = Plot("Kept, over the suppression")
        self.frames = Plot("Frames by their first two patterns: click one", self._go_to)
        super().__init__(
            widgets=[
                self.choices,
                self.cost,
                row(self.preview, self.run, self.cancel),
                self.progress,
                self.status,
                self.original,
                self.files,
                Label(value=_NOTE),
            ],
            labels=False,
        )
        self._dress()
        self._runner = Runner(self._on_progress)
        self._mover = Runner(on_idle=self._on_moved_idle)
        self._after = Runner()
        for button, slot in (
            (self.run, self._start),
            (self.preview, self._start_preview),
            (self.cancel, self._cancel),
        ):
            button.changed.connect(slot)
        self.original.native.toggled.connect(self.results.show_original)
        self.choices.suppression.changed.connect(self._on_slider)
        self.choices.n_components.changed.connect(self._on_slider)
        self.choices.changed.connect(self._show_cost)
        self._show_buttons()
        self.native.destroyed.connect(self._abandon)

    def _dress(self) -> None:
        """What magicgui leaves to Qt: words that wrap and can be copied, a dock of any width."""
        for widget in self.choices:
            if isinstance(widget.native, QComboBox):
                widget.native.setSizeAdjustPolicy(
                    QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
                )
                widget.native.setMinimumContentsLength(14)
        # Not scrollable: napari docks what is inside of the scroll area, which then has no size.
        self.native.setMinimumWidth(_WIDTH)
        for label in (self.status, self.cost, self[-1]):
            label.native.setWordWrap(True)
            label.native.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Minimum)
            label.native.setTextInteractionFlags(
                Qt.TextInteractionFlag.TextSelectableByMouse
                | Qt.TextInteractionFlag.TextSelectableByKeyboard
            )
        layout = self.native.layout()
        for plot in (self.curve, self.frames):
            plot.setVisible(False)
            layout.addWidget(plot)
        layout.addStretch()

    def _watch_dock(self) -> None:
        """Closing the dock only takes the widget out of it."""
        dock = self.native.parent()
        while dock is not None and not isinstance(dock, QDockWidget):
            dock = dock.parent()
        if dock is not None and dock is not self._watched:
            dock.destroyed.connect(self._abandon)
            self._watched = dock

    # What napari calls

    def reset_choices(self, *_: Any) -> None:
        """Offer the layers that there are now."""
        self.choices.reset_choices()
        self._show_buttons()

    # Words

    def _say(self, *texts: str) -> None:
        self._said.extend(texts)
        self.status.value = "\n\n".join(self._said)

    def say_anew(self, *texts: str) -> None:
        """Say something in the dock, and nothing of before."""
        self._said = []
        self._say(*texts)

    def _show_cost(self, *_: object) -> None:
        try:
            images = self.choices.images()
            task = self._task_of(images)
        except InputError:
            self.cost.value = ""
            return
        found = estimate(task.pair, task.samples, task.settings, task.available)
        self.cost.value = found.text()

    def fail(self, error: Exception) -> None:
        """Say in the dock what failed; what was not foreseen also with its details."""
        self._set_busy(False)
        if isinstance(error, InputError):
            self.say_anew(str(error))
        elif isinstance(error, MemoryError):
            self.say_anew(
                "There is not enough memory. Crop the images, or take a part of the stack."
            )
        else:
            self.say_anew(
                "This failed for a reason that was not foreseen; nothing was changed. The details "
                "are among napari's notifications (lower right corner)."
            )
            notification_manager.receive_error(type(error), error, error.__traceback__)

    # Run, preview, cancel

    def _task_of(self, images: Images, *, whole: bool = False) -> Task:
        layer = self.choices.foreground.value
        saved = None
        if self.files.path is not None:
            saved = load_model(self.files.path, images.shape)
        samples = self.choices.samples() if saved is None else saved.samples
        settings = self.choices.settings() if saved is None else saved.settings
        pair = self.choices.pair() if whole and saved is None else Pair(images)
        place = place_in(self._viewer, layer)
        return Task(pair, samples, settings, place, psutil.virtual_memory().available, saved)

    def _task(self) -> Task:
        task = self._task_of(self.choices.images(), whole=True)
        if task.saved is None:
            check(task.pair, task.samples, task.settings)
        return task

    def _start(self) -> None:
        """Check the choices and start a run; refused choices change nothing."""
        try:
            task = self._task()
            layer = self.choices.foreground.value
            place = place_of(layer)
        except (InputError, MemoryError) as error:
            self.fail(error)
            return
        self.begin(
            Work(
                partial(self._steps, task, place),
                partial(self._on_outcome, layer),
                self.fail,
                "Removing the background",
            )
        )

    def _start_preview(self) -> None:
        try:
            task = self._task()
            layer = self.choices.foreground.value
            side = task.samples.sides[-1] if isinstance(task.samples, Patches) else None
            part = visible_part(layer, task.place, side)
            images = Images(task.pair.foreground.name, task.pair.foreground.data[part])
        except (InputError, MemoryError) as error:
            self.fail(error)
            return
        self.begin(
            Work(
                partial(self._model.preview, task, images),
                partial(self._on_preview, layer, part),
                self.fail,
                "Previewing",
            )
        )

    def begin(self, work: Work) -> None:
        """Begin a work, and say so."""
        self.choices.settle()
        self._watch_dock()
        self._mover.cancel()
        self._after.cancel()
        self.results.forget()
        self._set_busy(True)
        self.say_anew("Starting")
        self._runner.start(work)

    def _on_progress(self, report: Progress) -> None:
        self.progress.max = max(1, report.total)
        self.progress.value = min(report.done, report.total)
        self.say_anew(report.doing)

    def _steps(self, task: Task, place: Place) -> Steps[tuple[Outcome, dict[str, LayerData]]]:
        """A run, and its layers: what can be done in the thread is not left to the window."""
        outcome = yield from self._model.run(task)
        yield Progress(0, 1, "Showing")
        return outcome, result_layers(outcome, place)

    def _on_outcome(self, source: Any, found: tuple[Outcome, dict[str, LayerData]]) -> None:
        outcome, layers = found
        self.results.add(outcome, layers, source, partial(self._on_added, outcome), self.fail)

    def _on_added(self, outcome: Outcome) -> None:
        self._set_busy(False)
        live = " Move the suppression to change it." if outcome.solution.is_live else ""
        name = outcome.task.pair.foreground.name
        self.say_anew(
            f"Done: '{name} denoised' was added; hidden below it are what was removed and where "
            f"the signal is.{live}"
        )
        self._say(*outcome.remarks)
        self._show_plots(outcome)
        self._start_after(outcome)

    def _on_preview(self, layer: Any, part: tuple[slice, ...], found: Any) -> None:
        data, keywords = preview_layer(layer, part, found[1])
        old = self._preview
        if old is not None and old in self._viewer.layers:
            self._viewer.layers.remove(old)
        self._preview = self._viewer.add_image(data, **keywords)
        self._set_busy(False)
        self.say_anew("This is a preview of the part on screen. Press Run for all of it.")
        self._say(*found[0].remarks)

    def finish(self, *texts: str) -> None:
        """Say what was done, and be ready for the next."""
        self._set_busy(False)
        self.say_anew(*texts)

    def _cancel(self) -> None:
        """Free the widget at once; the thread stops at the end of its current block."""
        self._abandon()
        self._set_busy(False)
        self.say_anew("Cancelled; nothing was added.")

    def _abandon(self, *_: object) -> None:
        """Stop all work, and hear no more of it."""
        for runner in (self._runner, self._mover, self._after):
            runner.cancel()
        self.results.forget()

    def _set_busy(self, busy: bool) -> None:
        self.run.enabled = self.preview.enabled = not busy
        self.cancel.enabled = busy
        self.progress.value = 0
        self.progress.visible = busy
        self._show_buttons()

    def _show_buttons(self) -> None:
        there, busy = self.results.denoised is not None, self.cancel.enabled
        self.original.enabled = there and not busy
        self.files.show_what_applies(there, busy)

    # After a run: checks and plots

    def _start_after(self, outcome: Outcome) -> None:
        """Checks and plots that take longer than the result: it is shown before they are made."""

        def steps() -> Steps[Any]:
            curve = points = None
            if can_embed(outcome):
                points = yield from embed_frames(outcome)
            if has_curve(outcome):
                curve = yield from contrast_curve(outcome.solution)
            said = () if outcome.reading is None else (yield from judge(outcome.reading))
            return curve, points, said

        self._after.start(Work(steps, self._on_after, self.fail, "Checking the result"))

    def _on_after(self, found: tuple[Curve | None, Embedding | None, tuple[str, ...]]) -> None:
        curve, points, said = found
        if curve is not None:
            lines = {"signal": curve.signal, "background": curve.background}
            at = self.choices.suppression.value / 100
            self.curve.set_lines(curve.suppression, lines, at)
            self.curve.setVisible(True)
        if points is not None:
            self._places = points.places
            self.frames.set_points(points.scores)
            self.frames.setVisible(True)
        self._say(*said)

    def _show_plots(self, outcome: Outcome) -> None:
        self.curve.setVisible(False)
        self.frames.setVisible(False)

    def _go_to(self, number: int) -> None:
        self.results.go_to(self._places[number])

    # The slider

    def _on_slider(self, *_: object) -> None:
        settings = self.choices.settings()
        self.curve.set_mark(settings.suppression)
        if not self.results.is_live or self._runner.is_busy:
            return
        outcome = self.results.outcome
        if outcome is None or settings.method not in WITH_SLIDER:
            return
        if settings.method != outcome.solution.settings.method and self.files.path is None:
            return  # chosen for the next run
        self._wanted = settings.suppression, settings.n_components
        if not self._mover.is_busy:
            self._move()

    def _move(self) -> None:
        outcome, wanted, place = self.results.outcome, self._wanted, self.results.place()
        if outcome is None or wanted is None or place is None:
            return
        self._wanted = None
        k = min(wanted[1], outcome.solution.estimator.n_features_in_ - 1)
        steps = partial(moved, outcome, wanted[0], k, place)
        self._mover.start(Work(steps, self._on_moved, self.fail, "Updating"))

    def _on_moved(self, denoised: Any) -> None:
        self.results.move(denoised)
        self.say_anew(*denoised.solution.remarks)

    def _on_moved_idle(self) -> None:
        if self._wanted is not None:  # the latest place of the slider wins
            self._move()
