"""Tests that each warning points at the line that called scanpy_ext."""

from __future__ import annotations

import anndata
import numpy as np
import pytest

import scanpy_ext as cx
from contrast_core import ContrastWarning

REFERENCE = {"groupby": "condition", "reference": "ctrl"}
DONORS = REFERENCE | {"donor": "donor"}
CALLS = {
    "negative": lambda a: cx.tl.cpca(a, **REFERENCE, alpha=99.0),
    "are not paired": lambda a: cx.pp.match_pairs(a, **DONORS, n_comps=4),
    "not be sound": lambda a: cx.pp.contrast_check(a, **REFERENCE, cell_type="type"),
}


@pytest.mark.parametrize("message", CALLS)
def test_a_warning_points_at_the_callers_line(message):
    adata = anndata.AnnData(np.random.default_rng(0).normal(size=(80, 6)))
    adata.obs["condition"] = ["ctrl", "stim"] * 40
    adata.obs["type"] = ["T", "B"] * 40  # each side has one type
    adata.obs["donor"] = ["a"] * 70 + [np.nan] * 10
    with pytest.warns(ContrastWarning) as caught:
        CALLS[message](adata)
    [warning] = [one for one in caught if message in str(one.message)]
    assert warning.filename == __file__
    assert warning.lineno in [line for *_, line in CALLS[message].__code__.co_lines()]
