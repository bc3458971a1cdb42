"""Tests that the public signatures agree with the tables of the page "The words we use"."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "words.md"
MODULES = {
    "contrast_core": ("", ".datasets", ".images", ".pairing"),
    "scanpy_ext": (".pp", ".tl", ".pl", ".get"),
}
HOMONYMS = {"level", "moments"}  # parameters with two meanings, which the page states


def functions(package: str) -> Iterator[tuple[str, Any]]:
    """Yield the public functions of a package, and the public methods of its classes."""
    for part in MODULES[package]:
        module = importlib.import_module(package + part)
        for name in module.__all__:
            item = getattr(module, name)
            if inspect.isfunction(item):
                yield f"{part}.{name}", item
            if not inspect.isclass(item) or issubclass(item, Warning):
                continue
            own = item.__init__ is not object.__init__
            # Dataclasses are results, which users do not construct.
            if own and not dataclasses.is_dataclass(item):
                yield f"{part}.{name}", item.__init__
            for method in dir(item):
                found = inspect.getattr_static(item, method)
                found = getattr(found, "__func__", found)
                own = inspect.isfunction(found) and found.__module__.startswith(package)
                if own and not method.startswith("_"):
                    yield f"{part}.{name}.{method}", found


def parameters(package: str) -> dict[str, dict[str, set[str]]]:
    """Return the kinds of each parameter in each function that has it."""
    found: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for where, function in functions(package):
        for name, parameter in inspect.signature(function).parameters.items():
            if name not in ("self", "cls") and not name.startswith("_"):
                found[name][where] = kinds(str(parameter.annotation))
    return found


def kinds(annotation: str) -> set[str]:
    """Return which kinds of values an annotation names: flags, numbers, words, or anything."""
    if re.search(r"\b(Any|object|Generator)\b", annotation):
        return {"flag", "number", "word", "data"}
    tests = {"flag": r"\bbool\b", "number": r"\b(int|float)\b", "word": r"\b(str|Literal)\b"}
    found = {kind for kind, pattern in tests.items() if re.search(pattern, annotation)}
    others = re.sub(r"\b(bool|int|float|str|None|class)\b|Literal\[.*?\]|\W", "", annotation)
    return found | ({"data", "word"} if others else set())  # an alias may stand for strings


def written(column: int) -> set[str]:
    rows = re.findall(r"^\|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.M)
    cells = [row.split("|")[column] for row in rows]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize(("package", "column"), [("contrast_core", 1), ("scanpy_ext", 2)])
def test_every_parameter_is_a_word_of_the_page_and_no_word_is_without_one(
    package: str, column: int
) -> None:
    if package == "scanpy_ext":
        pytest.importorskip("scanpy")
    assert set(parameters(package)) == written(column)


@pytest.mark.parametrize("package", list(MODULES))
def test_a_parameter_is_of_one_kind_everywhere(package: str) -> None:
    if package == "scanpy_ext":
        pytest.importorskip("scanpy")
    for name, uses in parameters(package).items():
        if name not in HOMONYMS:
            assert set.intersection(*uses.values()), (name, uses)


def test_the_window_says_what_the_page_says() -> None:
    rows = re.findall(r"^\|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.M)
    labels = {label.strip() for row in rows for label in row.split("|")[3].split(";")}
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (PAGE.parents[1] / "napari_plugin").glob("*.py")
    )
    for label in labels - {"", "Window", "---"}:
        assert f'"{label}"' in source, label
