"""Studies of what the statistics claim: `python validation [NAME ...]`.

How often each test rejects where there is nothing (level) and finds what is there (power), how
often an interval holds the truth (coverage), and what the automatic choices give beside the best
choice that is made with labels. Each file says what it draws and what must be
reached, and fails below it. What needs larger data than are bundled says so and leaves it out.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common.runner import run

STUDIES = {
    "automatic choices": ("automatic_contrast", "dimension", "sparse_cpca"),
    "significance": ("significance", "donors", "designs"),
    "responses of cells": ("responses",),
    "images": ("frames", "structured_background", "image_verdicts"),
    "real data with labels": ("track_record",),
}

if __name__ == "__main__":
    sys.exit(run(Path(__file__).resolve().parent, __doc__, STUDIES))
