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
def peers() -> Iterator[tuple[ModuleType, ModuleType, ModuleType]]:
    """`contrastive`, `pcpca`, `generalized_contrastive_PCA`, beside the numpy that is installed.

    They are in a throw-away folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # Without their dependencies: numpy, scipy and scikit-learn are here, matplotlib is for
        # their plots only.
        subprocess.run([*pip, "--no-deps", "--target", folder, *REQUIREMENTS], check=True)
        sys.path.insert(0, folder)
        try:
            yield (
                import_module("contrastive"),
                import_module("pcpca"),
                import_module("generalized_contrastive_PCA"),
            )
        finally:
            sys.path.remove(folder)
