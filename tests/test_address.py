"""Tests that one call writes the repository's address into every place that a release needs."""

from __future__ import annotations

import importlib.util
import re
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
ADDRESS = "https://example.org/owner/name"


@pytest.fixture
def address() -> ModuleType:
    spec = importlib.util.spec_from_file_location("address", ROOT / "scripts" / "address.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    text = (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
    # The address may be written already.
    text = re.sub(r"\[project\.urls\]\n(?:.+\n)*\n", "", text)
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_release_without_it_is_told_so(address: ModuleType, root: Path) -> None:
    [problem] = address.missing(root)
    assert "[project.urls] has no Repository" in problem


def test_one_call_writes_it_everywhere_and_another_replaces_it(
    address: ModuleType, root: Path
) -> None:
    address.write(root, "https://example.org/older/name")
    address.write(root, ADDRESS)
    assert address.missing(root) == []
    assert all("older" not in path.read_text(encoding="utf-8") for path in root.iterdir())
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["urls"]["Repository"] == ADDRESS
    assert project["project"]["entry-points"]  # the surrounding text is unchanged
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert f"]({ADDRESS}/raw/main/docs/front.png)" in text
    assert f"]({ADDRESS}/blob/main/docs/which_method.md)" in text
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []


def test_places_that_disagree_are_named(address: ModuleType, root: Path) -> None:
    address.write(root, ADDRESS)
    citation = root / "CITATION.cff"
    text = citation.read_text(encoding="utf-8")
    citation.write_text(text.replace(ADDRESS, "https://a.b/c"), encoding="utf-8")
    assert address.missing(root) == [f"CITATION.cff: not {ADDRESS}"]


@pytest.mark.parametrize("wrong", ["github.com/owner/name", "https://github.com", "OWNER"])
def test_what_is_no_address_is_refused(address: ModuleType, root: Path, wrong: str) -> None:
    before = (root / "pyproject.toml").read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match="is not like https://github"):
        address.write(root, wrong)
    assert (root / "pyproject.toml").read_text(encoding="utf-8") == before
