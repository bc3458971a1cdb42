"""Tests of the mixing report for many cells, and of iLISI and kBET, which compare neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from anndata import AnnData
from scipy.optimize import brentq
from scipy.stats import chisquare, entropy

import scanpy_ext as cx
from contrast_core.pairing import ilisi, kbet


def embedded(n: int, seed: int = 0) -> AnnData:
    """Return two cell types in two conditions.

    The conditions are mixed in `X_mixed` and separate in `X_apart`.
    """
    rng = np.random.default_rng(seed)
    kind, condition = rng.integers(0, 2, n), rng.integers(0, 2, n)
    adata = AnnData(shape=(n, 0))
    adata.obs["cell_type"] = np.array(["B", "T"])[kind]
    adata.obs["condition"] = np.array(["ctrl", "stim"])[condition]
    mixed = rng.normal(size=(n, 2)) + 8 * kind[:, None] * [1, 0]
    adata.obsm["X_mixed"] = mixed.astype(np.float32)
    adata.obsm["X_apart"] = (mixed + 8 * condition[:, None] * [0, 1]).astype(np.float32)
    return adata


@pytest.mark.usefixtures("one_cluster")
def test_the_seed_determines_which_cells_are_drawn() -> None:
    adata = embedded(900)
    adata.obs.loc[adata.obs_names[:100], "cell_type"] = None
    options: dict[str, Any] = {"reps": ["X_mixed"]}
    drawn, again, other = (
        cx.get.mixing_report(
            adata, "condition", "cell_type", max_cells=300, random_state=seed, **options
        )
        for seed in (0, 0, 1)
    )
    assert drawn.equals(again)
    assert not drawn.equals(other)
    assert drawn["n_cells"].to_list() == [300]
    every = cx.get.mixing_report(adata, "condition", "cell_type", max_cells=None, **options)
    assert every["n_cells"].to_list() == [800]
    assert abs(every["silhouette_cell_type"] - drawn["silhouette_cell_type"]).item() < 0.1


@pytest.mark.usefixtures("one_cluster")
def test_ilisi_and_kbet_distinguish_mixed_from_separate_conditions() -> None:
    adata = embedded(900)
    adata.obs.loc[adata.obs_names[:10], "cell_type"] = "rare"
    report = cx.get.mixing_report(adata, "condition", "cell_type", reps=["X_mixed", "X_apart"])
    assert report.loc["X_mixed", "ilisi"] > 0.9
    assert abs(report.loc["X_mixed", "kbet"] - 0.95) < 0.05
    assert (report.loc["X_apart", ["ilisi", "kbet"]] < 0.05).all()
    same = cx.get.mixing_report(adata, "condition", "condition", reps="X_mixed")
    assert np.isnan(same[["mixing_ari", "kbet"]]).all(axis=None)  # a type is in one condition only


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_the_scores_agree_with_the_definitions_of_their_papers(share: float) -> None:
    """Compare the scores with the formulas of the papers, which are evaluated cell by cell.

    The comparison uses root finding for the perplexity and SciPy's chi-squared test. The conditions
    are partly separated.
    """
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(200, 3))
    condition = np.where(rng.random(200) < share + 0.3 * (scores[:, 0] > 0), "a", "b")
    distances = np.linalg.norm(scores[:, None] - scores, axis=2)
    numbers, accepted = [], []
    for i in range(200):
        order = np.argsort(distances[i])[1:]
        squares = distances[i, order[:50]] ** 2  # the 50 nearest of 200 cells

        def weights(beta: float, squares: Any = squares) -> Any:
            found = np.exp(-beta * squares)
            return found / found.sum()

        beta = brentq(lambda b, w=weights: entropy(w(b)) - np.log(50 / 3), 1e-6, 50.0)
        shares = [weights(beta)[condition[order[:50]] == c].sum() for c in "ab"]
        numbers.append(1 / np.square(shares).sum())
        found = [(condition[order[:50]] == c).sum() for c in "ab"]
        expected = [50 * (condition == c).mean() for c in "ab"]
        accepted.append(chisquare(found, expected).pvalue >= 0.05)
    np.testing.assert_allclose(ilisi(scores, condition), np.median(numbers) - 1, rtol=1e-6)
    types = np.full(200, "T")
    np.testing.assert_allclose(kbet(scores, condition, types), np.mean(accepted))
