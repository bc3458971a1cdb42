"""tl.cvae: the core's numbers in the slots, counts and refusals, data out of memory, its curve."""

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
def counted():
    """Counts of 300 cells; treated ones have three genes more."""
    rng = np.random.default_rng(0)
    treated = np.arange(300) % 2 == 1
    rates = rng.gamma(2.0, 1.0, size=(300, 1)) * rng.gamma(2.0, 1.0, size=20)
    rates[:, :3] *= np.where(treated, 6.0, 1.0)[:, None]
    counts = rng.poisson(rates).astype(np.float32)
    adata = anndata.AnnData(
        sp.csr_matrix(np.log1p(counts)), layers={"counts": sp.csr_matrix(counts)}
    )
    adata.obs["condition"] = np.where(treated, "stim", "ctrl")
    return adata


def run(adata, **options):
    further = {"max_iter": options.pop("max_iter", 2)}
    given = {**REFERENCE, "layer": "counts", "model_kwargs": further}
    return cx.tl.cvae(adata, **given | options)


def test_the_slots_hold_what_the_core_computed(counted, tmp_path):
    run(counted, n_shared=3, model_file=tmp_path / "cells.model")
    X = counted.layers["counts"]
    behind = X[(counted.obs["condition"] == "ctrl").to_numpy()]
    model = CVAE(n_shared=3, noise="counts", max_iter=2, random_state=0)
    model.fit(X, background=behind)
    np.testing.assert_array_equal(counted.obsm["X_cvae"], model.transform(X).astype(np.float32))
    shared = model.transform_shared(X).astype(np.float32)
    np.testing.assert_array_equal(counted.obsm["X_cvae_shared"], shared)
    assert counted.obsm["X_cvae_shared"].dtype == counted.obsm["X_cvae"].dtype
    result = counted.uns["cvae"]
    np.testing.assert_array_equal(result["held_out_loss"], model.held_out_loss_)
    assert (result["n_foreground"], result["n_background"]) == (300, 150)
    assert result["params"]["noise"] == "counts"
    np.testing.assert_array_equal(load(tmp_path / "cells.model").transform(X), model.transform(X))
    counted.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(again.uns["cvae"]["training_loss"], result["training_loss"])
    run(counted, copy=False, key_added="other")
    assert {"other", "other_shared"} <= set(counted.obsm)


def test_treated_cells_stand_apart(counted):
    run(counted, max_iter=60, n_comps=1, n_shared=2)
    scores = counted.obsm["X_cvae"][:, 0]
    treated = (counted.obs["condition"] == "stim").to_numpy()
    above = (scores[treated][:, None] > scores[~treated]).mean()
    assert max(above, 1 - above) > 0.95


def test_several_conditions_are_told_apart_and_controls_lie_between(counted):
    """Genes 3 to 5 answer to another drug; both make one foreground."""
    rng = np.random.default_rng(1)
    dense = counted.layers["counts"].toarray()
    other = np.arange(300) % 4 == 0  # half of the controls
    dense[other, 3:6] = rng.poisson(6 * dense[other, 3:6] + 3)
    counted.layers["counts"] = sp.csr_matrix(dense)
    condition = np.where(other, "other", counted.obs["condition"])
    counted.obs["condition"] = condition
    run(counted, max_iter=60, n_shared=2)
    scores = counted.obsm["X_cvae"]
    centres = {name: scores[condition == name].mean(axis=0) for name in ("ctrl", "stim", "other")}
    nearest = np.array(list(centres))[
        np.argmin([np.linalg.norm(scores - c, axis=1) for c in centres.values()], axis=0)
    ]
    assert (nearest == condition).mean() > 0.85
    # On the line between the two drugs, controls are in the middle.
    axis = centres["stim"] - centres["other"]
    places = {name: centre @ axis for name, centre in centres.items()}
    assert places["other"] < places["ctrl"] < places["stim"]
    run(counted, groups="other", key_added="one")
    assert counted.uns["one"]["n_foreground"] == (condition != "stim").sum()


def test_logarithms_are_no_counts_but_can_be_gaussian(counted, untouched):
    with untouched(counted):
        with pytest.raises(ValueError, match=r"adata.X holds .* whole numbers from 0"):
            run(counted, layer=None)
        with pytest.raises(ValueError, match="noise='poisson' is unknown"):
            run(counted, layer=None, noise="poisson")
        with pytest.raises(ValueError, match="n_shared=0"):
            run(counted, n_shared=0)
    run(counted, layer=None, noise="normal")
    assert np.isfinite(counted.obsm["X_cvae"]).all()


def test_backed_cells_give_the_same_latents(counted, tmp_path):
    counted.X = counted.layers["counts"]
    counted.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    run(backed, layer=None, max_iter=5)
    run(counted, layer=None, max_iter=5)
    # Minibatches come in another order from a file: the same loss, nearly.
    for name in ("training_loss", "held_out_loss"):
        found, expected = (adata.uns["cvae"][name] for adata in (backed, counted))
        np.testing.assert_allclose(found, expected, rtol=0.03)
    assert backed.obsm["X_cvae"].shape == (300, 2)


def test_the_curve_is_drawn(counted, tmp_path):
    from matplotlib import pyplot as plt

    with pytest.raises(ValueError, match=r"no result 'cvae' of scanpy_ext\.tl\.cvae"):
        cx.pl.cvae(counted)
    run(counted, max_iter=4)
    (axis,) = cx.pl.cvae(counted, show=False)
    lines = {line.get_label(): line for line in axis.lines}
    np.testing.assert_array_equal(
        lines["held out"].get_ydata(), counted.uns["cvae"]["held_out_loss"]
    )
    assert list(lines["kept"].get_xdata()) == [counted.uns["cvae"]["best_epoch"]] * 2
    cx.pl.cvae(counted, save=tmp_path / "curve.png", show=False)
    assert (tmp_path / "curve.png").stat().st_size > 5000
    plt.close("all")
