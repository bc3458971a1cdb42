"""tl.clvm of raw counts, and of data that are only dense in minibatches."""

from __future__ import annotations

import inspect

import anndata
import numpy as np
import pytest
import scipy.sparse as sp
from anndata import AnnData

import scanpy_ext as cx
from contrast_core import CLVM

torch = pytest.importorskip("torch", reason="torch is not installed")

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{message}")
    for message in ("the likelihood still rises", "the values look like raw counts")
]


@pytest.fixture
def counted():
    rng = np.random.default_rng(0)
    response = np.exp(
        rng.normal(size=(120, 1)) * (np.arange(12) < 4) * (np.arange(120) % 2)[:, None]
    )
    counts = rng.poisson(response * rng.gamma(4, 2, 12)).astype(np.float32)
    adata = AnnData(sp.csr_matrix(counts))
    adata.obs["condition"] = ["ctrl", "stim"] * 60
    adata.layers["counts"] = adata.X.copy()
    adata.layers["logs"] = np.log1p(adata.X.toarray())
    return adata


def test_counts_in_a_layer(counted, tmp_path, monkeypatch):
    for name, value in (("_RATES", (0.02,)), ("_PATIENCE", 1), ("_LEAST_GAIN", 1.0)):
        monkeypatch.setattr(f"contrast_core.probabilistic._clvm_variational.{name}", value)
    options = {"n_shared": 1, "n_comps": 1, "inference": "vi", "likelihood": "counts"}
    mask = np.arange(12) < 10
    cx.tl.clvm(counted, **REFERENCE, **options, layer="counts", mask_var=mask)
    X = counted.X.toarray()[:, mask]
    core = CLVM(n_shared=1, n_salient=1, inference="vi", likelihood="counts", random_state=0)
    core.fit(X, background=X[::2])
    np.testing.assert_allclose(counted.obsm["X_clvm"], core.transform(X), atol=1e-5)
    result = counted.uns["clvm"]
    np.testing.assert_allclose(result["elbo"], core.elbo_, rtol=1e-6)
    dispersion = counted.var["clvm_dispersion"]
    np.testing.assert_allclose(dispersion[mask], core.dispersions_, rtol=1e-4)
    assert not dispersion[~mask].any()
    assert not any(np.shape(value) == (10,) for value in result.values())
    assert "noise_variance" not in result
    assert "PCs_clvm_filters" not in counted.varm
    counted.write_h5ad(tmp_path / "cells.h5ad")
    lazy = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    cx.tl.clvm(lazy, **REFERENCE, **options, layer="counts", mask_var=mask, key_added="again")
    again = lazy.obsm["again"]
    lazy.file.close()
    assert abs(np.corrcoef(again[:, 0], counted.obsm["X_clvm"][:, 0])[0, 1]) > 0.9
    with pytest.raises(ValueError, match="likelihood='counts'"):
        cx.tl.project(counted, counted.copy(), key="clvm")


def test_what_it_refuses_leaves_cells_as_they_were(counted, untouched):
    counted.obs["donor"] = ["a", "b", "c"] * 40
    vi = {"inference": "vi"}
    for options, message in (
        ({"likelihood": "counts", "layer": "counts"}, "give inference='vi'"),
        ({"likelihood": "counts", "layer": "logs", **vi}, "whole numbers from 0"),
        ({"layer": "logs", "within": "donor", **vi}, "does not combine inference='vi' with groups"),
        ({"layer": "logs", "inference": "mcmc"}, "inference='mcmc' is unknown"),
        ({"layer": "logs", "sparsity": 1e9}, r"sparsity=1e\+09 leaves no feature"),
        ({"layer": "logs", "sparsity": 1e9, **vi}, r"sparsity=1e\+09 leaves no feature"),
        ({"layer": "logs", "sparsity": "few"}, "sparsity='few' is unknown"),
        ({"layer": "logs", "device": "gpu7", **vi}, "device='gpu7' is none that torch knows"),
    ):
        with untouched(counted), pytest.raises(ValueError, match=message):
            cx.tl.clvm(counted, **REFERENCE, **options)


def test_every_parameter_of_the_core_is_there():
    core, tool = (inspect.signature(each).parameters for each in (CLVM, cx.tl.clvm))
    other_name = {"n_salient": "n_comps"}
    left_out = {"tol"}
    for name, parameter in core.items():
        if name not in left_out:
            expected = 0 if name == "random_state" else parameter.default
            assert tool[other_name.get(name, name)].default == expected


def test_selection_with_gaps_and_wrong_values(counted, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 12)) + 2 * rng.normal(size=(120, 1)) @ np.ones((1, 12))
    rows[1::2, :4] += 3 * rng.normal(size=(60, 1)) * [1, -1, 1, -1]
    rows[rng.random(rows.shape) < 0.02] = 30.0
    counted.layers["logs"] = np.where(rng.random(rows.shape) < 0.1, np.nan, rows)
    options = {"n_shared": 3, "robust": "entries", "sparsity": "auto", "ard": True}
    cx.tl.clvm(counted, **REFERENCE, layer="logs", n_comps=1, include_reference=False, **options)
    X = counted.layers["logs"]
    core = CLVM(n_salient=1, **options).fit(X[1::2], background=X[::2])
    np.testing.assert_array_equal(core.selected_, np.arange(12) < 4)
    np.testing.assert_allclose(counted.varm["PCs_clvm"], core.salient_loadings_, atol=1e-8)
    np.testing.assert_allclose(counted.varm["PCs_clvm_shared"], core.shared_loadings_, atol=1e-8)
    assert counted.varm["PCs_clvm_shared"].shape == (12, 1)
    params = counted.uns["clvm"]["params"]
    assert params["sparsity"] == "auto"
    assert params["ard"]
    counted.write_h5ad(tmp_path / "cells.h5ad")
    assert anndata.read_h5ad(tmp_path / "cells.h5ad").uns["clvm"]["params"]["sparsity"] == "auto"
