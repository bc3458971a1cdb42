"""Benchmarks of time and memory, and comparisons with packages: `python benchmarks [NAME ...]`.

Each file states what it measures and its bounds, and fails if a bound is missed. A file that
installs another package says so. The benchmarks `peers`, `cvae`, `cluster`, `sweep`, `large_images`
and `napari_live` take long or need further software or data, so they run only if they are named.
The study `window` of `napari_live` needs a screen.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common.runner import run

NAMED = ("cluster", "cvae", "large_images", "napari_live", "peers", "sweep")

if __name__ == "__main__":
    needs = {"gpu": "torch"}
    sys.exit(run(Path(__file__).resolve().parent, __doc__, needs=needs, when_named=NAMED))
