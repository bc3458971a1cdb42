"""The live slider: another suppression, shown without another run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from napari_plugin._apply import Denoised
from napari_plugin._model import moved
from napari_plugin._runner import Runner, Work
from napari_plugin._settings import WITH_SLIDER

if TYPE_CHECKING:
    from napari_plugin._widget import BackgroundRemoval


class LiveSlider:
    """Moves the last result to the suppression and the number of patterns that are chosen.

    Parameters
    ----------
    dock : BackgroundRemoval
        Whose choices are followed, and whose results move.
    """

    def __init__(self, dock: BackgroundRemoval) -> None:
        self._dock = dock
        self._wanted: tuple[float, int] | None = None
        self._runner = Runner(on_idle=self._go_on)

    @property
    def is_quiet(self) -> bool:
        """Whether no thread is left."""
        return self._runner.is_quiet

    def cancel(self) -> None:
        """Move no more."""
        self._wanted = None
        self._runner.cancel()

    def move(self, *_: object) -> None:
        """Follow the choices, if they are of the last result."""
        dock = self._dock
        settings, outcome = dock.choices.settings(), dock.results.outcome
        dock.after.curve.set_mark(settings.suppression)
        if outcome is None or not dock.results.is_live or dock.is_busy:
            return
        if settings.method not in WITH_SLIDER:
            return
        other = settings.method != outcome.solution.settings.method and dock.files.path is None
        chosen = dock.choices.foreground.value
        if other or (chosen is not None and chosen is not dock.results.source):
            return  # chosen for the next run
        self._wanted = settings.suppression, settings.n_components
        if not self._runner.is_busy:
            self._start()

    def _start(self) -> None:
        results, wanted = self._dock.results, self._wanted
        outcome, place = results.outcome, results.place()
        if outcome is None or wanted is None or place is None:
            return
        self._wanted = None
        k = min(wanted[1], outcome.solution.estimator.n_features_in_ - 1)
        steps = partial(moved, outcome, wanted[0], k, place)
        self._runner.start(Work(steps, self._on_moved, self._dock.fail, "Updating"))

    def _on_moved(self, denoised: Denoised) -> None:
        self._dock.results.move(denoised)
        self._dock.say_anew(*denoised.solution.remarks)

    def _go_on(self) -> None:
        if self._wanted is not None:  # the latest place of the slider wins
            self._start()
