"""Docstrings are filled in, and say what a method does to the effect."""

from __future__ import annotations

import inspect
import re

import pytest

import scanpy_ext as cx

TOOLS = [getattr(cx.tl, name) for name in cx.tl.__all__]
ALL = [*TOOLS, *(getattr(part, name) for part in (cx.pp, cx.pl, cx.get) for name in part.__all__)]


@pytest.mark.parametrize("function", ALL, ids=lambda function: function.__name__)
def test_no_placeholder_is_left(function):
    assert not re.search(r"\{[A-Z]+\}|<NAME>", function.__doc__)


@pytest.mark.parametrize("function", TOOLS, ids=lambda function: function.__name__)
def test_what_happens_to_the_effect_is_said(function):
    head = " ".join(function.__doc__.split("Parameters\n")[0].split())
    assert re.search(
        r"keeps? (and sharpens?|the difference)|keep and sharpen|removes|show the difference", head
    )


@pytest.mark.parametrize("function", ALL, ids=lambda function: function.__name__)
def test_every_parameter_is_described(function):
    described = inspect.getdoc(function).split("Parameters\n----------\n")[1]
    headings = re.findall(r"^[\w*]+(?:, [\w*]+)*$", described, re.MULTILINE)
    names = {name.strip("*") for heading in headings for name in heading.split(", ")}
    assert set(inspect.signature(function).parameters) <= names
