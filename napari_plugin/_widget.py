"""The dock widget: it binds choices, model, threads and result layers, and holds no science."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from magicgui.widgets import Container, Label, ProgressBar, PushButton, Widget
from napari.utils.notifications import notification_manager
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import (
    QComboBox,
    QDockWidget,
    QFrame,
    QScrollArea,
    QSizePolicy,
)

from contrast_core.images import Patches
from napari_plugin._after import AfterRun
from napari_plugin._choices import Choices
from napari_plugin._estimate import estimate, is_lazy
from napari_plugin._files import FileActions, row
from napari_plugin._layers import LayerData, Place, look_at, place_of, preview_layer, result_layers
from napari_plugin._model import Outcome, RemovalModel, Task
from napari_plugin._pair import Images, Pair, check
from napari_plugin._results import Results, place_in, visible_part
from napari_plugin._runner import Runner, Work
from napari_plugin._saved import load_model
from napari_plugin._settings import InputError, Progress, Steps
from napari_plugin._slider import LiveSlider

if TYPE_CHECKING:
    import napari

_WIDTH, _BAR = 350, 20
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
        self.after = AfterRun(self)
        self._all = Container[Widget](
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
        super().__init__(labels=False)
        self._scroll = QScrollArea()
        self._dress()
        self._runner = Runner(self._on_progress)
        self.slider = LiveSlider(self)
        for button, slot in (
            (self.run, self._start),
            (self.preview, self._start_preview),
            (self.cancel, self._cancel),
        ):
            button.changed.connect(slot)
        self.original.native.toggled.connect(self.results.show_original)
        self.choices.suppression.changed.connect(self.slider.move)
        self.choices.n_components.changed.connect(self.slider.move)
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
                widget.native.setMinimumContentsLength(8)  # larger fonts leave room for no more
        for label in (self.status, self.cost, self._all[-1]):
            label.native.setWordWrap(True)
            label.native.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Minimum)
            label.native.setTextInteractionFlags(
                Qt.TextInteractionFlag.TextSelectableByMouse
                | Qt.TextInteractionFlag.TextSelectableByKeyboard
            )
        inside = self._all.native
        for plot in (self.after.curve, self.after.frames):
            plot.setVisible(False)
            inside.layout().addWidget(plot)
        inside.layout().addStretch()
        # Of a scrollable container napari docks what is inside of its scroll area.
        inside.setMinimumWidth(_WIDTH)
        self._scroll.setWidget(inside)
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._scroll.setMinimumWidth(_WIDTH + _BAR)
        self.native.layout().addWidget(self._scroll)
        self.margins = (0, 0, 0, 0)

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

    def say_more(self, *texts: str) -> None:
        """Say something below what stands in the dock."""
        self._said.extend(texts)
        self.status.value = "\n\n".join(self._said)
        QTimer.singleShot(0, self._show_words)

    def _show_words(self) -> None:
        """Scroll to what was said, once it has its place."""
        self._scroll.ensureWidgetVisible(self.status.native, 0, 0)

    def say_anew(self, *texts: str) -> None:
        """Say something in the dock, and nothing of before."""
        self._said = []
        self.say_more(*texts)

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
        elif isinstance(error, OSError):
            name = f" ({Path(error.filename).name})" if error.filename else ""
            self.say_anew(
                f"A file could not be read or written{name}: {error.strerror or error}. Check that "
                "it is still there and that there is room, and try again."
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
        images = self.choices.images()
        task = self._task_of(images, whole=True)
        if task.saved is None:
            check(task.pair, task.samples, task.settings)
        lazy = is_lazy(task.pair, task.settings, task.available)
        if lazy and len(images.shape) > 2 and self._viewer.dims.ndisplay == 3:
            raise InputError(
                "This result is computed where you look at it, and a view in 3D looks at all of it "
                "at once. Go back to 2D (the cube at the lower left), and press Run again."
            )
        return task

    def _start(self) -> None:
        """Check the choices and start a run; choices that are refused change nothing."""
        try:
            task = self._task()
            layer = self.choices.foreground.value
            place = place_of(layer)
        except Exception as error:
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
        except Exception as error:
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
        self.slider.cancel()
        self.after.cancel()
        self.results.forget()
        self.original.native.setChecked(False)
        self._set_busy(True)
        self.say_anew("Starting")
        self._runner.start(work)

    def _on_progress(self, report: Progress) -> None:
        total = max(1, report.total)
        bar = self.progress.native
        bar.setUpdatesEnabled(False)  # else all of the window is painted at once, canvas and all
        if self.progress.max != total:
            self.progress.max = total
        self.progress.value = min(report.done, total)
        bar.setUpdatesEnabled(True)
        self.status.value = report.doing  # without scrolling to it

    def _steps(self, task: Task, place: Place) -> Steps[tuple[Outcome, dict[str, LayerData]]]:
        """A run, and its layers: what can be done in the thread is not left to the window."""
        outcome = yield from self._model.run(task)
        yield Progress(0, 1, "Showing")
        layers = result_layers(outcome, place)
        look_at(layers, task.place)
        return outcome, layers

    def _on_outcome(self, source: Any, found: tuple[Outcome, dict[str, LayerData]]) -> None:
        outcome, layers = found
        self.results.add(outcome, layers, source, partial(self._on_added, outcome), self.fail)

    def _on_added(self, outcome: Outcome) -> None:
        self._set_busy(False)
        live = " Move the suppression to change it." if outcome.solution.is_live else ""
        layer = self.results.denoised  # under a name of its own, if there was one of that name
        name = "" if layer is None else f" {layer.name!r}"
        self.say_anew(
            f"Done:{name} was added; hidden below it are what was removed and where "
            f"the signal is.{live}"
        )
        self.say_more(*outcome.remarks)
        self.after.start(outcome)

    def _on_preview(self, layer: Any, part: tuple[slice, ...], found: Any) -> None:
        data, keywords = preview_layer(layer, part, found[1])
        old = self._preview
        if old is not None and old in self._viewer.layers:
            self._viewer.layers.remove(old)
        self._preview = self._viewer.add_image(data, **keywords)
        self._set_busy(False)
        self.say_anew("This is a preview of the part on screen. Press Run for all of it.")
        self.say_more(*found[0].remarks)

    @property
    def is_busy(self) -> bool:
        """Whether a run, or what else was begun, goes on."""
        return self._runner.is_busy

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
        for work in (self._runner, self.slider, self.after):
            work.cancel()
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
