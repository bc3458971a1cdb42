"""Tests that functions have few, explicit and documented parameters with consistent names."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import scanpy_ext as cx

EVERY = [getattr(part, name) for part in (cx.tl, cx.pp, cx.pl, cx.get) for name in part.__all__]
DESIGN = ["groupby", "reference", "groups", "foreground", "background"]
DESIGNED = ["clvm", "cpca", "cpca_path", "cpca_star", "cvae", "kernel_cpca", "pcpca"]
ENDS = ["layer", "mask_var", "key_added", "copy"]


@pytest.mark.parametrize("function", EVERY, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_every_function_has_few_parameters_and_describes_them(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    assert len(parameters) <= 15
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    hidden = [name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD]
    assert hidden in ([], ["kwargs"])  # they go to scanpy's plot of an embedding
    # A wrapped function keeps its own signature.
    assert function.__wrapped__ if "copy" in parameters else True
    text = inspect.getdoc(function)
    assert not re.search(r"\{[A-Z]+\}|<NAME>", text)
    head, described = text.split("Parameters\n----------\n")
    headings = re.findall(r"^[\w*]+(?:, [\w*]+)*$", described, re.MULTILINE)
    names = {name.strip("*") for heading in headings for name in heading.split(", ")}
    assert set(parameters) <= names
    if function.__name__ in cx.tl.__all__ and ".tl." in function.__module__:
        effect = r"keeps? (and sharpens?|the difference)|keep and sharpen|removes|show the differ"
        assert re.search(effect, " ".join(head.split()))


@pytest.mark.parametrize("name", DESIGNED)
def test_every_design_is_asked_for_in_the_same_words(name: str) -> None:
    found = [*inspect.signature(getattr(cx.tl, name)).parameters]
    assert found[1:6] == DESIGN
    assert [each for each in found if each in ENDS] == ENDS
    assert ("within" in found) == (name not in ("kernel_cpca", "cvae"))


def test_wrong_arguments_are_refused_in_the_tools_own_name(cells: Any, untouched: Any) -> None:
    with untouched(cells):
        with pytest.raises(TypeError, match=r"cpca\(\) got an unexpected keyword.*'grupby'"):
            cx.tl.cpca(cells, grupby="condition")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"pcpca\(\) takes 1 positional argument but 2"):
            cx.tl.pcpca(cells, "condition")  # type: ignore[misc]
