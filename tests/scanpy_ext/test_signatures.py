"""Signatures are written out, have few parameters, and use the same words for the same things."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import scanpy_ext as cx

PARTS = {"tl": cx.tl, "pp": cx.pp, "pl": cx.pl, "get": cx.get}
EVERY = [getattr(part, name) for part in PARTS.values() for name in part.__all__]
DESIGN = ["groupby", "reference", "groups", "foreground", "background"]
DESIGNED = ["clvm", "cpca", "cpca_path", "cpca_star", "cvae", "kernel_cpca", "pcpca"]
ENDS = ["layer", "mask_var", "key_added", "copy"]


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


@pytest.mark.parametrize("function", EVERY, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_no_function_has_many_parameters_or_hides_them(function: Any) -> None:
    names = parameters(function)
    assert len(names) <= 15
    kinds = {name: parameter.kind for name, parameter in names.items()}
    hidden = [name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD]
    assert hidden in ([], ["kwargs"])  # which scanpy's plot of an embedding takes
    assert not {"condition", "include_reference"} & set(names)
    # Written out, where static analysis finds them, rather than set on a wrapper.
    assert function.__wrapped__ if "copy" in names else True


@pytest.mark.parametrize("name", DESIGNED)
def test_every_design_is_asked_for_in_the_same_words(name: str) -> None:
    found = [*parameters(getattr(cx.tl, name))]
    assert found[1:6] == DESIGN
    assert [each for each in found if each in ENDS] == ENDS
    assert ("within" in found) == (name not in ("kernel_cpca", "cvae"))


def test_wrong_arguments_are_refused_in_the_tools_own_name(cells: Any, untouched: Any) -> None:
    with untouched(cells):
        with pytest.raises(TypeError, match=r"cpca\(\) got an unexpected keyword.*'grupby'"):
            cx.tl.cpca(cells, grupby="condition")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"pcpca\(\) takes 1 positional argument but 2"):
            cx.tl.pcpca(cells, "condition")  # type: ignore[misc]
