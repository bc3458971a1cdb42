"""Values and cells that are not what a contrast should be taken of: told, or refused."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scipy.sparse as sp
from anndata import AnnData

import scanpy_ext as cx
from contrast_core import ContrastWarning

REFERENCE: dict[str, Any] = {"groupby": "condition", "reference": "ctrl"}
TOOLS: dict[str, Any] = {
    "cpca": cx.tl.cpca,
    "cpca_star": cx.tl.cpca_star,
    "pcpca": cx.tl.pcpca,
    "cpca_path": cx.tl.cpca_path,
    "kernel_cpca": cx.tl.kernel_cpca,
    "significance": lambda a, **k: cx.tl.significance(
        a, donor="donor", **k, test_kwargs={"n_permutations": 20, "n_resamples": 2}
    ),
}


@pytest.fixture
def counts() -> AnnData:
    """240 cells of 8 donors, 30 genes, as counts; the first gene answers."""
    rng = np.random.default_rng(0)
    stim = np.arange(240) % 2 == 1
    rates = np.full((240, 30), 4.0) * rng.gamma(4.0, 0.25, size=30)
    rates[stim, 0] *= 6
    adata = AnnData(rng.poisson(rates).astype(np.float32))
    adata.obs["condition"] = np.where(stim, "stim", "ctrl")
    adata.obs["donor"] = [f"d{i // 2 % 8}" for i in range(240)]
    return adata


@pytest.fixture
def logs(counts: AnnData) -> AnnData:
    adata = counts.copy()
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    return adata


def warned(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ContrastWarning)
        call()
    return [str(one.message) for one in caught if one.category is ContrastWarning]


@pytest.mark.parametrize("name", TOOLS)
def test_counts_and_scaled_genes_are_told_and_logarithms_are_not(
    name: str, counts: AnnData, logs: AnnData
) -> None:
    call = TOOLS[name]
    scaled = sc.pp.scale(logs, copy=True, max_value=10)
    sparse = counts.copy()
    sparse.X = sp.csr_matrix(sparse.X)
    words = {"raw counts": (counts, sparse), "sc.pp.scale": (scaled,), "": (logs,)}
    for word, data in words.items():
        for adata in data:
            found = warned(lambda adata=adata: call(adata, **REFERENCE))
            of_values = [text for text in found if "raw counts" in text or "sc.pp.scale" in text]
            assert len(of_values) == bool(word)
            assert all(word in text for text in of_values)


def test_sets_that_are_normalised_in_two_ways_are_told(counts: AnnData, logs: AnnData) -> None:
    control = logs.obs["condition"] == "ctrl"
    other = logs[control].copy()
    assert not warned(lambda: cx.tl.cpca(logs, background=other, alpha=1.0))
    counts.X /= counts.X.sum(axis=1, keepdims=True)
    found = warned(lambda: cx.tl.cpca(logs, background=counts[control].copy(), alpha=1.0))
    assert any("values of adata are" in text for text in found)
    cx.tl.cpca(logs, **REFERENCE, alpha=1.0)
    assert not warned(lambda: cx.tl.project(other, logs))
    with pytest.warns(ContrastWarning, match="values of adata_new are .* the cells of the fit"):
        cx.tl.project(counts, logs)
    other.X = np.rint(other.X)
    with pytest.warns(ContrastWarning, match="raw counts"):
        cx.tl.project(other, logs)


def test_the_same_cells_twice_are_refused(logs: AnnData, untouched: Any) -> None:
    every = np.ones(240, bool)
    with untouched(logs):
        for design in (
            {"foreground": every, "background": every},
            REFERENCE | {"groups": ["ctrl"]},
            {"groupby": "condition", "reference": ["ctrl", "stim"], "groups": ["stim"]},
        ):
            with pytest.raises(ValueError, match="foreground and background are the same cells"):
                cx.tl.cpca(logs, **design)


def test_missing_values_that_became_text_are_no_level(logs: AnnData, untouched: Any) -> None:
    logs.obs["turned"] = pd.Categorical(logs.obs["condition"].where(np.arange(240) > 4).astype(str))
    with untouched(logs):
        with pytest.raises(ValueError, match=r"groupby: 5 cells of .*'turned'.* the text 'nan'"):
            cx.tl.cpca(logs, groupby="turned", reference="ctrl")
        for call in (
            lambda: cx.tl.cpca(logs, **REFERENCE, within="turned"),
            lambda: cx.pp.match_pairs(logs, "turned", "ctrl"),
            lambda: cx.tl.significance(logs, **REFERENCE, donor="turned"),
        ):
            with pytest.raises(ValueError, match="have the text 'nan', as missing values become"):
                call()
    cx.tl.cpca(logs, groupby="turned", reference="ctrl", groups=["stim"])
    assert logs.uns["cpca"]["n_foreground"] == 235
    logs.obs["turned"] = logs.obs["turned"].astype(object).replace("nan", None)
    cx.tl.cpca(logs, groupby="turned", reference="ctrl")
    assert logs.uns["cpca"]["n_foreground"] == 235


@pytest.mark.parametrize("slot", ["connectivities", "distances"])
@pytest.mark.parametrize("name", ["pca_pp", "pca_plus"])
def test_a_graph_of_neighbours_is_no_set_of_pairs(name: str, slot: str, logs: AnnData) -> None:
    sc.pp.neighbors(logs, n_neighbors=5, use_rep="X")
    with pytest.raises(ValueError, match=rf"'{slot}'\] has \d+ cells both in its rows and in its"):
        getattr(cx.tl, name)(logs, pairs=slot, n_comps=2)


def test_a_background_of_counts_or_of_the_cells_themselves_is_refused(
    logs: AnnData, counts: AnnData, untouched: Any
) -> None:
    with untouched(logs):
        with pytest.raises(ValueError, match=r"adata holds no whole numbers and the background"):
            cx.tl.cpca(logs, background=counts)
        for same in (logs.copy(), AnnData(sp.csr_matrix(logs.X), logs.obs, logs.var)):
            with pytest.raises(ValueError, match="holds the same cells as adata"):
                cx.tl.cpca(logs, background=same)
    stim = (logs.obs["condition"] == "stim").to_numpy()
    cx.tl.cpca(logs, foreground=stim, background=logs.copy())  # the sets differ


def test_few_reference_cells_and_values_that_were_not_logged_are_told(
    logs: AnnData, counts: AnnData
) -> None:
    few = np.arange(240) % 30 == 0
    found = warned(lambda: cx.tl.cpca(logs, foreground=~few, background=few, alpha=0.1))
    assert any("the background has only 8 cells" in text for text in found)
    sc.pp.normalize_total(counts, target_sum=1e4)
    found = warned(lambda: cx.tl.cpca(counts, **REFERENCE))
    assert any("which no logarithm of counts does" in text for text in found)


def test_columns_that_hold_no_donors_are_told_or_refused(logs: AnnData, untouched: Any) -> None:
    logs.obs["barcode"] = [f"cell {i}" for i in range(240)]
    logs.obs["turned"] = logs.obs["donor"].where(np.arange(240) > 4, None).astype(str)
    calls: list[Any] = [
        lambda name: cx.tl.cpca(logs, **REFERENCE, within=name),
        lambda name: cx.pp.match_pairs(logs, "condition", "ctrl", name, n_comps=5),
        lambda name: cx.pp.contrast_check(logs, **REFERENCE, donor=name),
        lambda name: cx.tl.significance(
            logs, **REFERENCE, donor=name, test_kwargs={"n_resamples": 2}
        ),
    ]
    for call in calls:
        with untouched(logs), pytest.raises(ValueError, match=r"5 cells of .* the text 'None'"):
            call("turned")
        with warnings.catch_warnings(record=True) as caught, contextlib.suppress(ValueError):
            warnings.simplefilter("always", ContrastWarning)
            call("barcode")  # cells that are donors have no pairs either, which is an error
        told = "'barcode'] has another level in each of its 240 cells"
        assert any(told in str(one.message) for one in caught)


def test_a_mask_of_genes_after_an_outer_concatenation(logs: AnnData) -> None:
    use = np.arange(30) < 20
    logs.var["highly_variable"] = use
    expected = cx.tl.cpca(logs, **REFERENCE, alpha=1.0, copy=True)
    assert expected is not None
    mask = pd.Series(use, logs.var_names).astype(object)
    mask.iloc[-3:] = np.nan
    logs.var["highly_variable"] = mask
    cx.tl.cpca(logs, **REFERENCE, alpha=1.0)
    np.testing.assert_array_equal(logs.obsm["X_cpca"], expected.obsm["X_cpca"])
    logs.var["highly_variable"] = mask.replace({True: "yes"})
    with pytest.raises(TypeError, match="a mask must be boolean"):
        cx.tl.cpca(logs, **REFERENCE)


def test_a_donor_that_is_the_condition_is_refused(logs: AnnData) -> None:
    with pytest.raises(ValueError, match="donor and groupby are both 'condition'"):
        cx.pp.match_pairs(logs, "condition", "ctrl", "condition")
    with pytest.raises(ValueError, match="donor and groupby are both 'condition'"):
        cx.pp.contrast_check(logs, **REFERENCE, donor="condition")


def test_a_layer_that_denoise_did_not_write_stays(logs: AnnData, untouched: Any) -> None:
    cx.tl.cpca(logs, **REFERENCE)
    logs.layers["counts"] = np.ones(logs.shape)
    with untouched(logs):
        with pytest.raises(ValueError, match=r"layers\['counts'\] would be replaced"):
            cx.tl.denoise(logs, layer_added="counts")
        with pytest.raises(ValueError, match="expected a non-empty string without '/'"):
            cx.tl.denoise(logs, layer_added="a/b")
    cx.tl.denoise(logs)
    first = logs.layers["denoised"].copy()
    cx.tl.denoise(logs, offset="none")
    assert not np.allclose(logs.layers["denoised"], first)
    assert logs.uns["denoise"]["denoised"] == {"key": "cpca", "offset": "none"}
    del logs.uns["denoise"]
    with pytest.raises(ValueError, match=r"layers\['denoised'\] would be replaced"):
        cx.tl.denoise(logs)


def test_a_table_is_no_anndata(logs: AnnData) -> None:
    table = logs.to_df()
    cx.tl.cpca(logs, **REFERENCE)
    for call in (
        lambda: cx.tl.cpca(table, **REFERENCE),
        lambda: cx.tl.project(table, logs),
        lambda: cx.tl.project(logs, table),
        lambda: cx.tl.denoise(table),
        lambda: cx.pp.match_pairs(table, "condition", "ctrl"),
        lambda: cx.get.top_genes(table),
        lambda: cx.get.mixing_report(table, "condition", "donor"),
        lambda: cx.pl.loadings(table),
        lambda: cx.pl.cpca_path(table),
        lambda: cx.pl.significance(table),
    ):
        with pytest.raises(TypeError, match=r"is DataFrame; expected an AnnData\. Make one with"):
            call()


def test_what_to_install_is_said() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import scanpy_ext\n"
        "try: scanpy_ext.tl\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "scanpy_ext.tl needs pandas, which is not installed. Run pip install"
    )
    assert "'.[scanpy]'" in done.stdout
