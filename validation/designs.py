"""Does a fit within patients help to recognise a drug's effect, and what does grouping cost?

The data are cells of five glioblastoma patients with and without a drug, as log1p of counts per
10,000. The foreground is all cells, and the background is all control cells. Each patient in turn
is left out of the embedding and of the linear discriminant. The measure is the accuracy on the
patient left out, as the mean over the five, for two, three and five components. "within patients"
means that the fit is within patients and that scores are centred by patient. The last part times
the moments of 100,000 x 2,000 values with 50 groups and without groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from benchmarks.common.measures import seconds
from benchmarks.common.report import Report, run
from benchmarks.common.tasks import glioblastoma_cells
from contrast_core import CPCA
from contrast_core.moments import SecondMoments


def accuracies(values: Any, patient: Any, treated: Any, within: bool, model: CPCA) -> list[float]:
    """Return the accuracy on each patient, fitted and trained on the other patients."""
    found = []
    for left_out in np.unique(patient):
        rest = patient != left_out
        controls = rest & ~treated
        labels = {"within": patient[rest], "background_within": patient[controls]}
        model.fit(values[rest], background=values[controls], **(labels if within else {}))
        train, test = (
            model.transform(values[rows], within=patient[rows] if within else None)
            for rows in (rest, ~rest)
        )
        discriminant = LinearDiscriminantAnalysis().fit(train, treated[rest])
        found.append(float(discriminant.score(test, treated[~rest])))
    return found


def main(report: Report) -> None:
    values, patient, treated = glioblastoma_cells()
    for k in (2, 3, 5):
        for within, name, bound in ((False, "all", 0.75), (True, "within patients", 0.80)):
            pca, cpca = (
                accuracies(values, patient, treated, within, CPCA(k, alpha=alpha))
                for alpha in (0.0, "auto")
            )
            each = " ".join(f"{one:.2f}" for one in cpca)
            print(f"{k} components, {name}: PCA {np.mean(pca):.2f}, cPCA by patient {each}")
            least = bound if k == 2 else -np.inf
            report.measured("  accuracy on the patient left out", float(np.mean(cpca)), least=least)
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(100_000, 2000)), rng.integers(0, 50, 100_000)
    (plain, _), (grouped, _) = seconds(
        lambda: SecondMoments.from_data(X), lambda: SecondMoments.from_data(X, groups=groups)
    )
    report.measured("moments within 50 groups / without", grouped / plain, most=1.1)


if __name__ == "__main__":
    run(main)
