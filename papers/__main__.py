"""The experiments of the methods' papers, one after the other: `python papers`.

    [CONTRAST_DATA=...] python papers [--output FOLDER] [NAME ...]

Each prints the paper's figures beside ours, states its data and where they differ from the paper's,
and draws the paper's figure into the folder (benchmarks/output). A row is "reached" where ours is
at least as good, "short" where it is not, with the reason, and "MISSED" where that was not to be
expected; the command fails if any is. The rows that are short stand together at the end. What needs
larger data than are bundled says so and leaves it out.

All of it takes half an hour of one core, of which CVAE and PCA++ are two thirds; the last
experiment needs 6 GB.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common.runner import run

EXPERIMENTS = {
    "Abid, Zhang, Bagaria and Zou: contrastive PCA": (
        "cpca_digits",
        "cpca_mice",
        "cpca_cells",
        "cpca_sensors",
        "cpca_simulated",
        "cpca_kernel",
    ),
    "Li, Jones and Engelhardt: probabilistic contrastive PCA": (
        "pcpca_mice",
        "pcpca_digits",
        "pcpca_noise",
        "posterior",
        "missing_values",
    ),
    "An online algorithm for contrastive PCA": ("cpca_star_range", "cpca_star_online"),
    "Severson, Ghosh and Ng: contrastive latent variable models": ("clvm", "cvae"),
    "PCA++": (
        "pca_pp_theory",
        "pca_pp_assumptions",
        "pca_pp_digits",
        "pca_pp_cells",
        "pca_pp_times",
    ),
}

if __name__ == "__main__":
    sys.exit(
        run(
            Path(__file__).resolve().parent,
            __doc__,
            EXPERIMENTS,
            needs={"cvae": "torch", "posterior": "arviz"},
        )
    )
