"""The methods beside cPCA, and what is done with their results."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scipy.sparse as sp
from anndata import AnnData
from matplotlib import pyplot as plt
from sklearn.base import clone
from sklearn.metrics import silhouette_score

import scanpy_ext as cx
from contrast_core import (
    CLVM,
    CPCA,
    PCPCA,
    ContrastWarning,
    CPCAStar,
    KernelCPCA,
    bootstrap_stability,
    condition_test,
)
from contrast_core.linalg import subspace_error

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
DONORS = {"foreground": "donor_101", "background": "control_107", "mask_var": "most_variable"}
LINEAR = {
    "cpca": cx.tl.cpca,
    "cpca_star": cx.tl.cpca_star,
    "pcpca": cx.tl.pcpca,
    "clvm": cx.tl.clvm,
}


def halves(cells):
    return cells.X, cells.X[cells.obs["is_ctrl"]]


# The same fit by the core, the options of `tl`, the loadings, and what `.uns` holds of the fit.
CORE = {
    "cpca": (
        CPCA(3, alpha=0.5),
        {"alpha": 0.5},
        "components_",
        ["alpha", "contrastive_eigenvalues"],
    ),
    "cpca_star": (CPCAStar(3), {}, "components_", ["beta", "generalized_eigenvalues"]),
    "pcpca": (
        PCPCA(3, gamma=0.2),
        {"gamma": 0.2},
        "loadings_",
        ["gamma", "gamma_max", "noise_variance", "objective", "converged"],
    ),
    "clvm": (
        CLVM(n_shared=2, n_salient=3),
        {"n_shared": 2},
        "salient_loadings_",
        ["noise_variance", "log_likelihoods", "converged"],
    ),
}


@pytest.mark.parametrize("name", CORE)
def test_slots_hold_what_the_core_computed(cells, name):
    estimator, options, loadings, stored = CORE[name]
    assert LINEAR[name](cells, **REFERENCE, n_comps=3, **options) is None
    X, Y = halves(cells)
    model = clone(estimator).fit(X, background=Y)
    scores, found = cells.obsm[f"X_{name}"], getattr(model, loadings)
    np.testing.assert_allclose(scores, model.transform(X), rtol=1e-5, atol=1e-5)
    found = found.T if loadings == "components_" else found
    np.testing.assert_allclose(cells.varm[f"PCs_{name}"], found, atol=1e-6)
    result = cells.uns[name]
    for each in [*stored, "foreground_variance", "background_variance"]:
        np.testing.assert_allclose(result[each], getattr(model, f"{each}_"), rtol=1e-5)
    assert (result["n_foreground"], result["n_background"]) == (200, 100)
    assert result["params"].items() >= ({"n_comps": 3} | options).items()
    assert not {"layer", "mask_var"} & result["params"].keys()
    table = cells.varm[f"PCs_{name}_fit"]
    again = (X - table["mean"].to_numpy()) @ table[["filter_1", "filter_2", "filter_3"]]
    np.testing.assert_allclose(again, scores, atol=1e-5)
    if name == "clvm":
        shared = cells.obsm["X_clvm_shared"]
        np.testing.assert_allclose(shared, model.transform_shared(X), atol=1e-5)
        np.testing.assert_allclose(cells.varm["PCs_clvm_shared"], model.shared_loadings_, atol=1e-6)
        cx.tl.clvm(cells, **REFERENCE, n_shared=0, key_added="alone")
        assert cells.obsm["alone_shared"].shape == (200, 0)


def test_kernel_cpca_holds_what_the_core_computed(cells):
    gamma = 0.01
    cx.tl.kernel_cpca(cells, **REFERENCE, alpha=1.0, kernel_gamma=gamma)
    X, Y = halves(cells)
    model = KernelCPCA(2, alpha=1.0, kernel_gamma=gamma).fit(X, background=Y)
    np.testing.assert_allclose(
        cells.obsm["X_kernel_cpca"], model.transform(X), rtol=1e-5, atol=1e-5
    )
    assert "PCs_kernel_cpca" not in cells.varm
    # The default coefficient follows the units of the data.
    other = cells.copy()
    other.X = sp.csr_matrix(other.X * 10)
    for adata in (cells, other):
        cx.tl.kernel_cpca(adata, **REFERENCE, alpha=1.0)
    np.testing.assert_allclose(other.obsm["X_kernel_cpca"], cells.obsm["X_kernel_cpca"], atol=1e-5)


@pytest.mark.parametrize("name", ["cpca", "cpca_star", "pcpca"])
def test_on_top_of_an_embedding(cells, name):
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0]
    cells.obsm["X_rotated"] = pd.DataFrame(cells.X @ rotation, index=cells.obs_names)
    LINEAR[name](cells, **REFERENCE, n_comps=1)
    LINEAR[name](cells, **REFERENCE, n_comps=1, obsm="X_rotated", key_added="on_top")
    # A rotation of all features changes nothing but the sign.
    plain, on_top = cells.obsm[f"X_{name}"], cells.obsm["on_top"]
    sign = np.sign(plain[:, 0] @ on_top[:, 0])
    np.testing.assert_allclose(sign * on_top, plain, atol=1e-4 * np.abs(plain).max())
    assert "on_top" not in cells.varm
    assert cells.uns["on_top"]["loadings"].shape == (12, 1)
    assert cells.uns["on_top"]["params"]["obsm"] == "X_rotated"
    new = cells[:50].copy()
    cx.tl.project(new, cells, key="on_top")
    np.testing.assert_allclose(new.obsm["on_top"], on_top[:50], atol=1e-5)
    with pytest.raises(ValueError, match="cannot be used for denoising"):
        cx.tl.denoise(cells, key="on_top")


def test_a_path_on_top_of_an_embedding(cells):
    cells.obsm["X_pca"] = cells.X[:, :6]
    cx.tl.cpca_path(cells, **REFERENCE, obsm="X_pca", n_representatives=2)
    result = cells.uns["cpca_path"]
    assert result["loadings"].shape == (len(result["representatives"]), 6, 2)
    assert not list(cells.varm)


def test_neighbours_umap_and_leiden_run_on_a_result(cells):
    cx.tl.cpca_star(cells, **REFERENCE, n_comps=3)
    sc.pp.neighbors(cells, use_rep="X_cpca_star", n_neighbors=10)
    sc.tl.umap(cells, n_components=2, maxiter=20)
    sc.tl.leiden(cells, flavor="igraph", n_iterations=2, directed=False)
    assert cells.obsm["X_umap"].shape == (200, 2)
    assert cells.obs["leiden"].nunique() > 1


def test_every_method_finds_the_interferon_response(kang):
    """Unscaled silhouette by condition, donor 101: PCA 0.29, best over the grid 0.56."""
    foreground = kang.obs["donor_101"].to_numpy()
    cx.tl.cpca(kang, **DONORS, alpha=0.0, key_added="pca")
    cx.tl.cpca_path(kang, **DONORS)
    for name, function in LINEAR.items():
        function(kang, **DONORS)
        genes = cx.get.top_genes(kang, n=10, key=name)
        assert {"ISG15", "IFIT3"} <= set(genes.index)
    found = {
        name: silhouette_score(scores[foreground], kang.obs["condition"][foreground])
        for name, scores in kang.obsm.items()
        if name != "X_clvm_shared"
    }
    assert found["pca"] == pytest.approx(0.29, abs=0.01)
    assert found["X_cpca"] >= 0.50
    assert max(found[name] for name in found if name.startswith("X_cpca_path")) >= 0.50
    assert min(found[f"X_{name}"] for name in LINEAR) > 0.33


# Reconstruction


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("offset", ["foreground", "difference", "none"])
def test_denoising_is_the_cores(cells, name, offset):
    LINEAR[name](cells, **REFERENCE)
    cx.tl.denoise(cells, key=name, offset=offset)
    X, Y = halves(cells)
    models = {"cpca": CPCA(), "cpca_star": CPCAStar(), "pcpca": PCPCA(), "clvm": CLVM()}
    model = models[name].fit(X, background=Y)
    expected = model.denoise(X, offset=offset)
    np.testing.assert_allclose(cells.layers["denoised"], expected, atol=1e-4)
    assert cells.layers["denoised"].dtype == np.float32


def test_denoising_follows_the_fits_layer_and_genes(cells, untouched):
    cells.layers["log"] = sp.csr_matrix(cells.X.astype("float64"))
    cells.X = None
    use = np.arange(12) < 5
    cx.tl.cpca(cells, **REFERENCE, layer="log", mask_var=use)
    with untouched(cells), pytest.warns(ContrastWarning, match="7 of 12 genes .* are NaN in"):
        corrected = cx.tl.denoise(cells, layer_added="clean", copy=True)
    clean = corrected.layers["clean"]
    assert clean.dtype == np.float64
    assert np.isnan(clean[:, ~use]).all()
    centred = clean[:, use] - clean[:, use].mean(axis=0)
    assert subspace_error(np.linalg.svd(centred)[2][:2], cells.varm["PCs_cpca"][use].T) < 1e-6
    assert np.linalg.matrix_rank(centred) == 2
    with pytest.raises(ValueError, match="offset='mean' is unknown"):
        cx.tl.denoise(cells, offset="mean")


# New cells


@pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")  # of pairs in noise
@pytest.mark.parametrize("name", [*LINEAR, "pca_pp", "pca_plus"])
def test_projecting_the_same_cells_gives_their_scores(cells, name):
    if name in LINEAR:
        LINEAR[name](cells, **REFERENCE, mask_var=np.arange(12) > 2)
    else:
        getattr(cx.tl, name)(
            cells, groupby="condition", reference="ctrl", n_comps=1, mask_var=np.arange(12) > 2
        )
    for matrix in (cells.X, sp.csr_matrix(cells.X)):
        new = AnnData(matrix, obs=cells.obs, var=pd.DataFrame(index=cells.var_names))
        new = new[10:, ::-1][:, :9].copy()  # other cells, other order, unused genes gone
        cx.tl.project(new, cells[:0], key=name)
        np.testing.assert_allclose(
            new.obsm[f"X_{name}"], cells.obsm[f"X_{name}"][10:], atol=1e-4, rtol=1e-4
        )


def test_genes_that_do_not_fit_are_named(cells, untouched):
    cx.tl.cpca(cells, **REFERENCE)
    new = cells[:20, 2:].copy()
    with untouched(new), pytest.raises(ValueError, match=r"lacks 2 of the 12.*'gene0', 'gene1'"):
        cx.tl.project(new, cells)
    with pytest.warns(UserWarning, match="names are not unique"):
        both = AnnData(np.zeros((3, 13)), var=pd.DataFrame(index=[*cells.var_names, "gene0"]))
    with pytest.raises(ValueError, match="adata_new has several genes named 'gene0'"):
        cx.tl.project(both, cells)
    unique = cells.copy()
    cells.var_names = [*cells.var_names[:11], "gene0"]
    with pytest.raises(ValueError, match="adata_fitted has several genes named 'gene0'"):
        cx.tl.project(unique, cells)


def test_results_without_components_are_named(cells):
    cx.tl.kernel_cpca(cells, **REFERENCE, alpha=1.0)
    cx.tl.cpca_path(cells, **REFERENCE)
    for function in (
        lambda key: cx.tl.project(cells, cells, key=key),
        lambda key: cx.tl.denoise(cells, key=key),
    ):
        with pytest.raises(ValueError, match="no linear method with its components"):
            function("kernel_cpca")
        with pytest.raises(ValueError, match="no linear method"):
            function("cpca_path")
        with pytest.raises(
            ValueError, match=r"no result 'cpca' of .*results are 'kernel_cpca', 'cpca_path'"
        ):
            function("cpca")


# Tables


def test_top_genes_are_ranked_with_their_signs(cells):
    cx.tl.cpca(cells, **REFERENCE, mask_var=np.arange(12) < 8)
    table = cx.get.top_genes(cells, 2, None)
    loading = cells.varm["PCs_cpca"][:, 1]
    assert set(table.index) == set(cells.var_names[:8])
    np.testing.assert_array_equal(
        table["loading"], loading[cells.var_names.get_indexer(table.index)]
    )
    assert table["loading"].abs().is_monotonic_decreasing
    assert table["weight"].iloc[0] == 1
    for positive in (True, False):
        ranks = table.loc[(table["loading"] > 0) == positive, "rank"]
        assert list(ranks) == list(range(1, len(ranks) + 1))
    pd.testing.assert_frame_equal(cx.get.top_genes(cells, 2, 3), table.iloc[:3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "PCs"}, "no result 'PCs' of .* its results are 'cpca'"),
        ({"component": 3}, "component=3: expected a number from 1 to 2"),
        ({"component": 0}, "component=0"),
        ({"n": 0}, "n=0"),
    ],
)
def test_top_genes_that_are_not_there(cells, arguments, message):
    cx.tl.cpca(cells, **REFERENCE)
    with pytest.raises(ValueError, match=message):
        cx.get.top_genes(cells, **arguments)


# Significance


@pytest.fixture
def donors(cells):
    cells.obs["donor"] = np.array([f"d{i}" for i in range(8)])[np.arange(200) // 25]
    cells.obs["side"] = np.arange(200) % 100 < 50
    return cells


@pytest.mark.parametrize("method", ["cpca", "cpca_star", "pcpca"])
def test_significance_by_donor(donors, method):
    cx.tl.significance(
        donors,
        donor="donor",
        foreground="is_stim",
        background="is_ctrl",
        method=method,
        test_kwargs={"strength": 0.1, "n_resamples": 20},
    )
    result = donors.uns["significance"]
    table = result["components"]
    assert list(table.index) == ["component 1", "component 2"]
    assert list(table.columns) == [
        "p_value",
        "strength",
        "statistic",
        "null_median",
        "null_95",
        "stability",
        "retention",
    ]
    assert (result["unit"], result["exploratory"]) == ("donor", False)
    assert (result["n_foreground_units"], result["n_background_units"]) == (4, 4)
    assert result["n_permutations"] == 70  # all ways to choose 4 of 8 donors
    assert result["smallest_p_value"] == pytest.approx(1 / 70)
    assert (
        (table[["stability", "retention"]] >= 0) & (table[["stability", "retention"]] <= 1 + 1e-9)
    ).all(axis=None)


def test_treated_donors_change_places_with_controls(donors):
    """With the controls in the foreground: a shift that all four treated donors share."""
    cx.tl.significance(
        donors, donor="donor", **REFERENCE, n_comps=1, test_kwargs={"n_resamples": 5}
    )
    result = donors.uns["significance"]
    assert result["smallest_p_value"] == pytest.approx(1 / 70)
    assert result["components"]["p_value"].iloc[0] <= 0.05
    assert (result["n_foreground_units"], result["n_background_units"]) == (4, 4)
    donors.obs["condition"] = np.where(donors.obs["donor"] == "d7", "stim", "ctrl")
    with pytest.raises(ValueError, match=r"only 8 ways .* no p-value can be below 0\.12"):
        cx.tl.significance(donors, donor="donor", **REFERENCE)


def test_significance_is_the_cores_condition_test(donors):
    arguments = {"strength": 1.0, "n_permutations": 30, "n_resamples": 5, "random_state": 4}
    front, back = (donors.obs[name].to_numpy() for name in ("is_stim", "is_ctrl"))
    owner = donors.obs["donor"].to_numpy(str)
    for include, design in ((True, REFERENCE), (False, {"foreground": front, "background": back})):
        cx.tl.significance(donors, donor="donor", **design, test_kwargs=arguments)
        core = condition_test(
            CPCA(2, alpha=1.0),
            donors.X[front],
            background=donors.X[back],
            units=owner[front],
            background_units=owner[back],
            include_background=include,
            n_permutations=30,
            random_state=4,
        )
        found = donors.uns["significance"]["components"]
        np.testing.assert_allclose(found["statistic"], core.statistics)
    resampled = bootstrap_stability(
        CPCA(2, alpha=1.0),
        donors.X[front],
        background=donors.X[back],
        units=owner[front],
        background_units=owner[back],
        n_resamples=5,
        random_state=4,
    )
    np.testing.assert_allclose(found["stability"], resampled.component_stability)
    np.testing.assert_allclose(found["retention"], resampled.component_retention)
    other, adata = donors[back].copy(), donors[front].copy()
    cx.tl.significance(adata, donor="donor", background=other, test_kwargs=arguments)
    pd.testing.assert_frame_equal(
        adata.uns["significance"]["components"], donors.uns["significance"]["components"]
    )


def test_significance_counts_the_donors_of_each_side(donors):
    few = donors[donors.obs["donor"] != "d7"].copy()
    cx.tl.significance(few, donor="donor", **REFERENCE, n_comps=1, test_kwargs={"n_resamples": 2})
    result = few.uns["significance"]
    sides = [few.obs.loc[few.obs["condition"] == level, "donor"] for level in ("stim", "ctrl")]
    assert sorted(side.nunique() for side in sides) == [3, 4]
    found = (result["n_foreground_units"], result["n_background_units"])
    assert found == tuple(side.nunique() for side in sides)


def test_designs_that_donors_cannot_test_are_refused(donors, untouched):
    donors.obs["half"] = donors.obs["is_ctrl"] & donors.obs["side"]
    donors.obs["most"] = donors.obs["is_stim"] | donors.obs["half"]
    with untouched(donors):
        with pytest.raises(ValueError, match="50 of the 100 background cells are in the fore"):
            cx.tl.significance(donors, donor="donor", foreground="most", background="is_ctrl")
        with pytest.raises(ValueError, match="are the same cells"):
            cx.tl.significance(donors, donor="donor", foreground="is_ctrl", background="is_ctrl")
        with pytest.raises(ValueError, match="donor and groupby are both 'condition'"):
            cx.tl.significance(donors, donor="condition", **REFERENCE)
        with pytest.raises(ValueError, match=r"method=\['cpca'\] is unknown"):
            cx.tl.significance(donors, donor="donor", **REFERENCE, method=["cpca"])


def test_without_donors_p_values_are_called_exploratory(donors, tmp_path):
    cx.tl.significance(
        donors, donor=None, **REFERENCE, test_kwargs={"n_permutations": 29, "n_resamples": 5}
    )
    result = donors.uns["significance"]
    assert "p_value" not in result["components"]
    assert result["components"]["exploratory_p_value"].iloc[0] == pytest.approx(1 / 30)
    assert result["exploratory"] is True
    donors.write_h5ad(tmp_path / "cells.h5ad")
    again = sc.read_h5ad(tmp_path / "cells.h5ad")
    pd.testing.assert_frame_equal(again.uns["significance"]["components"], result["components"])
    axes = cx.pl.significance(again, show=False)
    assert "exploratory" in axes[0].get_title()
    plt.close(axes[0].figure)


@pytest.mark.parametrize("in_both_sets", [True, False])
def test_a_strong_effect_is_found_by_cell_with_the_reference_in_both_sets(in_both_sets):
    rng = np.random.default_rng(0)
    adata = AnnData(rng.normal(size=(160, 6)))
    adata.obs["condition"] = np.repeat(["ctrl", "stim"], 80)
    adata.X[80:, 0] += 4.0 + 3.0 * rng.normal(size=80)
    is_control = (adata.obs["condition"] == "ctrl").to_numpy()
    design = (
        {"groupby": "condition", "reference": "ctrl"}
        if in_both_sets
        else {"foreground": ~is_control, "background": is_control}
    )
    cx.tl.significance(
        adata, donor=None, **design, n_comps=1, test_kwargs={"n_permutations": 19, "n_resamples": 2}
    )
    assert adata.uns["significance"]["components"]["exploratory_p_value"].iloc[0] == 1 / 20


def test_too_few_donors_are_told(donors):
    donors.obs["two"] = np.where(donors.obs["side"], "a", "b")
    with pytest.raises(
        ValueError, match=r"4 ways to say which units are foreground.* 3 units against 3"
    ):
        cx.tl.significance(donors, donor="two", **REFERENCE, test_kwargs={"n_resamples": 2})
    assert "significance" not in donors.uns
    donors.obs.loc["cell5", "donor"] = None
    with pytest.raises(ValueError, match="1 foreground or background cells have no value"):
        cx.tl.significance(donors, donor="donor", **REFERENCE)
    with pytest.raises(ValueError, match="method='pca' is unknown"):
        cx.tl.significance(donors, donor=None, **REFERENCE, method="pca")


@pytest.mark.parametrize("n", [4095, 4096, 4097, 8193])
def test_every_cell_is_denoised(n):
    adata = AnnData(np.random.default_rng(0).normal([5, 0, 1], size=(n, 3)))
    adata.obs["condition"] = np.where(np.arange(n) % 2, "stim", "ctrl")
    cx.tl.cpca(adata, **REFERENCE, n_comps=2, alpha=0.5)
    cx.tl.denoise(adata)
    ctrl = (adata.obs["condition"] == "ctrl").to_numpy()
    expected = CPCA(2, alpha=0.5).fit(adata.X, background=adata.X[ctrl]).denoise(adata.X)
    np.testing.assert_allclose(adata.layers["denoised"], expected)
