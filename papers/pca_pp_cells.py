"""PCA, PCA+, PCA++ and Harmony on blood cells with and without interferon, side by side.

The paper's Figure 3 and Table 12. The labelled cells of two donors come with the tutorials; the
five donors need CONTRAST_DATA.
Harmony (harmonypy, installed for the length of the run) is told the condition of each cell; PCA+
and PCA++ are not: they get pairs. "literal" is the paper's form, "random pairs" pairs cells of a
donor blindly: they mix well and dissolve the cell types, so judge by both. The second table of each
data set embeds cells of donors that the methods never saw (Harmony cannot do that).

Must reach, PCA++ with k = 20 and all defaults (labelled / five donors): pairs of one cell type >=
.86 / .87, covering >= .7 of both conditions; mixing ARI <= .03 / .02; iLISI by condition >= 1.70 /
1.72; silhouette by condition <= .02; transfer >= .92 / .925; ARI with the cell type, mean over
resolutions .3, .6 and 1 and five seeds, >= .65 / .50. Approximate pairs: 95 of 100 as the exact.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import anndata
import numpy as np
import pandas as pd
import scanpy as sc
import scipy.sparse as sp
from anndata import AnnData
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import scanpy_ext as cx
from benchmarks.common.report import Report, panels, scatter
from benchmarks.common.tasks import ROOT, data_folder
from contrast_core.pairing import neighbor_pairs, pairing_basis, scaled_features

DESIGN = ("condition", "ctrl", "donor")
PCA_PP_FORMS = {
    "PCA++": {},
    "PCA++ literal": {"exchangeable": False, "weighted": False},
}
BOUNDS = {
    "labelled": {
        "same cell type": 0.86,
        "coverage": 0.7,
        "mixing_ari": 0.03,
        "ilisi": 1.70,
        "silhouette_condition": 0.02,
        "transfer": 0.92,
        "cell_type_ari": 0.65,
    },
    "five donors": {
        "same cell type": 0.87,
        "coverage": 0.7,
        "mixing_ari": 0.02,
        "ilisi": 1.72,
        "silhouette_condition": 0.02,
        "transfer": 0.925,
        "cell_type_ari": 0.50,
    },
}
# Table 12: adjusted Rand index of clusters and condition within a cell type, and over all cells.
TABLE_12 = {
    "T cells": (0.2084, 0.0036, 0.0008),
    "B cells": (0.2977, 0.0242, 0.0050),
    "NK cells": (0.2502, 0.0299, 0.0049),
    "all": (0.1478, 0.0140, 0.0172),
}
DATA = (
    "the paper's study (Kang et al. 2018), not its 29,065 cells of eight donors but what can be "
    "had: 1,556 labelled cells of two donors, without NK cells, and 1,119 of five donors whose "
    "types were inferred; 20 components, pairs by nearest neighbours in one basis."
)
AT_MOST = ("mixing_ari", "silhouette_condition")


def cells() -> dict[str, tuple[AnnData, list[str]]]:
    """The data sets, log-normalised, and the donors to fit on when others are held out."""
    folder = data_folder()
    bundled = ROOT / "tutorials" / "data" / "kang_labelled_2donors.h5ad"
    found = {"labelled": (_normalised(anndata.read_h5ad(bundled)), ["101"])}
    if folder is not None:
        five = anndata.read_h5ad(folder / "kang_pbmc" / "kang_5donors.h5ad")
        five.obs["cell_type"] = five.obs["cell_type_inferred"]
        five = _normalised(five)
        sc.pp.highly_variable_genes(five, n_top_genes=2000)
        found["five donors"] = five, ["101", "107", "1015"]
    return found


def _normalised(adata: AnnData) -> AnnData:
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    return adata


def random_pairs(adata: AnnData, n_per_donor: int = 500) -> sp.csr_matrix:
    rng = np.random.default_rng(0)
    stimulated = (adata.obs["condition"] == "stim").to_numpy()
    donors = adata.obs["donor"].astype(str).to_numpy()
    ends = [
        [rng.choice(np.flatnonzero((donors == name) & side), n_per_donor) for side in sides]
        for name in np.unique(donors)
        for sides in [(stimulated, ~stimulated)]
    ]
    i, j = np.concatenate(ends, axis=1)
    return sp.csr_matrix((np.ones(len(i)), (i, j)), shape=(adata.n_obs, adata.n_obs))


def embed(fitted: AnnData, new: AnnData) -> None:
    """Fit PCA, PCA+ and PCA++ on some cells, and write the scores of `new` ones by their names."""
    sc.pp.pca(fitted, n_comps=20)
    mean, loadings = np.asarray(fitted.X.mean(axis=0)).ravel(), fitted.varm["PCs"]
    new.obsm["PCA"] = np.asarray(new.X @ loadings - mean @ loadings)
    fitted.obsp["random"] = random_pairs(fitted)
    cx.tl.pca_plus(fitted, key_added="PCA+")
    for name, form in PCA_PP_FORMS.items():
        cx.tl.pca_pp(fitted, **form, key_added=name)
    cx.tl.pca_pp(fitted, pairs="random", key_added="PCA++ random pairs")
    for name in ("PCA+", *PCA_PP_FORMS, "PCA++ random pairs"):
        cx.tl.project(new, fitted, key=name)


def scores(adata: AnnData, lisi: Callable[..., np.ndarray]) -> pd.DataFrame:
    """The mixing report, the ARI with cell type over resolutions and seeds, and iLISI."""
    reps = list(adata.obsm)
    reps.remove("X_pca") if "X_pca" in reps else None
    reports = {
        resolution: cx.get.mixing_report(
            adata, "condition", "cell_type", reps=reps, resolution=resolution, n_seeds=5
        )
        for resolution in (0.3, 0.6, 1.0)
    }
    table = reports[1.0]
    table["cell_type_ari"] = sum(report["cell_type_ari"] for report in reports.values()) / 3
    table["ilisi"] = [
        lisi(np.asarray(adata.obsm[rep]), adata.obs, ["condition"]).mean() for rep in reps
    ]
    return table


def overlap_of_approximate_pairs(adata: AnnData) -> float:
    """Return the share of pairs that the exact and the approximate search have in common."""
    stimulated = (adata.obs["condition"] == "stim").to_numpy()
    donors = adata.obs["donor"].to_numpy(str)
    samples = np.unique(np.char.add(donors, stimulated.astype(str)), return_inverse=True)[1]
    basis = pairing_basis(scaled_features(adata.X).matrix, samples, n_components=20)
    found = [
        neighbor_pairs(
            basis[stimulated],
            basis[~stimulated],
            within=donors[stimulated],
            positive_within=donors[~stimulated],
            search=search,
            random_state=0,
        )
        for search in ("exact", "approximate")
    ]
    exact, approximate = (set(zip(p.rows, p.positive_rows, strict=True)) for p in found)
    return len(exact & approximate) / len(exact | approximate)


def table_12(report: Report, adata: AnnData) -> None:
    """Leiden clusters of all cells, five seeds, as the paper's table has them."""
    condition = adata.obs["condition"].to_numpy(str)
    kind = np.char.replace(adata.obs["cell_type"].to_numpy(str), "CD4 ", "")
    kind = np.char.replace(kind, "CD8 ", "")
    found, shuffled = {}, {}
    rng = np.random.default_rng(0)
    for rep in ("PCA", "PCA+", "PCA++"):
        sc.pp.neighbors(adata, use_rep=rep)
        for seed in range(5):
            sc.tl.leiden(adata, flavor="igraph", n_iterations=2, directed=False, random_state=seed)
            clusters = adata.obs["leiden"].to_numpy(str)
            for name in TABLE_12:
                inside = (kind == name) | (name == "all")
                if inside.any():
                    value = adjusted_rand_score(condition[inside], clusters[inside])
                    found.setdefault((name, rep), []).append(value)
                    shuffled.setdefault((name, rep), []).extend(
                        adjusted_rand_score(rng.permutation(condition[inside]), clusters[inside])
                        for _ in range(40)
                    )
    for name, paper in TABLE_12.items():
        for rep, printed in zip(("PCA", "PCA+", "PCA++"), paper, strict=True):
            if (name, rep) not in found:
                continue
            value = float(np.mean(found[name, rep]))
            if rep == "PCA":
                report.row(f"Table 12, {name}: PCA does not mix", printed, value, value > 0.1)
            else:
                cells = int(((kind == name) | (name == "all")).sum())
                short = (
                    f"{cells} cells here, where the paper has thousands: with the conditions "
                    "shuffled, that is mixed perfectly, a twentieth of the values exceed "
                    f"{np.quantile(shuffled[name, rep], 0.95):.3f}"
                )
                report.row(f"  {rep}", printed, value, value <= printed, short=short)


def draw(report: Report, adata: AnnData, name: str) -> None:
    figure, axes = panels(2, 2, 4.0)
    for row, rep in zip(axes, ("PCA", "PCA++"), strict=True):
        sc.pp.neighbors(adata, use_rep=rep)
        sc.tl.umap(adata, random_state=0)
        for axis, column in zip(row, ("condition", "cell_type"), strict=True):
            labels = adata.obs[column].to_numpy(str)
            scatter(axis, adata.obsm["X_umap"], labels, f"UMAP of {rep}, {column}")
        del adata.obsm["X_umap"]
    report.save(figure, f"pca_pp_cells_{name.replace(' ', '_')}")


def run(
    report: Report, name: str, adata: AnnData, donors: list[str], harmonypy: ModuleType
) -> None:
    """The tables of one data set and its bounds."""
    lisi = import_module("harmonypy.lisi").compute_lisi
    cx.pp.match_pairs(adata, *DESIGN, cell_type="cell_type")
    pairs = adata.uns["pairs"]
    found = {
        "same cell type": pairs["same_cell_type"],
        "coverage": min(pairs["coverage_stimulated"], pairs["coverage_control"]),
    }
    print(f"\n{name}: {adata.n_obs} cells, {pairs['n_pairs']} pairs,", end=" ")
    print(", ".join(f"{key} {value:.3f}" for key, value in found.items()))
    print(f"approximate pairs shared with exact ones: {overlap_of_approximate_pairs(adata):.3f}")

    embed(adata, adata)
    table_12(report, adata)
    draw(report, adata, name)
    adata.obsm["Harmony"] = _harmony(harmonypy, adata)
    table = scores(adata, lisi)
    print(table.round(3).to_string())

    seen = adata.obs["donor"].astype(str).isin(donors).to_numpy()
    parts = adata[seen], adata[~seen]
    fitted, new = (anndata.AnnData(part.X, part.obs, part.var) for part in parts)
    cx.pp.match_pairs(fitted, *DESIGN)
    embed(fitted, new)
    print(f"fitted on {', '.join(donors)}, scores of the other donors:")
    print(scores(new, lisi).round(3).to_string())

    found |= table.loc["PCA++"].to_dict()
    for key, bound in BOUNDS[name].items():
        reached = found[key] <= bound if key in AT_MOST else found[key] >= bound
        report.bound(f"{name}: {key} {found[key]:.3f}, bound {bound}", reached)


def _harmony(harmonypy: ModuleType, adata: AnnData) -> np.ndarray:
    result = harmonypy.run_harmony(adata.obsm["PCA"], adata.obs, "condition", verbose=False)
    corrected = np.asarray(result.Z_corr)
    return corrected if len(corrected) == adata.n_obs else corrected.T


def main() -> int:
    report = Report(DATA)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--target", folder, "harmonypy==2.1.0"], check=True)
        sys.path.insert(0, folder)
        harmonypy = import_module("harmonypy")
        for name, (adata, donors) in cells().items():
            run(report, name, adata, donors, harmonypy)
    return len(report.missed)


if __name__ == "__main__":
    with threadpool_limits(1):
        sys.exit(main())
