"""Packages that others published, installed for the length of a benchmark."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def installed(*requirements: str) -> Iterator[str]:
    """Install packages in a throw-away folder, first on the path; forget their modules at the end.

    Their dependencies are not installed: they are here, or serve plots only.
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
