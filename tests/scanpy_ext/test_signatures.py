"""Parameters that are written once are there for help, completion, type checkers and callers."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import scanpy_ext as cx
from scanpy_ext import _read, _select

ROOT = Path(__file__).parents[2]
TOOLS = [
    cx.tl.clvm,
    cx.tl.cpca,
    cx.tl.cpca_path,
    cx.tl.cpca_star,
    cx.tl.kernel_cpca,
    cx.tl.pcpca,
    cx.tl.significance,
]
SHARED = {
    "groupby": None,
    "reference": None,
    "groups": None,
    "include_reference": True,
    "foreground": None,
    "background": None,
    "layer": None,
    "obsm": None,
    "mask_var": _select.DEFAULT,
    "copy": False,
    "progress": False,
}
EVERY = [
    *TOOLS,
    *(getattr(cx.tl, name) for name in cx.tl.__all__),
    *map(vars(cx.pp).get, cx.pp.__all__),
]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
def test_what_is_shared_is_in_every_signature(tool):
    parameters = inspect.signature(tool).parameters
    for name, default in SHARED.items():
        assert parameters[name].default is default
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].annotation == _read.Design.__annotations__[name].__forward_arg__
    own = {"adata", "n_comps", "key_added", "random_state"}
    assert own < set(parameters)
    assert "include_reference: 'bool' = True" in pydoc.render_doc(tool)


@pytest.mark.parametrize("tool", EVERY, ids=lambda tool: tool.__name__)
def test_no_signature_hides_its_parameters(tool):
    kinds = {parameter.kind for parameter in inspect.signature(tool).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}


def test_the_shared_parameters_are_those_that_are_read():
    read = inspect.signature(_read.read).parameters
    own = ("adata", "n_comps", "missing", "counts")  # of a tool, not of the caller
    types = {name: read[name].annotation for name in read if name not in own}
    assert types == {
        name: annotation.__forward_arg__
        for name, annotation in _read.WithinDesign.__annotations__.items()
    }


def test_methods_on_moments_take_a_column_of_donors():
    within = {"clvm", "cpca", "cpca_star", "pcpca", "cpca_path"}
    assert within == {
        tool.__name__ for tool in TOOLS if "within" in inspect.signature(tool).parameters
    }


def test_wrong_arguments_are_refused_in_the_tools_own_name(cells, untouched):
    with untouched(cells):
        with pytest.raises(TypeError, match=r"cpca\(\) got an unexpected keyword.*'grupby'"):
            cx.tl.cpca(cells, grupby="condition")
        with pytest.raises(TypeError, match=r"pcpca\(\) too many positional arguments"):
            cx.tl.pcpca(cells, "condition")
        with pytest.raises(TypeError, match=r"significance\(\) missing a required.*'donor'"):
            cx.tl.significance(cells)


def test_completion_offers_them():
    """By static analysis; without it IPython reads the signature."""
    jedi = pytest.importorskip("jedi")
    found = jedi.Interpreter("cx.tl.cpca(adata, gr", [{"cx": cx}]).complete()
    assert {"groupby=", "groups="} <= {one.name_with_symbols for one in found}


def test_a_type_checker_checks_callers(tmp_path):
    calls = """
import anndata
import scanpy_ext as cx

adata: anndata.AnnData
cx.tl.cpca(adata, groupby="a", reference=["b", "c"], layer=None, copy=True, alpha=1.0)
cx.tl.cpca(adata, grupby="a")
cx.tl.pcpca(adata, groupby=3)
cx.tl.cpca_star(adata, copy="yes")
cx.tl.kernel_cpca(adata, alpha="denoise")
cx.tl.cpca_path(adata, include_reference=None)
cx.tl.significance(adata)
"""
    (tmp_path / "calls.py").write_text(calls)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", tmp_path / "calls.py"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    lines = [int(line.split(":")[1]) for line in checked.stdout.splitlines() if ": error:" in line]
    assert lines == [7, 8, 9, 10, 11, 12], checked.stdout + checked.stderr
