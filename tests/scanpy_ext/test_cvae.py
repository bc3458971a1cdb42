"""Tests of `tl.cvae`: slots, counts, errors, data on disk and the loss curve."""

from __future__ import annotations

import anndata
import numpy as np
import pytest
import scipy.sparse as sp

import scanpy_ext as cx
from contrast_core import CVAE, load

pytest.importorskip("torch", reason="torch is not installed")

REFERENCE = {"groupby": "condition", "reference": "ctrl"}


@pytest.fixture
def cells_with_counts(counts):
    counts.layers["counts"] = sp.csr_matrix(counts.X)
    counts.X = sp.csr_matrix(np.log1p(counts.X))
    return counts


def run(adata, **options):
    further = {"max_iter": options.pop("max_iter", 2)}
    given = {**REFERENCE, "layer": "counts", "model_kwargs": further}
    return cx.tl.cvae(adata, **given | options)


def test_the_slots_hold_the_results_of_the_core(cells_with_counts, tmp_path):
    run(cells_with_counts, n_shared=3, model_file=tmp_path / "cells.model")
    X = cells_with_counts.layers["counts"]
    model = CVAE(n_shared=3, noise="counts", max_iter=2, random_state=0)
    model.fit(X, background=X[(cells_with_counts.obs["condition"] == "ctrl").to_numpy()])
    np.testing.assert_array_equal(
        cells_with_counts.obsm["X_cvae"], model.transform(X).astype(np.float32)
    )
    shared = model.transform_shared(X).astype(np.float32)
    np.testing.assert_array_equal(cells_with_counts.obsm["X_cvae_shared"], shared)
    result = cells_with_counts.uns["cvae"]
    np.testing.assert_array_equal(result["held_out_loss"], model.held_out_loss_)
    assert (result["n_foreground"], result["n_background"]) == (240, 120)
    assert result["params"]["noise"] == "counts"
    np.testing.assert_array_equal(load(tmp_path / "cells.model").transform(X), model.transform(X))
    cells_with_counts.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    np.testing.assert_array_equal(again.uns["cvae"]["training_loss"], result["training_loss"])
    (axis,) = cx.pl.cvae(cells_with_counts, show=False)
    lines = {line.get_label(): line for line in axis.lines}
    np.testing.assert_array_equal(lines["held out"].get_ydata(), result["held_out_loss"])
    assert list(lines["kept"].get_xdata()) == [result["best_epoch"]] * 2
    # The minibatches of a file have another order, so the losses are only approximately equal.
    run(again, n_shared=3, key_added="other")
    found = again.uns["other"]["held_out_loss"]
    np.testing.assert_allclose(found, result["held_out_loss"], rtol=0.03)
    assert {"other", "other_shared"} <= set(again.obsm)


def test_logarithms_are_refused_as_counts_and_accepted_as_normal_values(
    cells_with_counts, untouched
):
    with untouched(cells_with_counts):
        for options, message in [
            ({"layer": None}, r"adata.X holds .* whole numbers from 0"),
            ({"layer": None, "noise": "poisson"}, "noise='poisson' is unknown"),
            ({"n_shared": 0}, "n_shared=0"),
        ]:
            with pytest.raises(ValueError, match=message):
                run(cells_with_counts, **options)
    run(cells_with_counts, layer=None, noise="normal")
    assert np.isfinite(cells_with_counts.obsm["X_cvae"]).all()
