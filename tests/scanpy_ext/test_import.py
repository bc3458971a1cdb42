"""Importing the package costs next to nothing; plotting is loaded by plots."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"scanpy", "anndata", "matplotlib", "pandas", "sklearn", "torch", "dask"}


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return HEAVY & set(done.stdout.split())


def test_the_package_alone_loads_nothing_heavy():
    assert loaded_by("import scanpy_ext") == set()


def test_computing_loads_no_plots():
    assert not loaded_by("import scanpy_ext; scanpy_ext.tl.cpca") & {
        "scanpy",
        "matplotlib",
        "torch",
    }
