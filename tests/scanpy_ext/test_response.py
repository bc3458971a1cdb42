"""Tests of `tl.response`: which cells responded, and their share by condition and by donor."""

from __future__ import annotations

from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score

import scanpy_ext as cx
from contrast_core import ContrastWarning

DESIGN: dict[str, Any] = {"groupby": "target", "reference": "NT"}


def screen(seed: int = 0, size: float = 1.2, dtype: Any = np.float32) -> anndata.AnnData:
    """Return simulated cells of a screen with three targets, and reference cells (NT).

    One target changes 60% of its cells, one changes none, and one is rare.
    """
    rng = np.random.default_rng(seed)
    target = np.repeat(["hit", "none", "rare", "NT"], [300, 300, 8, 500])
    n, d = len(target), 80
    guide = np.char.add(target, rng.integers(1, 4, n).astype(str))
    batch = np.where(rng.random(n) < 0.5, "one", "two")
    true = (target == "hit") & (rng.random(n) < np.where(guide == "hit1", 0.3, 0.75))
    rates = rng.normal(0.3, 0.8, d) + 0.4 * rng.normal(size=(n, 2)) @ rng.normal(size=(2, d))
    rates += rng.normal(0, 0.3, (n, 1)) + 0.8 * (batch == "two")[:, None] * rng.normal(size=d)
    rates[:, :6] += size * true[:, None]
    counts = rng.poisson(np.exp(np.clip(rates, -5, 4)))
    adata = anndata.AnnData(sp.csr_matrix(np.log1p(counts).astype(dtype)))
    adata.var_names = [f"gene{i}" for i in range(d)]
    adata.obs["target"] = pd.Categorical(target)
    adata.obs["guide"], adata.obs["batch"], adata.obs["true"] = guide, batch, true
    return adata


@pytest.mark.parametrize("within", [None, "batch"])
def test_cells_that_responded_are_distinguished_from_cells_that_escaped(within: str | None) -> None:
    adata = screen()
    with pytest.warns(ContrastWarning, match="no response can be seen in 1 of 3 .*none"):
        cx.tl.response(adata, **DESIGN, within=within, donor="guide")
    hit = (adata.obs["target"] == "hit").to_numpy()
    assert roc_auc_score(adata.obs["true"][hit], adata.obs["response"][hit]) > 0.85
    table = adata.uns["response"]["conditions"]
    assert table.index.to_list() == ["hit", "none", "rare"]
    row = table.loc["hit"]
    assert row["share_low"] < adata.obs["true"][hit].mean() < row["share_high"]
    assert row["share_high"] - row["share_low"] < 0.4
    assert set(row["top_genes"].split(", ")[:4]) <= {f"gene{i}" for i in range(6)}
    assert table.loc["none", "share_low"] == 0
    assert (table["reference_called"].dropna() <= 0.05).all()
    assert "X has 8 rows" in table.loc["rare", "reason"]
    donors = adata.uns["response"]["donors"].set_index("donor")
    assert donors.loc["hit1", "share_high"] < donors.loc["hit2", "share"]
    assert donors["n_cells"].sum() == 600


def test_only_cells_of_frequent_targets_have_a_posterior_and_can_be_called(untouched: Any) -> None:
    adata = screen()
    with untouched(adata), pytest.warns(ContrastWarning):
        copy = cx.tl.response(adata, **DESIGN, donor="guide", key_added="mine", copy=True)
    # Reference cells and cells of rare targets have no posterior.
    compared = adata.obs["target"].isin(["hit", "none"])
    assert (copy.obs["mine"].notna() == compared).all()
    assert copy.obs["mine"].dropna().between(0, 1).all()
    called = copy.obs["mine_called"]
    assert called.dtype == bool
    assert not called[~compared].any()
    threshold = copy.uns["mine"]["conditions"]["threshold"]
    hit = adata.obs["target"] == "hit"
    assert (called[hit] == (copy.obs["mine"][hit] > threshold["hit"])).all()
    assert called[adata.obs["target"] == "none"].mean() <= 0.1
    calls = {}
    for level in (0.01, 0.2):
        cx.tl.response(adata, **DESIGN, groups="hit", level=level)
        assert adata.uns["response"]["conditions"].loc["hit", "reference_called"] <= level
        calls[level] = adata.obs["response_called"].sum()
    assert calls[0.01] < calls[0.2]


def test_differences_between_batches_are_subtracted() -> None:
    adata = screen(dtype=np.float64)
    plain = adata.X.toarray()
    found = []
    for shift in (0.0, 3.0):
        adata.X = plain + shift * (adata.obs["batch"] == "two").to_numpy()[:, None]
        cx.tl.response(adata, **DESIGN, groups="hit", within="batch")
        found.append(adata.obs["response"].to_numpy().copy())
    np.testing.assert_allclose(*found, atol=1e-6)


def test_batches_without_reference_cells_are_refused(untouched: Any) -> None:
    adata = screen()
    message = "within: 'hit1' .* has 0 reference cells; at least 10 are needed"
    with untouched(adata), pytest.raises(ValueError, match=message):
        cx.tl.response(adata, **DESIGN, within="guide")
