"""Tests of `pp.contrast_check` on designs with known faults."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from anndata import AnnData
from scipy.stats import poisson

import scanpy_ext as cx
from contrast_core import ContrastWarning, cross_fitted_ratio

REFERENCE = {"groupby": "condition", "reference": "ctrl"}


@pytest.fixture
def design():
    """Return 400 cells of two donors, two types and two conditions.

    Gene 0 responds to the treatment, and gene 1 separates the types.
    """
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 8)) + 3
    stim, donor_b, monocyte = ((np.arange(400) // k) % 2 == 1 for k in (1, 2, 4))
    values[stim, 0] += 6
    values[monocyte, 1] += 6
    adata = AnnData(np.maximum(values, 0).astype("float32"))
    adata.obs["condition"] = np.where(stim, "stim", "ctrl")
    adata.obs["donor"] = np.where(donor_b, "b", "a")
    adata.obs["type"] = pd.Categorical(
        np.where(monocyte, "mono", "T"), categories=["T", "mono", "no"]
    )
    adata.obs["plate"] = adata.obs["condition"] + " plate"
    return adata


def check(adata, **arguments):
    cx.pp.contrast_check(adata, **{**REFERENCE, "donor": "donor", "cell_type": "type"} | arguments)
    return adata.uns["contrast_check"]


def treated_only(adata):
    """Return the arguments of a contrast whose foreground holds treated cells only."""
    stim = (adata.obs["condition"] == "stim").to_numpy()
    return {"groupby": None, "reference": None, "foreground": stim, "background": ~stim}


def test_controls_of_two_donors_have_much_smaller_ratios_than_the_contrast(kang):
    """Contrast the control cells of two donors with each other, as a comparison without an effect.

    The ratios of these null contrasts are 1.1 to 1.4, less than a fifth of the contrast's ratio.
    """
    kang.obs["control"] = (kang.obs["condition"] == "ctrl").to_numpy()
    design = {"foreground": "donor_101", "background": "control_107", "mask_var": "most_variable"}
    with pytest.warns(ContrastWarning, match="no donor has cells in both sets"):
        cx.pp.contrast_check(kang, **design, donor="donor", controls="control")
    ratios = kang.uns["contrast_check"]["ratios"]
    nulls = ratios["relative"].iloc[1:]
    assert list(nulls.index) == ["101 / 107", "107 / 101"]
    assert nulls.between(1.1, 1.4).all()
    assert ratios["relative"].iloc[0] > 5 * nulls.max()
    assert set(ratios["unit"]) == {"cell"}
    assert "exploratory" in kang.uns["contrast_check"]["checks"].loc["ratio", "message"]


def test_a_contrast_within_donors_is_judged_by_relabelling_them(design):
    """Check six donors whose differences are larger than the effect of the treatment.

    There are 64 relabellings, so the smallest possible p-value is 1/64.
    """
    rng = np.random.default_rng(0)
    donor = np.arange(400) // 4 % 6
    design.obs["donor"] = [f"d{i}" for i in donor]
    design.X = design.X + 3 * np.abs(rng.normal(size=(6, 8)))[donor]
    result = check(design, donor=None, within="donor")
    assert result["sound"] == "yes"
    assert 1 / 64 <= result["p_value"] <= 2 / 64
    assert list(result["ratios"].index) == ["contrast"]
    assert result["checks"].loc["donor", "sound"]
    shuffled = design.copy()
    shuffled.obs["condition"] = rng.permutation(design.obs["condition"])
    with pytest.warns(ContrastWarning, match=r"ratio: .* within donors .* p = "):
        assert check(shuffled, donor=None, within="donor")["sound"] == "no"
    few = design[donor < 3].copy()
    result = check(few, donor=None, within="donor")  # there are 8 ways to relabel three donors
    assert result["sound"] == "unknown"
    assert list(result["not_checked"]) == ["within"]


def test_a_difference_in_sequencing_depth_is_reported(kang):
    """Compare control cells of one donor; half of them keep only three tenths of their counts."""
    counts = kang[(kang.obs["donor"] == "101") & (kang.obs["condition"] == "ctrl")].copy()
    rng = np.random.default_rng(0)
    thin = rng.random(counts.n_obs) < 0.5
    counts.X = np.expm1(counts.X.toarray())
    kept = np.rint(counts.X / counts.X.max() * 60)
    kept[thin] = rng.binomial(kept[thin].astype(int), 0.3)
    counts.X = kept.astype("float32")
    sc.pp.normalize_total(counts, target_sum=1e4)
    sc.pp.log1p(counts)
    counts.obs["half"] = np.where(thin, "thin", "deep")
    with pytest.warns(ContrastWarning, match="depth: the median .* The latter have more genes in"):
        cx.pp.contrast_check(counts, groupby="half", reference="deep", mask_var=None)
    assert counts.uns["contrast_check"]["sound"] == "no"


# If the foreground has no controls, the check finds no effect and warns about the ratio.
@pytest.mark.filterwarnings("ignore:.*ratio")
def test_null_contrasts_have_the_design_of_the_contrast_and_use_every_donor(design):
    design.obs["donor"] = [f"d{i // 2 % 5}" for i in range(400)]
    result = check(design)
    nulls = [name.split(" / ") for name in result["ratios"].index[1:]]
    assert len(nulls) == 12
    for place in (0, 1):
        names, times = np.unique([pair[place] for pair in nulls], return_counts=True)
        assert len(names) == 5
        assert times.max() - times.min() <= 1
    # As in the contrast of all cells, the foreground of the null contrasts contains controls.
    fewer = cells_without(design, donor="d0", keep=39)  # a donor needs 40 control cells
    alone = check(fewer, **treated_only(fewer))["ratios"]
    assert not alone.index.str.contains("d0").any()
    together = result["ratios"]["relative"].iloc[1:]
    assert together.median() < alone["relative"].iloc[1:].median()
    rows = (design.obs["condition"] == "ctrl").to_numpy()
    a, b = (rows & (design.obs["donor"] == name).to_numpy() for name in nulls[0])
    found = cross_fitted_ratio(
        design.X[a | b], background=design.X[b], n_components=2, n_splits=5, random_state=0
    )
    assert result["ratios"]["ratio"].iloc[1] == pytest.approx(found.ratio, rel=1e-4)


def test_the_p_value_of_relabelled_donors_decides_whether_a_design_is_sound(design):
    """Check six donors with cells on both sides; the smallest possible p-value is 1/64."""
    design.obs["donor"] = [f"d{i // 4 % 6}" for i in range(400)]
    result = check(design)
    assert result["p_value"] <= 2 / 64
    assert result["checks"].loc["ratio", "sound"]
    assert "PCA does as well" in result["checks"].loc["advice", "message"]
    design.X[:, 0] = design.X[:, 2]  # this removes the effect of the treatment
    with pytest.warns(ContrastWarning, match="ratio: .* by relabelling donors"):
        result = check(design)
    assert result["p_value"] > 0.05
    assert not result["checks"].loc["ratio", "sound"]
    assert result["checks"].loc["advice", "message"].startswith("Nothing to find")


def test_a_sound_design_passes_and_skipped_checks_are_unknown(design):
    result = check(design)
    assert result["sound"] == "yes"
    # Two donors are too few for a p-value by relabelling, so the advice counts alone.
    assert "PCA does as well" in result["checks"].loc["advice", "message"]
    assert list(result["not_checked"]) == []
    names = ["values", "genes", "depth", "composition", "donor", "ratio", "advice"]
    assert list(result["checks"].index) == names
    assert result["checks"]["sound"].all()
    counts = result["counts"]
    assert list(counts.columns) == ["donor", "cell_type", "foreground", "background"]
    assert (counts["foreground"].sum(), counts["background"].sum()) == (400, 200)
    ratios = result["ratios"]
    assert list(ratios.index) == ["contrast", "a / b", "b / a"]
    assert list(ratios["null"]) == [False, True, True]
    assert list(ratios["unit"]) == ["donor", "cell", "cell"]
    assert ratios["relative"].iloc[0] > 2 * ratios["relative"].iloc[1:].max()
    monocytes = (design.obs["type"] == "mono") & (design.obs["condition"] == "ctrl")
    lacking = design[~monocytes.to_numpy()].copy()
    for adata, donor, missing in [
        (design, None, ["cell_type", "donor"]),
        (lacking, "donor", ["cell_type"]),
    ]:
        result = check(adata, donor=donor, cell_type=None)
        assert result["sound"] == "unknown"
        assert list(result["not_checked"]) == missing
    # The ratio has no fixed threshold, so a weak but real effect is not called unsound.
    design.X = np.abs(np.random.default_rng(0).normal(size=design.shape))
    design.X[design.obs["condition"] == "stim", 0] += 1.0
    result = check(design, donor=None, cell_type=None)
    assert result["ratios"]["relative"].iloc[0] < 1.5
    assert result["sound"] == "unknown"
    assert "decides nothing" in result["checks"].loc["ratio", "message"]


def cells_without(adata, *, donor=None, kind=None, condition="ctrl", keep=0):
    """Return the cells after removing the cells of a donor or type in one condition.

    The first `keep` of these cells are not removed.
    """
    gone = (adata.obs["condition"] == condition).to_numpy(copy=True)
    for column, level in (("donor", donor), ("type", kind)):
        if level is not None:
            gone &= (adata.obs[column] == level).to_numpy()
    gone[np.flatnonzero(gone)[:keep]] = False
    return adata[~gone].copy()


# There are only three donors to split, so there is a warning about the ratio.
@pytest.mark.filterwarnings("ignore:.*ratio")
def test_small_faults_are_reported_but_do_not_make_a_design_unsound(design):
    rare = np.flatnonzero(design.obs["condition"] == "stim")[:6]  # 1.5% of the foreground
    design.obs["type"] = design.obs["type"].cat.add_categories("rare")
    design.obs.iloc[rare, design.obs.columns.get_loc("type")] = "rare"
    result = check(design)
    assert result["sound"] == "yes"
    assert "'rare'. They are 1.5% of the" in result["checks"].loc["composition", "message"]
    design.obs.loc[(design.obs["donor"] == "b") & (np.arange(400) < 40), "donor"] = "c"
    checks = check(cells_without(design, donor="c", condition="stim"))["checks"]
    message = checks.loc["donor", "message"]
    assert message == "donors with cells in both sets: 2; in one set only: 'c'"


@pytest.mark.filterwarnings("ignore:the contrast may not be sound")
def test_four_background_cells_are_needed_for_the_ratio(design):
    for n, rows in ((3, []), (4, ["contrast"])):
        few = cells_without(design, keep=n)
        assert list(check(few, donor=None)["ratios"].index) == rows


def test_many_small_types_that_are_missing_together_are_reported(design):
    """Check 240 small cell types, each with less than 1% of the cells.

    At first some types are missing from the background by chance only. Then all types of monocytes
    are missing from it.
    """
    rng = np.random.default_rng(1)
    drawn = rng.integers(400, size=1600)
    table = design.obs.iloc[drawn].set_axis([f"cell {i}" for i in range(1600)])
    table["fine"] = table["type"].astype(str) + rng.integers(120, size=1600).astype(str)
    many = AnnData(design.X[drawn], obs=table)
    composition = check(many, cell_type="fine")["checks"].loc["composition"]
    assert composition["sound"]
    numbers = table["fine"].value_counts()  # the controls are in the foreground too
    expected = numbers * (table["condition"] == "ctrl").mean()
    less = [poisson.pmf(range(100), each)[np.arange(100) < each / 5].sum() for each in expected]
    by_chance = np.average(less, weights=numbers)
    assert f"by chance alone, such types would be {by_chance:.1%} of" in composition["message"]
    lacking = cells_without(many, kind="mono")
    with pytest.warns(ContrastWarning, match="composition: .* and .* more. They are 5.* of the"):
        check(lacking, cell_type="fine", **treated_only(lacking))


def test_results_of_the_check_are_plotted(design, untouched):
    with untouched(design):
        copied = cx.pp.contrast_check(design, **REFERENCE, copy=True)
    assert list(copied.uns["contrast_check"]["counts"].columns) == ["foreground", "background"]
    check(design)
    cells, ratio = cx.pl.contrast_check(design, show=False)
    assert [label.get_text() for label in cells.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in cells.get_xticklabels()] == ["T", "mono"]
    assert [text.get_text() for text in cells.texts] == ["100/50"] * 4
    assert len(ratio.patches) == 3
    fewer = cells_without(design, kind="mono", keep=20)
    check(fewer)
    cells, _ = cx.pl.contrast_check(fewer, show=False)
    [image] = cells.images
    dark = np.abs(image.get_array().ravel()) > image.get_clim()[1] / 2
    assert [text.get_color() == "white" for text in cells.texts] == list(dark)
    assert set(dark) == {False, True}


def test_faults_of_the_design_are_named(design):
    def valued(values):
        return AnnData(values, design.obs)

    nested = cells_without(cells_without(design, donor="b"), donor="a", condition="stim")
    mostly_b = cells_without(design, donor="b", condition="ctrl")
    mostly_b = cells_without(mostly_b, donor="a", condition="stim", keep=60)
    # Gene 2 varies most in treated cells, and gene 3 in controls.
    one_sided = np.array(design.X)
    one_sided[:, 1] *= 1.5
    treated = treated_only(design)["foreground"]
    for gene, cells, times in ((2, treated, 10), (3, ~treated, 4)):
        one_sided[cells, gene] = 3 + times * (one_sided[cells, gene] - 3)
    chosen = treated_only(design) | {"mask_var": np.isin(np.arange(8), [1, 2])}
    for adata, arguments, message in [
        (
            cells_without(design, kind="mono"),
            treated_only,
            "not be sound.*composition: .*no or few cells .*: 'mono'. They are 50.0%",
        ),
        (cells_without(design, kind="mono", keep=5), treated_only, "'mono'. They are 50.0% of"),
        (design, {"batch": "plate"}, "batch: no batch has cells in both sets"),
        (nested, {}, "donor: no donor has cells in both sets"),
        (mostly_b, treated_only, "cells in both sets: 1; in one set only: 'b'"),
        (valued(np.rint(design.X * 3)), {}, "values: the values look like raw counts"),
        (valued(np.expm1(design.X)), {}, "too large for logarithms of counts"),
        (design, {"mask_var": np.arange(8) > 5}, "genes: 2 of the 2 genes of largest variance"),
        (valued(design.X[:, [2, *range(1, 8)]]), {}, "ratio: the cross-fitted ratio"),
        (valued(one_sided), chosen, "gene choice: 100% of the foreground's 2 most variable"),
    ]:
        with pytest.warns(ContrastWarning, match=message):
            result = check(adata, **(arguments(adata) if callable(arguments) else arguments))
        assert result["sound"] == "no"
