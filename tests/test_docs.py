"""The Python blocks in docs/ run, and the pages are linked from the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_is_linked_and_its_code_runs(page: Path) -> None:
    assert f"](docs/{page.name})" in (ROOT / "README.md").read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
        exec(compile(block, str(page), "exec"), {})
