"""Temporary installation of other published packages during a benchmark."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def installed(*requirements: str) -> Iterator[str]:
    """Install packages in a temporary folder at the front of the path, and remove them at the end.

    Their dependencies are not installed, because they are already present or only needed for
    plots.
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
