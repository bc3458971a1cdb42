"""Compare contrastive PCA of many sparse cells with `sc.pp.pca` in time and memory.

All datasets have 2,000 genes. `tl.cpca` runs at one alpha and at the automatic alpha. Its
foreground is all cells, and its background is the control cells. For comparison, `sc.pp.pca` runs
with scanpy's default solver and the same number of components. The calls alternate, and each time
is the median of three in CPU seconds on one BLAS thread. A first run on few cells, which compiles
code, is not timed. Memory is the peak that Python allocates beyond the matrix.

Bound: on data with at least 10 million nonzero counts, `tl.cpca` takes at most twice as long as
`sc.pp.pca`. The bound is missed for the cells of ten types with ten components, where PCA is fast:
one alpha takes about 2.3 times as long, and the automatic alpha 2.4 to 3.1 times.

There are two kinds of cells:

- "types" are Poisson counts of ten cell types. Fifty genes respond to the treatment. With ten
  components PCA has a spectral gap here, so its iteration converges at once. The cell types cancel
  out of the contrast, which therefore has no such gap.
- "resampled" are Poisson counts. The rates of a cell are random averages over ten similar blood
  cells of the tutorials, with or without interferon. The 1,267 genes of these cells are extended to
  2,000 by repeating some of them at other levels. The spectrum falls gradually.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import scanpy as sc
import scipy.sparse as sp
from scipy.optimize import brentq
from sklearn.neighbors import NearestNeighbors

import scanpy_ext as cx
from benchmarks.common.measures import allocated, seconds
from benchmarks.common.report import Report, run
from benchmarks.common.tasks import ROOT

N_GENES, NEIGHBOURS = 2_000, 10
REAL = ROOT / "tutorials" / "data" / "kang_labelled_2donors.h5ad"
DESIGN = {"groupby": "condition", "reference": "ctrl", "mask_var": None}


def normalised(blocks: list[Any], stimulated: Any) -> ad.AnnData:
    """Return blocks of counts as an AnnData of normalised logarithms, with the condition."""
    adata = ad.AnnData(sp.vstack(blocks, format="csr"))
    adata.obs["condition"] = np.where(stimulated, "stim", "ctrl")
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    return adata


def typed_cells(n_cells: int, density: float) -> ad.AnnData:
    """Return cells of ten types; `density` is the expected share of counts that are not zero."""
    rng = np.random.default_rng(0)
    types = rng.gamma(0.35, 0.3, size=N_GENES) * rng.gamma(2.0, 0.5, size=(10, N_GENES))
    types *= brentq(lambda depth: (1 - np.exp(-depth * types)).mean() - density, 1e-4, 1e4)
    response = np.ones(N_GENES)
    response[rng.choice(N_GENES, 50, replace=False)] = 4.0
    kind, stimulated, blocks = rng.integers(10, size=n_cells), np.arange(n_cells) % 2 == 1, []
    for cells in np.array_split(np.arange(n_cells), -(-n_cells // 5000)):
        rates = types[kind[cells]] * rng.gamma(8.0, 1 / 8, size=(len(cells), 1))
        rates[stimulated[cells]] *= response
        blocks.append(sp.csr_matrix(rng.poisson(rates).astype(np.float32)))
    return normalised(blocks, stimulated)


def resampled_cells(n_cells: int, density: float) -> ad.AnnData:
    """Return cells like real ones; `density` is the expected share of counts that are not zero."""
    rng = np.random.default_rng(0)
    known = ad.read_h5ad(REAL)
    sc.pp.normalize_total(known, target_sum=1.0)
    profiles, stimulated = known.X.toarray(), (known.obs["condition"] == "stim").to_numpy()
    near = np.empty((known.n_obs, NEIGHBOURS), dtype=np.intp)
    for side in (stimulated, ~stimulated):
        which, logs = np.flatnonzero(side), np.log1p(1e4 * profiles[side])
        search = NearestNeighbors(n_neighbors=NEIGHBOURS, metric="cosine").fit(logs)
        near[side] = which[search.kneighbors(logs, return_distance=False)]
    again = rng.choice(known.n_vars, N_GENES - known.n_vars, replace=False)
    genes = np.concatenate([np.arange(known.n_vars), again])
    rates = profiles[:, genes] * rng.lognormal(0, 0.5, N_GENES)
    some = rates[near[::4]].mean(axis=1)  # every fourth cell is enough to find the depth
    depth = brentq(lambda depth: (1 - np.exp(-depth * some)).mean() - density, 1, 1e7)
    source, blocks = rng.integers(known.n_obs, size=n_cells), []
    for cells in np.array_split(source, -(-n_cells // 5000)):
        shares = rng.dirichlet(np.ones(NEIGHBOURS), len(cells))
        shares *= depth * rng.lognormal(0, 0.4, (len(cells), 1))
        ends = NEIGHBOURS * np.arange(len(cells) + 1)
        mix = sp.csr_array((shares.ravel(), near[cells].ravel(), ends), (len(cells), known.n_obs))
        blocks.append(sp.csr_matrix(rng.poisson(mix @ rates).astype(np.float32)))
    return normalised(blocks, stimulated[source])


def calls(adata: ad.AnnData, k: int) -> dict[str, Callable[[], Any]]:
    return {
        "sc.pp.pca": lambda: sc.pp.pca(adata, n_comps=k, mask_var=None),
        "one alpha": lambda: cx.tl.cpca(adata, **DESIGN, n_comps=k, alpha=1.0),
        "automatic alpha": lambda: cx.tl.cpca(adata, **DESIGN, n_comps=k),
    }


def compare(report: Report, adata: ad.AnnData, ks: tuple[int, ...]) -> None:
    for call in calls(adata[:4000].copy(), 2).values():
        call()
    bound = 2.0 if adata.X.nnz >= 1e7 else np.inf
    for k in ks:
        compared = calls(adata, k)
        (pca, _), *others = seconds(*compared.values())
        report.measured(f"k = {k}: seconds for sc.pp.pca", pca)
        for name, (taken, _) in zip(list(compared)[1:], others, strict=True):
            report.measured(f"  {name} / sc.pp.pca", taken / pca, most=bound)


def main(report: Report) -> None:
    for name, make, n_cells, density, ks in (
        ("types", typed_cells, 100_000, 0.06, (2, 10, 50)),
        ("resampled", resampled_cells, 100_000, 0.06, (2, 10, 50)),
        ("types", typed_cells, 20_000, 0.1, (50,)),
        ("types", typed_cells, 200_000, 0.1, (50,)),
    ):
        print(f"{name}: {n_cells:,} cells, {density:.0%} of 2,000 genes not zero", flush=True)
        adata = make(n_cells, density)
        compare(report, adata, ks)
        for call, run_it in calls(adata, 50).items():
            report.measured(f"  {call}, k = 50: GB beyond the matrix", allocated(run_it))


if __name__ == "__main__":
    run(main)
