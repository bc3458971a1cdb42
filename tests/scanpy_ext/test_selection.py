"""Tests of the selection of cells and genes, and of the errors of invalid selections."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import scanpy_ext as cx

REFERENCE = {"groupby": "condition", "reference": "ctrl"}


def loadings(adata, **kwargs):
    """Return the components for a fixed alpha; they depend only on the selected cells."""
    return cx.tl.cpca(adata, alpha=0.5, **kwargs, copy=True).varm["PCs_cpca"]


def test_masks_of_every_type_give_the_same_result(cells):
    stim = cells.obs["is_stim"]
    nullable = stim.astype("boolean")
    with_gaps = nullable.where(stim | (cells.obs["depth"] > 5))
    cells.obs["nullable"] = nullable
    expected = loadings(cells, foreground="is_stim", background="is_ctrl")
    masks = (stim, stim.to_numpy(), stim.tolist(), nullable, nullable.array, "nullable", with_gaps)
    for mask in masks:
        found = loadings(cells, foreground=mask, background="is_ctrl")
        np.testing.assert_array_equal(found, expected)


def test_genes_outside_the_mask_are_not_used(cells, untouched):
    use = np.arange(12) % 2 == 1
    with untouched(cells):
        masked = loadings(cells, **REFERENCE, mask_var=use)
    np.testing.assert_array_equal(masked[~use], 0)
    np.testing.assert_array_equal(masked[use], loadings(cells[:, use].copy(), **REFERENCE))

    everything = loadings(cells, **REFERENCE)
    cells.var["highly_variable"] = use
    cells.var["mine"] = use
    np.testing.assert_array_equal(loadings(cells, **REFERENCE), masked)
    np.testing.assert_array_equal(loadings(cells, **REFERENCE, mask_var="mine"), masked)
    np.testing.assert_array_equal(loadings(cells, **REFERENCE, mask_var=None), everything)


def test_levels_are_pooled_and_cells_without_a_level_are_in_neither_set(cells):
    labels = np.array(["a", "b", "c", "a"] * 50, dtype=object)
    labels[:7] = None
    level = cells.obs["group"] = pd.Categorical(labels, categories=["a", "b", "c", "empty"])
    for reference, groups, background, foreground in [
        ("a", None, "a", "abc"),
        ("a", "c", "a", "ac"),
        ("a", ["c", "b", "c"], "a", "abc"),
        ("a", ["a", "b"], "a", "ab"),  # `groups` may contain the reference
        (["a", "b"], None, "ab", "abc"),
        (np.array(["b", "a", "b"]), None, "ab", "abc"),
    ]:
        found = loadings(cells, groupby="group", reference=reference, groups=groups)
        sets = {"foreground": level.isin([*foreground]), "background": level.isin([*background])}
        np.testing.assert_allclose(found, loadings(cells, **sets), atol=1e-12)
    cx.tl.cpca(cells, groupby="group", reference=["a", "b"])
    assert list(cells.uns["cpca"]["params"]["reference"]) == ["a", "b"]


@pytest.mark.parametrize("dtype", ["int64", "float64", "category", "object", "str", "Int64"])
def test_the_reference_matches_a_level_of_any_dtype(cells, dtype):
    expected = loadings(cells, **REFERENCE)
    cells.obs["group"] = cells.obs["is_stim"].astype(int).astype(dtype)
    for column, reference, groups in [
        *(("group", each, [1]) for each in (0, "0", 0.0, np.int64(0))),
        *(("is_stim", each, None) for each in (False, "False")),
    ]:
        found = loadings(cells, groupby=column, reference=reference, groups=groups)
        np.testing.assert_array_equal(found, expected)


# Invalid arguments, and parts of their error messages. The test adds the `groupby` and `reference`
# of `REFERENCE`, unless a case sets them itself.
BAD = [
    ({"reference": None}, "reference is missing.*'ctrl', 'stim'"),
    ({"groupby": None}, "no cells were chosen. Give groupby= and reference="),
    ({"groupby": "nope"}, "has no column 'nope'.*'condition'"),
    (
        {"reference": "control"},
        "reference: no cell has the level 'control' of adata.obs['condition'].*'ctrl', 'stim'",
    ),
    ({"reference": ["ctrl", "stim"]}, "foreground and background are the same cells"),
    ({"reference": []}, "reference: no level was given"),
    ({"groups": ["stim", "x"]}, "groups: no cell has the level 'x'"),
    ({"groups": []}, "groups: no level was given"),
    ({"groupby": "unused", "reference": "empty"}, "no cell has the level 'empty'"),
    ({"groupby": "unused", "reference": "a"}, "foreground and background are the same cells"),
    ({"groupby": "depth", "reference": 3}, "the background.*has 1 cell(s)"),
    ({"groupby": "depth", "reference": -1}, "'18', '19' and 180 more"),
    ({"foreground": "is_stim"}, "together with groupby, reference"),
    ({"groupby": None, "reference": None, "foreground": "is_stim"}, "background is missing"),
    ({"groupby": None, "reference": None, "background": "is_stim"}, "foreground is missing"),
    ({"mask_var": "nope"}, "mask_var: adata.var has no column 'nope'"),
    ({"mask_var": "none"}, "mask_var: adata.var['none'] selects nothing"),
    ({"mask_var": [True]}, "mask_var has shape (1,)"),
    ({"layer": "nope"}, "adata.layers has no 'nope'.*'nan'"),
    (
        {"layer": "nan"},
        "adata.layers['nan'] contains NaN or inf (NaN first met in feature 4).*mask_var=",
    ),
    ({"n_comps": 13}, "n_comps=13 is out of range: with 12 genes in use it must be from 1 to 12"),
    ({"obsm": "nope"}, "adata.obsm has no 'nope'; it has 'X_pca'"),
    ({"obsm": "X_pca", "layer": "x"}, "obsm= together with layer="),
    ({"obsm": "X_pca", "mask_var": np.ones(12, bool)}, "obsm= together with mask_var="),
    (
        {"obsm": "X_pca", "n_comps": 6},
        "with 5 columns of adata.obsm['X_pca'] it must be from 1 to 5",
    ),
]
BAD_MASKS = [
    ("stim", "foreground: adata.obs has no column 'stim'. Its boolean columns are 'is_stim'"),
    ("condition", "adata.obs['condition'] has dtype category, but a mask must be boolean"),
    (np.arange(200), "foreground has dtype int64, but a mask must be boolean"),
    (np.ones(199, dtype=bool), "foreground has shape (199,), but adata.obs has 200 rows"),
    (np.ones((200, 1), dtype=bool), "foreground has shape (200, 1)"),
    (pd.Series(np.ones(200, dtype=bool)), "a Series whose index is not adata.obs_names"),
    (np.zeros(200, dtype=bool), "foreground selects nothing"),
    (np.arange(200) == 3, "foreground has 1 cell(s); a covariance needs at least 2"),
]


@pytest.mark.parametrize("method", ["cpca", "kernel_cpca", "significance", "contrast_check"])
def test_invalid_selections_are_refused_and_nothing_is_written(cells, untouched, method):
    labels = np.array(["a"] * 150 + [None] * 50, dtype=object)
    cells.obs["unused"] = pd.Categorical(labels, categories=["a", "empty"])
    cells.var["none"] = False
    cells.layers["nan"] = cells.X.copy()
    cells.layers["nan"][3, 4] = np.nan
    cells.layers["nan"][150, 5] = np.inf
    cells.obsm["X_pca"] = cells.X[:, :5]
    function = getattr(cx.pp if method == "contrast_check" else cx.tl, method)
    donor = {"donor": None} if method == "significance" else {}
    masks = [({"foreground": mask, "background": "is_ctrl"}, words) for mask, words in BAD_MASKS]
    with untouched(cells):
        for arguments, words in [*((REFERENCE | given, words) for given, words in BAD), *masks]:
            if method == "contrast_check" and {"n_comps", "obsm"} & arguments.keys():
                continue
            pattern = ".*".join(re.escape(part) for part in words.split(".*"))
            with pytest.raises((TypeError, ValueError), match=pattern):
                function(cells, **arguments, **donor)


@pytest.mark.parametrize("name", ["cpca", "cpca_path", "cpca_star", "pcpca", "kernel_cpca"])
def test_the_background_may_be_another_anndata(cells, name):
    function, stim = getattr(cx.tl, name), cells.obs["is_stim"].to_numpy()
    control, stimulated = cells[~stim].copy(), cells[stim].copy()
    cells.X = sp.csr_matrix(cells.X)
    function(cells, foreground="is_stim", background="is_ctrl", n_comps=1)
    function(stimulated, background=control, n_comps=1)
    sizes = next(iter(stimulated.uns.values()))
    assert (sizes["n_foreground"], sizes["n_background"]) == (100, 100)
    for key, embedding in stimulated.obsm.items():
        expected = cells.obsm[key][stim]
        np.testing.assert_allclose(embedding, expected, atol=1e-6 * np.abs(expected).max())
    # Use a part of the cells and a part of the genes.
    use, some = np.arange(12) < 6, cells.obs["depth"].to_numpy() < 180
    found = loadings(stimulated, foreground=some[stim], background=control, mask_var=use)
    expected = loadings(cells, foreground=stim & some, background="is_ctrl", mask_var=use)
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_a_background_with_other_genes_cells_or_slots_is_refused(cells, untouched):
    cells.layers["log"] = cells.X
    cells.obsm["X_pca"] = cells.X[:, :5]
    without, other = cells.copy(), cells.copy()
    del without.layers["log"]
    other.obsm["X_pca"] = cells.X[:, :4]
    with untouched(cells):
        for background, options, message in [
            (cells[:, :10].copy(), {}, r"lacks 2 genes of adata \('gene10', 'gene11'\)"),
            (cells[:, ::-1].copy(), {}, r"background\[:, adata.var_names\]"),
            (cells[:1].copy(), {}, "background has 1"),
            (without, {"layer": "log"}, r"layer: background\.layers has no"),
            (other, {"obsm": "X_pca"}, "has 4 features but X has 5"),
        ]:
            with pytest.raises(ValueError, match=message):
                cx.tl.cpca(cells, background=background, **options)
        with pytest.raises(TypeError, match="background is another AnnData; the check needs one"):
            cx.pp.contrast_check(cells, background=other[:90].copy())
