"""How wide is the range of contrasts that separate the groups: cPCA* against cPCA.

Accuracy of linear discriminant analysis on two components, cross-validated (mouse data: whole mice
are left out), over the contrast (Online paper, Fig. 3). Two scales, each the same for both methods:

- the paper's: a = alpha / (1 + alpha) for cPCA, beta for cPCA*, both from 0 to 1; the width is the
  share of [0, 1] with an accuracy above 90%;
- the odds: alpha = a / (1 - a), and beta / (1 - beta), from 0.001 to 10^6; the width is in decades.
  Scaling both datasets shifts the odds of beta and leaves this width as it is; alpha has no units.

    [CONTRAST_DATA=...] python benchmarks/contrast_range.py

Bound: wider for cPCA* on both scales, on mouse and digits. The figure is
benchmarks/output/contrast_range.png.
"""

from __future__ import annotations

import sys
import warnings
from itertools import pairwise

import numpy as np
from _tasks import OUTPUT, tasks
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_score
from threadpoolctl import threadpool_limits

from contrast_core import CPCA, ContrastWarning, CPCAStar
from contrast_core.datasets import ContrastData

LEVEL = 0.9
UNIT = np.append(np.arange(0, 1, 0.01), 0.995)
ODDS = np.logspace(-3, 6, 46)


def accuracy(fitted: CPCA | CPCAStar, data: ContrastData, *, by_group: bool) -> float:
    scores = fitted.transform(data.foreground)
    folds = StratifiedGroupKFold(9) if by_group else StratifiedKFold(5)
    groups = data.groups if by_group else None
    model = LinearDiscriminantAnalysis()
    return float(cross_val_score(model, scores, data.labels, cv=folds, groups=groups).mean())


def width(position: NDArray[np.float64], accuracies: NDArray[np.float64]) -> float:
    """Length of the positions at which the accuracy, linear between them, exceeds the level."""
    total = 0.0
    for (x0, x1), (y0, y1) in zip(pairwise(position), pairwise(accuracies - LEVEL), strict=True):
        above = max(y0, 0) + max(y1, 0)
        total += (x1 - x0) * (above / (abs(y0) + abs(y1)) if y0 or y1 else 0.0)
    return total


def main() -> int:
    chosen = {name: data for name, data in tasks().items() if name != "Kang cells"}
    figure, axes = plt.subplots(len(chosen), 2, figsize=(9, 2.6 * len(chosen)), squeeze=False)
    failures = 0
    for row, (name, data) in zip(axes, chosen.items(), strict=True):
        cpca = CPCA().fit(data.foreground, background=data.background)
        star = CPCAStar().fit(cpca.foreground_moments_, background=cpca.background_moments_)
        for axis, odds, position, unit in (
            (row[0], UNIT / (1 - UNIT), UNIT, "of [0, 1]"),
            (row[1], ODDS, np.log10(ODDS), "decades"),
        ):
            curves = {
                "cPCA": cpca.path(odds),
                "cPCA*": star.path(odds / (1 + odds)),
            }
            widths = {}
            for method, fitted in curves.items():
                heights = np.array([accuracy(f, data, by_group=name == "mouse") for f in fitted])
                widths[method] = width(position, heights)
                where = position[heights > LEVEL]
                reach = f"{where.min():.3g} to {where.max():.3g}" if len(where) else "nowhere"
                print(
                    f"{name:22}{method:6} accuracy > {LEVEL:.0%} over {widths[method]:6.3f} {unit}"
                    f" ({reach}), best {heights.max():.3f}",
                    flush=True,
                )
                axis.plot(position, heights, label=f"{method}: {widths[method]:.2f} {unit}")
            failures += int(widths["cPCA*"] <= widths["cPCA"])
            axis.axhline(LEVEL, color="0.6", lw=0.8)
            axis.set(ylabel="LDA accuracy", title=name)
            axis.legend(fontsize=8)
        row[0].set_xlabel("alpha / (1 + alpha), or beta")
        row[1].set_xlabel("log10 of alpha, or of beta / (1 - beta)")
    OUTPUT.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(OUTPUT / "contrast_range.png", dpi=120)
    print(f"{'reached' if not failures else 'MISSED'}: a wider range for cPCA* everywhere")
    return failures


if __name__ == "__main__":
    warnings.simplefilter("ignore", ContrastWarning)  # the ends of the range are extreme
    with threadpool_limits(2):
        sys.exit(main() > 0)
