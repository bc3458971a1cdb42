"""Tests of `pp.genes_by_variance` and of tables of loadings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from anndata import AnnData, read_h5ad

import scanpy_ext as cx
from contrast_core import ContrastWarning

DESIGN: dict[str, Any] = {"groupby": "condition", "reference": "ctrl"}


def counts(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return np.log1p(rng.poisson(rng.gamma(1.0, 2.0, 30), size=(200, 30))).astype(np.float32)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_the_genes_of_largest_variance_are_chosen(kind: Any) -> None:
    values = counts()
    view = AnnData(kind(np.vstack([values, 9 * values])))[:200]
    adata = cx.pp.genes_by_variance(view, 7, copy=True)
    variance = values.astype(float).var(axis=0)
    np.testing.assert_allclose(adata.var["most_variable_variance"], variance, rtol=1e-5)
    assert set(np.flatnonzero(adata.var["most_variable"])) == set(np.argsort(-variance)[:7])


def test_a_warning_is_given_if_highly_variable_genes_lack_genes_of_large_variance() -> None:
    adata = AnnData(counts())
    variance = np.asarray(adata.X).var(axis=0)
    # Mark the 15 genes with the least variance.
    adata.var["highly_variable"] = np.argsort(np.argsort(variance)) < 15
    with pytest.warns(ContrastWarning, match=r"100% of the 10 genes .* mask_var='most_variable'"):
        cx.pp.genes_by_variance(adata, 10)
    adata.var["highly_variable"] = True
    cx.pp.genes_by_variance(adata, 10)  # this call must not warn
    with pytest.warns(ContrastWarning, match="raw counts"):
        cx.pp.genes_by_variance(AnnData(np.round(np.expm1(counts()))), 10)


def test_infinite_values_in_a_file_are_refused(tmp_path: Path) -> None:
    values = counts()
    values[7, 3] = np.inf
    AnnData(values).write_h5ad(tmp_path / "cells.h5ad")
    with pytest.raises(ValueError, match="inf first met in feature 3"):
        cx.pp.genes_by_variance(read_h5ad(tmp_path / "cells.h5ad", backed="r"), 7)


def test_cells_and_layer_can_be_chosen_and_constant_genes_are_refused(untouched: Any) -> None:
    values = counts()
    values[:, 3] = 2.0
    adata = AnnData(np.zeros_like(values), layers={"logs": values})
    adata.obs["chosen"] = np.arange(200) < 80
    adata.var["mitochondrial"] = np.arange(30) < 2
    with untouched(adata):
        with pytest.raises(ValueError, match=r"var\['mitochondrial'\] would be replaced"):
            cx.pp.genes_by_variance(adata, 3, layer="logs", key_added="mitochondrial")
        with pytest.raises(ValueError, match=r"no gene of adata.X varies"):
            cx.pp.genes_by_variance(adata)
    for n in (3, 100):
        cx.pp.genes_by_variance(adata, n, cells="chosen", layer="logs", key_added="mine")
    variance = values[:80].astype(float).var(axis=0)
    np.testing.assert_allclose(adata.var["mine_variance"], variance, rtol=1e-5, atol=1e-12)
    assert not adata.var["mine"].iloc[3]
    assert adata.var["mine"].sum() == (variance > 1e-12).sum()


def test_loadings_of_every_result_are_found_by_key(cells: AnnData, untouched: Any) -> None:
    cells.obsm["X_pca"] = np.asarray(cells.X)[:, :4]
    cx.tl.cpca(cells, **DESIGN, alpha=1.0)
    cx.tl.cpca(cells, **DESIGN, alpha=0.0, key_added="embedded", obsm="X_pca")
    cx.tl.clvm(cells, **DESIGN, n_shared=1)
    cx.tl.cpca_path(cells, **DESIGN, n_representatives=2, alphas=[0.0, 50.0], key_added="few")
    assert list(cells.uns["few"]["representatives"]) == [0, 1]  # PCA is not added once more
    cx.tl.cpca_path(cells, **DESIGN, n_representatives=2)
    cx.tl.cpca_path(cells, **DESIGN, n_representatives=2, obsm="X_pca", key_added="path")
    cx.tl.kernel_cpca(cells, **DESIGN, alpha=1.0)
    levels = ", ".join(f"'{i}'" for i in range(len(cells.uns["cpca_path"]["representatives"])))
    with untouched(cells):
        for key, level, expected in [
            ("cpca", None, cells.varm["PCs_cpca"]),
            ("embedded", None, cells.uns["embedded"]["loadings"]),
            ("clvm", None, cells.varm["PCs_clvm"]),
            ("clvm", "shared", cells.varm["PCs_clvm_shared"]),
            ("cpca_path", 1, cells.varm["PCs_cpca_path_1"]),
            ("path", "1", cells.uns["path"]["loadings"][1]),
        ]:
            wide = cx.get.loadings(cells, key=key, level=level)
            np.testing.assert_array_equal(wide, expected)
            named = [f"pca{i}" for i in range(1, 5)] if len(wide) == 4 else cells.var_names
            assert list(wide.index) == list(named)
            assert list(wide) == [*range(1, expected.shape[1] + 1)]
            long = cx.get.loadings(cells, key=key, level=level, tidy=True)
            back = long.pivot(index="gene", columns="component", values="loading").loc[wide.index]
            np.testing.assert_array_equal(back, wide)
        for options, message in [
            ({"key": "PCs_cpca"}, "no result 'PCs_cpca' of"),
            ({"key": "kernel_cpca"}, "has no loadings .* Kernel cPCA has no load"),
            ({"level": 1}, "have no levels; leave level out"),
            ({"key": "cpca_path"}, f"level=None: .*have the levels {levels}"),
            ({"key": "cpca_path", "level": 9}, f"level=9: .*have the levels {levels}"),
        ]:
            with pytest.raises(ValueError, match=message):
                cx.get.top_genes(cells, **options)
