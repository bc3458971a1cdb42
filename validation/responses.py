"""Check `cx.tl.contrasts` and `cx.tl.response` on a CRISPR screen and on simulated screens.

    python -m validation.responses [screen] [mixscape]

screen: The data are the cells of papalexi_2replicates whose guide has more than .8 of the reads.
Values are log1p of counts scaled to the median total, and the mean of the replicate's non-targeting
cells is subtracted. The measure is the area under the ROC curve (AUC) that separates a guide's
cells from half of the non-targeting cells. The direction is learnt from other cells: the cells of
the target's other guides, and the other half of the non-targeting cells. AUCs are means over guides
and three random halvings. AUCs are also computed for one component of PCA, for one component of
cPCA*, and for Mixscape, which is computed here from its definition. Mixscape subtracts from each
cell the mean of its 20 nearest non-targeting cells of the replicate. It then projects onto the
difference of the two means on the genes that differ (Wilcoxon, adjusted p below .05, log2 fold
change above .25). Its AUC is .5 if fewer than five genes differ. For the 95% intervals, cells are
drawn with replacement within each guide while the directions stay fixed. The ridge, the number of
components and the kind of shrinkage of `condition_shift` were chosen by these AUCs.

mixscape: In simulated screens, 30%, 60% or 90% of 400 cells respond by 1, 2 or 4 standard
deviations along a direction of 40 of 400 genes. Library size and cell cycle vary too. The measure
is the AUC that separates responding cells from all others. If the environment variable PERTPY
names a Python that has pertpy, its Mixscape is compared. The score of Mixscape is `pvec`, the
perturbation score. Its AUC is .5 if Mixscape finds too few genes. Mixscape scores the cells from
which it chose its direction, which makes its AUC too large. Therefore it is also compared with the
AUC of `response` if the direction is chosen from all cells and the same cells are scored.

Three bounds are missed, for reasons that docs/methods/responses.md explains: the held-out AUC of
`response` is below the AUC of Mixscape in one simulated setting, STAT1 is below cPCA*, and the
intervals of too few targets contain a share of 0 if the transcript of the target itself is used.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, norm, rankdata
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

import scanpy_ext as cx
from benchmarks.common.measures import centred
from benchmarks.common.report import Report, run
from benchmarks.common.tasks import larger_data, log_normalised
from contrast_core import CPCAStar, condition_shift, responders

FloatArray = NDArray[np.float64]
STRONG = ["JAK2", "IFNGR1", "STAT1", "IFNGR2", "SMAD4", "IRF1"]
VISIBLE = [*STRONG, "BRD4", "CUL3", "MYC"]
# The best AUC of one component of PCA or cPCA* that was measured before `response` existed, rounded
# to two decimals.
BASELINE = {"JAK2": 0.9, "STAT1": 0.93, "SMAD4": 0.8, "IRF1": 0.72, "CUL3": 0.65, "ATF2": 0.51}
SCORES = ["PCA", "cPCA*", "response", "Mixscape"]
N_DRAWS = 500  # number of draws of cells with replacement, for the intervals of areas
N_SETS = 5  # number of simulated screens of each setting
MIXSCAPE = """
import sys, warnings
warnings.filterwarnings("ignore")
import anndata, numpy, pertpy, scanpy
cells, found = anndata.read_h5ad(sys.argv[1]), {}
for name in cells.obs["set"].unique():
    one = cells[cells.obs["set"] == name].copy()
    scanpy.pp.pca(one)
    mixscape = pertpy.tl.Mixscape()
    mixscape.perturbation_signature(one, "target", "NT", n_dims=15)
    mixscape.mixscape(one, "target", "NT", layer="X_pert")
    scores = list(one.uns.get("mixscape", {}).get("T", {}).values())
    found[name] = scores[0]["pvec"].reindex(one.obs_names).to_numpy() if scores else numpy.zeros(0)
numpy.savez(sys.argv[2], **found)
"""


def log_counts(rng: np.random.Generator, rates: FloatArray) -> FloatArray:
    counts = rng.poisson(np.exp(np.clip(rates, -8, 6))).astype(float)
    totals = counts.sum(axis=1, keepdims=True) + 1
    return np.log1p(counts / totals * np.median(totals))


def areas(
    positive: FloatArray, negative: FloatArray, weights: NDArray[Any], others: NDArray[Any]
) -> FloatArray:
    """Return the area under the ROC curve, (n_draws,), for each draw of weights of the cells.

    `weights` are the weights of the cells with the scores `positive`, and `others` are the weights
    of the cells with the scores `negative`, each of shape (n_draws, n_cells).
    """
    above = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    found = ((weights @ above.astype(np.float32)) * others).sum(axis=1)
    return np.asarray(found / weights.sum(axis=1) / others.sum(axis=1), dtype=np.float64)


def signature(values: FloatArray, control: NDArray[np.bool_], batch: NDArray[Any]) -> FloatArray:
    """Subtract from each cell the mean of its 20 nearest controls of the same batch."""
    found, near = np.empty_like(values), PCA(40, random_state=0).fit_transform(values)
    for name in np.unique(batch):
        here, own = batch == name, np.flatnonzero((batch == name) & control)
        index = NearestNeighbors(n_neighbors=20).fit(near[own])
        found[here] = values[here] - values[own][index.kneighbors(near[here])[1]].mean(axis=1)
    return found


def differing(x: FloatArray, y: FloatArray) -> NDArray[np.intp]:
    """Return the genes that differ by Wilcoxon's test and fold change, as Mixscape chooses them."""
    ranks, n, m = rankdata(np.vstack([x, y]), axis=0), len(x), len(y)
    z = (ranks[:n].mean(0) - ranks[n:].mean(0)) / (ranks.std(0) * np.sqrt(1 / n + 1 / m) + 1e-12)
    fold = np.log2((np.expm1(x).mean(0) + 1e-9) / (np.expm1(y).mean(0) + 1e-9))
    adjusted = false_discovery_control(2 * norm.sf(np.abs(z)))
    return np.flatnonzero((adjusted < 0.05) & (np.abs(fold) > 0.25))


def left_out_guides(adata: ad.AnnData) -> dict[str, FloatArray]:
    """Return for each target the areas (4, 1 + N_DRAWS), averaged over guides and halvings.

    Each row belongs to one of the SCORES. The first column uses each cell once, and the other
    columns use cells drawn with replacement.
    """
    values = adata.X.toarray().astype(float)
    target, guide, batch = (
        adata.obs[name].astype(str).to_numpy() for name in ("target", "guide", "replicate")
    )
    control = target == "non-targeting"
    relative = signature(values, control, batch)
    shifted = centred(values, batch, control)
    weights = np.ones((1 + N_DRAWS, len(values)), dtype=np.float32)
    drawn_within, rng = np.where(control, target, guide), np.random.default_rng(0)
    for name in np.unique(drawn_within):
        here = np.flatnonzero(drawn_within == name)
        shares = np.full(len(here), 1 / len(here))
        weights[1:, here] = rng.multinomial(len(here), shares, size=N_DRAWS)
    table = {}
    for name in sorted(set(target) - {"non-targeting"}):
        own = [g for g in np.unique(guide[target == name]) if (guide == g).sum() >= 10]
        rows = []
        for seed in range(3):
            halves = np.random.default_rng(seed).permutation(np.flatnonzero(control))
            first, second = np.array_split(halves, 2)
            for each in own:
                train = np.flatnonzero((target == name) & (guide != each))
                test = np.flatnonzero((target == name) & (guide == each))
                if len(train) < 10:
                    continue
                x, y = shifted[train], shifted[first]
                both, difference = np.vstack([x, y]), x.mean(0) - y.mean(0)
                star = CPCAStar(1).fit(both, background=y).components_[0]
                pca = CPCAStar(1, beta=0).fit(both, background=y).components_[0]
                shift = condition_shift(x, background=y, n_resamples=0, random_state=0)
                genes = differing(values[train], values[first])
                mixscape = np.zeros(len(difference))
                if len(genes) >= 5:
                    moved = relative[train].mean(0) - relative[first].mean(0)
                    mixscape[genes] = moved[genes]
                signed = [v * np.sign(v @ difference) for v in (pca, star)]
                scores = [
                    (shifted[test] @ v, shifted[second] @ v) for v in (*signed, shift.direction)
                ]
                scores.append((relative[test] @ mixscape, relative[second] @ mixscape))
                counted = weights[:, test], weights[:, second]
                rows.append([areas(*pair, *counted) for pair in scores])
        if rows:
            table[name] = np.mean(rows, axis=0)
    return table


def screen(report: Report) -> None:
    """Measure AUCs on guides that were left out, and check which targets are found to respond."""
    adata = ad.read_h5ad(larger_data() / "crispr" / "papalexi_2replicates.h5ad")
    adata = adata[adata.obs["guide_share"] > 0.8].copy()
    total = float(np.median(np.asarray(adata.X.sum(axis=1))))
    adata.X = sp.csr_matrix(log_normalised(adata.X, total))
    design: dict[str, Any] = {"groupby": "target", "reference": "non-targeting"}
    drawn = left_out_guides(adata)
    table = pd.DataFrame({name: found[:, 0] for name, found in drawn.items()}, index=SCORES).T
    print(table.round(3).to_string())
    for other in ("cPCA*", "Mixscape"):
        place, ahead, behind = SCORES.index(other), [], []
        for name, found in drawn.items():
            margin = found[2] - found[place]
            low, high = np.quantile(margin[1:], [0.025, 0.975])
            told = f"{name} {margin[0]:+.4f} [{low:+.4f}, {high:+.4f}]"
            if low > 0:
                ahead.append(told)
            if high < 0:
                behind.append(told)
            if name in STRONG:
                print(f"    response - {other}: {told}")
        print(f"    above {other}, interval without 0: {len(ahead)} of {len(drawn)} targets:")
        print(f"    {', '.join(ahead)}")
        what = f"targets below {other}, interval without 0 ({', '.join(behind)})"
        report.measured(what, len(behind), most=0)
        print(f"    If no target differed, {len(drawn) / 40:.1f} would be expected by chance.")
    lead = min(table.loc[name, "response"] - area for name, area in BASELINE.items())
    report.measured("smallest lead over the best earlier AUC of six targets", lead, least=-0.005)
    cx.tl.contrasts(adata, **design, by="target")
    asked = cx.get.contrasts(adata).index[:6].to_list()
    report.bound(f"contrasts, by target: {', '.join(asked)}", set(asked) == set(STRONG))
    cx.tl.response(adata, **design, within="replicate")
    table = adata.uns["response"]["conditions"]
    order = table.sort_values("effect", ascending=False).index[:6].to_list()
    report.bound(f"response, by effect, has the same order: {', '.join(order)}", asked == order)
    others = [name for name in table.index if name not in VISIBLE]
    zero = table.loc[others, "share_low"] == 0
    what = f"targets whose interval of the share contains 0, of {len(others)}"
    report.measured(what, zero.sum(), least=13)
    print(f"    the other targets are {', '.join(zero.index[~zero])}")
    n_zero = 0
    for name in others:  # the transcript of the target itself is not a response
        genes = np.asarray(adata.var_names != name)
        cx.tl.response(adata, **design, groups=name, within="replicate", mask_var=genes)
        n_zero += adata.uns["response"]["conditions"].loc[name, "share_low"] == 0
    report.measured("  the same without the target's own gene", n_zero, least=13)
    called = []
    control = np.flatnonzero(adata.obs["target"] == "non-targeting")
    for seed in range(3):
        half = np.random.default_rng(seed).permutation(control)[::2]
        target = adata.obs["target"].astype(str).to_numpy()
        target[half] = "left out"
        adata.obs["half"] = target
        cx.tl.response(
            adata, groupby="half", reference="non-targeting", groups="left out", within="replicate"
        )
        called.append(float(adata.obs["response_called"].to_numpy()[half].mean()))
    share = float(np.mean(called))
    report.measured("share of left-out non-targeting cells that are called", share, most=0.06)


def simulated_screen(seed: int, share: float, effect: float) -> tuple[FloatArray, NDArray[Any]]:
    """Return log counts of 600 control and 400 treated cells, and which cells responded."""
    rng = np.random.default_rng(seed)
    n, n_genes = 1000, 400
    rates = rng.normal(-1.0, 1.2, n_genes) + rng.normal(0, 0.45, (n, 1))
    cycle, moved = np.zeros(n_genes), np.zeros(n_genes)
    cycle[rng.choice(n_genes, 40, replace=False)] = np.abs(rng.normal(0, 0.6, 40))
    moved[rng.choice(n_genes, 40, replace=False)] = rng.normal(size=40)
    rates = rates + rng.choice([0, 1, 2], n, p=[0.6, 0.25, 0.15])[:, None] * cycle
    true = (np.arange(n) >= 600) & (rng.random(n) < share)
    low, high = 0.0, 5.0
    for _ in range(12):  # bisection for the size at which the means differ by `effect` sd
        size = (low + high) / 2
        draws = [
            log_counts(np.random.default_rng(seed), rates + each * moved) for each in (0.0, size)
        ]
        difference = draws[1].mean(0) - draws[0].mean(0)
        length = np.linalg.norm(difference)
        found = length / (draws[0] @ difference / length).std()
        low, high = (size, high) if found < effect else (low, size)
    return log_counts(np.random.default_rng(seed + 1), rates + size * np.outer(true, moved)), true


def mixscape(report: Report) -> None:
    """Compare the AUCs of `condition_shift` with the AUCs of Mixscape on simulated screens."""
    settings = [(share, effect) for share in (0.3, 0.6, 0.9) for effect in (1, 2, 4)]
    sets = {
        (i, draw): simulated_screen(1000 * draw + i, *setting)
        for i, setting in enumerate(settings)
        for draw in range(N_SETS)
    }
    scores = _pertpy({str(name): each for name, each in sets.items()})
    called: list[float] = []
    leads = []
    for i, (share, effect) in enumerate(settings):
        found: list[list[float]] = []
        for draw in range(N_SETS):
            values, true = sets[i, draw]
            x, y = values[600:], values[:600]
            # The controls `new` did not respond. Two shares of them that are called by mistake are
            # measured. Both fits use the controls `kept` as the background. In the first fit, `new`
            # takes the place of the treated cells. The second fit finds the direction and the
            # lowest called score of the treated cells, and both are applied to `new`.
            kept, new = y[:400], y[400:]
            shift = condition_shift(x, background=y, n_resamples=0, random_state=0)
            own = roc_auc_score(true, np.r_[shift.background_scores, shift.foreground_scores])
            with_half = condition_shift(new, background=kept, n_resamples=0, random_state=0)
            half = responders(with_half.foreground_scores, with_half.background_scores)
            learnt = condition_shift(x, background=kept, n_resamples=0, random_state=0)
            cells = responders(learnt.foreground_scores, learnt.background_scores)
            centre, spread = (kept @ learnt.direction).mean(), (kept @ learnt.direction).std()
            least = np.min(learnt.foreground_scores[cells.called], initial=np.inf)
            called += [((new @ learnt.direction - centre) / spread >= least).mean()]
            called += [half.called.mean()]
            other = scores.get(str((i, draw)), np.zeros(0))
            peer = roc_auc_score(true, other) if len(other) and np.isfinite(other).all() else 0.5
            same_cells = roc_auc_score(true, values @ shift.direction)
            found.append([own, same_cells, peer])
        means, margins = np.mean(found, axis=0), np.subtract(*np.array(found).T[[0, 2]])
        leads.append(means[:2] - means[2])
        line = f"  {share:.0%} respond by {effect} sd: means of {N_SETS} sets"
        line += f", response {means[0]:.3f}"
        if scores:
            line += f" (on the same cells {means[1]:.3f}), Mixscape {means[2]:.3f}; "
            line += f"differences in single sets {margins.min():+.3f} to {margins.max():+.3f}"
        print(line)
    share = float(np.mean(called))
    report.measured("share of left-out control cells that are called", share, most=0.06)
    if scores:
        held_out, same_cells = np.min(leads, axis=0)
        report.measured("smallest mean lead over Mixscape", held_out, least=0.0)
        what = "  the same if both score the cells that chose the direction"
        report.measured(what, same_cells, least=0.0)
    else:
        print("  Mixscape was not run: PERTPY names no Python with pertpy")


def _pertpy(sets: dict[str, tuple[FloatArray, NDArray[Any]]]) -> dict[str, FloatArray]:
    python = os.environ.get("PERTPY")
    if not python:
        return {}
    parts = []
    for name, (values, _) in sets.items():
        target = np.where(np.arange(len(values)) >= 600, "T", "NT")
        obs = pd.DataFrame({"set": name, "target": target})
        obs.index = [f"{name} {i}" for i in range(len(values))]
        parts.append(ad.AnnData(values.astype(np.float32), obs=obs))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        ad.concat(parts).write_h5ad(path / "cells.h5ad")
        files = [str(path / "cells.h5ad"), str(path / "scores.npz")]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([python, "-c", MIXSCAPE, *files], check=True, env=environment)
        with np.load(files[1]) as found:
            return {name: np.asarray(found[name]) for name in found.files}


if __name__ == "__main__":
    run(screen, mixscape)
