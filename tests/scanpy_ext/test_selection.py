"""Which cells and genes are used, and what is said when the choice makes no sense."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import scanpy_ext as cx

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
OTHERS = [
    cx.tl.cpca_path,
    cx.tl.cpca_star,
    cx.tl.kernel_cpca,
    cx.tl.pcpca,
    cx.pp.contrast_check,
]


def significance(adata, **kwargs):
    cx.tl.significance(adata, donor=None, **kwargs)


def loadings(adata, **kwargs):
    """The components of a fit, the alpha fixed so that only the cells matter."""
    return cx.tl.cpca(adata, alpha=0.5, **kwargs, copy=True).varm["PCs_cpca"]


@pytest.fixture
def three(cells):
    """Levels a, b, c, and a few cells without any."""
    labels = np.array(["a", "b", "c", "a"] * 50, dtype=object)
    labels[:7] = None
    cells.obs["group"] = pd.Categorical(labels, categories=["a", "b", "c", "empty"])
    return cells


def test_groupby_and_masks_are_the_same_question(cells):
    everything = np.ones(cells.n_obs, dtype=bool)
    by_level = loadings(cells, **REFERENCE)
    by_mask = loadings(cells, foreground=everything, background="is_ctrl")
    np.testing.assert_array_equal(by_level, by_mask)

    within = loadings(cells, foreground="is_stim", background="is_ctrl")
    assert not np.allclose(within, by_level)


def test_groups_are_pooled_and_cells_without_a_level_are_in_neither_set(three):
    level = three.obs["group"]
    for groups, chosen in ((None, ["b", "c"]), ("c", ["c"]), (["c", "b", "c"], ["b", "c"])):
        np.testing.assert_array_equal(
            loadings(three, groupby="group", reference="a", groups=groups),
            loadings(
                three,
                foreground=level.isin([*chosen, "a"]).to_numpy(),
                background=(level == "a").to_numpy(),
            ),
        )


def test_groups_may_name_the_reference_that_is_included_anyway(three):
    np.testing.assert_array_equal(
        loadings(three, groupby="group", reference="a", groups=["a", "b"]),
        loadings(three, groupby="group", reference="a", groups="b"),
    )


@pytest.mark.parametrize("dtype", ["int64", "float64", "category", "object", "str", "Int64"])
def test_reference_finds_a_numeric_level_however_it_is_written(cells, dtype):
    expected = loadings(cells, **REFERENCE)
    cells.obs["group"] = cells.obs["is_stim"].astype(int).astype(dtype)
    for reference in (0, "0", 0.0, np.int64(0)):
        np.testing.assert_array_equal(
            loadings(cells, groupby="group", reference=reference, groups=[1]), expected
        )


def test_reference_finds_a_boolean_level(cells):
    expected = loadings(cells, **REFERENCE)
    for reference in (False, "False"):
        np.testing.assert_array_equal(
            loadings(cells, groupby="is_stim", reference=reference), expected
        )


def test_gaps_in_a_numeric_column_do_not_hide_its_levels(cells):
    cells.obs["group"] = cells.obs["is_stim"].astype(float)
    cells.obs.loc["cell3", "group"] = np.nan
    result = cx.tl.cpca(cells, groupby="group", reference="0", copy=True).uns["cpca"]
    assert (result["n_foreground"], result["n_background"]) == (199, 99)
    assert result["params"]["reference"] == "0"
    assert list(result["params"]["groups"]) == ["1"]


def test_masks_of_every_kind_agree(cells):
    stim = cells.obs["is_stim"]
    missing = stim.astype("boolean")
    cells.obs["nullable"] = missing
    expected = loadings(cells, foreground="is_stim", background="is_ctrl")
    for mask in (stim, stim.to_numpy(), stim.tolist(), missing, missing.array, "nullable"):
        np.testing.assert_array_equal(
            loadings(cells, foreground=mask, background="is_ctrl"), expected
        )
    missing.iloc[:5] = pd.NA
    np.testing.assert_array_equal(
        loadings(cells, foreground=missing, background="is_ctrl"), expected
    )


def test_genes_outside_the_mask_have_no_part(cells, untouched):
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


BAD = [
    ({}, ValueError, "no cells were chosen. Give groupby= and reference="),
    ({"reference": "ctrl"}, ValueError, "no cells were chosen"),
    ({"groupby": "nope", "reference": "ctrl"}, ValueError, "has no column 'nope'.*'condition'"),
    ({"groupby": "condition"}, ValueError, "reference is missing.*'ctrl', 'stim'"),
    (
        {"groupby": "condition", "reference": "control"},
        ValueError,
        "reference: 'control' is not a level of adata.obs['condition'].*'ctrl', 'stim'",
    ),
    ({**REFERENCE, "groups": ["stim", "x"]}, ValueError, "groups: 'x' is not a level"),
    ({**REFERENCE, "groups": []}, ValueError, "groups is empty"),
    (
        {"groupby": "unused", "reference": "empty"},
        ValueError,
        "reference: 'empty' is a category without cells",
    ),
    ({"groupby": "unused", "reference": "a"}, ValueError, "one level only, the reference 'a'"),
    ({"groupby": "depth", "reference": 3}, ValueError, "the background.*has 1 cell"),
    ({"groupby": "depth", "reference": -1}, ValueError, "'18', '19' and 180 more"),
    ({**REFERENCE, "foreground": "is_stim"}, ValueError, "together with groupby, reference"),
    ({"foreground": "is_stim"}, ValueError, "background is missing: give both masks"),
    ({"background": "is_stim"}, ValueError, "foreground is missing: give both masks"),
    (
        {"foreground": "stim", "background": "is_ctrl"},
        ValueError,
        "foreground: adata.obs has no column 'stim'. Its boolean columns are 'is_stim', 'is_ctrl'",
    ),
    (
        {"foreground": "condition", "background": "is_ctrl"},
        TypeError,
        "adata.obs['condition'] has dtype category, but a mask must be boolean",
    ),
    (
        {"foreground": np.arange(200), "background": "is_ctrl"},
        TypeError,
        "foreground has dtype int64, but a mask must be boolean",
    ),
    (
        {"foreground": "is_stim", "background": np.ones(199, dtype=bool)},
        ValueError,
        "background has shape (199,), but adata.obs has 200 rows",
    ),
    (
        {"foreground": "is_stim", "background": np.ones((200, 1), dtype=bool)},
        ValueError,
        "background has shape (200, 1)",
    ),
    (
        {"foreground": pd.Series(np.ones(200, dtype=bool)), "background": "is_ctrl"},
        ValueError,
        "a Series whose index is not adata.obs_names",
    ),
    (
        {"foreground": np.zeros(200, dtype=bool), "background": "is_ctrl"},
        ValueError,
        "foreground selects nothing",
    ),
    (
        {"foreground": np.arange(200) == 3, "background": "is_ctrl"},
        ValueError,
        "foreground has 1 cell; a covariance needs at least 2",
    ),
    ({**REFERENCE, "mask_var": "nope"}, ValueError, "mask_var: adata.var has no column 'nope'"),
    ({**REFERENCE, "mask_var": "none"}, ValueError, "mask_var: adata.var['none'] selects nothing"),
    ({**REFERENCE, "mask_var": [True]}, ValueError, "mask_var has shape (1,)"),
    ({**REFERENCE, "layer": "nope"}, ValueError, "adata.layers has no 'nope'.*'nan'"),
    (
        {**REFERENCE, "layer": "nan"},
        ValueError,
        "adata.layers['nan'] contains NaN or inf (NaN first met in feature 4)",
    ),
    ({**REFERENCE, "n_comps": 13}, ValueError, "n_comps=13, but it must be from 1 to 12"),
    ({**REFERENCE, "n_comps": 0}, ValueError, "n_comps=0"),
    ({**REFERENCE, "n_comps": 2.0}, TypeError, "n_comps=2.0: expected a whole number"),
    ({**REFERENCE, "key_added": "a/b"}, ValueError, "key_added='a/b'.*without '/'"),
    ({**REFERENCE, "key_added": ""}, ValueError, "non-empty"),
]


@pytest.mark.parametrize("function", [cx.tl.cpca, *OTHERS, significance])
@pytest.mark.parametrize(
    ("arguments", "error", "message"), BAD, ids=[message[:40] for _, _, message in BAD]
)
def test_bad_choices_are_named_and_write_nothing(
    cells, untouched, function, arguments, error, message
):
    if function is cx.pp.contrast_check and "n_comps" in arguments:
        error, message = TypeError, "unexpected keyword argument 'n_comps'"
    labels = np.array(["a"] * 150 + [None] * 50, dtype=object)
    cells.obs["unused"] = pd.Categorical(labels, categories=["a", "empty"])
    cells.var["none"] = False
    cells.layers["nan"] = cells.X.copy()
    cells.layers["nan"][3, 4] = np.nan
    cells.layers["nan"][150, 5] = np.inf
    if function in (cx.tl.pcpca, cx.tl.clvm):  # NaN is a missing value there
        message = message.replace("(NaN first met in feature 4)", "(inf first met in feature 5)")
    pattern = ".*".join(re.escape(part) for part in message.split(".*"))
    with untouched(cells), pytest.raises(error, match=pattern):
        function(cells, **arguments)


@pytest.mark.parametrize("alpha", [-1.0, np.nan, "best"])
def test_bad_alpha_writes_nothing(cells, untouched, alpha):
    with untouched(cells), pytest.raises(ValueError, match="alpha"):
        cx.tl.cpca(cells, **REFERENCE, alpha=alpha)
    with untouched(cells), pytest.raises((ValueError, TypeError), match="alpha"):
        cx.tl.cpca_path(cells, **REFERENCE, alphas=[0.0, alpha])


def test_missing_values_count_only_in_the_genes_in_use(cells):
    cells.X[3, 4] = np.nan
    with pytest.raises(ValueError, match=r"adata\.X contains NaN .*mask_var="):
        cx.tl.cpca(cells, **REFERENCE)
    cx.tl.cpca(cells, **REFERENCE, mask_var=np.arange(12) != 4)
    assert np.isfinite(cells.obsm["X_cpca"]).all()


def test_values_too_large_to_sum_are_not_taken_for_infinite(cells):
    cells.X = cells.X.astype("float64")
    cells.X[:2, 3] = 1.7e308  # each finite, their sum is not
    with pytest.raises(ValueError) as raised, np.errstate(all="ignore"):
        cx.tl.cpca(cells, **REFERENCE, mask_var=np.arange(12) == 3, n_comps=1)
    assert "NaN" not in str(raised.value)


def test_several_references_are_pooled(three):
    level = three.obs["group"]
    for reference in (["a", "b"], ("b", "a", "b"), np.array(["a", "b"])):
        np.testing.assert_allclose(
            loadings(three, groupby="group", reference=reference),
            loadings(
                three,
                foreground=level.isin(["a", "b", "c"]).to_numpy(),
                background=level.isin(["a", "b"]).to_numpy(),
            ),
            atol=1e-12,
        )
    cx.tl.cpca(three, groupby="group", reference=["a", "b"])
    assert list(three.uns["cpca"]["params"]["reference"]) == ["a", "b"]
    with pytest.raises(ValueError, match="one level only, the reference 'a', 'b', 'c'"):
        cx.tl.cpca(three, groupby="group", reference=["a", "b", "c"])
    with pytest.raises(ValueError, match="reference is empty"):
        cx.tl.cpca(three, groupby="group", reference=[])


@pytest.mark.parametrize(
    "function", [cx.tl.cpca, cx.tl.cpca_path, cx.tl.cpca_star, cx.tl.pcpca, cx.tl.kernel_cpca]
)
def test_another_anndata_as_the_background(cells, function):
    control = cells[cells.obs["is_ctrl"]].copy()
    stimulated = cells[cells.obs["is_stim"]].copy()
    cells.X = sp.csr_matrix(cells.X)
    function(cells, foreground="is_stim", background="is_ctrl", n_comps=1)
    function(stimulated, background=control, n_comps=1)
    sizes = next(iter(stimulated.uns.values()))
    assert (sizes["n_foreground"], sizes["n_background"]) == (100, 100)
    for key, embedding in stimulated.obsm.items():
        expected = cells.obsm[key][cells.obs["is_stim"]]
        np.testing.assert_allclose(embedding, expected, atol=1e-6 * np.abs(expected).max())
    # Some of the cells, and genes in use.
    use = np.arange(12) < 6
    some = stimulated.obs["depth"].to_numpy() < 180
    np.testing.assert_allclose(
        loadings(stimulated, foreground=some, background=control, mask_var=use),
        loadings(
            cells,
            foreground=cells.obs["is_stim"].to_numpy() & (cells.obs["depth"] < 180).to_numpy(),
            background="is_ctrl",
            mask_var=use,
        ),
        atol=1e-7,
    )


def test_a_background_that_does_not_fit_is_named(cells, untouched):
    for other, message in (
        (cells[:, :10], "lacks 2 of adata's genes ('gene10', 'gene11')"),
        (cells[:, ::-1], "background[:, adata.var_names]"),
        (cells[:1], "background has 1 cell"),
    ):
        with untouched(cells), pytest.raises(ValueError, match=re.escape(message)):
            cx.tl.cpca(cells, background=other.copy())
    cells.layers["log"] = cells.X
    other = cells.copy()
    del other.layers["log"]
    with pytest.raises(ValueError, match=r"another AnnData: layer: adata\.layers has no"):
        cx.tl.cpca(cells, background=other, layer="log")
    with pytest.raises(TypeError, match="background is another AnnData; the check needs one"):
        cx.pp.contrast_check(cells, background=other[:90].copy())


def test_an_embedding_of_another_size_is_named(cells):
    cells.obsm["X_pca"] = cells.X[:, :5]
    other = cells.copy()
    other.obsm["X_pca"] = cells.X[:, :4]
    with pytest.raises(ValueError, match=r"has 4 columns, but .* has 5"):
        cx.tl.cpca(cells, background=other, obsm="X_pca")
    for arguments, message in (
        ({"obsm": "nope"}, "adata.obsm has no 'nope'; it has 'X_pca'"),
        ({"obsm": "X_pca", "layer": "x"}, "obsm= together with layer="),
        ({"obsm": "X_pca", "mask_var": np.ones(12, bool)}, "obsm= together with mask_var="),
        ({"obsm": "X_pca", "n_comps": 6}, r"from 1 to 5 \(columns of adata.obsm\['X_pca'\]\)"),
    ):
        with pytest.raises(ValueError, match=message):
            cx.tl.cpca(cells, **REFERENCE, **arguments)


def test_an_anndata_without_a_matrix_asks_for_a_layer(cells):
    cells.layers["log"] = cells.X
    cells.X = None
    with pytest.raises(ValueError, match=r"adata\.X is None: name the layer"):
        cx.tl.cpca(cells, **REFERENCE)
    cx.tl.cpca(cells, **REFERENCE, layer="log")
    assert cells.uns["cpca"]["params"]["layer"] == "log"
