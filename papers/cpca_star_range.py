"""How wide is the range of contrasts that separate the groups: cPCA* against cPCA.

Accuracy of linear discriminant analysis on two components, cross-validated (mouse data: whole mice
are left out), over the contrast (Online paper, Fig. 3). Two scales, each the same for both methods:

- the paper's: a = alpha / (1 + alpha) for cPCA, beta for cPCA*, both from 0 to 1; the width is the
  share of [0, 1] with an accuracy above 90%;
- the odds: alpha = a / (1 - a), and beta / (1 - beta), from 0.001 to 10^6; the width is in decades.
  Scaling both datasets shifts the odds of beta and leaves this width as it is; alpha has no units.

The paper prints no widths, only that cPCA*'s is the wider one. Bound: it is on both scales, on
mouse and digits.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.measures import accuracy
from benchmarks.common.report import Report, panels, run
from benchmarks.common.tasks import tasks
from contrast_core import CPCA, CPCAStar

DATA = (
    "the paper's mice, and digits on photographs (bundled) and on outdoor scenes (CONTRAST_DATA), "
    "not on the UPenn pictures; its artificial data, of which it says too little, are left out."
)
LEVEL = 0.9
UNIT = np.append(np.arange(0, 1, 0.01), 0.995)
ODDS = np.logspace(-3, 6, 46)


def width(position: NDArray[np.float64], accuracies: NDArray[np.float64]) -> float:
    """Length of the positions at which the accuracy, linear between them, exceeds the level."""
    total = 0.0
    for (x0, x1), (y0, y1) in zip(pairwise(position), pairwise(accuracies - LEVEL), strict=True):
        above = max(y0, 0) + max(y1, 0)
        total += (x1 - x0) * (above / (abs(y0) + abs(y1)) if y0 or y1 else 0.0)
    return total


def main(report: Report) -> None:
    chosen = {name: data for name, data in tasks().items() if name != "Kang cells"}
    figure, axes = panels(len(chosen), 2, 4.0)
    for row, (name, data) in zip(axes, chosen.items(), strict=True):
        cpca = CPCA().fit(data.foreground, background=data.background)
        star = CPCAStar().fit(cpca.foreground_moments_, background=cpca.background_moments_)
        groups = data.units if name == "mouse" else None
        for axis, odds, position, unit in (
            (row[0], UNIT / (1 - UNIT), UNIT, "of [0, 1]"),
            (row[1], ODDS, np.log10(ODDS), "decades"),
        ):
            widths = []
            for method, fitted in (
                ("cPCA", cpca.path(odds)),
                ("cPCA*", star.path(odds / (1 + odds))),
            ):
                heights = np.array(
                    [accuracy(f.transform(data.foreground), data.labels, groups) for f in fitted]
                )
                widths.append(width(position, heights))
                where = position[heights > LEVEL]
                reach = f"{where.min():.3g} to {where.max():.3g}" if len(where) else "nowhere"
                report.note(
                    f"{name}, {method}: accuracy > {LEVEL:.0%}",
                    f"{widths[-1]:.3f} {unit} ({reach}), best {heights.max():.3f}",
                )
                axis.plot(position, heights, label=f"{method}: {widths[-1]:.2f} {unit}")
            text = f"by {widths[1] - widths[0]:.3f} {unit}"
            report.row(f"{name}: cPCA* the wider", "wider", text, widths[1] > widths[0])
            axis.axhline(LEVEL, color="0.6", lw=0.8)
            axis.set(ylabel="LDA accuracy", title=name)
            axis.legend(fontsize=8)
        row[0].set_xlabel("alpha / (1 + alpha), or beta")
        row[1].set_xlabel("log10 of alpha, or of beta / (1 - beta)")
    report.save(figure, "cpca_star_range")


if __name__ == "__main__":
    run(main, DATA)
