"""The experiments of the methods' papers, one after the other: `python papers`.

    [CONTRAST_DATA=...] python papers [NAME ...]

Each experiment states its data, and how they differ from the paper's. It prints a table, in which
each row has a result of the paper beside ours. A row is "reached" if our result is at least as
good, and "short" if it is worse for a reason that is known and printed. A row that is worse without
such a reason is "MISSED", and the command then fails. All short rows are listed again at the end.

The environment variable CONTRAST_DATA names a folder of data that are too large to be bundled. If
it is not set, an experiment that needs such data says so and is left out.

`python -m papers.pcpca noise` runs one experiment; `--help` lists the papers.

All experiments together take about 25 minutes of one core; CVAE and PCA++ take three quarters of
it. The measurement of PCA++'s run times needs 6 GB of memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common.runner import run

if __name__ == "__main__":
    needs = {"cvae": "torch", "pcpca": "arviz", "pca_pp_cells": "scanpy"}
    sys.exit(run(Path(__file__).resolve().parent, __doc__, needs=needs))
