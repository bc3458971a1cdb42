"""Tests of unusual columns and arguments: a correct result, or an error and unchanged data."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from matplotlib import pyplot as plt

import scanpy_ext as cx
from tests.core.test_odd_inputs import complaint

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

N = 60
CONDITIONS = ["ctrl", "stim"] * (N // 2)
HALF = np.arange(N) < N // 2
REFERENCE = {"groupby": "condition", "reference": "ctrl"}
PAIRED = REFERENCE | {"donor": "donor", "n_comps": 3, "n_neighbors": 2}
# Columns with two conditions; most of them have levels that are not strings.
LEVELS: dict[str, tuple[Any, Any]] = {
    "categories": (pd.Categorical(CONDITIONS), "ctrl"),
    "a category without cells": (pd.Categorical(CONDITIONS, ["ctrl", "stim", "x"]), "ctrl"),
    "mixed types": (pd.array([1, "a"] * (N // 2), dtype=object), 1),
    "categories of mixed types": (pd.Categorical([1, "a"] * (N // 2)), 1),
    "integers": ([0, 1] * (N // 2), 0),
    "floats": ([0.5, 1.0] * (N // 2), 0.5),
    "float32": (np.array([0.1, 1.0] * (N // 2), dtype=np.float32), "0.1"),
    "truth values": ([True, False] * (N // 2), True),
    "dates": (pd.to_datetime(["2020-01-01", "2021-01-01"] * (N // 2)), pd.Timestamp("2020-01-01")),
    "bytes": (pd.array([b"a", b"b"] * (N // 2), dtype=object), b"a"),
    "integers of pandas": (pd.array([0, 1] * (N // 2), dtype="Int64"), 0),
}


def cells(**columns: Any) -> AnnData:
    adata = anndata.AnnData(np.random.default_rng(0).normal(size=(N, 8)).astype(np.float32))
    adata.obs["condition"] = CONDITIONS
    adata.obs["donor"] = ["a"] * (N // 2) + ["b"] * (N // 2)
    for name, values in columns.items():
        adata.obs[name] = pd.Series(list(values), adata.obs_names, getattr(values, "dtype", None))
    return adata


def paired(adata: AnnData, **options: Any) -> Any:
    cx.pp.match_pairs(adata, **PAIRED | options)
    return adata.obsp["pairs"].toarray()


def contrasted(adata: AnnData, **options: Any) -> Any:
    cx.tl.cpca(adata, **REFERENCE | {"alpha": 1.0} | options)
    return adata.obsm["X_cpca"]


@pytest.mark.parametrize("kind", LEVELS)
def test_levels_of_any_type_give_the_same_result(kind: str) -> None:
    values, reference = LEVELS[kind]
    for call in (paired, contrasted):
        found = call(cells(odd=values), groupby="odd", reference=reference)
        np.testing.assert_array_equal(found, call(cells()))
    for options in (
        {"donor": None, "method": "clusters", "clusters": "odd"},
        {"cell_type": "odd"},
    ):
        odd = cells(odd=values)
        np.testing.assert_array_equal(
            paired(odd, **options), paired(cells(odd=CONDITIONS), **options)
        )
    apart = {"groupby": None, "reference": None, "foreground": HALF, "background": ~HALF}
    found = contrasted(cells(odd=values), within="odd", **apart)
    expected = contrasted(cells(), within="condition", **apart)
    # Levels in another order change the rounding errors.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_a_donor_of_one_cell_has_no_pair_and_a_cluster_of_one_cell_can_have_one() -> None:
    alone = ["alone", *["many"] * (N - 1)]
    pairs = paired(cells(odd=alone), donor="odd")
    assert pairs.any()
    assert not pairs[0].any()
    assert not pairs[:, 0].any()
    assert paired(cells(odd=alone), donor=None, method="clusters", clusters="odd").any()


EMPTY = pd.array([None] * N, dtype=object)
COLUMNS: dict[str, tuple[Any, str]] = {
    "donor": (EMPTY, "no cell has a value in both 'condition' and 'odd'"),
    "cell_type": (EMPTY, "no cell that may be paired has a value in adata.obs..odd"),
    "groupby": (
        pd.array([["a"]] * N, dtype=object),
        "holds values of type list, which cannot be compared",
    ),
    "within": ([np.nan] * N, "within: 60 cells have no value"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_without_levels_are_refused(name: str, untouched: Any) -> None:
    values, words = COLUMNS[name]
    adata = cells(odd=values)
    call = contrasted if name in ("groupby", "within") else paired
    with untouched(adata), pytest.raises((TypeError, ValueError)) as caught:
        call(adata, **{name: "odd"})
    assert not complaint(caught.value, words)


# Each list holds invalid values: `NO_NAMES` for the name of a column or slot, `NO_FLAGS` for an
# option that is on or off, `NO_WORDS` for a choice between words, and so on.
NO_NAMES = [["a"], {}, np.array([1, 2]), 3, 2.5, 10**400, len, "no"]
NO_FLAGS = ["yes", None, 1, [True], np.array([1, 2])]
# Invalid numbers of genes. A number above the number of genes in the data is valid.
NO_SIZES = ["3", 2.5, 0, -1, True, [3], np.nan]
NO_COUNTS = [*NO_SIZES, 10**400]
NO_WORDS = ["no", 3, ["none"], {}, np.array(["none", "foreground"])]
NO_KEYS = [3, "", "a/b", ["a"], {}, np.array([1, 2])]
NO_STRENGTHS = ["3", None, [1.0], -1, True, np.nan]
NO_OPTIONS = [3, "robust", ["robust"], {"n_comps": 2}, {"robst": 1}]
NO_OPTIONS += [{"random_state": seed} for seed in ("3", 2.5, -1)]
# Each parameter has invalid values. The error must name the parameter, or match the pattern for
# this parameter in `WORDS`.
ODD: dict[str, list[Any]] = {
    **dict.fromkeys(["groupby", "reference", "donor", "within", "cell_type", "batch"], NO_NAMES),
    **dict.fromkeys(["by", "clusters", "controls", "cells", "level", "layer", "obsm"], NO_NAMES),
    **dict.fromkeys(["mutual", "scale", "exchangeable", "weighted", "tidy", "copy"], NO_FLAGS),
    **dict.fromkeys(["return_std"], NO_FLAGS),
    **{key: [*NO_COUNTS, 9] for key in ["n_comps", "component"]},
    **{key: [*NO_SIZES, None] for key in ["n_points", "n_top_genes", "n_seeds", "n_genes"]},
    **dict.fromkeys(["n", "max_cells", "n_representatives"], NO_SIZES),
    **{key: [*NO_WORDS, None, len] for key in ["method", "offset", "noise"]},
    **dict.fromkeys(["key_added", "layer_added"], NO_KEYS),
    **dict.fromkeys(["alpha", "beta", "gamma"], NO_STRENGTHS),
    **dict.fromkeys(["model_kwargs", "test_kwargs"], NO_OPTIONS),
    "kernel": NO_WORDS,
    "alphas": [[0.0, -1.0], [0.0, np.nan], ["best"], "no"],
    "n_neighbors": [*NO_COUNTS, None],
    "key": [*NO_NAMES, None],
    "mask_var": NO_NAMES,
    "pairs": NO_NAMES[:6],
    "n_shared": [None, "3", 2.5, -1, True, [3], 10**400, np.nan],
    "kernel_gamma": ["3", [1.0], -1, True, np.nan],
    "random_state": ["3", 2.5, [3], True],
    "resolution": ["3", None, -1, True, np.nan, [1.0]],
    "reps": ["no", ["no"], [3], 3, [], None, [["a"]]],
    "color": ["no", 3, ["no"], [3], [["a"]], len],
    "components": ["1;2", [], 2.5, 9, 0, -1, "3,9"],
    "model_file": [3, ["a"], "no/such/folder/model"],
    "ax": ["no", 3, [], ["no"]],
    "figsize": ["no", 3, (1,), (0, 1), (np.nan, 2)],
    "save": [3, ["a.png"], 2.5],
}
WORDS = {
    "alphas": "alpha",
    "key": "no result",
    "n": "n=|n must",
    "n_comps": "n_comps|n_salient",
    "n_shared": "n_shared|n_salient",
    "kernel_gamma": "gamma",
    "pairs": "pairs|key_added",
    "reps": "reps|adata.obsm has no",
    "model_file": "model_file|path|folder|directory",
    "ax": "ax holds",
    "model_kwargs": "model_kwargs|seed|random",
    "test_kwargs": "test_kwargs|seed|random",
}
# Each function is listed with valid arguments.
CALLS: dict[Callable[..., Any], dict[str, Any]] = {
    **dict.fromkeys(
        [cx.tl.cpca, cx.tl.cpca_star, cx.tl.pcpca, cx.tl.kernel_cpca, cx.tl.cpca_path], REFERENCE
    ),
    cx.tl.clvm: REFERENCE | {"n_shared": 1, "model_kwargs": {"max_iter": 2}},
    cx.tl.cvae: REFERENCE | {"noise": "normal", "model_kwargs": {"max_iter": 1}},
    cx.tl.pca_pp: REFERENCE | {"n_comps": 2},
    cx.tl.pca_plus: REFERENCE | {"n_comps": 2},
    cx.tl.significance: REFERENCE | {"donor": "donor"},
    cx.tl.contrasts: REFERENCE | {"by": "donor"},
    cx.tl.response: REFERENCE,
    cx.tl.denoise: {},
    cx.tl.impute: {},
    cx.tl.project: {},
    cx.pp.match_pairs: PAIRED,
    cx.pp.contrast_check: REFERENCE,
    cx.pp.genes_by_variance: {},
    cx.get.top_genes: {},
    cx.get.loadings: {},
    cx.get.contrasts: {},
    cx.get.mixing_report: {"groupby": "condition", "cell_type": "donor"},
    **{getattr(cx.pl, name): {"show": False} for name in cx.pl.__all__},
}


def test_every_public_function_is_tested() -> None:
    every = {getattr(part, name) for part in (cx.tl, cx.pp, cx.pl, cx.get) for name in part.__all__}
    assert every == CALLS.keys()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        pytest.param(one, name, id=f"{one.__module__}.{one.__name__}-{name}")
        for one in CALLS
        for name in signature(one).parameters
        if name in ODD
    ],
)
def test_odd_arguments_are_refused_by_name(
    function: Callable[..., Any], name: str, analysed: AnnData, untouched: Any
) -> None:
    if function is cx.tl.cvae:
        pytest.importorskip("torch", reason="torch is not installed")
    data = (analysed, analysed) if function is cx.tl.project else (analysed,)
    with untouched(analysed):
        for value in ODD[name]:
            with pytest.raises((TypeError, ValueError)) as caught:
                function(*data, **CALLS[function] | {name: value})
            assert not complaint(caught.value, WORDS.get(name, name)), value
    assert not plt.get_fignums()


def test_a_number_above_the_number_of_genes_means_all_genes(analysed: AnnData) -> None:
    assert len(cx.get.top_genes(analysed, n=10**9)) == 8
    [ax] = cx.pl.loadings(analysed, n_points=10**9, components=1, show=False)
    assert len(ax.patches) == 8
