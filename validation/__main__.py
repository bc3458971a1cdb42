"""Studies that check the claims of the statistics: `python validation [NAME ...]`.

The studies measure how often each test rejects where there is no effect (level) and where there is
one (power), and how often an interval contains the true value (coverage). They also compare the
automatic choices with the best choice that labels allow. Each file states its data and its bounds,
and fails if a bound is missed. Studies that need larger data than the bundled ones say so and are
left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common.runner import run

if __name__ == "__main__":
    sys.exit(run(Path(__file__).resolve().parent, __doc__))
