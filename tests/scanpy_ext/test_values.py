"""Tests of warnings and errors about unsuitable values and cells."""

from __future__ import annotations

import contextlib
import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scipy.sparse as sp
from anndata import AnnData

import scanpy_ext as cx
from contrast_core import ContrastWarning

REFERENCE: dict[str, Any] = {"groupby": "condition", "reference": "ctrl"}


def warned(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ContrastWarning)
        call()
    return [str(one.message) for one in caught if one.category is ContrastWarning]


FEW = {"n_permutations": 20, "n_resamples": 2}


@pytest.mark.parametrize("name", ["cpca", "pcpca", "cpca_path", "kernel_cpca", "significance"])
def test_values_that_are_not_logarithms_cause_a_warning(
    name: str, counts: AnnData, logs: AnnData
) -> None:
    options = {"donor": "donor", "test_kwargs": FEW} if name == "significance" else {}
    sparse, normalised = counts.copy(), sc.pp.normalize_total(counts, target_sum=1e4, copy=True)
    sparse.X = sp.csr_matrix(sparse.X)
    scaled = sc.pp.scale(logs, copy=True, max_value=10)
    silent = scaled.copy()
    silent.X[:, : 3 * silent.n_vars // 4] = 0  # these genes are not expressed
    rare = logs.copy()
    rare.X = (np.random.default_rng(0).random(logs.shape) < 0.1).astype(float)
    sc.pp.scale(rare)  # all values lie above -1
    words = ["raw counts", "sc.pp.scale", "too large for logarithms of counts"]
    for adata, expected in [
        (counts, words[0]),
        (sparse, words[0]),
        (scaled, words[1]),
        (silent, words[1]),
        (rare, words[1]),
        (normalised, words[2]),
        (logs, None),
    ]:
        found = warned(partial(getattr(cx.tl, name), adata, **REFERENCE, **options))
        told = [word for text in found for word in words if word in text]
        assert told == ([expected] if expected else [])


def test_sets_that_do_not_belong_together_cause_a_warning_or_an_error(
    logs: AnnData, counts: AnnData, untouched: Any
) -> None:
    few = np.arange(240) % 30 == 0
    found = warned(lambda: cx.tl.cpca(logs, foreground=~few, background=few, alpha=0.1))
    assert any("the background has only 8 cells" in text for text in found)
    every, stim = np.ones(240, bool), (logs.obs["condition"] == "stim").to_numpy()
    again = AnnData(sp.csr_matrix(logs.X), logs.obs, logs.var)
    with untouched(logs):
        for design, message in [
            ({"foreground": every, "background": every}, "are the same cells"),
            (REFERENCE | {"groups": ["ctrl"]}, "are the same cells"),
            (REFERENCE | {"reference": ["ctrl", "stim"], "groups": ["stim"]}, "the same cells"),
            ({"background": logs.copy()}, "holds the same cells as adata"),
            ({"background": again}, "holds the same cells as adata"),
            ({"background": counts}, "adata holds no raw counts, but the AnnData that"),
        ]:
            with pytest.raises(ValueError, match=message):
                cx.tl.cpca(logs, **design)
    # This call is valid, because the foreground is only a part of the cells.
    cx.tl.cpca(logs, foreground=stim, background=logs.copy())
    other = logs[~stim].copy()
    assert not warned(lambda: cx.tl.cpca(logs, background=other, alpha=1.0))
    with pytest.warns(ContrastWarning, match="raw counts"):
        cx.pp.match_pairs(counts, "condition", "ctrl", n_comps=5)
    counts.X /= counts.X.sum(axis=1, keepdims=True)
    found = warned(lambda: cx.tl.cpca(logs, background=counts[~stim].copy(), alpha=1.0))
    assert any("mean value of adata is" in text for text in found)
    cx.tl.cpca(logs, **REFERENCE, alpha=1.0)
    assert not warned(lambda: cx.tl.project(other, logs))
    with pytest.warns(ContrastWarning, match="mean value of adata_new is .* the cells of the fit"):
        cx.tl.project(counts, logs)
    other.X = np.rint(other.X)
    with pytest.warns(ContrastWarning, match="raw counts"):
        cx.tl.project(other, logs)


def test_unsuitable_columns_of_groups_or_donors_cause_a_warning_or_an_error(
    logs: AnnData, untouched: Any
) -> None:
    logs.obs["barcode"] = [f"cell {i}" for i in range(240)]
    known = np.arange(240) > 4
    logs.obs["none"] = logs.obs["donor"].where(known, None).astype(str)
    logs.obs["nan"] = logs.obs["donor"].where(known, np.nan).astype(str)
    calls: list[Any] = [
        lambda name: cx.tl.cpca(logs, **REFERENCE, within=name),
        lambda name: cx.pp.match_pairs(logs, "condition", "ctrl", name, n_comps=5),
        lambda name: cx.pp.contrast_check(logs, **REFERENCE, donor=name),
        lambda name: cx.tl.significance(logs, **REFERENCE, donor=name, test_kwargs=FEW),
    ]
    for call in calls:
        for name, word in (("none", "None"), ("nan", "nan")):
            with untouched(logs), pytest.raises(ValueError, match=f"5 cells .* the text '{word}'"):
                call(name)
        with warnings.catch_warnings(record=True) as caught, contextlib.suppress(ValueError):
            warnings.simplefilter("always", ContrastWarning)
            call("barcode")  # `match_pairs` fails after its warning: it finds no pairs
        told = "'barcode'] has a different level in each of its 240 cells"
        assert any(told in str(one.message) for one in caught)
    for call in (calls[1], calls[2]):
        with pytest.raises(ValueError, match="donor and groupby are both 'condition'"):
            call("condition")
    logs.obs["turned"] = pd.Categorical(logs.obs["condition"].where(known).astype(str))
    with pytest.raises(ValueError, match=r"groupby: 5 cells of .*'turned'.* the text 'nan'"):
        cx.tl.cpca(logs, groupby="turned", reference="ctrl")
    cx.tl.cpca(logs, groupby="turned", reference="ctrl", groups=["stim"])
    assert logs.uns["cpca"]["n_foreground"] == 235


def test_a_gene_mask_with_gaps_from_an_outer_concatenation_is_understood(logs: AnnData) -> None:
    use = np.arange(30) < 20
    expected = cx.tl.cpca(logs, **REFERENCE, alpha=1.0, mask_var=use, copy=True)
    mask = pd.Series(use, logs.var_names).astype(object)
    mask.iloc[-3:] = np.nan
    logs.var["highly_variable"] = mask
    cx.tl.cpca(logs, **REFERENCE, alpha=1.0)
    np.testing.assert_array_equal(logs.obsm["X_cpca"], expected.obsm["X_cpca"])
    logs.var["highly_variable"] = mask.replace({True: "yes"})
    with pytest.raises(TypeError, match="a mask must be boolean"):
        cx.tl.cpca(logs, **REFERENCE)
