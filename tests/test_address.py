"""Tests that one call writes the repository's address into every place that a release needs."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ADDRESS = "https://example.org/owner/name"


def test_one_call_writes_the_address_everywhere_and_another_replaces_it(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("address", ROOT / "scripts" / "address.py")
    assert spec is not None and spec.loader is not None
    address = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(address)
    for name in ("pyproject.toml", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    project = tmp_path / "pyproject.toml"
    # The address may be written already.
    text = re.sub(r"\[project\.urls\]\n(?:.+\n)*\n", "", project.read_text(encoding="utf-8"))
    project.write_text(text, encoding="utf-8")
    for wrong in ("github.com/owner/name", "https://github.com", "OWNER"):
        with pytest.raises(SystemExit, match="is not like https://github"):
            address.write(tmp_path, wrong)
    assert project.read_text(encoding="utf-8") == text
    [problem] = address.missing(tmp_path)
    assert "[project.urls] has no Repository" in problem
    address.write(tmp_path, "https://example.org/older/name")
    address.write(tmp_path, ADDRESS)
    assert address.missing(tmp_path) == []
    assert all("older" not in path.read_text(encoding="utf-8") for path in tmp_path.iterdir())
    written = tomllib.loads(project.read_text(encoding="utf-8"))
    assert written["project"]["urls"]["Repository"] == ADDRESS
    assert written["project"]["entry-points"]  # the surrounding text is unchanged
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    hook = written["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for change in hook["substitutions"]:
        readme = re.sub(change["pattern"], change["replacement"], readme)
    assert f"]({ADDRESS}/raw/main/docs/front.png)" in readme
    assert f"]({ADDRESS}/blob/main/docs/which_method.md)" in readme
    citation = tmp_path / "CITATION.cff"
    changed = citation.read_text(encoding="utf-8").replace(ADDRESS, "https://a.b/c")
    citation.write_text(changed, encoding="utf-8")
    assert address.missing(tmp_path) == [f"CITATION.cff: lacks {ADDRESS}"]
