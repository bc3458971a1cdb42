"""What every study prints, counts and draws: a figure beside the paper's, or beside its bound."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from textwrap import fill
from typing import Any, NoReturn

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from threadpoolctl import threadpool_limits

from benchmarks.common.tasks import OUTPUT
from contrast_core import ContrastWarning

mpl.use("Agg")
warnings.simplefilter("ignore", ContrastWarning)  # the studies go to the ends of the ranges


class Report:
    """Rows of "paper" and "here", and bounds; those that miss are counted."""

    def __init__(self, data: str = "") -> None:
        self.missed: list[str] = []
        if data:
            print(fill(f"Data: {data}", 100))
            print(f"{'':46}{'paper':>16}  here")

    def row(self, what: str, paper: object, here: object, reached: Any, *, short: str = "") -> None:
        """A figure of the paper; `short` says why ours falls short of it, where that is known."""
        verdict = "reached" if reached else "short" if short else "MISSED"
        print(f"{what:46}{_shown(paper):>16}  {_shown(here):26}  {verdict}", flush=True)
        if not reached:
            if short:
                print(fill(short, 100, initial_indent="    ", subsequent_indent="    "))
            else:
                self.missed.append(what)

    def note(self, what: str, here: object) -> None:
        """A figure of ours that the paper does not print."""
        print(f"{what:46}{'-':>16}  {_shown(here)}", flush=True)

    def bound(self, what: str, reached: Any) -> None:
        """A statement that must hold here beside, or instead of, the paper's figure."""
        print(f"{what}: {'reached' if reached else 'MISSED'}", flush=True)
        if not reached:
            self.missed.append(what)

    def measured(
        self, what: str, value: float, *, least: float = -np.inf, most: float = np.inf
    ) -> None:
        """A figure of ours that must lie between two bounds, of which one or both may be absent."""
        sides = (("at least", least), ("at most", most))
        told = ", ".join(f"{word} {side:.3g}" for word, side in sides if np.isfinite(side))
        good = bool(least <= value <= most)
        verdict = "" if not told else ": reached" if good else ": MISSED"
        print(f"  {what:66}{value:10.4g}  {told}{verdict}", flush=True)
        if not good:
            self.missed.append(what)

    def save(self, figure: Any, name: str) -> None:
        OUTPUT.mkdir(parents=True, exist_ok=True)
        for axis in figure.axes:
            axis.title.set_fontsize(9)
        figure.tight_layout()
        figure.savefig(OUTPUT / f"{name}.png", dpi=110)
        plt.close(figure)
        print(f"drawn: {OUTPUT / name}.png")


def run(study: Callable[[Report], object], data: str = "", *, threads: int = 1) -> NoReturn:
    """Run a study on so many BLAS threads; the exit status says whether all its bounds hold."""
    report = Report(data)
    with threadpool_limits(threads):
        study(report)
    if report.missed:
        print("NOT REACHED: " + "; ".join(report.missed))
    sys.exit(bool(report.missed))


def panels(rows: int, columns: int, size: float = 3.0) -> tuple[Any, Any]:
    """A figure and its axes, always in two dimensions."""
    return plt.subplots(rows, columns, figsize=(size * columns, size * rows), squeeze=False)


def scatter(axis: Any, scores: Any, labels: Any, title: str) -> None:
    """The first two columns, a colour per group; groups drawn in turn hide one another least."""
    if scores.shape[1] == 1:
        scores = np.column_stack([scores, np.random.default_rng(0).normal(size=len(scores))])
    names = np.unique(labels)
    colours = plt.get_cmap("tab10")(np.searchsorted(names, labels))
    axis.scatter(*scores.T[:2], c=colours, s=6, alpha=0.6, linewidths=0)
    for i, name in enumerate(names):
        axis.scatter([], [], color=plt.get_cmap("tab10")(i), s=12, label=str(name))
    axis.legend(fontsize=6)
    axis.set_title(title)
    axis.set(xticks=[], yticks=[])


def image(axis: Any, pixels: Any, title: str = "", **options: Any) -> None:
    axis.imshow(pixels, **{"cmap": "gray", **options})
    axis.set_title(title)
    axis.set(xticks=[], yticks=[])


def spread(values: Any) -> str:
    """Least, median and largest of several choices."""
    low, middle, high = np.quantile(values, [0, 0.5, 1])
    return f"{low:.2f} / {middle:.2f} / {high:.2f}"


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
