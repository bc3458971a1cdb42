"""Tests of imports: few packages at first, plotting when it is used, no linear algebra."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

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


def test_mathematics_is_in_the_core_or_in_a_library():
    """Check that the package imports only `sparse` and `stats` of SciPy, and no linear algebra."""
    allowed = {"scipy.sparse", "scipy.stats"}
    for path in (Path(__file__).parents[2] / "scanpy_ext").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Attribute) and node.attr == "linalg"), path
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
            for module in modules:
                assert not module.startswith("scipy") or module in allowed, path
                assert "linalg" not in module, path
