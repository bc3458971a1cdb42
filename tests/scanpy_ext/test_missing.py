"""Layers with missing values: tl.pcpca fits what is observed, tl.impute fills in the rest."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import scanpy_ext as cx
from contrast_core import CLVM, PCPCA, ContrastWarning

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
USED = np.arange(12) > 2


@pytest.fixture
def gappy(cells):
    """Cells with a layer of which a fifth is missing."""
    gone = np.random.default_rng(0).random(cells.shape) < 0.2
    cells.layers["levels"] = np.where(gone, np.nan, cells.X)
    return cells


def expected(cells, d=2, gamma=0.1):
    X = cells.layers["levels"][:, USED]
    return PCPCA(d, gamma=gamma).fit(X, background=X[cells.obs["is_ctrl"]]), X


def fit(cells, **options):
    cx.tl.pcpca(cells, **REFERENCE, layer="levels", mask_var=USED, gamma=0.1, **options)


def test_a_layer_with_missing_values_is_fitted_as_the_core_does(gappy):
    fit(gappy)
    model, X = expected(gappy)
    np.testing.assert_array_equal(gappy.obsm["X_pcpca"], model.transform(X).astype(np.float32))
    np.testing.assert_array_equal(gappy.varm["PCs_pcpca"][USED], model.loadings_)
    result = gappy.uns["pcpca"]
    assert result["objective"] == model.objective_
    assert result["converged"] is True
    assert result["gamma_max"] == model.gamma_max_
    np.testing.assert_allclose(gappy.varm["PCs_pcpca_fit"]["mean"][USED], model.mean_)


def test_imputed_layers_hold_what_the_core_computed(gappy, tmp_path):
    import anndata

    fit(gappy)
    model, X = expected(gappy)
    mean, std = model.impute(X, return_std=True)
    cx.tl.impute(gappy, return_std=True)
    np.testing.assert_allclose(gappy.layers["imputed"][:, USED], mean)
    np.testing.assert_allclose(gappy.layers["imputed_std"][:, USED], std)
    outside = gappy.layers["levels"][:, ~USED]
    np.testing.assert_array_equal(gappy.layers["imputed"][:, ~USED], outside)
    assert not gappy.layers["imputed_std"][:, ~USED].any()
    assert gappy.uns["impute"]["imputed"] == {"key": "pcpca", "values": "mean"}
    assert gappy.uns["impute"]["imputed_std"] == {"key": "pcpca", "values": "std"}
    gappy.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    cx.tl.impute(again, return_std=True)  # its own layers, also after a file
    np.testing.assert_array_equal(again.layers["imputed"], gappy.layers["imputed"])


def test_float32_layers_stay_so_and_a_copy_leaves_the_original(gappy, untouched):
    gappy.layers["levels"] = gappy.layers["levels"].astype("float32")
    fit(gappy)
    with untouched(gappy):
        filled = cx.tl.impute(gappy, layer_added="filled", copy=True)
    assert filled.layers["filled"].dtype == np.float32
    assert not np.isnan(filled.layers["filled"][:, USED]).any()


def test_a_layer_of_another_function_is_never_replaced(gappy, untouched):
    fit(gappy)
    gappy.layers["imputed"] = gappy.X.copy()
    with untouched(gappy), pytest.raises(ValueError, match=r"'imputed'\] would be replaced"):
        cx.tl.impute(gappy)
    gappy.layers["other_std"] = gappy.X.copy()
    with untouched(gappy), pytest.raises(ValueError, match="'other_std'"):
        cx.tl.impute(gappy, layer_added="other", return_std=True)
    with untouched(gappy), pytest.raises(ValueError, match=r"'levels'.* would be replaced"):
        cx.tl.impute(gappy, layer_added="levels")
    cx.tl.impute(gappy, layer_added="other")
    first = gappy.layers["other"].copy()
    gappy.layers["levels"] = np.where(USED, np.nan, gappy.layers["levels"])
    cx.tl.impute(gappy, layer_added="other")
    assert (gappy.layers["other"] != first).any()
    with pytest.raises(ValueError, match="would be replaced by what is made of it"):
        cx.tl.impute(gappy, layer="other", layer_added="other")


def test_what_cannot_be_filled_in_is_refused(gappy, untouched):
    with pytest.raises(ValueError, match="no result 'pcpca'"):
        cx.tl.impute(gappy)
    fit(gappy)
    gappy.layers["sparse"] = sp.csr_matrix(gappy.X)
    gappy.obsm["X_some"] = gappy.X[:, :5].copy()
    cx.tl.cpca(gappy, **REFERENCE, alpha=1.0)
    cx.tl.clvm(gappy, **REFERENCE)
    cx.tl.pcpca(gappy, **REFERENCE, obsm="X_some", gamma=0.0, key_added="some")
    with untouched(gappy):
        for options, error, words in [
            ({"key": "cpca"}, ValueError, r"'cpca'\] cannot fill values in"),
            ({"key": "clvm"}, ValueError, r"'clvm'\] cannot fill values in"),
            ({"key": "some"}, ValueError, r"'some'\] cannot fill values in"),
            ({"layer": "sparse"}, TypeError, "is sparse, and what it does not store is zero"),
            ({"layer": "none"}, ValueError, "no 'none'"),
            ({"layer_added": "a/b"}, ValueError, "layer_added='a/b'"),
            ({"return_std": 1}, TypeError, "return_std must be True or False"),
            ({"copy": 1}, TypeError, "copy must be True or False"),
        ]:
            with pytest.raises(error, match=words):
                cx.tl.impute(gappy, **options)


def test_where_missing_values_are_not_taken(gappy, untouched):
    donors = np.arange(gappy.n_obs) % 3
    gappy.obs["donor"] = np.array(["a", "b", "c"])[donors]
    other = gappy.copy()
    other.layers["sparse"] = sp.csr_matrix(gappy.layers["levels"])
    with pytest.raises(ValueError, match=r"layers\['sparse'\] contains NaN"):
        cx.tl.pcpca(other, **REFERENCE, layer="sparse")
    with untouched(gappy):
        with pytest.raises(ValueError, match="has missing values, with which within="):
            fit(gappy, within="donor")
        for tool in (cx.tl.cpca, cx.tl.cpca_star, cx.tl.kernel_cpca, cx.tl.cpca_path):
            with pytest.raises(ValueError, match=r"layers\['levels'\] contains NaN"):
                tool(gappy, **REFERENCE, layer="levels")


def test_the_background_may_be_another_anndata_and_an_embedding_may_have_gaps(gappy):
    inside, behind = gappy[~gappy.obs["is_ctrl"]].copy(), gappy[gappy.obs["is_ctrl"]].copy()
    cx.tl.pcpca(inside, background=behind, layer="levels", gamma=0.1)
    levels = [each.layers["levels"] for each in (inside, behind)]
    model = PCPCA(gamma=0.1).fit(levels[0], background=levels[1])
    np.testing.assert_array_equal(
        inside.obsm["X_pcpca"], model.transform(levels[0]).astype(np.float32)
    )
    gappy.obsm["X_levels"] = gappy.layers["levels"]
    cx.tl.pcpca(gappy, **REFERENCE, obsm="X_levels", gamma=0.1)
    X = gappy.obsm["X_levels"]
    model = PCPCA(gamma=0.1).fit(X, background=X[gappy.obs["is_ctrl"]])
    np.testing.assert_array_equal(gappy.obsm["X_pcpca"], model.transform(X).astype(np.float32))


@pytest.mark.parametrize("robust", [None, "rows", "entries"])
def test_clvm_takes_them_too_and_outliers(gappy, robust, untouched, tmp_path):
    import anndata

    cx.tl.clvm(
        gappy,
        **REFERENCE,
        layer="levels",
        mask_var=USED,
        n_shared=1,
        model_kwargs={"robust": robust},
    )
    X = gappy.layers["levels"][:, USED]
    model = CLVM(n_shared=1, robust=robust).fit(X, background=X[gappy.obs["is_ctrl"]])
    np.testing.assert_array_equal(gappy.obsm["X_clvm"], model.transform(X).astype(np.float32))
    latent = model.transform_shared(X).astype(np.float32)
    np.testing.assert_array_equal(gappy.obsm["X_clvm_shared"], latent)
    np.testing.assert_array_equal(gappy.varm["PCs_clvm"][USED], model.salient_loadings_)
    result = gappy.uns["clvm"]
    assert result["converged"]
    np.testing.assert_array_equal(result["log_likelihoods"], model.log_likelihoods_)
    gappy.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    if robust == "entries":
        assert list(gappy.varm["PCs_clvm_fit"]) == ["mean", "background_mean"]
        with untouched(again), pytest.raises(ValueError, match="weighs every value of a cell"):
            cx.tl.denoise(again, key="clvm")
        with untouched(again), pytest.raises(ValueError, match="weighs every value of a cell"):
            cx.tl.project(again, gappy, key="clvm")
    else:
        filters = again.varm["PCs_clvm_fit"][["filter_1", "filter_2"]][USED]
        scores = (np.nan_to_num(X) - model.mean_) @ filters
        np.testing.assert_allclose(scores, model.transform(np.nan_to_num(X)), atol=1e-9)
        with untouched(again), pytest.raises(ValueError, match=r"layers\['levels'\] contains NaN"):
            cx.tl.denoise(again, key="clvm")
        again.layers["levels"] = np.nan_to_num(again.layers["levels"])
        with pytest.warns(ContrastWarning, match="3 of 12 genes were not in use"):
            cx.tl.denoise(again, key="clvm")


def test_where_clvm_does_not_take_them(gappy, untouched):
    gappy.obs["donor"] = np.array(["a", "b", "c"])[np.arange(gappy.n_obs) % 3]
    with untouched(gappy):
        with pytest.raises(ValueError, match=r"does not combine missing values .* with within"):
            cx.tl.clvm(gappy, **REFERENCE, layer="levels", within="donor")
        with pytest.raises(ValueError, match="does not combine robust='rows' with within"):
            cx.tl.clvm(gappy, **REFERENCE, model_kwargs={"robust": "rows"}, within="donor")
        with pytest.raises(ValueError, match="robust='cells'"):
            cx.tl.clvm(gappy, **REFERENCE, model_kwargs={"robust": "cells"})
