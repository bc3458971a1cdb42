"""Tests of `tl.significance`: agreement with the core, designs of donors, and errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

import scanpy_ext as cx
from contrast_core import CPCA, PCPCA, CPCAStar, bootstrap_stability, condition_test

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
APART = {"foreground": "is_stim", "background": "is_ctrl"}
FEW = {"n_resamples": 2}


@pytest.fixture
def donors(cells):
    """Return cells of eight donors, four for each condition."""
    cells.obs["donor"] = np.array([f"d{i}" for i in range(8)])[np.arange(200) // 25]
    cells.obs["side"] = np.arange(200) % 100 < 50
    return cells


@pytest.mark.parametrize(
    ("method", "make", "strength"),
    [("cpca", CPCA, "alpha"), ("cpca_star", CPCAStar, "beta"), ("pcpca", PCPCA, "gamma")],
)
def test_significance_agrees_with_condition_test_of_the_core(donors, method, make, strength):
    front, back = (donors.obs[name].to_numpy() for name in ("is_stim", "is_ctrl"))
    owner = donors.obs["donor"].to_numpy(str)
    data = {
        "background": donors.X[back],
        "units": owner[front],
        "background_units": owner[back],
        "random_state": 4,
    }
    arguments = {"strength": 0.1, "n_permutations": 30, "n_resamples": 5, "random_state": 4}
    options = {"donor": "donor", "method": method, "test_kwargs": arguments}
    model = make(2, **{strength: 0.1})
    for include, design in ((True, REFERENCE), (False, APART)):
        cx.tl.significance(donors, **design, **options)
        core = condition_test(
            model, donors.X[front], include_background=include, n_permutations=30, **data
        )
        found = donors.uns["significance"]["components"]
        np.testing.assert_allclose(found["statistic"], core.statistics)
        np.testing.assert_allclose(found["p_value"], core.p_values)
        quantiles = np.quantile(core.null_statistics, [0.5, 0.95], axis=0)
        np.testing.assert_allclose(found[["null_median", "null_95"]].T, quantiles)
    np.testing.assert_allclose(found["strength"], core.strengths)
    assert list(found.index) == ["component 1", "component 2"]
    resampled = bootstrap_stability(model, donors.X[front], n_resamples=5, **data)
    np.testing.assert_allclose(found["stability"], resampled.component_stability)
    np.testing.assert_allclose(found["retention"], resampled.component_retention)
    other, adata = donors[back].copy(), donors[front].copy()
    cx.tl.significance(adata, background=other, **options)
    pd.testing.assert_frame_equal(adata.uns["significance"]["components"], found)


def test_treated_and_control_donors_are_relabelled(donors):
    """Check that relabelling donors detects a shift of all four treated donors."""
    cx.tl.significance(donors, donor="donor", **REFERENCE, n_comps=1, test_kwargs=FEW)
    result = donors.uns["significance"]
    assert result["n_permutations"] == 70  # the number of ways to choose 4 of 8 donors
    assert (result["unit"], result["exploratory"]) == ("donor", False)
    assert result["smallest_p_value"] == pytest.approx(1 / 70)
    assert result["components"]["p_value"].iloc[0] <= 0.05
    assert (result["n_foreground_units"], result["n_background_units"]) == (4, 4)
    few = donors[donors.obs["donor"] != "d7"].copy()  # one treated donor is removed
    cx.tl.significance(few, donor="donor", **REFERENCE, n_comps=1, test_kwargs=FEW)
    result = few.uns["significance"]
    assert (result["n_foreground_units"], result["n_background_units"]) == (3, 4)


def test_designs_that_cannot_be_tested_with_donors_are_refused(donors, untouched):
    donors.obs["half"] = donors.obs["is_ctrl"] & donors.obs["side"]
    donors.obs["most"] = donors.obs["is_stim"] | donors.obs["half"]
    donors.obs["two"] = np.where(donors.obs["side"], "a", "b")
    donors.obs["unknown"] = donors.obs["donor"].where(donors.obs_names != "cell5", None)
    donors.obs["lone"] = np.where(donors.obs["donor"] == "d7", "stim", "ctrl")
    lone = REFERENCE | {"groupby": "lone"}
    with untouched(donors):
        for donor, design, message in [
            (
                "donor",
                APART | {"foreground": "most"},
                "50 of the 100 background cells are in the f",
            ),
            ("donor", APART | {"foreground": "is_ctrl"}, "are the same cells"),
            ("condition", REFERENCE, "donor and groupby are both 'condition'"),
            ("two", REFERENCE, r"4 ways to say which units are fore.* 3 units against 3"),
            ("unknown", REFERENCE, "1 foreground or background cells have no value"),
            ("donor", lone, r"only 8 ways .* no p-value can be below 0\.12"),
        ]:
            with pytest.raises(ValueError, match=message):
                cx.tl.significance(donors, donor=donor, **design)


@pytest.mark.parametrize("in_both_sets", [True, False])
def test_without_donors_p_values_are_called_exploratory(in_both_sets):
    """Check a strong effect with and without the reference cells in the foreground."""
    rng = np.random.default_rng(0)
    adata = AnnData(rng.normal(size=(160, 6)))
    is_control = np.arange(160) < 80
    adata.obs["condition"] = np.where(is_control, "ctrl", "stim")
    adata.X[80:, 0] += 4.0 + 3.0 * rng.normal(size=80)
    design = REFERENCE if in_both_sets else {"foreground": ~is_control, "background": is_control}
    arguments = FEW | {"n_permutations": 19}
    cx.tl.significance(adata, donor=None, **design, n_comps=1, test_kwargs=arguments)
    result = adata.uns["significance"]
    assert "p_value" not in result["components"]
    assert result["components"]["exploratory_p_value"].iloc[0] == pytest.approx(1 / 20)
    assert result["exploratory"] is True
