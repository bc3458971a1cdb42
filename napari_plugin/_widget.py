"""The dock widget: it binds layers, the model and a thread, and holds no science."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from magicgui.widgets import (
    CheckBox,
    ComboBox,
    Container,
    FloatSpinBox,
    Label,
    ProgressBar,
    PushButton,
    SpinBox,
    Widget,
)
from napari.layers import Image
from napari.qt.threading import create_worker
from napari.utils.notifications import notification_manager, show_warning
from threadpoolctl import ThreadpoolController

from napari_plugin._layers import Source, read_layers, result_layers
from napari_plugin._model import Denoised, DenoisingModel, InputError, Progress, Steps

if TYPE_CHECKING:
    from collections.abc import Generator

    import napari


class ContrastiveDenoising(Container[Widget]):
    """Remove from a stack of images what also varies in a background stack.

    Parameters
    ----------
    napari_viewer : napari.Viewer
        Its image layers are offered, and results are added to it.
    """

    def __init__(self, napari_viewer: napari.Viewer) -> None:
        self._viewer = napari_viewer
        self._n_runs = 0
        self._running: _Run | None = None
        self.foreground = ComboBox(
            label="Foreground",
            choices=self._image_layers,
            nullable=True,
            tooltip="Stack to denoise: frames with the signal",
        )
        self.background = ComboBox(
            label="Background",
            choices=self._image_layers,
            nullable=True,
            tooltip="Stack with the unwanted variation alone: frames of the same size",
        )
        self.n_components = SpinBox(
            label="Components",
            value=DenoisingModel.n_components,
            min=1,
            max=10_000,
            tooltip="How many components to keep in the denoised frames",
        )
        self.automatic = CheckBox(
            text="automatic", value=True, tooltip="Choose alpha from the data, for denoising"
        )
        self.alpha = FloatSpinBox(
            value=1.0,
            min=0.0,
            max=1e9,
            step=None,
            enabled=False,
            tooltip="Contrast: 0 is ordinary PCA; the larger, the more background is removed",
        )
        self.run = PushButton(text="Run")
        self.cancel = PushButton(text="Cancel", enabled=False)
        self.progress = ProgressBar(value=0, min=0, max=1, visible=False)
        self.status = Label(value="")
        contrast = Container[Widget](
            widgets=[self.automatic, self.alpha], layout="horizontal", labels=False, label="Alpha"
        )
        choices = Container[Widget](
            widgets=[self.foreground, self.background, self.n_components, contrast]
        )
        buttons = Container[Widget](
            widgets=[self.run, self.cancel], layout="horizontal", labels=False
        )
        for row in (contrast, choices, buttons):
            row.margins = (0, 0, 0, 0)
        super().__init__(widgets=[choices, buttons, self.progress, self.status], labels=False)
        self.status.native.setWordWrap(True)
        self.alpha.native.setDecimals(4)  # a background of strong variance makes alpha small
        self.automatic.changed.connect(
            lambda automatic: setattr(self.alpha, "enabled", not automatic)
        )
        self.run.changed.connect(self._start)
        self.cancel.changed.connect(self._cancel)
        self.native.destroyed.connect(self._abandon)

    def _image_layers(self, _widget: object) -> list[Image]:
        return [layer for layer in self._viewer.layers if isinstance(layer, Image)]

    def reset_choices(self, *_: Any) -> None:
        """Offer the layers that there are now; napari calls this whenever they change."""
        boxes = (self.foreground, self.background)
        chosen = [box.value for box in boxes]
        super().reset_choices()
        for box, layer in zip(boxes, chosen, strict=True):
            if layer in box.choices:  # under a new name, perhaps, by which magicgui loses it
                box.value = layer

    def _start(self) -> None:
        """Check the choices and start a worker; refused choices change nothing."""
        model = DenoisingModel(
            n_components=self.n_components.value,
            alpha="denoise" if self.automatic.value else self.alpha.value,
        )
        try:
            source = read_layers(self.foreground.value, self.background.value)
            model.check(source.foreground, source.background)
        except InputError as error:
            show_warning(str(error))
            return
        steps = model.steps(source.foreground, source.background)
        worker = create_worker(_work, steps)
        # Signals that are still queued when a run is cancelled must find that it is over; and a
        # worker lives on after its run, so its slots hold a number, not the stacks.
        self._n_runs += 1
        number = self._n_runs
        worker.yielded.connect(partial(self._on_progress, number))
        worker.returned.connect(partial(self._on_returned, number))
        worker.errored.connect(partial(self._on_errored, number))
        worker.finished.connect(partial(self._on_finished, number))
        worker.aborted.connect(steps.close)
        dock = self.native.parent()
        if dock is not None:  # closing the dock only takes the widget out of it
            dock.destroyed.connect(worker.quit)
        self._running = _Run(number, worker, source, model)
        self._set_busy(True)
        self.status.value = "Starting"
        worker.start()

    def _current(self, number: int) -> _Run | None:
        run = self._running
        return run if run is not None and run.number == number else None

    def _on_progress(self, number: int, progress: Progress) -> None:
        if self._current(number):
            self.progress.max = progress.total
            self.progress.value = progress.done
            self.status.value = progress.next

    def _on_returned(self, number: int, outcome: Denoised | _Failure) -> None:
        run = self._current(number)
        if run is None:
            return
        if isinstance(outcome, _Failure):
            self._on_errored(number, outcome.error)
            return
        try:
            for data, keywords, _ in result_layers(run.source, run.model, outcome):
                self._viewer.add_image(data, **keywords)
        except Exception as error:
            self._on_errored(number, error)
            return
        if run.model.alpha == "denoise":
            chosen = "automatic"
            self.alpha.value = outcome.alpha  # where to go on from by hand
        else:
            chosen = "given"
        self.status.value = (
            f"Added {run.model.n_components} components at alpha {outcome.alpha:.4g} ({chosen})"
        )
        for message in outcome.warnings:
            show_warning(message)

    def _on_errored(self, number: int, error: Exception) -> None:
        if self._current(number) is None:
            return
        self.status.value = "The run failed"
        if isinstance(error, ValueError):
            show_warning(str(error))
        else:  # not foreseen: with the traceback
            notification_manager.receive_error(type(error), error, error.__traceback__)

    def _on_finished(self, number: int) -> None:
        if self._current(number):
            self._running = None
            self._set_busy(False)

    def _cancel(self) -> None:
        """Free the widget at once; the thread stops at the end of its current block."""
        self._abandon()
        self._set_busy(False)
        self.status.value = "Cancelled; nothing was added"

    def _abandon(self) -> None:
        """Stop the run, if any, and hear no more of it."""
        if self._running is not None:
            self._running.worker.quit()
            self._running = None

    def _set_busy(self, busy: bool) -> None:
        self.run.enabled = not busy
        self.cancel.enabled = busy
        self.progress.value = 0
        self.progress.visible = busy


@dataclass(frozen=True, eq=False)
class _Run:
    number: int
    worker: Any
    source: Source
    model: DenoisingModel


@dataclass(frozen=True, eq=False)
class _Failure:
    error: Exception


def _work(steps: Steps) -> Generator[Progress, None, Denoised | _Failure]:
    """Run the steps in the worker's thread, returning an exception instead of raising it.

    A worker takes any RuntimeError for the end of the application and reports neither an error nor
    its end (superqt, ``WorkerBase.run``), and napari 0.9's own slot for ``errored`` fails.
    """
    blas = ThreadpoolController()
    n_threads = max(1, (os.cpu_count() or 1) // 2)
    try:
        while True:
            # BLAS threads spin while they wait for a core that the window is drawing on; on all
            # cores, a fit of a fraction of a second took a minute.
            with blas.limit(limits=n_threads, user_api="blas"):
                progress = next(steps)
            yield progress
    except StopIteration as stop:
        return cast(Denoised, stop.value)
    except Exception as error:
        return _Failure(error)
