"""Compare the automatic contrast with the best contrast of a grid on data with known groups.

The measure is the silhouette of the known groups in two components. It is computed at the automatic
contrast, which uses no labels, and at all contrasts of a grid, of which the best one counts. The
grid of cPCA has alpha = 0 and 40 values from 0.1 to 1000. The grid of cPCA* has beta = 0 and 40
values at which (1 - beta) / beta goes from 1000 to 0.001 times the background's mean variance. Each
silhouette is computed twice: with each axis scaled to unit standard deviation, and without scaling.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common.measures import silhouette
from benchmarks.common.report import Report, run
from benchmarks.common.tasks import tasks
from contrast_core import CPCA, CPCAStar

BOUND = 0.9


def main(report: Report) -> None:
    for name, data in tasks().items():
        cpca = CPCA().fit(data.foreground, background=data.background)
        star = CPCAStar().fit(cpca.foreground_moments_, background=cpca.background_moments_)
        mean_variance = cpca.background_moments_.total_variance / len(cpca.mean_)
        betas = [0, *(1 / (1 + mean_variance * np.logspace(3, -3, 40)))]
        for method, chosen, grid in (
            ("cPCA", cpca, cpca.path()),
            ("cPCA*", star, star.path(betas)),
        ):
            scores = [fitted.transform(data.foreground) for fitted in (chosen, *grid)]
            for scaled in (True, False):
                auto, pca, *rest = (silhouette(s, data.labels, scaled=scaled) for s in scores)
                best = max(pca, *rest)
                axes = "scaled" if scaled else "unscaled"
                print(
                    f"{name}, {method}, {axes}: silhouette {auto:.3f}, "
                    f"best of the grid {best:.3f}, PCA {pca:.2f}"
                )
                report.measured("  share of the grid's best", auto / best, least=BOUND)


if __name__ == "__main__":
    run(main, threads=2)
