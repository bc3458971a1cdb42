"""Tests of the project as a whole: public names, import cost, import rules and docstrings."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

PACKAGES = ("contrast_core", "scanpy_ext", "napari_plugin")
FOLDERS = (*PACKAGES, "benchmarks", "docs", "papers", "scripts", "tests", "validation")

# The `__all__` of each module holds its public names, and the reference lists them (test_docs.py).
MODULES = (
    *("contrast_core", "contrast_core.datasets", "contrast_core.images", "contrast_core.pairing"),
    *("scanpy_ext", "scanpy_ext.get", "scanpy_ext.pp", "scanpy_ext.tl", "scanpy_ext.pl"),
)


def _python(code: str) -> str:
    """Return what a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_exists_and_unknown_names_raise_an_error(module: str) -> None:
    if module.startswith("scanpy_ext"):
        pytest.importorskip("scanpy")
    package = importlib.import_module(module)
    assert len(set(package.__all__)) == len(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))
    if module == "contrast_core":
        assert set(dir(package)) == {*package.__all__, "__version__"}
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = package.no_such_name


@pytest.mark.parametrize("package", ["scanpy_ext", "napari_plugin"])
def test_packages_import_only_what_the_core_makes_public(package: str) -> None:
    private = [
        f"{path.relative_to(ROOT)}: {module}.{name}"
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in [getattr(node, "module", None) or ""]
        for name in [alias.name for alias in node.names]
        if f"{module}.{name}".strip(".").startswith("contrast_core")
        and any(re.match(r"_(?!_version__$)", part) for part in f"{module}.{name}".split("."))
    ]
    assert not private


HEAVY = ("anndata", "dask", "matplotlib", "napari", "pandas", "qtpy", "scanpy", "sklearn", "torch")


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import contrast_core", set()),
        ("import contrast_core.images", set()),
        ("import scanpy_ext", set()),
        pytest.param(
            "import scanpy_ext; scanpy_ext.tl.cpca",
            {"anndata", "dask", "pandas", "sklearn"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_imports_load_only_the_heavy_packages_that_they_need(code: str, loaded: set[str]) -> None:
    if "tl" in code:
        pytest.importorskip("scanpy")
    found = _python(f"{code}\nimport sys; print(*sys.modules)").split()
    assert set(HEAVY) & set(found) <= loaded


def _packages_loaded(code: str, before: str) -> set[str]:
    """Return the packages that `code` loads beyond those of `before` and the standard library."""
    listed = f"{before}\nimport sys\nold = set(sys.modules)\n{code}\nprint(*set(sys.modules) - old)"
    return {name.split(".")[0] for name in _python(listed).split()} - sys.stdlib_module_names


def test_importing_the_core_loads_nothing_beyond_numpy() -> None:
    assert _packages_loaded("import contrast_core", before="import numpy") == {"contrast_core"}


@pytest.mark.slow
def test_importing_an_estimator_loads_no_more_than_scikit_learn_does() -> None:
    loaded = _packages_loaded("from contrast_core import CPCA", before="import sklearn.base")
    assert loaded == {"contrast_core"}


def test_without_pandas_the_error_says_what_to_install() -> None:
    pytest.importorskip("scanpy")
    printed = _python(
        "import sys, scanpy_ext\n"
        "for missing, name in (('pandas', 'tl'), ('scanpy_ext.get', 'get')):\n"
        "    sys.modules[missing] = None\n"
        "    try: getattr(scanpy_ext, name)\n"
        "    except ModuleNotFoundError as error: print(error)"
    )
    assert printed.startswith("scanpy_ext.tl needs pandas, which is not installed. Run pip install")
    assert "'.[scanpy]'" in printed
    # `scanpy_ext.get` is a part of the package, so nothing that the user installs would provide it.
    assert "needs scanpy_ext" not in printed


def test_the_manifest_has_the_name_of_the_distribution() -> None:
    npe2 = pytest.importorskip("npe2")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    manifest = npe2.PluginManifest.from_distribution(project["name"])
    assert manifest.name == project["name"]
    versions = {importlib.import_module(name).__version__ for name in PACKAGES}
    assert versions == {manifest.package_version}


def _sources() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each Python file, and of the code of each tutorial."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "tutorials").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        yield str(path.relative_to(ROOT)), "\n".join(code)


def test_no_docstring_begins_with_a_fragment() -> None:
    """Check that no first line begins with a word that needs an earlier text to be understood."""
    pronouns = ("That", "Those", "These", "This", "What", "It", "Its", "They", "Their")
    others = ("Of", "By", "If", "With", "Without", "Not", "The same", "Whether a value is")
    fragments = tuple(f"{words} " for words in pronouns + others)
    found = []
    for name, source in _sources():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node) or ""
                if text.startswith(fragments):
                    found.append(f"{name}: {text.splitlines()[0]}")
    assert found == []


ADDRESS = "https://example.org/owner/name"


def _description(project: dict[str, Any]) -> str:
    """Return the README as a package index shows it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []  # no relative links or pictures
    return text


def test_the_address_of_the_repository_is_written_everywhere_and_can_be_replaced(
    tmp_path: Path,
) -> None:
    spec = importlib.util.spec_from_file_location("address", ROOT / "scripts" / "address.py")
    assert spec is not None and spec.loader is not None
    address = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(address)
    for name in ("pyproject.toml", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path)
    project = tmp_path / "pyproject.toml"
    # Remove the address, which may be written already.
    text = re.sub(r"\[project\.urls\]\n(?:.+\n)*\n", "", project.read_text(encoding="utf-8"))
    project.write_text(text, encoding="utf-8")
    assert "which method when" in _description(tomllib.loads(text))  # the text of a link stays
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
    description = _description(written)
    assert f"]({ADDRESS}/raw/main/docs/front.png)" in description
    assert f"]({ADDRESS}/blob/main/docs/which_method.md)" in description
    citation = tmp_path / "CITATION.cff"
    changed = citation.read_text(encoding="utf-8").replace(ADDRESS, "https://a.b/c")
    citation.write_text(changed, encoding="utf-8")
    assert address.missing(tmp_path) == [f"CITATION.cff: lacks {ADDRESS}"]
