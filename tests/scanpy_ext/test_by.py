"""A contrast for each level of a column, in one call."""

from __future__ import annotations

import warnings
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control

import scanpy_ext as cx
from contrast_core import CPCA, ContrastWarning
from contrast_core.rows import Rows

DESIGN: dict[str, Any] = {"groupby": "condition", "reference": "ctrl"}
TYPES = ["T/NK", "B", "mono"]


def study(n_donors: int = 6, seed: int = 0, dtype: Any = np.float64) -> anndata.AnnData:
    """Cells of three types; the genes of a type answer, strongly in B, not at all in mono."""
    rng = np.random.default_rng(seed)
    n = 90 * n_donors
    kind, donor = rng.integers(0, 3, n), np.repeat(np.arange(n_donors), 90)
    stimulated = rng.random(n) < 0.5
    values = rng.normal(size=(n, 12)) + 0.3 * rng.normal(size=(n_donors, 12))[donor]
    values[:, 11] += 5 * kind
    for type_, (gene, size) in enumerate([(0, 3.0), (3, 5.0), (6, 0.0)]):
        values[:, gene] += size * (stimulated & (kind == type_))
    adata = anndata.AnnData(values.astype(dtype))
    adata.var_names = [f"gene{i}" for i in range(12)]
    adata.obs["cell_type"] = pd.Categorical(np.array(TYPES)[kind], TYPES)
    adata.obs["condition"] = np.where(stimulated, "stim", "ctrl")
    adata.obs["donor"] = np.char.add("d", donor.astype(str))
    adata.obs["dose"] = np.where(stimulated, np.where(rng.random(n) < 0.5, "low", "high"), "ctrl")
    return adata


def slot(level: str) -> str:
    return level.replace("/", "_")


@pytest.mark.parametrize("within", [None, "donor"])
def test_each_level_is_what_a_call_on_its_cells_gives(within: str | None) -> None:
    adata = study()
    options: dict[str, Any] = {"within": within}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContrastWarning)
        cx.tl.cpca(adata, **DESIGN, **options, by="cell_type")
        table = cx.get.contrasts(adata)
        assert table["level"].to_list() == [each for each in TYPES for _ in range(2)]
        for level in TYPES:
            here = (adata.obs["cell_type"] == level).to_numpy()
            alone = adata[here].copy()
            cx.tl.cpca(alone, **DESIGN, **options)
            entry, row = alone.uns["cpca"], table[table["level"] == level]
            np.testing.assert_allclose(row["alpha"], entry["alpha"])
            np.testing.assert_allclose(
                row["ratio"], entry["foreground_variance"] / entry["background_variance"]
            )
            assert row["n_foreground"].iloc[0] == entry["n_foreground"]
            np.testing.assert_allclose(
                adata.varm[f"PCs_cpca_{slot(level)}"], alone.varm["PCs_cpca"]
            )
            found = adata.obsm[f"X_cpca_{slot(level)}"]
            assert found.shape == (adata.n_obs, 2)
            np.testing.assert_allclose(found[here], alone.obsm["X_cpca"], atol=1e-9)
    assert not {"X_cpca", "PCs_cpca"} & {*adata.obsm, *adata.varm}


def test_it_says_which_types_answer_and_by_which_genes() -> None:
    adata = study()
    cx.tl.cpca(
        adata, **DESIGN, by="cell_type", n_comps=1, n_permutations=99, donor="donor", alpha="auto"
    )
    table = cx.get.contrasts(adata).set_index("level")
    leading = table["top_genes"].str.split(", ").str[0]
    assert leading["T/NK"] == "gene0"
    assert leading["B"] == "gene3"
    assert table.loc["B", "ratio"] > table.loc["T/NK", "ratio"] > table.loc["mono", "ratio"]
    assert (table.loc[["T/NK", "B"], "p_adjusted"] <= 0.05).all()
    assert table.loc["mono", "p_value"] > 0.05
    np.testing.assert_allclose(table["p_adjusted"], false_discovery_control(table["p_value"]))


def test_a_column_of_conditions_takes_each_against_the_reference() -> None:
    adata = study()
    cx.tl.cpca(adata, groupby="dose", reference="ctrl", by="dose", alpha=1.0)
    table = cx.get.contrasts(adata)
    assert table["level"].unique().tolist() == ["high", "low"]
    alone = study()
    cx.tl.cpca(alone, groupby="dose", reference="ctrl", groups="low", alpha=1.0)
    np.testing.assert_allclose(adata.varm["PCs_cpca_low"], alone.varm["PCs_cpca"])
    np.testing.assert_allclose(adata.obsm["X_cpca_low"], alone.obsm["X_cpca"], atol=1e-12)
    several = study()
    several.obs["batch"] = np.where(np.arange(several.n_obs) % 2, "one", "two")
    several.obs["arm"] = several.obs["dose"].where(
        several.obs["dose"] != "ctrl", "ctrl " + several.obs["batch"]
    )
    cx.tl.cpca(several, groupby="arm", reference=["ctrl one", "ctrl two"], by="arm", alpha=1.0)
    np.testing.assert_allclose(several.varm["PCs_cpca_low"], alone.varm["PCs_cpca"])


def test_files_are_read_once_and_give_the_same(tmp_path: Any, monkeypatch: Any) -> None:
    adata = study()
    adata.write_h5ad(tmp_path / "cells.h5ad")
    cx.tl.cpca(adata, **DESIGN, by="cell_type", alpha=1.0)
    read: list[int] = []
    whole = Rows.read

    def counted(self: Any, start: int, stop: int, **options: Any) -> Any:
        block = whole(self, start, stop, **options)
        read.append(block.shape[0])
        return block

    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with monkeypatch.context() as patched:
        patched.setattr(Rows, "read", counted)
        cx.tl.cpca(backed, **DESIGN, by="cell_type", alpha=1.0)
    assert sum(read) == 2 * adata.n_obs  # for the moments, and to embed the cells
    for level in map(slot, TYPES):
        np.testing.assert_allclose(
            backed.varm[f"PCs_cpca_{level}"], adata.varm[f"PCs_cpca_{level}"]
        )
        np.testing.assert_allclose(
            backed.obsm[f"X_cpca_{level}"], adata.obsm[f"X_cpca_{level}"], atol=1e-12
        )
    cx.tl.cpca(backed, **DESIGN, by="cell_type", alpha=1.0, within="donor")
    cx.tl.cpca(adata, **DESIGN, by="cell_type", alpha=1.0, within="donor")
    np.testing.assert_allclose(backed.obsm["X_cpca_B"], adata.obsm["X_cpca_B"], atol=1e-9)
    backed.file.close()


def test_results_are_written_to_files_and_replace_those_before(tmp_path: Any) -> None:
    adata = study(dtype=np.float32)
    cx.tl.cpca(adata, **DESIGN, alpha=1.0)
    cx.tl.cpca(adata, **DESIGN, by="cell_type", alpha=1.0)
    assert not [name for name in adata.var if name.startswith("cpca")]
    assert adata.obsm["X_cpca_B"].dtype == np.float32
    adata.write_h5ad(tmp_path / "cells.h5ad")
    with h5py.File(tmp_path / "cells.h5ad") as file:
        assert "cpca" in file["uns"]
    pd.testing.assert_frame_equal(
        cx.get.contrasts(anndata.read_h5ad(tmp_path / "cells.h5ad")),
        cx.get.contrasts(adata),
        check_dtype=False,
    )
    cx.tl.cpca(adata, **DESIGN, by="donor", alpha=1.0)
    assert {*adata.obsm} == {f"X_cpca_d{i}" for i in range(6)}
    cx.tl.cpca(adata, **DESIGN, alpha=1.0)
    assert [*adata.obsm, *adata.varm] == ["X_cpca", "PCs_cpca", "PCs_cpca_fit"]


def test_an_embedding_has_loadings_on_its_dimensions() -> None:
    adata = study()
    adata.obsm["X_pca"] = np.asarray(adata.X)[:, :5]
    cx.tl.cpca(adata, **DESIGN, by="cell_type", obsm="X_pca", alpha=1.0, key_added="mine")
    assert cx.get.contrasts(adata, key="mine").iloc[0]["top_genes"].startswith("pca1")
    table = cx.get.loadings(adata, key="mine", level="T/NK")
    assert table.index.to_list() == [f"pca{i}" for i in range(1, 6)]
    assert not adata.varm


def test_levels_with_few_cells_are_left_out_with_a_warning() -> None:
    adata = study()
    kinds = adata.obs["cell_type"].astype(object)
    kinds.iloc[:12] = "rare"
    kinds.iloc[12:40] = None
    adata.obs["cell_type"] = kinds
    with pytest.warns(ContrastWarning, match=r"1 level\(s\) of .*fewer than 10 .*'rare'"):
        cx.tl.cpca(adata, **DESIGN, by="cell_type", alpha=1.0)
    assert cx.get.contrasts(adata)["level"].unique().tolist() == sorted(TYPES)
    with pytest.warns(ContrastWarning, match=r"1 level\(s\) have no p-value \('B'\); 'B': .*20"):
        adata.obs.loc[adata.obs["cell_type"] == "B", "donor"] = "d0"
        cx.tl.cpca(
            _without(adata, "rare"),
            **DESIGN,
            by="cell_type",
            alpha=1.0,
            n_permutations=20,
            donor="donor",
        )


def _without(adata: anndata.AnnData, level: str) -> anndata.AnnData:
    return adata[(adata.obs["cell_type"] != level).to_numpy()].copy()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "nope"}, "by: adata.obs has no column 'nope'"),
        ({"by": "cell"}, "by: no level of adata.obs..cell.. has 10 cells of the background"),
        ({"by": "twins"}, "levels 'a/b', 'a_b' .* differ by '/' and '_' alone"),
        ({"n_permutations": 9}, "are for by="),
        ({"donor": "donor"}, "are for by="),
        ({"by": "cell_type", "donor": "donor"}, "without n_permutations="),
        ({"by": "cell_type", "donor": "condition", "n_permutations": 9}, "donor and groupby are"),
        ({"by": "cell_type", "n_permutations": 0}, "n_permutations"),
        ({"by": "cell_type", "n_permutations": 9, "donor": "one"}, "no level can be tested; 'T/NK"),
        ({"by": "cell_type", "alpha": -1}, "alpha"),
    ],
)
def test_what_does_not_fit_is_refused(
    options: dict[str, Any], message: str, untouched: Any
) -> None:
    adata = study()
    adata.obs["one"] = "all"
    adata.obs["cell"] = [f"cell {i}" for i in range(adata.n_obs)]
    adata.obs["twins"] = np.where(np.arange(adata.n_obs) % 3, "a/b", "a_b")
    with untouched(adata), pytest.raises(ValueError, match=message):
        cx.tl.cpca(adata, **DESIGN, **options)


def test_other_functions_name_what_they_need(untouched: Any) -> None:
    adata, other = study(), study(seed=1)
    with untouched(adata), pytest.raises(ValueError, match=r"another AnnData as the background"):
        cx.tl.cpca(adata, background=other, by="cell_type")
    cx.tl.cpca(adata, **DESIGN, by="cell_type", alpha=1.0)
    with untouched(adata):
        for call in (cx.tl.denoise, lambda a: cx.tl.project(a, a)):
            with pytest.raises(ValueError, match=r"a contrast for each level of .*cell_type"):
                call(adata)
        with pytest.raises(ValueError, match=r"level=None of .*it has 'T/NK', 'B', 'mono'"):
            cx.get.top_genes(adata)
        with pytest.raises(ValueError, match=r"no result 'x' of scanpy_ext.tl.cpca with by="):
            cx.get.contrasts(adata, key="x")
    assert cx.get.top_genes(adata, level="B", n=1).index.to_list() == ["gene3"]


def test_masks_are_taken_level_by_level() -> None:
    adata = study()
    adata.obs["all"], adata.obs["ctrl"] = True, adata.obs["condition"] == "ctrl"
    cx.tl.cpca(adata, foreground="all", background="ctrl", by="cell_type", alpha=0.5)
    values, here = np.asarray(adata.X), (adata.obs["cell_type"] == "B").to_numpy()
    core = CPCA(alpha=0.5).fit(values[here], background=values[here & adata.obs["ctrl"]])
    np.testing.assert_allclose(adata.varm["PCs_cpca_B"], core.components_.T)


def test_what_is_said_of_every_level_is_said_once() -> None:
    adata = study()
    with pytest.warns(ContrastWarning, match="More permutations are needed") as said:
        cx.tl.cpca(adata, **DESIGN, by="cell_type", n_permutations=9, donor="donor")
    assert len(said) == 1
    assert str(said[0].message).startswith("of 3 level(s), 'T/NK', 'B', 'mono'")


def test_what_is_said_of_one_level_names_it() -> None:
    adata = study()
    adata.X[(adata.obs["cell_type"] == "B").to_numpy(), 11] = 0.0
    with pytest.warns(ContrastWarning, match=r"of 1 level\(s\), 'B': the last 1 of 12") as said:
        cx.tl.cpca(adata, **DESIGN, by="cell_type", n_comps=12)
    assert len(said) == 1
