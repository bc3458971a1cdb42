"""Print our results beside the paper's results or beside bounds, and record which are missed."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from textwrap import fill
from typing import Any, NoReturn

import numpy as np
from threadpoolctl import threadpool_limits

from contrast_core import ContrastWarning

warnings.simplefilter("ignore", ContrastWarning)  # studies also use contrasts that are too strong


class LeftOut(Exception):
    """Exception that a study raises if it cannot run here; the message says why."""


class Report:
    """Prints the rows of a study, and holds the names of the rows that miss their bound."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def row(self, what: str, paper: object, here: object, reached: Any, *, short: str = "") -> None:
        """Print a paper's result and ours; `short` is the known reason why ours is worse."""
        verdict = "short" if short and not reached else self._verdict(what, reached)
        print(f"{what:46}{_shown(paper):>16}  {_shown(here):26}  {verdict}", flush=True)
        if verdict == "short":
            print(fill(short, 100, initial_indent="    ", subsequent_indent="    "))

    def note(self, what: str, here: object) -> None:
        """Print a result of ours that the paper does not report."""
        print(f"{what:46}{'-':>16}  {_shown(here)}", flush=True)

    def bound(self, what: str, reached: Any) -> None:
        """Print whether a required statement holds."""
        print(f"{what}: {self._verdict(what, reached)}", flush=True)

    def measured(
        self, what: str, value: float, *, least: float = -np.inf, most: float = np.inf
    ) -> None:
        """Print a result of ours, which must lie between the given bounds."""
        sides = (("at least", least), ("at most", most))
        bounds = ", ".join(f"{word} {side:.3g}" for word, side in sides if np.isfinite(side))
        verdict = self._verdict(what, least <= value <= most)
        told = f"{bounds}: {verdict}" if bounds else ""
        print(f"  {what:66}{value:10.4g}  {told}", flush=True)

    def _verdict(self, what: str, reached: Any) -> str:
        """Return the word to print for a result, and record the name of a row that is missed."""
        if not reached:
            self.missed.append(what)
        return "reached" if reached else "MISSED"


def run(*studies: Callable[[Report], object], threads: int = 1) -> NoReturn:
    """Run the studies that the command line names, or all of them, and exit.

    The docstring of a study is printed above its rows. The exit status is 1 if a row misses its
    bound.
    """
    report = Report()
    named = [study for study in studies if study.__name__ in sys.argv[1:]]
    with threadpool_limits(threads):
        for study in named or studies:
            if len(studies) > 1:
                print(f"\n-- {study.__name__}")
            if study.__doc__:
                print(inspect.cleandoc(study.__doc__) + "\n")
            try:
                study(report)
            except LeftOut as reason:
                print(f"left out: {reason}")
    if report.missed:
        print("NOT REACHED: " + "; ".join(report.missed))
    sys.exit(bool(report.missed))


def spread(values: Any) -> str:
    """Return the smallest, the median and the largest value as text."""
    low, middle, high = np.quantile(values, [0, 0.5, 1])
    return f"{low:.2f} / {middle:.2f} / {high:.2f}"


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
