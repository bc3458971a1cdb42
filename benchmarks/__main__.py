"""All tables of times and memory, one after the other: `python benchmarks`, fifty minutes.

Each file says what it measures and what must be reached; those that install a peer say so too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Dense in memory; hard spectra; wide; sparse and wide; from chunks and dask; scanpy's PCA, with as
# many components too; a GPU.
TABLES = (
    "speed",
    "hard_paths",
    "wide",
    "wide_sparse",
    "out_of_core",
    "cells",
    "cells_speed",
    "gpu",
)


def main() -> int:
    missed = []
    for name in TABLES:
        print(f"\n== {name}.py", flush=True)
        path = Path(__file__).with_name(f"{name}.py")
        if subprocess.run([sys.executable, str(path)]).returncode:
            missed.append(name)
    print("\n" + (f"not reached in: {', '.join(missed)}" if missed else "every bound reached"))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
