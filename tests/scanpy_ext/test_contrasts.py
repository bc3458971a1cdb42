"""Tests of `tl.contrasts`: the ranking, donors, the slots that it writes, and the plot.

`tl.contrasts` makes one contrast for each level of a column, such as each cell type.
"""

from __future__ import annotations

from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import scanpy_ext as cx
from scanpy_ext.tl import _responses

DESIGN: dict[str, Any] = {"groupby": "condition", "reference": "ctrl"}


def study(
    sizes: dict[str, int], responds: str | None = None, seed: int = 0, n_donors: int = 5
) -> anndata.AnnData:
    """Return log counts of cells; treated cells of type `responds` have five genes raised."""
    rng = np.random.default_rng(seed)
    kind = np.repeat(list(sizes), list(sizes.values()))
    n, d = len(kind), 60
    donor, stimulated = rng.integers(n_donors, size=n), rng.random(n) < 0.5
    rates = rng.normal(0.5, 0.7, d) + 0.4 * rng.normal(size=(n, 3)) @ rng.normal(size=(3, d))
    rates += 0.2 * rng.normal(size=(n_donors, d))[donor] + rng.normal(0, 0.2, (n, 1))
    rates[:, :5] += 0.8 * (stimulated & (kind == responds))[:, None]
    counts = rng.poisson(np.exp(np.clip(rates, -5, 4)))
    adata = anndata.AnnData(sp.csr_matrix(np.log1p(counts).astype(np.float32)))
    adata.var_names = [f"gene{i}" for i in range(d)]
    adata.obs["cell_type"] = pd.Categorical(kind)
    adata.obs["condition"] = np.where(stimulated, "stim", "ctrl")
    adata.obs["donor"] = np.char.add("d", donor.astype(str))
    adata.obs["dose"] = np.where(stimulated, np.where(rng.random(n) < 0.5, "low", "high"), "ctrl")
    return adata


SIZES = {"a": 1500, "b": 800, "c": 400, "d/e": 200, "f": 100, "g": 60}


def test_levels_are_ranked_by_evidence_first_and_by_ratio_second() -> None:
    """Check that level a, whose interval is just above 1 by chance, is not ranked first.

    If no level responds, one in eight tables of six levels has such an interval.
    """
    table = pd.DataFrame(np.nan, index=[*"abcdef"], columns=list(_responses._ROW))
    table["ratio"] = [1.007, 0.99, 1.0, 1.0, 1.5, 1.0]
    table["ratio_low"] = [1.001, 0.9, 0.9, 0.9, 0.9, 0.9]
    p_values = {"a": 0.024, "b": 0.9, "c": 0.5, "d": 0.4, "e": 0.026, "f": 0.6}
    assert list(_responses._sorted(table.copy(), p_values).index[:2]) == ["e", "a"]
    assert _responses._sorted(table.copy(), p_values | {"a": 0.001}).index[0] == "a"
    both_small = p_values | {"a": 0.001, "b": 0.001}
    # Level b has a small p-value too, but its interval contains 1.
    assert list(_responses._sorted(table.copy(), both_small).index[:2]) == ["a", "e"]
    assert _responses._sorted(table.copy(), p_values)["p_adjusted"].isna().all()


def table_of(adata: anndata.AnnData, **options: Any) -> pd.DataFrame:
    cx.tl.contrasts(adata, **DESIGN | {"by": "cell_type"} | options)
    return cx.get.contrasts(adata, key=options.get("key_added", "contrasts"))


@pytest.mark.parametrize("responds", ["a", "c", "f"])
def test_the_responding_type_comes_first_at_any_size(responds: str) -> None:
    for seed in range(3):
        table = table_of(study(SIZES, responds, seed))
        assert table.index[0] == responds
        # Type f has only 100 cells, about half of them treated, so its interval can contain 1.
        assert responds == "f" or table["ratio_low"].iloc[0] > 1
        named = [word.split(" ")[0] for word in table["top_genes"].iloc[0].split(", ")]
        assert set(named[:3]) <= {f"gene{i}" for i in range(5)}


def test_donors_give_p_values_adjusted_for_the_number_of_levels() -> None:
    adata = study({"a": 600, "b": 500, "c": 12}, "b")
    treated = (adata.obs["cell_type"] == "a") & (adata.obs["condition"] == "stim")
    adata.obs.loc[treated & (adata.obs["donor"] == "d0"), "donor"] = "d1"
    table = table_of(adata, donor="donor")
    assert table.index.to_list() == ["b", "a", "c"]
    assert table.loc["b", "p_adjusted"] < 0.05
    assert table.loc["b", "p_adjusted"] == pytest.approx(2 * table.loc["b", "p_value"])
    assert table.loc["a", "p_value"] > 0.05
    assert table.loc["a", "left_out"] == "d0"  # donor d0 has no treated cells of type a
    assert table.loc["a", "n_foreground_donors"] == 4
    assert table.loc["b", ["left_out", "interval"]].to_list() == ["", "over donors"]
    assert np.isnan(table.loc["c", "ratio"])
    assert "fewer than 10 cells" in table.loc["c", "reason"]
    dots, evidence = cx.pl.contrasts(adata, n_genes=3, show=False)
    assert [label.get_text() for label in dots.get_yticklabels()] == ["b", "a"]
    genes = [label.get_text() for label in dots.get_xticklabels()]
    assert len(genes) == len(set(genes)) <= 6
    assert set(genes[:3]) <= {f"gene{i}" for i in range(5)}
    assert [text.get_text() for text in dots.get_legend().get_texts()] == ["0.25", "0.5", "1"]
    drawn = dots.collections[0]
    largest = np.abs(drawn.get_array()).max()
    assert drawn.get_clim() == (-largest, largest)
    assert drawn.colorbar.ax.get_ylabel() == "loading"
    assert "over donors" in evidence.get_xlabel()


def test_too_few_donors_are_given_as_a_reason_and_not_as_an_error() -> None:
    adata = study({"a": 200, "b": 60}, n_donors=2)
    table = table_of(adata, donor="donor")
    assert table["ratio"].isna().all()
    assert "2 units have at least 10 rows in both" in table.loc["a", "reason"]
    assert adata.varm["contrasts"].shape == (60, 0)
    with pytest.raises(ValueError, match="no level could be compared"):
        cx.pl.contrasts(adata)


def test_nested_donors_are_compared_between_conditions() -> None:
    adata = study({"a": 900}, "a", n_donors=8)
    adata.obs["donor"] = adata.obs["donor"] + adata.obs["condition"]
    table = table_of(adata, donor="donor")
    assert table.loc["a", "p_value"] < 0.05
    assert table.loc["a", ["n_foreground_donors", "n_background_donors"]].to_list() == [8, 8]


def test_each_condition_is_compared_with_the_reference() -> None:
    adata = study({"a": 500}, "a")
    table = table_of(adata, groupby="dose", by="dose")
    assert sorted(table.index) == ["high", "low"]
    assert (table["n_background"] == (adata.obs["dose"] == "ctrl").sum()).all()
    one = table_of(adata, groupby="dose", by="dose", groups="low")
    assert one.loc["low", "ratio"] == table.loc["low", "ratio"]


def test_directions_and_stability_are_stored_for_each_gene() -> None:
    adata = study({"a": 300, "d/e": 200}, "a")
    adata.var["use"] = np.arange(60) < 40
    table = table_of(adata, mask_var="use")
    here = list(adata.uns["contrasts"]["levels"]).index("a")
    stability = adata.varm["contrasts_stability"]
    assert set(np.argsort(-adata.varm["contrasts"][:, here])[:5]) == set(range(5))
    assert not adata.varm["contrasts"][40:].any()
    assert stability[:5, here].min() > 0.9
    assert ((stability >= 0) & (stability <= 1)).all()
    adata.obsm["X_own"] = adata.X.toarray()[:, :8]
    table = table_of(adata, obsm="X_own", key_added="mine")
    assert adata.uns["mine"]["loadings"].shape == (8, 2)
    assert "mine" not in adata.varm
    assert table["top_genes"].iloc[0].startswith("own")
    figure = cx.pl.contrasts(adata, key="mine", return_fig=True)
    labels = {label.get_text() for label in figure.axes[0].get_xticklabels()}
    assert labels <= {f"own{i}" for i in range(1, 9)}
