"""Does sparse contrastive PCA find the few features that tell groups apart?

Twenty draws of `make_sparse_groups`: four groups told apart by 30 of 500 features in the
foreground, and 470 features with stronger variation that both sets share. The study counts how many
of the 30 features, and how many others, each of three selections contains: the 30 largest loadings
of dense cPCA, the features of two sparse components with 15 features each, and the features at the
penalty that cross-validation chooses.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common.report import Report, run
from contrast_core import CPCA, SparseCPCA, cross_validated_penalty
from contrast_core.datasets import make_sparse_groups

N_DRAWS, N_ENOUGH = 20, 16


def selected(fitted: SparseCPCA) -> np.ndarray:
    """Return the features with a nonzero loading in any component."""
    return np.flatnonzero((fitted.components_ != 0).any(axis=0))


def main(report: Report) -> None:
    rows = []
    for seed in range(N_DRAWS):
        data = make_sparse_groups(random_state=seed)
        given = {"background": data.background}
        dense = CPCA(2).fit(data.foreground, **given)
        largest = np.argsort(-np.abs(dense.components_).max(axis=0))[:30]
        counted = SparseCPCA(2, n_features_to_select=15).fit(data.foreground, **given)
        choice = cross_validated_penalty(SparseCPCA(2), data.foreground, **given, random_state=seed)
        kept = (largest, selected(counted), selected(choice.fitted))
        rows.append([part for each in kept for part in ((each < 30).sum(), (each >= 30).sum())])
        text = "   ".join(f"{mine:2} + {others:3}" for mine, others in np.reshape(rows[-1], (3, 2)))
        print(f"draw {seed:2}: dense, 15 each, cross-validated: {text}", flush=True)
    dense, _, counted, _, chosen, others = np.transpose(rows)
    for what, draws in (
        ("draws in which dense cPCA finds fewer", dense < counted),
        ("draws in which 15 each find at least 28 of 30", counted >= 28),
        ("draws, cross-validated: at least 25 and 15 others", (chosen >= 25) & (others <= 15)),
    ):
        report.measured(what, draws.sum(), least=N_ENOUGH)


if __name__ == "__main__":
    run(main)
