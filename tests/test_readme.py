"""The README's Python blocks run, top to bottom, as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"


def _python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)


def test_readme_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    napari = pytest.importorskip("napari")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    # napari's own fixture closes what it opened and complains about what was left behind.
    monkeypatch.setattr(napari, "Viewer", request.getfixturevalue("make_napari_viewer"))
    namespace: dict[str, Any] = {}
    blocks = _python_blocks()
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)
    pyplot.close("all")
