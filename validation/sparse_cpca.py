"""Does sparse contrastive PCA find the few features that tell groups apart?

    python validation/sparse_cpca.py

Twenty draws of `make_sparse_groups`: four groups told apart by 30 of 500 features in the
foreground, 470 features with stronger variation that both sets share. Prints how many of the 30,
and how many others, are among the 30 largest loadings of dense cPCA; among the features of two
sparse components of 15 features each; and among those at the penalty that cross-validation chooses.

Must reach: with the number of features given at least 28 of the 30 in at least 16 draws, dense cPCA
fewer than that in as many; cross-validated at least 25 of the 30 and at most 15 others in as many.
"""

from __future__ import annotations

import sys
from time import process_time

import numpy as np
from threadpoolctl import threadpool_limits

from contrast_core import CPCA, SparseCPCA, cross_validated_penalty
from contrast_core.datasets import make_sparse_groups

N_DRAWS, N_ENOUGH = 20, 16


def main() -> int:
    reached = np.zeros(3, dtype=int)
    print("found of 30 + others:  dense cPCA  15 features each  cross-validated (its penalty)")
    start = process_time()
    for seed in range(N_DRAWS):
        data = make_sparse_groups(random_state=seed)
        given = {"background": data.background}
        dense = CPCA(2).fit(data.foreground, **given)
        largest = np.argsort(-np.abs(dense.components_).max(axis=0))[:30]
        counted = SparseCPCA(2, n_features_to_select=15).fit(data.foreground, **given)
        choice = cross_validated_penalty(SparseCPCA(2), data.foreground, **given, random_state=seed)
        found = [
            (int((kept < 30).sum()), int((kept >= 30).sum()))
            for kept in (largest, selected(counted), selected(choice.fitted))
        ]
        mine, others = found[2]
        reached += [found[0][0] < found[1][0], found[1][0] >= 28, mine >= 25 and others <= 15]
        cells = "        ".join(f"{mine:2} + {others:3}" for mine, others in found)
        print(f"  draw {seed:2}                {cells}  ({choice.penalty:.2f})", flush=True)
    print(f"{process_time() - start:.0f} CPU seconds")
    titles = ("dense finds fewer", "15 each: at least 28", "cross-validated: >= 25, <= 15")
    for title, draws in zip(titles, reached, strict=True):
        verdict = "reached" if draws >= N_ENOUGH else "NOT REACHED"
        print(f"  {title:30} in {draws} of {N_DRAWS} draws (bound {N_ENOUGH}): {verdict}")
    return int((reached < N_ENOUGH).any())


def selected(fitted: SparseCPCA) -> np.ndarray:
    """Features that any component has."""
    return np.flatnonzero((fitted.components_ != 0).any(axis=0))


if __name__ == "__main__":
    with threadpool_limits(1):
        sys.exit(main())
