"""Tests of `within=`, which centres cells by the means of their donors before the contrast."""

from __future__ import annotations

from typing import Any

import anndata
import numpy as np
import pytest
from anndata import AnnData
from sklearn.base import clone

import scanpy_ext as cx
from contrast_core import CLVM, CPCA, PCPCA, ContrastWarning, CPCAStar

pytestmark = pytest.mark.filterwarnings("ignore::contrast_core.ContrastWarning")

DESIGN: dict[str, Any] = {"groupby": "condition", "reference": "ctrl"}


@pytest.fixture
def adata(cells: AnnData) -> AnnData:
    """Return cells of three donors, which differ more than the two conditions do."""
    rng = np.random.default_rng(0)
    donor = rng.integers(0, 3, 200)
    cells.X = cells.X.astype(float) + 20 * rng.normal(size=(3, 12))[donor]
    cells.obs["donor"] = np.array(["a", "b", "c"])[donor]
    return cells


def test_new_cells_are_centred_by_their_donor(adata: AnnData, tmp_path: Any) -> None:
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


# The first embedding of `cpca_path` is PCA, which is cPCA with alpha = 0.
CORE = {
    "cpca": CPCA(),
    "cpca_star": CPCAStar(),
    "pcpca": PCPCA(),
    "clvm": CLVM(n_shared=2),
    "cpca_path": CPCA(alpha=0.0),
}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("name", CORE)
def test_results_agree_with_the_core_fitted_within_donors(
    name: str, apart: bool, adata: AnnData
) -> None:
    """Compare scores and denoised cells with the core's results for cells centred by their donor.

    The background is another AnnData if `apart` is true, and otherwise the cells of "ctrl".
    """
    other = adata[::2, :].copy()
    other.X += np.random.default_rng(1).normal(size=other.shape)
    behind = other if apart else adata[adata.obs["condition"] == "ctrl"]
    tool = getattr(cx.tl, name)
    tool(adata, **({"background": other} if apart else DESIGN), within="donor")
    assert adata.uns[name]["params"]["within"] == "donor"
    values, donor = np.asarray(adata.X), adata.obs["donor"].to_numpy(str)
    core = clone(CORE[name]).fit(
        values,
        background=np.asarray(behind.X),
        within=donor,
        background_within=behind.obs["donor"].to_numpy(str),
    )
    centred = values - adata.to_df().groupby(donor).transform("mean").to_numpy() + core.mean_
    found = adata.obsm["X_cpca_path_0" if name == "cpca_path" else f"X_{name}"]
    np.testing.assert_allclose(found, core.transform(centred), atol=1e-9)
    if name != "cpca_path":
        cx.tl.denoise(adata, key=name)
        np.testing.assert_allclose(adata.layers["denoised"], core.denoise(centred), atol=1e-9)
    del other.obs["donor"]
    with pytest.raises(ValueError, match="no column 'donor'"):
        tool(adata, background=other, within="donor")


def test_columns_that_cannot_be_centred_within_are_refused(adata: AnnData, untouched: Any) -> None:
    condition = (adata.obs["condition"] == "stim").to_numpy()
    # If each donor has one condition, the donor means contain the whole effect, and centring
    # removes it.
    adata.obs["nested"] = adata.obs["donor"] + condition.astype(str)
    adata.obs["half"] = adata.obs["donor"].where(condition | (adata.obs["donor"] != "c"), "d")
    adata.obs["gaps"] = adata.obs["donor"].where(np.arange(200) > 4)
    with untouched(adata):
        for column, message in [
            ("nested", r"within: no level of adata.obs\['nested'\] has"),
            ("condition", "within and groupby are both 'condition'"),
            ("gaps", "within: 5 cells have no value"),
            ("animal", "no column 'animal'"),
        ]:
            with pytest.raises(ValueError, match=message):
                cx.tl.cpca(adata, **DESIGN, within=column)
    message = "contribute nothing to the difference between the two sets: 'c', 'd'"
    with pytest.warns(ContrastWarning, match=message):
        cx.tl.cpca(adata, **DESIGN, within="half")
    # This call is valid: the foreground holds no reference cells, so it contains no difference
    # between conditions that centring could remove.
    cx.tl.cpca(adata, foreground=condition, background=~condition, within="nested")
