"""Beside the packages that others published, as installed today: `python benchmarks peers`.

They are installed for the length of the run. First whether they find what this suite finds, once
their conventions are converted, and where they depart from the papers; then what each does with odd
data, on the same data in one run; then times. ContrastiveVI (scvi-tools) stands beside
`tl.cvae` in `benchmarks/cvae.py`.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

import features
import same_results
import times
from _packages import packages
from threadpoolctl import threadpool_limits

from contrast_core import ContrastWarning


def main() -> int:
    warnings.simplefilter("ignore", ContrastWarning)
    with packages() as found, threadpool_limits(1):
        missed = [part.__name__ for part in (same_results, features, times) if part.main(found)]
    print("\n" + (f"NOT REACHED: {', '.join(missed)}" if missed else "all bounds reached"))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
