"""The runner of `python benchmarks`, `python validation` and `python papers`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

ROOT = Path(__file__).resolve().parents[2]


def run(
    folder: Path,
    description: str | None,
    *,
    needs: Mapping[str, str] | None = None,
    when_named: Sequence[str] = (),
) -> int:
    """Run the files of a folder, each in its own process, and return 1 if a file fails, else 0.

    A file fails if an error occurs in it, or if one of its results misses the bound that the file
    sets for it. `needs` maps the name of a file to the module that it requires. A file in
    `when_named` runs only if the command line names it.
    """
    names = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    parser = argparse.ArgumentParser(
        prog=f"python {folder.name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(names)):
        parser.error(
            f"no files are called {', '.join(unknown)}; the known names are {', '.join(names)}"
        )
    missed, short = [], []
    for name in options.names or [name for name in names if name not in when_named]:
        print(f"\n== {name}", flush=True)
        needed = (needs or {}).get(name)
        if needed is not None and find_spec(needed) is None:
            print(f"left out: the module {needed} is not installed")
            continue
        status, rows = _run_file(str(folder / f"{name}.py"))
        short += [f"{name}: {row}" for row in rows]
        if status:
            missed.append(name)
    if short:
        print("\nworse than in the paper, for the reasons printed above:", *short, sep="\n  ")
    print("\n" + (f"failed: {', '.join(missed)}" if missed else "no file failed"))
    return int(bool(missed))


def _run_file(file: str) -> tuple[int, list[str]]:
    """Run a file, show its output, and return its exit status and the rows marked "short".

    These are results that are worse than the paper's for a known reason.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path}
    before = getrusage(RUSAGE_CHILDREN)
    short = []
    command = [sys.executable, "-u", file]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            if line.rstrip().endswith("  short"):
                short.append(" ".join(line.split()[:-1]))
    after = getrusage(RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{seconds:.0f} CPU seconds")
    return process.returncode, short
