"""Tests of all public functions: their parameters, messages and warnings."""

from __future__ import annotations

import inspect
import re
from io import StringIO
from types import SimpleNamespace
from typing import Any

import anndata
import numpy as np
import pytest
import scanpy as sc
from anndata import AnnData

import scanpy_ext as cx
from contrast_core import ContrastWarning

EVERY = [getattr(part, name) for part in (cx.tl, cx.pp, cx.pl, cx.get) for name in part.__all__]


@pytest.mark.parametrize("function", EVERY, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_every_function_has_few_parameters_and_describes_them(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    assert len(parameters) <= 15
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    hidden = [name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD]
    assert hidden in ([], ["kwargs"])  # `kwargs` are passed on to scanpy's plot of an embedding
    # Functions with the parameter `copy` are wrapped, and show the inner function's parameters.
    assert hasattr(function, "__wrapped__") == ("copy" in parameters)
    text = inspect.getdoc(function)
    assert not re.search(r"\{[A-Z]+\}|<NAME>", text)
    head, described = text.split("Parameters\n----------\n")
    headings = re.findall(r"^[\w*]+(?:, [\w*]+)*$", described, re.MULTILINE)
    names = {name.strip("*") for heading in headings for name in heading.split(", ")}
    assert set(parameters) <= names
    if function.__name__ in cx.tl.__all__ and ".tl." in function.__module__:
        # The text before the parameters says what the method keeps, removes or shows.
        effect = r"keeps? (and sharpens?|the difference)|keep and sharpen|removes|show the differ"
        assert re.search(effect, " ".join(head.split()))


def test_wrong_arguments_are_refused_with_the_name_of_the_function(
    cells: Any, untouched: Any
) -> None:
    with untouched(cells):
        with pytest.raises(TypeError, match=r"cpca\(\) got an unexpected keyword.*'grupby'"):
            cx.tl.cpca(cells, grupby="condition")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"pcpca\(\) takes 1 positional argument but 2"):
            cx.tl.pcpca(cells, "condition")  # type: ignore[misc]


DESIGN: dict[str, Any] = {"groupby": "condition", "reference": "ctrl"}


def log_of(verbosity: int, call: Any) -> str:
    before, file = sc.settings.verbosity, sc.settings.logfile
    sc.settings.verbosity, sc.settings.logfile = verbosity, StringIO()
    try:
        call()
        return str(sc.settings.logfile.getvalue())
    finally:
        sc.settings.verbosity, sc.settings.logfile = before, file


def test_verbosity_decides_what_is_printed(cells: AnnData) -> None:
    def call() -> None:
        cx.tl.cpca(cells, **DESIGN, alpha=1.0)

    assert log_of(1, call) == ""
    started, finished = log_of(2, call).splitlines()
    assert started == "computing scanpy_ext.tl.cpca"
    assert finished.strip() == "finished (0:00:00)"
    hints = log_of(3, call)
    assert "'X_cpca' (adata.obsm)" in hints
    assert "'PCs_cpca', 'PCs_cpca_fit' (adata.varm)" in hints
    assert "'cpca' (adata.uns)" in hints
    found = log_of(3, lambda: cx.pp.genes_by_variance(cells, 3))
    assert "computing scanpy_ext.pp.genes_by_variance" in found
    assert "'most_variable', 'most_variable_variance' (adata.var)" in found


@pytest.mark.parametrize("function", EVERY, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_functions_log_their_name_only_if_they_write_and_refuse_other_objects(
    function: Any, cells: AnnData
) -> None:
    class MuData(SimpleNamespace):
        pass

    whole = MuData(mod={"rna": cells}, obs_names=cells.obs_names, var_names=cells.var_names)
    empty = inspect.Parameter.empty
    parameters = [*inspect.signature(function).parameters.values()]
    needed = {each.name: "condition" for each in parameters[1:] if each.default is empty}
    for given, message in [
        (1, "is int; expected an AnnData"),
        (cells.to_df(), r"is DataFrame; expected an AnnData\. Make one with"),
        (whole, r"is MuData; expected an AnnData.*mdata\['rna'\]"),
    ]:

        def call(given: Any = given, message: str = message) -> None:
            with pytest.raises(TypeError, match=message):
                function(given, **needed)

        text = log_of(2, call)
        assert (f".{function.__name__}" in text) == any(each.name == "copy" for each in parameters)
        assert "finished" not in text


DONORS = DESIGN | {"donor": "donor"}
CALLS = {
    "negative": lambda a: cx.tl.cpca(a, **DESIGN, alpha=99.0),
    "are not paired": lambda a: cx.pp.match_pairs(a, **DONORS, n_comps=4),
    "not be sound": lambda a: cx.pp.contrast_check(a, **DESIGN, cell_type="type"),
}


@pytest.mark.parametrize("message", CALLS)
def test_a_warning_points_at_the_callers_line(message):
    adata = anndata.AnnData(np.random.default_rng(0).normal(size=(80, 6)))
    adata.obs["condition"] = ["ctrl", "stim"] * 40
    adata.obs["type"] = ["T", "B"] * 40  # each condition has one type
    adata.obs["donor"] = ["a"] * 70 + [np.nan] * 10
    with pytest.warns(ContrastWarning) as caught:
        CALLS[message](adata)
    [warning] = [one for one in caught if message in str(one.message)]
    assert warning.filename == __file__
    assert warning.lineno in [line for *_, line in CALLS[message].__code__.co_lines()]
