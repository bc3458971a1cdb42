"""Tests of layers with missing values: models are fitted to them, and `tl.impute` fills them in."""

from __future__ import annotations

import anndata
import numpy as np
import pytest
import scipy.sparse as sp

import scanpy_ext as cx
from contrast_core import PCPCA, ContrastWarning

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
USED = np.arange(12) > 2


@pytest.fixture
def gappy(cells):
    """Return cells with a layer in which a fifth of the values are missing."""
    gone = np.random.default_rng(0).random(cells.shape) < 0.2
    cells.layers["levels"] = np.where(gone, np.nan, cells.X)
    return cells


def test_the_background_may_be_another_anndata_and_an_embedding_may_have_gaps(gappy):
    levels, ctrl = gappy.layers["levels"], gappy.obs["is_ctrl"].to_numpy()
    inside = gappy[~ctrl].copy()
    cx.tl.pcpca(inside, background=gappy[ctrl].copy(), layer="levels", gamma=0.1)
    gappy.obsm["X_levels"] = levels
    cx.tl.pcpca(gappy, **REFERENCE, obsm="X_levels", gamma=0.1)
    for adata, X in ((inside, levels[~ctrl]), (gappy, levels)):
        model = PCPCA(gamma=0.1).fit(X, background=levels[ctrl])
        np.testing.assert_array_equal(adata.obsm["X_pcpca"], model.transform(X).astype(np.float32))


def fit(cells):
    cx.tl.pcpca(cells, **REFERENCE, layer="levels", mask_var=USED, gamma=0.1)


def test_a_layer_with_missing_values_is_filled_in_by_the_core(gappy, tmp_path):
    fit(gappy)
    X = gappy.layers["levels"][:, USED]
    model = PCPCA(gamma=0.1).fit(X, background=X[gappy.obs["is_ctrl"]])
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
    cx.tl.impute(again, return_std=True)  # replaces layers read from a file
    np.testing.assert_array_equal(again.layers["imputed"], gappy.layers["imputed"])


def test_imputed_layers_are_written_and_other_layers_are_kept(gappy, untouched):
    gappy.layers["levels"] = gappy.layers["levels"].astype("float32")
    fit(gappy)
    gappy.layers["imputed"] = gappy.layers["other_std"] = gappy.X.copy()
    with untouched(gappy):
        for options in (
            {},
            {"layer_added": "other", "return_std": True},
            {"layer_added": "levels"},
        ):
            with pytest.raises(ValueError, match=r"'\] would be replaced|'levels'.*replaced"):
                cx.tl.impute(gappy, **options)
        filled = cx.tl.impute(gappy, layer_added="filled", copy=True)
    assert filled.layers["filled"].dtype == np.float32
    assert not np.isnan(filled.layers["filled"][:, USED]).any()
    first = filled.layers["filled"].copy()
    filled.layers["levels"] = np.where(USED, np.nan, filled.layers["levels"])
    cx.tl.impute(filled, layer_added="filled")  # replaces its own layer
    assert (filled.layers["filled"] != first).any()


def test_options_without_support_for_missing_values_are_refused(gappy, untouched):
    fit(gappy)
    gappy.obs["donor"] = np.array(["a", "b", "c"])[np.arange(gappy.n_obs) % 3]
    gappy.layers["full"] = sp.csr_matrix(gappy.X)
    gappy.layers["sparse"] = sp.csr_matrix(gappy.layers["levels"])
    gappy.obsm["X_some"] = gappy.X[:, :5].copy()
    cx.tl.cpca(gappy, **REFERENCE, alpha=1.0)
    cx.tl.clvm(gappy, **REFERENCE)
    cx.tl.pcpca(gappy, **REFERENCE, obsm="X_some", gamma=0.0, key_added="some")
    contains = r"layers\['levels'\] contains NaN"
    levels = REFERENCE | {"layer": "levels"}
    robust = REFERENCE | {"model_kwargs": {"robust": "rows"}}
    with untouched(gappy):
        for function, options, message in [
            (cx.tl.impute, {"key": "cpca"}, r"'cpca'\] cannot fill in values"),
            (cx.tl.impute, {"key": "clvm"}, r"'clvm'\] cannot fill in values"),
            (cx.tl.impute, {"key": "some"}, r"'some'\] cannot fill in values"),
            (cx.tl.impute, {"layer": "full"}, "is sparse: values that it does not store are zero"),
            (cx.tl.pcpca, REFERENCE | {"layer": "sparse"}, r"layers\['sparse'\] contains NaN"),
            (cx.tl.pcpca, levels | {"within": "donor"}, "has missing values, with which within="),
            (cx.tl.clvm, levels | {"within": "donor"}, "does not combine missing values .* with"),
            (cx.tl.clvm, robust | {"within": "donor"}, "does not combine robust='rows' with"),
            (cx.tl.cpca, levels, contains),
            (cx.tl.cpca_star, levels, contains),
            (cx.tl.kernel_cpca, levels, contains),
            (cx.tl.cpca_path, levels, contains),
        ]:
            with pytest.raises((TypeError, ValueError), match=message):
                function(gappy, **options)


def test_cells_with_gaps_are_denoised_after_their_gaps_are_filled(gappy, untouched):
    weighted = "gives every value of a cell its own weight"
    for robust, message in (("entries", weighted), ("rows", r"layers\['levels'\] contains NaN")):
        further = {"n_shared": 1, "model_kwargs": {"robust": robust}, "key_added": robust}
        cx.tl.clvm(gappy, **REFERENCE, layer="levels", mask_var=USED, **further)
        with untouched(gappy), pytest.raises(ValueError, match=message):
            cx.tl.denoise(gappy, key=robust)
    with untouched(gappy), pytest.raises(ValueError, match=weighted):
        cx.tl.project(gappy, gappy.copy(), key="entries")
    gappy.layers["levels"] = np.nan_to_num(gappy.layers["levels"])
    with pytest.warns(ContrastWarning, match="3 of 12 genes were not in use"):
        cx.tl.denoise(gappy, key="rows")
