"""AnnData with odd columns, and odd arguments: right, or refused in words and left as it was."""

from __future__ import annotations

from collections.abc import Callable
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
STEM = ["ctrl", "stim"] * (N // 2)
HALF = np.arange(N) < N // 2
# One column for two conditions, whose levels are not words as a rule.
LEVELS: dict[str, tuple[Any, Any]] = {
    "words": (STEM, "ctrl"),
    "categories": (pd.Categorical(STEM), "ctrl"),
    "a category without cells": (pd.Categorical(STEM, ["ctrl", "stim", "x"]), "ctrl"),
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
    adata.obs["condition"] = STEM
    adata.obs["donor"] = ["a"] * (N // 2) + ["b"] * (N // 2)
    for name, values in columns.items():
        adata.obs[name] = pd.Series(list(values), adata.obs_names, getattr(values, "dtype", None))
    return adata


def paired(adata: AnnData, **options: Any) -> Any:
    given = {"groupby": "condition", "reference": "ctrl", "donor": "donor"}
    cx.pp.match_pairs(adata, **given | {"n_comps": 3, "n_neighbors": 2} | options)
    return adata.obsp["pairs"].toarray()


def contrasted(adata: AnnData, **options: Any) -> Any:
    cx.tl.cpca(adata, **{"groupby": "condition", "reference": "ctrl", "alpha": 1.0} | options)
    return adata.obsm["X_cpca"]


@pytest.mark.parametrize("kind", LEVELS)
def test_levels_of_any_kind_give_the_same(kind: str) -> None:
    values, reference = LEVELS[kind]
    for call in (paired, contrasted):
        found = call(cells(odd=values), groupby="odd", reference=reference)
        np.testing.assert_array_equal(found, call(cells()))
    for options in (
        {"donor": None, "method": "clusters", "clusters": "odd"},
        {"cell_type": "odd"},
    ):
        odd = cells(odd=values)
        np.testing.assert_array_equal(paired(odd, **options), paired(cells(odd=STEM), **options))
    apart = {"groupby": None, "reference": None, "foreground": HALF, "background": ~HALF}
    found = contrasted(cells(odd=values), within="odd", **apart)
    expected = contrasted(cells(), within="condition", **apart)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)  # levels in another order


def test_a_group_of_one_is_paired_with_nobody_or_its_neighbour() -> None:
    """A donor with one cell has no pair; a cluster of one cell can have one."""
    donors = ["alone", *["many"] * (N - 1)]
    pairs = paired(cells(odd=donors), donor="odd")
    assert pairs.any()
    assert not pairs[0].any()
    assert not pairs[:, 0].any()
    clusters = ["alone", *["many"] * (N - 1)]
    assert paired(cells(odd=clusters), donor=None, method="clusters", clusters="odd").any()


EMPTY = pd.array([None] * N, dtype=object)
COLUMNS: dict[str, tuple[Any, str]] = {
    "donor": (EMPTY, "no cell has a value in both 'condition' and 'odd'"),
    "cell_type": (EMPTY, "no cell that may be paired has a value in adata.obs..odd"),
    "groupby": (pd.array([["a"]] * N, dtype=object), "holds list, which cannot be told apart"),
    "within": ([np.nan] * N, "within: 60 cells have no value"),
}
NO_NAMES = [["a"], {}, np.array([1, 2]), 3, 2.5, 10**400, len, "no"]
NO_FLAGS = ["yes", None, 1, [True], np.array([1, 2])]
NO_COUNTS = ["3", None, 2.5, 0, -1, True, [3], 10**400, np.nan]
NO_SIZES = ["3", 2.5, 0, -1, True, [3], np.nan]  # of lists of genes, which may be longer than all
NO_WORDS = ["no", None, 3, ["none"], {}, np.array(["none", "foreground"]), len]


def denoised(adata: AnnData, **options: Any) -> Any:
    cx.tl.denoise(adata, **options)
    return adata.layers


def imputed(adata: AnnData, **options: Any) -> Any:
    cx.tl.impute(adata, **options)
    return adata.layers


def projected(adata: AnnData, **options: Any) -> Any:
    cx.tl.project(adata, adata, **options)
    return adata.obsm


def path(adata: AnnData, **options: Any) -> Any:
    cx.tl.cpca_path(adata, **{"groupby": "condition", "reference": "ctrl"} | options)
    return adata.obsm


def plus_plus(adata: AnnData, **options: Any) -> Any:
    given = {"groupby": "condition", "reference": "ctrl", "n_comps": 2}
    cx.tl.pca_pp(adata, **given | options)
    return adata.obsm


def significant(adata: AnnData, **options: Any) -> Any:
    given = {"groupby": "condition", "reference": "ctrl", "donor": "donor"}
    cx.tl.significance(adata, **given | options)
    return adata.uns


def listed_genes(adata: AnnData, **options: Any) -> Any:
    return cx.get.top_genes(adata, **options)


def every_loading(adata: AnnData, **options: Any) -> Any:
    return cx.get.loadings(adata, **options)


def by_level(adata: AnnData, **options: Any) -> Any:
    given = {"groupby": "condition", "reference": "ctrl", "by": "donor"}
    return cx.tl.contrasts(adata, **given | options)


def chosen_genes(adata: AnnData, **options: Any) -> Any:
    cx.pp.genes_by_variance(adata, **options)
    return adata.var


def mixing(adata: AnnData, **options: Any) -> Any:
    return cx.get.mixing_report(adata, **{"groupby": "condition", "cell_type": "donor"} | options)


def levels_table(adata: AnnData, **options: Any) -> Any:
    return cx.get.contrasts(adata, **options)


def drawn_path(adata: AnnData, **options: Any) -> Any:
    return cx.pl.cpca_path(adata, **options)


def drawn_curve(adata: AnnData, **options: Any) -> Any:
    return cx.pl.contrast_curve(adata, **options)


def drawn_scree(adata: AnnData, **options: Any) -> Any:
    return cx.pl.significance(adata, **options)


def drawn_pairs(adata: AnnData, **options: Any) -> Any:
    return cx.pl.match_pairs(adata, **options)


def drawn_check(adata: AnnData, **options: Any) -> Any:
    return cx.pl.contrast_check(adata, **options)


def drawn_genes(adata: AnnData, **options: Any) -> Any:
    return cx.pl.loadings(adata, **options)


CALLS: list[tuple[Callable[..., Any], str, list[Any], str]] = [
    (paired, "groupby", [*NO_NAMES, None], "groupby"),
    (paired, "reference", [*NO_NAMES, None], "reference"),
    (paired, "donor", NO_NAMES, "donor"),
    (paired, "cell_type", NO_NAMES, "cell_type"),
    (paired, "method", NO_WORDS, "method"),
    (paired, "mutual", NO_FLAGS, "mutual"),
    (paired, "copy", NO_FLAGS, "copy"),
    (paired, "n_comps", [*NO_COUNTS, 9], "n_comps"),
    (paired, "n_neighbors", NO_COUNTS, "n_neighbors"),
    (paired, "layer", NO_NAMES, "layer"),
    (paired, "mask_var", NO_NAMES, "mask_var"),
    (paired, "key_added", [3, "", "a/b", ["a"], {}, np.array([1, 2])], "key_added"),
    (contrasted, "groupby", NO_NAMES, "groupby"),
    (contrasted, "reference", [*NO_NAMES, None, []], "reference"),
    (contrasted, "n_comps", [*NO_COUNTS, 9], "n_comps"),
    (contrasted, "layer", NO_NAMES, "layer"),
    (contrasted, "obsm", NO_NAMES, "obsm"),
    (contrasted, "within", NO_NAMES, "within"),
    (contrasted, "copy", NO_FLAGS, "copy"),
    (contrasted, "key_added", [3, "", "a/b", ["a"], {}, np.array([1, 2])], "key_added"),
    (contrasted, "alpha", ["3", None, [1.0], -1, True, 10**400, np.nan], "alpha"),
    (denoised, "offset", NO_WORDS, "offset"),
    (denoised, "key", [*NO_NAMES, None], "no result"),
    (denoised, "layer", NO_NAMES, "layer"),
    (denoised, "layer_added", [3, None, "", "a/b", ["a"], {}, np.array([1, 2])], "layer_added"),
    (denoised, "copy", NO_FLAGS, "copy"),
    (projected, "key", [*NO_NAMES, None], "no result"),
    (projected, "layer", NO_NAMES, "layer"),
    (projected, "copy", NO_FLAGS, "copy"),
    (projected, "key_added", [3, "", "a/b", ["a"], {}], "key_added"),
    (path, "groupby", NO_NAMES, "groupby"),
    (path, "n_comps", [*NO_COUNTS, 9], "n_comps"),
    (path, "layer", NO_NAMES, "layer"),
    (path, "copy", NO_FLAGS, "copy"),
    (path, "key_added", [3, "", "a/b", ["a"], {}], "key_added"),
    (plus_plus, "groupby", NO_NAMES, "groupby"),
    (plus_plus, "n_comps", [*NO_COUNTS, 9], "n_comps"),
    (plus_plus, "copy", NO_FLAGS, "copy"),
    (plus_plus, "key_added", [3, "", "a/b", ["a"], {}], "key_added"),
    (significant, "donor", NO_NAMES, "donor"),
    (significant, "method", NO_WORDS, "method"),
    (significant, "n_comps", [*NO_COUNTS, 9], "n_comps"),
    (significant, "copy", NO_FLAGS, "copy"),
    (significant, "key_added", [3, "", "a/b", ["a"], {}], "key_added"),
    (listed_genes, "component", [*(one for one in NO_COUNTS if one is not None), 9], "component"),
    (listed_genes, "n", NO_SIZES, "n="),
    (listed_genes, "key", [*NO_NAMES, None], "no result"),
    (listed_genes, "level", NO_NAMES, "level="),
    (every_loading, "key", [*NO_NAMES, None], "no result"),
    (every_loading, "level", NO_NAMES, "level="),
    (every_loading, "tidy", NO_FLAGS, "tidy"),
    (levels_table, "key", [*NO_NAMES, None], "no result"),
    (by_level, "by", NO_NAMES, "by"),
    (by_level, "donor", NO_NAMES, "donor"),
    (chosen_genes, "n_top_genes", [*NO_SIZES, None], "n_top_genes"),
    (chosen_genes, "cells", NO_NAMES, "cells"),
    (chosen_genes, "layer", NO_NAMES, "layer"),
    (chosen_genes, "copy", NO_FLAGS, "copy"),
    (chosen_genes, "key_added", [3, None, "", "a/b", ["a"], {}, np.array([1, 2])], "key_added"),
    (mixing, "groupby", [*NO_NAMES, None], "groupby"),
    (mixing, "cell_type", [*NO_NAMES, None], "cell_type"),
    (mixing, "reps", ["no", ["no"], [3], 3, [], None, [["a"]]], "reps|adata.obsm has no"),
    (mixing, "resolution", ["3", None, -1, True, np.nan, [1.0]], "resolution"),
    (mixing, "n_seeds", [*NO_SIZES, None], "n_seeds"),
    (mixing, "random_state", ["3", 2.5, [3], True], "random_state"),
    (mixing, "max_cells", NO_SIZES, "max_cells"),
    (drawn_path, "key", [*NO_NAMES, None], "no result"),
    (drawn_path, "color", ["no", 3, ["no"], [3], [["a"]], len], "color"),
    (drawn_path, "components", ["1", [1], 2.5, None, [1, 9], "1;2", []], "components"),
    (drawn_curve, "key", [*NO_NAMES, None], "no result"),
    (drawn_curve, "component", [*(one for one in NO_COUNTS if one is not None), 9], "component"),
    (drawn_scree, "key", [*NO_NAMES, None], "no result"),
    (drawn_pairs, "key", [*NO_NAMES, None], "no result"),
    (drawn_check, "key", [*NO_NAMES, None], "no result"),
    (drawn_genes, "level", NO_NAMES, "level="),
    (drawn_genes, "components", [*NO_SIZES, 9, 10**400, "1;2", []], "components"),
    (drawn_genes, "n_points", [*NO_SIZES, None], "n_points"),
    (drawn_genes, "key", [*NO_NAMES, None], "no result"),
    (imputed, "key", [*NO_NAMES, None, "cpca"], "no result|cannot fill values in"),
    (imputed, "layer", NO_NAMES, "layer"),
    (imputed, "layer_added", [3, None, "", "a/b", ["a"], {}, np.array([1, 2])], "layer_added"),
    (imputed, "return_std", NO_FLAGS, "return_std"),
    (imputed, "copy", NO_FLAGS, "copy"),
]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_without_levels_are_refused(name: str, untouched: Any) -> None:
    values, words = COLUMNS[name]
    adata = cells(odd=values)
    call = contrasted if name in ("groupby", "within") else paired
    with untouched(adata), pytest.raises((TypeError, ValueError)) as caught:
        call(adata, **{name: "odd"})
    assert not complaint(caught.value, words)


@pytest.mark.parametrize(
    ("call", "name", "values", "words"), CALLS, ids=[f"{c.__name__}-{n}" for c, n, _, _ in CALLS]
)
def test_odd_arguments_are_refused_by_name(
    call: Callable[..., Any], name: str, values: list[Any], words: str, untouched: Any
) -> None:
    adata = cells()
    contrasted(adata)
    cx.tl.pcpca(adata, groupby="condition", reference="ctrl", gamma=0.0)
    cx.tl.cpca_path(adata, groupby="condition", reference="ctrl", n_representatives=2)
    paired(adata)
    adata.obsm["X_pca"] = np.asarray(adata.X)[:, :3]
    for value in values:
        with untouched(adata), pytest.raises((TypeError, ValueError)) as caught:
            call(adata, **{name: value})
        assert not complaint(caught.value, words), type(value)


def test_more_genes_than_there_are_is_all_of_them() -> None:
    adata = cells()
    contrasted(adata)
    assert len(cx.get.top_genes(adata, n=10**400)) == 8
    [ax] = cx.pl.loadings(adata, n_points=10**400, components=1, show=False)
    assert len(ax.patches) == 8
    plt.close(ax.figure)
