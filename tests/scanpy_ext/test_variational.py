"""Tests of `tl.clvm` on raw counts, with missing or wrong values, and with sparse loadings."""

from __future__ import annotations

import anndata
import numpy as np
import pytest
import scipy.sparse as sp

import scanpy_ext as cx
from contrast_core import CLVM

torch = pytest.importorskip("torch", reason="torch is not installed")

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{message}")
    for message in ("the likelihood still rises", "the values look like raw counts")
]


@pytest.fixture
def counted(counts):
    """Return sparse counts of 120 cells and 12 genes, also as a layer."""
    adata = counts[:120, :12].copy()
    adata.X = sp.csr_matrix(adata.X)
    adata.layers["counts"] = adata.X.copy()
    return adata


@pytest.mark.slow
def test_counts_are_read_from_a_layer(counted, tmp_path, monkeypatch):
    # These settings make the fit short.
    for name, value in (("_RATES", (0.02,)), ("_PATIENCE", 1), ("_LEAST_GAIN", 1.0)):
        monkeypatch.setattr(f"contrast_core.probabilistic._clvm_variational.{name}", value)
    options = {"n_shared": 1, "n_comps": 1, "noise": "counts"}
    mask = np.arange(12) < 10
    cx.tl.clvm(counted, **REFERENCE, **options, layer="counts", mask_var=mask)
    X = counted.X.toarray()[:, mask]
    core = CLVM(n_shared=1, n_salient=1, inference="vi", noise="counts", random_state=0)
    core.fit(X, background=X[::2])
    np.testing.assert_allclose(counted.obsm["X_clvm"], core.transform(X), atol=1e-5)
    result = counted.uns["clvm"]
    np.testing.assert_allclose(result["elbo"], core.elbo_, rtol=1e-6)
    table = counted.varm["PCs_clvm_fit"]
    np.testing.assert_allclose(table["dispersion"][mask], core.dispersions_, rtol=1e-4)
    assert list(table) == ["mean", "background_mean", "dispersion"]
    assert "noise_variance" not in result
    few = counted[:, ::-3]  # the rows of the table are reordered with the genes
    np.testing.assert_array_equal(few.varm["PCs_clvm_fit"], table.iloc[::-3])
    assert not any(np.shape(entry) == (mask.sum(),) for entry in result.values())
    counted.write_h5ad(tmp_path / "cells.h5ad")
    lazy = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    cx.tl.clvm(lazy, **REFERENCE, **options, layer="counts", mask_var=mask, key_added="again")
    again = lazy.obsm["again"]
    lazy.file.close()
    assert abs(np.corrcoef(again[:, 0], counted.obsm["X_clvm"][:, 0])[0, 1]) > 0.9
    with pytest.raises(ValueError, match="with counts or"):
        cx.tl.project(counted, counted.copy(), key="clvm")


def test_genes_are_selected_despite_missing_and_wrong_values(counted, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 12)) + 2 * rng.normal(size=(120, 1)) @ np.ones((1, 12))
    rows[1::2, :4] += 3 * rng.normal(size=(60, 1)) * [1, -1, 1, -1]
    rows[rng.random(rows.shape) < 0.02] = 30.0
    counted.layers["logs"] = np.where(rng.random(rows.shape) < 0.1, np.nan, rows)
    options = {"robust": "entries", "sparsity": "auto", "ard": True}
    stim = (counted.obs["condition"] == "stim").to_numpy()
    sets = {"foreground": stim, "background": ~stim}
    cx.tl.clvm(counted, **sets, layer="logs", n_comps=1, n_shared=3, model_kwargs=options)
    X = counted.layers["logs"]
    core = CLVM(n_salient=1, n_shared=3, **options).fit(X[1::2], background=X[::2])
    np.testing.assert_array_equal(core.selected_, np.arange(12) < 4)
    np.testing.assert_allclose(counted.varm["PCs_clvm"], core.salient_loadings_, atol=1e-8)
    np.testing.assert_allclose(counted.varm["PCs_clvm_shared"], core.shared_loadings_, atol=1e-8)
    assert counted.varm["PCs_clvm_shared"].shape == (12, 1)
    params = counted.uns["clvm"]["params"]
    assert params["sparsity"] == "auto"
    assert params["ard"]
    counted.write_h5ad(tmp_path / "cells.h5ad")
    assert anndata.read_h5ad(tmp_path / "cells.h5ad").uns["clvm"]["params"]["sparsity"] == "auto"
