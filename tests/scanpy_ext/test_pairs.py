"""Tests of positive pairs of cells, PCA+ and PCA++ on these pairs, and the mixing report."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scipy.sparse as sp
from anndata import AnnData
from sklearn.neighbors import kneighbors_graph

import scanpy_ext as cx
from contrast_core import ContrastWarning, PCAPlusPlus
from contrast_core.contrast import effective_n_pairs
from contrast_core.pairing import scaled_features

DESIGN = ("condition", "ctrl", "donor")  # groupby, reference and donor
NO_GROUPS = {"groupby": None, "reference": None}
SLOW = (pytest.mark.slow, pytest.mark.loads_umap)


@pytest.fixture
def design() -> AnnData:
    """Return 20 cells for each combination of two donors, two conditions and three cell types.

    The conditions are far apart.
    """
    rng = np.random.default_rng(0)
    labels = pd.MultiIndex.from_product(
        [["d1", "d2"], ["ctrl", "stim"], ["A", "B", "C"], range(20)]
    ).to_frame(index=False)
    labels.columns = ["donor", "condition", "cell_type", "cell"]
    values = rng.normal(size=(240, 40)) + 8
    for i, name in enumerate("ABC"):
        values[labels["cell_type"] == name, 4 * i : 4 * i + 4] += 4
    values[labels["condition"] == "stim", 20:30] += 8
    labels.index = pd.Index([f"cell{i}" for i in range(240)])
    adata = AnnData(values, obs=labels.drop(columns="cell").astype("category"))
    adata.var_names = [f"gene{i}" for i in range(40)]
    return adata


def partners(adata, key="pairs"):
    pairs = adata.obsp[key].tocoo()
    return pairs.row, pairs.col


@pytest.mark.slow
def test_a_cell_type_missing_from_one_condition_is_reported_and_rarely_paired(kang):
    lone = (kang.obs["cell_type"] == "B cells") & (kang.obs["condition"] == "ctrl")
    part = kang[~lone].copy()
    with pytest.warns(ContrastWarning, match=r"without control cells: 'B cells'; \d+ of their 154"):
        cx.pp.match_pairs(part, *DESIGN, cell_type="cell_type")
    table = part.uns["pairs"]["cell_types"]
    assert table.loc["B cells", "n_control"] == 0
    assert table.loc["B cells", "n_stimulated_paired"] < 0.25 * 154
    assert part.uns["pairs"]["coverage_stimulated"] > 0.65


@pytest.mark.parametrize("method", ["pca_pp", "pca_plus"])
def test_without_given_pairs_a_method_makes_the_same_pairs_as_match_pairs(design, method):
    options = {"groupby": "condition", "reference": "ctrl", "donor": "donor"}
    getattr(cx.tl, method)(design, **options, n_comps=2)
    cx.pp.match_pairs(design, *DESIGN, key_added="own")
    assert (design.obsp["own"] != design.obsp["pairs"]).nnz == 0


@pytest.mark.slow
@pytest.mark.loads_umap
def test_pairs_and_methods_work_on_real_cells_with_all_defaults(kang):
    """Check that paired cells share a type, and that PCA++ mixes conditions but keeps types."""
    cx.pp.match_pairs(kang, *DESIGN, cell_type="cell_type")
    summary = kang.uns["pairs"]
    assert summary["same_cell_type"] >= 0.86
    assert min(summary["coverage_stimulated"], summary["coverage_control"]) >= 0.7
    cx.tl.pca_plus(kang)
    cx.tl.pca_pp(kang)
    sc.pp.pca(kang, n_comps=20)
    report = cx.get.mixing_report(kang, "condition", "cell_type")
    assert list(report.index) == ["X_pca", "X_pca_plus", "X_pca_pp"]
    ours, pca = report.loc["X_pca_pp"], report.loc["X_pca"]
    assert ours["mixing_ari"] <= 0.03 < 0.5 < pca["mixing_ari"]
    assert ours["silhouette_condition"] <= 0.02
    assert ours["transfer"] >= 0.92
    assert report["silhouette_cell_type"].idxmax() == "X_pca_pp"
    over_resolutions = [
        cx.get.mixing_report(
            kang, "condition", "cell_type", reps=["X_pca_pp"], resolution=resolution
        )["cell_type_ari"].item()
        for resolution in (0.3, 0.6)
    ]
    assert np.mean([*over_resolutions, ours["cell_type_ari"]]) >= 0.65


def test_pairs_join_stimulated_and_control_cells_within_donors(design):
    cx.pp.match_pairs(design, *DESIGN, cell_type="cell_type")
    row, column = partners(design)
    obs = design.obs
    assert (obs["condition"].iloc[row] == "stim").all()
    assert (obs["condition"].iloc[column] == "ctrl").all()
    assert (obs["donor"].to_numpy()[row] == obs["donor"].to_numpy()[column]).all()
    are_equal = (obs["cell_type"].to_numpy()[row] == obs["cell_type"].to_numpy()[column]).mean()
    summary = design.uns["pairs"]
    assert are_equal == summary["same_cell_type"] > 0.98
    assert summary["n_pairs"] == len(row) == design.obsp["pairs_distances"].nnz
    assert summary["n_effective"] == effective_n_pairs(row, column)
    assert summary["coverage_stimulated"] == len(set(row)) / 120
    assert summary["coverage_control"] == len(set(column)) / 120
    assert summary["median_distance"] == np.median(design.obsp["pairs_distances"].data)
    assert list(summary["donors"].index) == ["d1", "d2"]
    assert summary["donors"]["n_pairs"].sum() == len(row)
    owner = obs["donor"].to_numpy()
    for side, place in (("stimulated", row), ("control", column)):
        covered = [len(set(place[owner[place] == name])) / 60 for name in ("d1", "d2")]
        np.testing.assert_allclose(summary["donors"][f"coverage_{side}"], covered)
    assert summary["cell_types"]["n_stimulated"].tolist() == [40, 40, 40]
    assert summary["params"]["reference"] == "ctrl"
    counts, coverage, distances = cx.pl.match_pairs(design, show=False)
    assert [bar.get_width() for bar in counts.patches] == [*summary["donors"]["n_pairs"]]
    assert len(coverage.patches) == 4
    assert distances.get_title() == f"median distance {summary['median_distance']:.3g}"
    assert distances.get_xlabel() == "distance of a pair"


def test_pairs_need_no_donors_and_can_have_several_doses(design):
    # Without a donor column, all cells belong to one donor.
    cx.pp.match_pairs(design, "condition", "ctrl")
    row, column = partners(design)
    donor = design.obs["donor"].to_numpy()
    assert (donor[row] != donor[column]).any()
    assert list(design.uns["pairs"]["donors"].index) == ["all cells"]
    *_, distances = cx.pl.match_pairs(design, show=False)
    assert [label.get_text() for label in distances.get_yticklabels()] == ["all cells"]
    median = design.uns["pairs"]["median_distance"]  # the plot marks it by a line
    assert any(np.allclose(line.get_xdata(), median) for line in distances.lines)
    cx.pp.match_pairs(design, *DESIGN, mutual=False, n_neighbors=3)
    assert design.uns["pairs"]["coverage_stimulated"] == 1
    assert design.uns["pairs"]["coverage_control"] == 1
    design.obs["dose"] = np.where(design.obs["condition"] == "ctrl", 0.0, 1.0)
    # With two doses, all cells that are not controls are stimulated.
    design.obs.loc[design.obs_names[::7], "dose"] *= 2
    cx.pp.match_pairs(design, "dose", 0, "donor")
    row, column = partners(design)
    assert set(design.obs["dose"].iloc[row]) == {1.0, 2.0}
    assert set(design.obs["dose"].iloc[column]) == {0.0}


@pytest.mark.parametrize("clusters", [pytest.param(None, marks=SLOW), "cell_type"])
def test_matched_clusters_pair_cells_of_the_same_type(design, clusters, monkeypatch):
    monkeypatch.setattr("scanpy_ext._pairs._MAX_PAIRS", 7)
    cx.pp.match_pairs(design, *DESIGN, method="clusters", clusters=clusters, cell_type="cell_type")
    summary = design.uns["pairs"]
    assert summary["same_cell_type"] > 0.95
    if clusters:
        assert (summary["donors"]["n_pairs"] == 3 * 7).all()
    first = design.obsp["pairs"].copy()
    cx.pp.match_pairs(design, *DESIGN, method="clusters", clusters=clusters)
    assert (first != design.obsp["pairs"]).nnz == 0


@pytest.mark.usefixtures("one_cluster")
def test_cells_that_cannot_be_paired_are_reported(design):
    part = design[~((design.obs["donor"] == "d2") & (design.obs["condition"] == "ctrl"))].copy()
    expected = "donors without stimulated cells or without control cells have no pairs: 'd2'"
    with pytest.warns(ContrastWarning, match=expected):
        cx.pp.match_pairs(part, *DESIGN)
    assert part.uns["pairs"]["donors"].loc["d2", "n_pairs"] == 0
    assert (part.obs["donor"].iloc[partners(part)[0]] == "d1").all()
    assert cx.pl.match_pairs(part, show=False)
    design.obs["known"] = design.obs["donor"].cat.remove_categories("d2")
    options = {"groupby": "condition", "reference": "ctrl", "donor": "known", "n_comps": 2}
    with pytest.warns(ContrastWarning, match="120 cells without a donor are not paired"):
        cx.tl.pca_pp(design, **options)
    assert design.uns["pairs"]["n_without_donor"] == 120
    unknown = design.obs["known"].isna().to_numpy()
    assert not unknown[np.concatenate(partners(design))].any()
    assert np.isfinite(design.obsm["X_pca_pp"]).all()  # cells without a pair are embedded too
    report = cx.get.mixing_report(design[unknown].copy(), "condition", "cell_type")
    assert report.loc["X_pca_pp", "transfer"] > 0.95


def test_wrong_designs_and_options_are_refused_with_advice(design, untouched):
    near = kneighbors_graph(design.X, 5, mode="distance")
    design.obsp["graph"] = design.obsp["near_distances"] = near
    design.obsp["connectivities"] = near + near.T
    design.obs["one"] = "same"
    reference = {"groupby": "condition", "reference": "ctrl"}
    both = r"'{}'\] has \d+ cells both in its rows and in its"
    with untouched(design):
        for function, arguments, message in [
            (cx.pp.match_pairs, {"reference": "nope"}, r"reference='nope'.*'ctrl', 'stim'"),
            (cx.pp.match_pairs, {"clusters": "cell_type"}, "needs method='clusters'"),
            (cx.pp.match_pairs, {"n_comps": 41}, "from 1 to 40"),
            (cx.pp.match_pairs, {"key_added": "graph"}, "'graph.*scanpy_ext did not write"),
            (cx.pp.match_pairs, {"key_added": "near"}, "'near.*scanpy_ext did not write"),
            (cx.tl.pca_pp, {"pairs": "near"}, "Choose another name for the results"),
            (cx.tl.pca_pp, NO_GROUPS, "no pairs 'pairs'"),
            (cx.tl.pca_pp, NO_GROUPS | {"pairs": "graph"}, both.format("graph")),
            (cx.tl.pca_pp, NO_GROUPS | {"pairs": "connectivities"}, both.format("connectivities")),
            (cx.tl.pca_pp, {"reference": None}, "reference=None: expected the level"),
            (cx.tl.pca_plus, {"groupby": None, "donor": "donor"}, "groupby is missing"),
        ]:
            with pytest.raises(ValueError, match=message):
                function(design, **reference | arguments)
    with pytest.raises(ValueError, match="no embedding to report on"):
        cx.get.mixing_report(design, "condition", "cell_type")
    design.obsm["X_pca"] = design.X[:, :3]
    with pytest.raises(ValueError, match=r"adata.obs\['one'\] has 1 level"):
        cx.get.mixing_report(design, "condition", "one")


@pytest.mark.parametrize("as_matrix", [sp.csr_matrix, sp.csc_matrix, sp.csr_array, np.asarray])
def test_pca_pp_gives_the_result_of_the_core_for_sparse_and_dense_cells(
    design, as_matrix, untouched
):
    values = design.X
    design.X = as_matrix(values)
    with untouched(design):
        result = cx.pp.match_pairs(design, *DESIGN, key_added="mine", copy=True)
    cx.tl.pca_pp(result, pairs="mine", n_comps=2, key_added="shared")
    assert {"mine", "mine_distances"} == set(result.obsp)
    assert {"shared", "shared_fit"} == set(result.varm)
    assert isinstance(result.X, as_matrix if as_matrix is not np.asarray else np.ndarray)
    scaled = scaled_features(values).matrix
    row, column = partners(result, "mine")
    model = PCAPlusPlus(2).fit(
        scaled[row], positive=scaled[column], n_effective=effective_n_pairs(row, column)
    )
    np.testing.assert_allclose(result.obsm["shared"], model.transform(scaled), atol=1e-8)
    np.testing.assert_allclose(result.varm["shared"], model.patterns_.T, atol=1e-8)
    fit = result.uns["shared"]
    np.testing.assert_allclose(fit["eigenvalues"], model.generalized_eigenvalues_)
    assert fit["truncation"] == model.truncation_
    assert fit["n_pairs"] == len(row)
    assert fit["params"]["pairs"] == "mine"


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("pca_pp", {}),
        ("pca_pp", {"weighted": False, "exchangeable": False}),
        ("pca_pp", {"scale": False}),
        ("pca_plus", {}),
        ("pca_plus", {"scale": False, "exchangeable": False}),
    ],
)
def test_the_stored_table_of_the_fit_gives_the_scores(design, method, options):
    design.X[5, 3] = 500.0  # the scaling caps this value
    design.X[:, 2] = 1.0  # the scaling sets a constant gene to zero
    design.var["used"] = np.arange(40) != 7
    cx.pp.match_pairs(design, *DESIGN)
    getattr(cx.tl, method)(design, n_comps=2, mask_var="used", **options)
    loadings, table = design.varm[f"PCs_{method}"], design.varm[f"PCs_{method}_fit"]
    assert table.iloc[7].isna().all()
    assert not loadings[7].any()
    mean, cap, *filters = table.fillna(0).to_numpy().T
    scores = (np.minimum(design.X, cap) - mean) @ np.transpose(filters)
    np.testing.assert_allclose(scores, design.obsm[f"X_{method}"], atol=1e-9)
    assert loadings.shape == (40, 2)


def test_a_subset_keeps_its_own_pairs(design):
    cx.pp.match_pairs(design, *DESIGN)
    part = design[design.obs["donor"] == "d1"].copy()
    cx.tl.pca_pp(part, n_comps=2)
    assert part.uns["pca_pp"]["n_pairs"] == part.obsp["pairs"].nnz > 0
    stim = design[design.obs["condition"] == "stim"].copy()
    with pytest.raises(ValueError, match=r"has 0 pair.*subset to one condition"):
        cx.tl.pca_pp(stim)


@pytest.mark.usefixtures("one_cluster")
def test_the_report_leaves_adata_untouched_and_skips_unknown_cells(design, untouched):
    design.obsm["X_pca"] = design.X[:, :12]
    design.obs.loc[design.obs_names[:5], "cell_type"] = np.nan
    with untouched(design):
        report = cx.get.mixing_report(design, "condition", "cell_type")
    assert list(report.index) == ["X_pca"]
    known = design[5:].copy()
    pd.testing.assert_frame_equal(report, cx.get.mixing_report(known, "condition", "cell_type"))
