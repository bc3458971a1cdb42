"""Mice with and without Down syndrome: PCA, and cPCA at the contrasts that represent the path.

Abid et al., Figure 2 and Appendix B.1. What is said of these mice by accuracy is of whole mice that
are left out: a mouse was measured fifteen times.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common.measures import accuracy, silhouette
from benchmarks.common.report import Report, panels, run, scatter
from contrast_core import contrast_path
from contrast_core.datasets import load_mouse_protein

DATA = "mouse protein expression, the paper's: 270 + 135 rows, 77 proteins, its zeros and scaling."


def main(report: Report) -> None:
    mice = load_mouse_protein()
    path = contrast_path(mice.foreground, background=mice.background)
    strengths = dict.fromkeys([0.0, *path.representative_alphas])
    figure, axes = panels(1, len(strengths))
    found = []
    for axis, alpha in zip(axes[0], strengths, strict=True):
        scores = path.at(alpha).transform(mice.foreground)
        found.append((silhouette(scores, mice.labels), accuracy(scores, mice.labels, mice.units)))
        scatter(axis, scores, mice.labels, f"alpha {alpha:.3g}" if alpha else "PCA")
    report.save(figure, "cpca_mice")
    values = np.array(found)
    for alpha, (one, other) in zip(strengths, found, strict=True):
        report.note(f"  alpha {alpha:.3g}: silhouette, accuracy", f"{one:.3f}, {other:.3f}")
    report.row("silhouette, PCA", "no clusters", float(values[0, 0]), values[0, 0] < 0.15)
    report.row(
        "accuracy on mice left out, PCA", "no clusters", float(values[0, 1]), values[0, 1] < 0.75
    )
    best = values[1:].max(axis=0)
    report.row("silhouette, best of these contrasts", "two clusters", float(best[0]), best[0] > 0.4)
    report.row("accuracy on mice left out, the same", "two clusters", float(best[1]), best[1] > 0.9)
    shuffled = np.random.default_rng(0).permutation(mice.labels)
    chance = silhouette(
        path.at(path.representative_alphas[-1]).transform(mice.foreground), shuffled
    )
    report.row("silhouette of shuffled labels", "no clusters", chance, chance < 0.05)


if __name__ == "__main__":
    run(main, DATA)
