"""Tests that each Python block of the README runs alone, and that the links of the README work."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def _python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("number", range(3))
def test_each_block_of_code_runs_alone(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = _python_blocks()[number]
    if "scanpy" in block:
        pytest.importorskip("scanpy")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(README), "exec"), {})


def test_there_is_a_block_for_each_kind_of_user() -> None:
    packages = ("contrast_core import", "scanpy_ext", "contrast_core.images")
    blocks = _python_blocks()
    assert len(blocks) == 3
    for package, block in zip(packages, blocks, strict=True):
        assert package in block


def test_links_lead_to_files() -> None:
    targets = re.findall(r"\]\(([^)#]+)", README.read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (README.parent / target).is_file()] == []


def test_the_description_on_a_package_index_has_no_relative_links_or_pictures() -> None:
    project = tomllib.loads((README.parent / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = README.read_text(encoding="utf-8")
    assert "](docs/" in text
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []
    assert "which method when" in text  # the text of a removed link stays
