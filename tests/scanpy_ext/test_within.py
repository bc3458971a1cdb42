"""Tests of `within=`, which centres cells by the means of their donors before the contrast."""

from __future__ import annotations

from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import scanpy_ext as cx
from contrast_core import CPCA, ContrastWarning

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

DESIGN: dict[str, Any] = {"groupby": "condition", "reference": "ctrl"}


def study(seed: int = 0) -> anndata.AnnData:
    """Return cells of three donors, which differ more than the two conditions do."""
    rng = np.random.default_rng(seed)
    donors = np.array(["a", "b", "c"])[rng.integers(0, 3, 240)]
    stimulated = rng.random(240) < 0.5
    values = rng.normal(size=(240, 15)) + 6 * rng.normal(size=(3, 15))[pd.factorize(donors)[0]]
    values[:, :4] += 1.5 * stimulated[:, None]
    adata = anndata.AnnData(values)
    adata.obs["donor"] = donors
    adata.obs["condition"] = np.where(stimulated, "stim", "ctrl")
    return adata


def test_new_cells_are_centred_by_their_donor(tmp_path: Any) -> None:
    adata = study()
    adata.obs["donor"] = adata.obs["donor"].astype("category")
    old = adata[adata.obs["donor"] != "c"].copy()
    cx.tl.cpca(old, **DESIGN, within="donor")
    old.write_h5ad(tmp_path / "old.h5ad")
    old = anndata.read_h5ad(tmp_path / "old.h5ad")
    new = adata[:, ::-1].copy()
    cx.tl.project(new, old)
    kept = (adata.obs["donor"] != "c").to_numpy()
    np.testing.assert_allclose(new.obsm["X_cpca"][kept], old.obsm["X_cpca"], atol=1e-9)
    np.testing.assert_allclose(new.obsm["X_cpca"][~kept].mean(axis=0), 0, atol=1e-9)
    del new.obs["donor"]
    with pytest.raises(ValueError, match="no column 'donor'"):
        cx.tl.project(new, old)


@pytest.mark.parametrize("name", ["cpca", "cpca_star", "pcpca", "clvm", "cpca_path"])
def test_scores_are_centred_within_donors_and_show_the_condition(name: str, untouched: Any) -> None:
    adata, plain = study(), study()
    tool = getattr(cx.tl, name)
    tool(adata, **DESIGN, within="donor")
    found = adata.obsm["X_cpca_path_0" if name == "cpca_path" else f"X_{name}"]
    for donor in "abc":
        np.testing.assert_allclose(found[adata.obs["donor"] == donor].mean(axis=0), 0, atol=1e-9)
    condition = (adata.obs["condition"] == "stim").to_numpy()
    if name != "cpca_path":
        assert LinearDiscriminantAnalysis().fit(found, condition).score(found, condition) > 0.8
        tool(plain, **DESIGN)
        assert not np.allclose(plain.obsm[f"X_{name}"], found)
        assert adata.uns[name]["params"]["within"] == "donor"
    # If each donor has one condition, the donor means contain the whole effect, and centring
    # removes it.
    adata.obs["nested"] = adata.obs["donor"] + condition.astype(str)
    adata.obs["half"] = adata.obs["donor"].where(condition | (adata.obs["donor"] != "c"), "d")
    adata.obs["gaps"] = adata.obs["donor"].where(np.arange(240) > 4)
    with untouched(adata):
        for column, message in [
            ("nested", r"within: no level of adata.obs\['nested'\] has"),
            ("condition", "within and groupby are both 'condition'"),
            ("gaps", "within: 5 cells have no value"),
            ("animal", "no column 'animal'"),
        ]:
            with pytest.raises(ValueError, match=message):
                tool(adata, **DESIGN, within=column)
    with pytest.warns(
        ContrastWarning,
        match=r"contribute nothing to the difference between the two sets: 'c', 'd'",
    ):
        tool(adata, **DESIGN, within="half")
    # This call is valid: the foreground holds no reference cells, so it contains no difference
    # between conditions that centring could remove.
    tool(adata, foreground=condition, background=~condition, within="nested")


@pytest.mark.parametrize("apart", [False, True])
def test_the_result_agrees_with_the_core_within_groups(apart: bool) -> None:
    """Compare `cx.tl.cpca` with `CPCA` of `contrast_core`.

    The background is another AnnData if `apart` is true, and otherwise the cells of "ctrl".
    """
    adata, other = study(), study(1)
    behind = other if apart else adata[adata.obs["condition"] == "ctrl"]
    design = {"background": other} if apart else DESIGN
    cx.tl.cpca(adata, **design, within="donor")
    values, donor = np.asarray(adata.X), adata.obs["donor"].to_numpy(str)
    core = CPCA().fit(
        values,
        background=np.asarray(behind.X),
        within=donor,
        background_within=behind.obs["donor"].to_numpy(str),
    )
    np.testing.assert_allclose(adata.uns["cpca"]["alpha"], core.alpha_)
    if not apart:
        np.testing.assert_allclose(adata.obsm["X_cpca"], core.transform(values, within=donor))
    del other.obs["donor"]
    with pytest.raises(ValueError, match="no column 'donor'"):
        cx.tl.cpca(adata, background=other, within="donor")


@pytest.mark.parametrize("name", ["cpca", "pcpca"])
def test_denoised_cells_do_not_contain_differences_between_donors(name: str) -> None:
    adata, plain = study(), study()
    for one, options in ((adata, {"within": "donor"}), (plain, {})):
        getattr(cx.tl, name)(one, **DESIGN, **options)
        cx.tl.denoise(one, key=name)
    denoised = adata.layers["denoised"]
    assert not np.allclose(plain.layers["denoised"], denoised)
    mean = adata.varm[f"PCs_{name}_fit"]["mean"].to_numpy()
    for donor in "abc":
        here = (adata.obs["donor"] == donor).to_numpy()
        np.testing.assert_allclose(denoised[here].mean(axis=0), mean, atol=1e-9)
    if name == "cpca":
        expected = mean + adata.obsm["X_cpca"] @ adata.varm["PCs_cpca"].T
        np.testing.assert_allclose(denoised, expected, atol=1e-9)
