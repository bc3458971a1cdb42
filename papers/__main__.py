"""The experiments of the methods' papers, one after the other: `python papers`.

    [CONTRAST_DATA=...] python papers [NAME ...]

Each experiment prints the paper's figures beside ours and states its data, and where they differ
from the paper's. A row is "reached" where ours is at least as good, "short" where it is not, with
the reason, and "MISSED" where that was not to be expected; the command fails if any is. The rows
that are short stand together at the end. What needs larger data than are bundled says so and leaves
it out. `python -m papers.pcpca noise` runs one experiment; `--help` lists the papers.

All of it takes half an hour of one core, of which CVAE and PCA++ are two thirds; the run times of
PCA++ need 6 GB.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common.runner import run

PAPERS = {
    "Abid, Zhang, Bagaria and Zou: contrastive PCA": ("cpca",),
    "Li, Jones and Engelhardt: probabilistic contrastive PCA": ("pcpca",),
    "An online algorithm for contrastive PCA": ("cpca_star",),
    "Severson, Ghosh and Ng: contrastive latent variable models": ("clvm", "cvae"),
    "PCA++": ("pca_pp", "pca_pp_cells"),
}

if __name__ == "__main__":
    needs = {"cvae": "torch", "pcpca": "arviz", "pca_pp_cells": "scanpy"}
    sys.exit(run(Path(__file__).resolve().parent, __doc__, PAPERS, needs=needs))
