"""Times and memory, ours and others', one file after the other: `python benchmarks [NAME ...]`.

Without names fifty minutes. Each file says what it measures and what must be reached, and fails
below it; those that install another package say so too. `peers`, `cvae`, `cluster`,
`sweep`, `large_images` and the napari plugin, whose window needs a screen, run only if they are
named.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common.runner import run

TABLES = {
    "dense data in memory": ("speed", "sweep"),
    "more features than rows": ("wide",),
    "rows from chunks and dask": ("out_of_core", "cluster"),
    "cells, beside scanpy's PCA and ContrastiveVI": ("cells", "cvae"),
    "images larger than memory": ("large_images",),
    "a GPU": ("gpu",),
    "the napari plugin": ("napari_live", "napari_window"),
    "packages that others published": ("peers",),
}

if __name__ == "__main__":
    sys.exit(
        run(
            Path(__file__).resolve().parent,
            __doc__,
            TABLES,
            when_named=(
                *("sweep", "cluster", "cvae", "large_images", "napari_live", "napari_window"),
                "peers",
            ),
        )
    )
