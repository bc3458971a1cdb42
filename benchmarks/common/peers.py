"""The packages that the papers' authors published, installed for the length of a benchmark."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

REQUIREMENTS = ("contrastive==1.2.0", "pcpca==0.4", "generalized_contrastive_PCA==1.0.2")


@contextmanager
def installed(*requirements: str) -> Iterator[str]:
    """Packages in a throw-away folder, first on the path; its modules are forgotten afterwards.

    Without their dependencies: those are here, or are for plots only.
    """
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--target", folder, *requirements], check=True)
        sys.path.insert(0, folder)
        try:
            yield folder
        finally:
            sys.path.remove(folder)
            for name, module in list(sys.modules.items()):
                if str(getattr(module, "__file__", "")).startswith(folder):
                    del sys.modules[name]


@contextmanager
def peers() -> Iterator[tuple[ModuleType, ModuleType, ModuleType]]:
    """`contrastive`, `pcpca`, `generalized_contrastive_PCA`, beside the numpy that is installed."""
    with installed(*REQUIREMENTS):
        yield (
            import_module("contrastive"),
            import_module("pcpca"),
            import_module("generalized_contrastive_PCA"),
        )
