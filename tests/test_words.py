"""Tests that the public signatures agree with the tables of the page "The words we use"."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "words.md"
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
            # Dataclasses are results, which users do not construct.
            if own and not dataclasses.is_dataclass(item):
                yield item.__init__
            for method in dir(item):
                found = inspect.getattr_static(item, method)
                found = getattr(found, "__func__", found)
                own = inspect.isfunction(found) and found.__module__.startswith(package)
                if own and not method.startswith("_"):
                    yield found


def written(column: int) -> set[str]:
    rows = re.findall(r"^\|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.M)
    cells = [row.split("|")[column] for row in rows]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize(("package", "column"), [("contrast_core", 1), ("scanpy_ext", 2)])
def test_the_parameters_of_the_page_are_exactly_the_public_parameters(
    package: str, column: int
) -> None:
    if package == "scanpy_ext":
        pytest.importorskip("scanpy")
    signatures = [inspect.signature(function) for function in functions(package)]
    names = {name for signature in signatures for name in signature.parameters}
    assert {name for name in names - {"self", "cls"} if name[0] != "_"} == written(column)


def test_the_window_has_the_labels_of_the_page() -> None:
    rows = re.findall(r"^\|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.M)
    labels = {label.strip() for row in rows for label in row.split("|")[3].split(";")}
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (PAGE.parents[1] / "napari_plugin").glob("*.py")
    )
    for label in labels - {"", "Window", "---"}:
        assert f'"{label}"' in source, label
