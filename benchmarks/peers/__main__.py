"""Beside the packages that others published, as installed today: `python benchmarks peers`.

They are installed for the length of the run. First whether they find what this suite finds, once
their conventions are converted, and where they depart from the papers; then what each does with odd
data, on the same data in one run; then times. ContrastiveVI (scvi-tools) stands beside
`tl.cvae` in `benchmarks/cvae.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

import features
import same_results
import times
from _packages import packages

from benchmarks.common.report import Report, run


def main(report: Report) -> None:
    with packages() as found:
        for part in (same_results, features, times):
            part.main(report, found)


if __name__ == "__main__":
    run(main)
