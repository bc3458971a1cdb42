"""Tests of the messages through scanpy's logger, at each setting of its verbosity."""

from __future__ import annotations

import inspect
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scanpy as sc
from anndata import AnnData

import scanpy_ext as cx

DESIGN: dict[str, Any] = {"groupby": "condition", "reference": "ctrl"}


def told(verbosity: int, call: Any) -> str:
    before, file = sc.settings.verbosity, sc.settings.logfile
    sc.settings.verbosity, sc.settings.logfile = verbosity, StringIO()
    try:
        call()
        return str(sc.settings.logfile.getvalue())
    finally:
        sc.settings.verbosity, sc.settings.logfile = before, file


def test_a_modality_of_a_mudata_is_an_anndata_of_it(cells: AnnData, tmp_path: Path) -> None:
    mudata = pytest.importorskip("mudata")
    cells.obs_names = cells.obs_names.astype(str)
    other = AnnData(np.ones((cells.n_obs, 2)), obs=cells.obs[[]])
    with mudata.set_options(pull_on_update=False):  # the default since mudata 0.4
        whole = mudata.MuData({"rna": cells, "protein": other})
        cx.tl.cpca(whole["rna"], groupby="condition", reference="ctrl")
        whole.write(tmp_path / "cells.h5mu")
        read = mudata.read(tmp_path / "cells.h5mu")["rna"]
    np.testing.assert_array_equal(read.obsm["X_cpca"], cells.obsm["X_cpca"])
    with pytest.raises(TypeError, match=r"is MuData; expected an AnnData.*mdata\['rna'\]"):
        cx.tl.cpca(whole, groupby="condition", reference="ctrl")
    with pytest.raises(TypeError, match=r"background is MuData; expected an AnnData"):
        cx.tl.cpca(cells, background=whole)
    with pytest.raises(ValueError, match=r"adata\.obs has no column 'condition'"):
        cx.tl.cpca(whole["protein"], groupby="condition", reference="ctrl")


def test_verbosity_decides_what_is_told(cells: AnnData) -> None:
    def call() -> None:
        cx.tl.cpca(cells, **DESIGN, alpha=1.0)

    assert told(1, call) == ""
    started, finished = told(2, call).splitlines()
    assert started == "computing scanpy_ext.tl.cpca"
    assert finished.strip() == "finished (0:00:00)"
    hints = told(3, call)
    assert "'X_cpca' (adata.obsm)" in hints
    assert "'PCs_cpca', 'PCs_cpca_fit' (adata.varm)" in hints
    assert "'cpca' (adata.uns)" in hints
    found = told(3, lambda: cx.pp.genes_by_variance(cells, 3))
    assert "computing scanpy_ext.pp.genes_by_variance" in found
    assert "'most_variable', 'most_variable_variance' (adata.var)" in found


EVERY = [getattr(part, name) for part in (cx.tl, cx.pp, cx.pl, cx.get) for name in part.__all__]


@pytest.mark.parametrize("function", EVERY, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_every_function_tells_if_it_writes_and_refuses_other_objects(
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

        text = told(2, call)
        assert (f".{function.__name__}" in text) == any(each.name == "copy" for each in parameters)
        assert "finished" not in text
