"""The experiments of the methods' papers, one after the other: `python benchmarks/papers`.

    [CONTRAST_DATA=...] python benchmarks/papers [--output FOLDER] [NAME ...]

Each prints the paper's figures beside ours, states its data and where they differ from the paper's,
and draws the paper's figure into the folder (benchmarks/output). A row is "reached" where ours is
at least as good, "short" where it is not, with the reason, and "MISSED" where that was not to be
expected; the command fails if any is. The rows that are short stand together at the end. What needs
larger data than are bundled says so and leaves it out.

All of it takes half an hour of one core, of which CVAE and PCA++ are two thirds; the last
experiment needs 6 GB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

HERE = Path(__file__).resolve().parent
# What a paper's experiment is named after; files of the folder above where they do more than that.
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
# Of those that do more, the paper's part; and what some need beyond the suite's own requirements.
PARTS = {"cvae": ["digits", "ten"]}
NEEDS = {"cvae": "torch", "posterior": "arviz"}


def script(name: str) -> Path:
    here = HERE / f"{name}.py"
    return here if here.exists() else HERE.parent / f"{name}.py"


def run(name: str, environment: dict[str, str]) -> tuple[int, list[str]]:
    """Run an experiment and show what it prints; its status, and its rows that are short."""
    command = [sys.executable, "-u", str(script(name)), *PARTS.get(name, [])]
    short = []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            if line.rstrip().endswith("  short"):
                short.append(" ".join(line.split()[:-1]))
    return process.returncode, short


def main() -> int:
    names = [name for group in EXPERIMENTS.values() for name in group]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--output", type=Path, help="where the figures go")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(names)):
        parser.error(f"no experiment {', '.join(unknown)}; there are {', '.join(names)}")
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path}
    if options.output is not None:
        environment["CONTRAST_OUTPUT"] = str(options.output.resolve())
    missed, short = [], []
    for paper, group in EXPERIMENTS.items():
        for name in group:
            if options.names and name not in options.names:
                continue
            print(f"\n== {name}: {paper}", flush=True)
            if name in NEEDS and find_spec(NEEDS[name]) is None:
                print(f"left out: it needs {NEEDS[name]}")
                continue
            before = getrusage(RUSAGE_CHILDREN)
            status, rows = run(name, environment)
            after = getrusage(RUSAGE_CHILDREN)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"{seconds:.0f} CPU seconds")
            short += [f"{name}: {row}" for row in rows]
            if status:
                missed.append(name)
    if short:
        print("\nshort of the paper, the reason with each row above:", *short, sep="\n  ")
    print("\n" + (f"not reached in: {', '.join(missed)}" if missed else "all reached"))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
