"""Tests of the pages in docs/, the README and the tutorials: code, links and public names."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import pytest
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
DOCS, README, TUTORIALS = ROOT / "docs", ROOT / "README.md", ROOT / "tutorials"
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if "```python" in page.read_text(encoding="utf-8") and "_build" not in page.parts
]
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))
WITH_CODE = [
    pytest.param(
        path,
        id=path.stem,
        marks=[pytest.mark.loads_umap] if "tl.umap(" in path.read_text(encoding="utf-8") else [],
    )
    for path in (*PAGES, *NOTEBOOKS)
]
# The expected output of a Python block is in a text block directly below it.
BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.M | re.S)
NUMBER = re.compile(r"-?\d+(?:\.(\d+))?(?:e[+-]?\d+)?")


def _agrees(printed: str, shown: str) -> bool:
    """Return whether the words are equal, and numbers differ by rounding only.

    Numbers with decimals may differ by two units of the last digit shown, but by at most 5%,
    because different builds of BLAS round differently. Whole numbers must be equal.
    """
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split():
        return False
    pairs = zip(NUMBER.finditer(printed), NUMBER.finditer(shown), strict=True)
    return all(
        abs(float(one[0]) - float(two[0]))
        <= (min(2.01 * 10.0 ** -len(two[1]), 0.05 * abs(float(two[0]))) if two[1] else 0)
        for one, two in pairs
    )


def test_numbers_may_differ_by_two_units_of_the_last_digit() -> None:
    assert _agrees("a = 0.43, 7 rows", "a =  0.41, 7 rows")
    assert not _agrees("a = 0.44, 7 rows", "a = 0.41, 7 rows")
    assert not _agrees("0.04 of the error", "0.03 of the error")
    assert not _agrees("a = 0.41, 8 rows", "a = 0.41, 7 rows")
    assert not _agrees("b = 0.41, 7 rows", "a = 0.41, 7 rows")


def _blocks(path: Path) -> list[tuple[str, str]]:
    """Return the code of each block of a page, or cell of a notebook, and the text below it."""
    text = path.read_text(encoding="utf-8")
    return BLOCK.findall(text) if path.suffix == ".md" else list(_cells(json.loads(text)))


def _cells(notebook: Any) -> Iterator[tuple[str, str]]:
    """Yield the code of each cell, which displays its last expression, and its output."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            code = ast.parse(source)
            last = code.body[-1] if code.body else None
            if isinstance(last, ast.Expr) and not source.rstrip().endswith(";"):
                last.value = ast.Call(ast.Name("display", ast.Load()), [last.value], [])
            texts = [
                output.get("text") or output["data"]["text/plain"]
                for output in cell["outputs"]
                if "image/png" not in output.get("data", ())
            ]
            yield ast.unparse(code), "\n".join("".join(text) for text in texts)


def _draw() -> None:
    """Draw all open figures, as a notebook does at the end of a cell, and close them."""
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")


def _display(value: object) -> None:
    if value is not None:
        print(repr(value))


def test_a_cell_displays_its_last_expression_as_in_a_notebook(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sources = ["print(1)\n'two'", "'three';", "four = 4", "# nothing", "None"]
    number = {"output_type": "stream", "text": ["1\n"]}
    picture = {"data": {"image/png": "...", "text/plain": ["<Figure>"]}}
    outputs = [[number, picture, {"data": {"text/plain": ["'two'"]}}], [], [], [], []]
    cells: list[dict[str, object]] = [{"cell_type": "markdown", "source": ["# Title"]}]
    for source, output in zip(sources, outputs, strict=True):
        cells.append({"cell_type": "code", "source": [source], "outputs": output})
    printed = []
    for code, shown in _cells({"cells": cells}):
        exec(code, {"display": _display})
        printed.append(capsys.readouterr().out)
        assert _agrees(printed[-1], shown)
    assert printed == ["1\n'two'\n", "", "", "", ""]


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_CODE)
def test_the_code_of_a_page_or_tutorial_prints_the_output_that_it_shows(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = _blocks(path)
    code = "".join(code for code, _ in blocks)
    for word, needed in {"scanpy_ext": "scanpy", "CVAE": "torch", ".posterior(": "nutpie"}.items():
        if word in code:
            pytest.importorskip(needed)
    monkeypatch.chdir(ROOT if path.suffix == ".md" else TUTORIALS)
    monkeypatch.setattr(plt, "show", _draw)
    namespace: dict[str, object] = {"display": _display} if path in NOTEBOOKS else {}
    # Notebooks show tables of up to 20 columns.
    with matplotlib.rc_context(), pd.option_context("display.max_columns", 20):
        for code, shown in blocks:
            exec(compile(code, str(path), "exec"), namespace)
            _draw()
            printed = capsys.readouterr().out
            assert _agrees(printed, shown), f"{path.name} shows\n{shown}\nbut prints\n{printed}"


def test_the_benchmarks_named_on_pages_exist() -> None:
    for page in (*DOCS.rglob("*.md"), ROOT / "README.md"):
        if "_build" in page.parts:
            continue
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`(?:python )?((?:benchmarks|papers|validation)/[\w./]+)", text):
            assert (ROOT / name.rstrip(".")).exists(), f"{page.name}: {name}"


def test_the_reference_has_every_public_name() -> None:
    pytest.importorskip("scanpy")
    listed: dict[str, set[str]] = {}
    for page in (DOCS / "api").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(
            r"currentmodule:: (\S+)\n\n.*?toctree: generated\n\n(.*?)```", text, re.S
        ):
            listed.setdefault(module, set()).update(names.split())
    # These submodules have pages of their own.
    own_pages = {"datasets", "images", "pairing"}
    for module, names in listed.items():
        top = {name for name in names if "." not in name}
        assert top == set(importlib.import_module(module).__all__) - own_pages, module
        for name in names - top:
            part, own = name.split(".")
            assert own in importlib.import_module(f"{module}.{part}").__all__, name
    results = importlib.import_module("contrast_core.significance").__all__
    core = {name.split(".")[-1] for name in listed["contrast_core"]}
    assert set(results) <= core


def test_there_are_tutorials() -> None:
    assert NOTEBOOKS


KINDS_OF_USERS = ("contrast_core import", "scanpy_ext", "contrast_core.images")
README_CODE = [code for code, _ in BLOCK.findall(README.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("package", "code"), [*zip(KINDS_OF_USERS, README_CODE, strict=True)])
def test_the_readme_has_a_block_that_runs_alone_for_each_kind_of_user(
    package: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert package in code
    if "scanpy" in code:
        pytest.importorskip("scanpy")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(README), "exec"), {})


def test_links_of_the_readme_lead_to_files() -> None:
    targets = re.findall(r"\]\(([^)#]+)", README.read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (ROOT / target).is_file()] == []


MODULES = {
    "contrast_core": ("", ".datasets", ".images", ".pairing"),
    "scanpy_ext": (".pp", ".tl", ".pl", ".get"),
}


def functions(package: str) -> Iterator[Any]:
    """Yield the public functions of a package, and the public methods of its classes."""
    for part in MODULES[package]:
        module = importlib.import_module(package + part)
        for name in module.__all__:
            item = getattr(module, name)
            if inspect.isfunction(item):
                yield item
            if not inspect.isclass(item) or issubclass(item, Warning):
                continue
            own = item.__init__ is not object.__init__
            # Most dataclasses are results, which users do not construct, so only methods are read.
            if own and not dataclasses.is_dataclass(item):
                yield item.__init__
            for method in dir(item):
                found = inspect.getattr_static(item, method)
                found = getattr(found, "__func__", found)
                own = inspect.isfunction(found) and found.__module__.startswith(package)
                if own and not method.startswith("_"):
                    yield found


def written(column: int) -> list[str]:
    """Return the cells in one column of the tables of docs/words.md."""
    rows = re.findall(r"^\|(.*)\|$", (DOCS / "words.md").read_text(encoding="utf-8"), re.M)
    return [row.split("|")[column] for row in rows]


@pytest.mark.parametrize(("package", "column"), [("contrast_core", 1), ("scanpy_ext", 2)])
def test_the_page_of_words_lists_exactly_the_public_parameters(package: str, column: int) -> None:
    if package == "scanpy_ext":
        pytest.importorskip("scanpy")
    signatures = [inspect.signature(function) for function in functions(package)]
    names = {name for signature in signatures for name in signature.parameters}
    listed = {name for cell in written(column) for name in re.findall(r"`(\w+)`", cell)}
    assert {name for name in names - {"self", "cls"} if name[0] != "_"} == listed


def test_docstrings_state_the_defaults_of_the_signatures() -> None:
    for function in functions("contrast_core"):
        module, owner = inspect.getmodule(function), function.__qualname__.partition(".")[0]
        described = getattr(module, owner) if function.__name__ == "__init__" else function
        defaults = inspect.signature(function).parameters
        text = described.__doc__ or ""
        for names, value in re.findall(r"^ *([\w, ]+) : .*\bdefault=(.+)$", text, re.M):
            for name in names.split(", "):
                stated = function.__qualname__, name, ast.literal_eval(value)
                assert stated == (function.__qualname__, name, defaults[name].default)


def test_the_window_has_the_labels_on_the_page_of_words() -> None:
    labels = {label.strip() for cell in written(3) for label in cell.split(";")}
    source = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "napari_plugin").glob("*.py")
    )
    for label in labels - {"", "Window", "---"}:
        assert f'"{label}"' in source, label
