"""After a run: checks and plots that take longer than the result, which is shown before them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from napari.utils.notifications import notification_manager

from napari_plugin._model import (
    Curve,
    Embedding,
    Outcome,
    can_embed,
    contrast_curve,
    embed_frames,
    has_curve,
)
from napari_plugin._plot import Plot
from napari_plugin._runner import Runner, Work
from napari_plugin._settings import Steps
from napari_plugin._solve import judge

if TYPE_CHECKING:
    from napari_plugin._widget import BackgroundRemoval

_Found: TypeAlias = tuple[Curve | None, Embedding | None, tuple[str, ...]]


class AfterRun:
    """What is found out once a result is shown.

    Parameters
    ----------
    dock : BackgroundRemoval
        Which says what was found, and whose viewer goes to the frame that is clicked on.
    """

    def __init__(self, dock: BackgroundRemoval) -> None:
        self._dock = dock
        self.curve = Plot("Kept, over the suppression")
        self.frames = Plot("Frames by their first two patterns: click one", self._go_to)
        self._places: tuple[tuple[int, ...], ...] = ()
        self._runner = Runner()

    @property
    def is_quiet(self) -> bool:
        """Whether no thread is left."""
        return self._runner.is_quiet

    def cancel(self) -> None:
        """Find out no more."""
        self._runner.cancel()

    def start(self, outcome: Outcome) -> None:
        """Put the plots of before away, and check a result."""
        for plot in (self.curve, self.frames):
            plot.setVisible(False)
        steps = partial(_steps, outcome)
        self._runner.start(Work(steps, self._on_found, self._on_failed, "Checking the result"))

    def _on_found(self, found: _Found) -> None:
        curve, points, said = found
        if curve is not None:
            lines = {"signal": curve.signal, "background": curve.background}
            at = self._dock.choices.suppression.value / 100
            self.curve.set_lines(curve.suppression, lines, at)
            self.curve.setVisible(True)
        if points is not None:
            self._places = points.places
            self.frames.set_points(points.scores)
            self.frames.setVisible(True)
        self._dock.say_more(*said)

    def _on_failed(self, error: Exception) -> None:
        self._dock.say_more(
            "The result could not be checked, for a reason that was not foreseen. The details are "
            "among napari's notifications (lower right corner)."
        )
        notification_manager.receive_error(type(error), error, error.__traceback__)

    def _go_to(self, number: int) -> None:
        self._dock.results.go_to(self._places[number])


def _steps(outcome: Outcome) -> Steps[_Found]:
    curve = points = None
    if can_embed(outcome):
        points = yield from embed_frames(outcome)
    if has_curve(outcome):
        curve = yield from contrast_curve(outcome.solution)
    said = () if outcome.reading is None else (yield from judge(outcome.reading))
    return curve, points, said
