"""Compare CVAE with cPCA, CLVM and ContrastiveVI on cells, and measure the memory of CVAE.

*Cells* (CONTRAST_DATA): the data are raw counts of glioblastoma cells with and without
panobinostat, and of Kang's blood cells with and without interferon. Each patient or donor in turn
is left out of the embedding and of the linear discriminant. The foreground is all other cells, and
the background is the controls among them. Every method has two (salient) dimensions. cPCA and CLVM
are fitted to log counts, CVAE and ContrastiveVI to counts. ContrastiveVI of scvi-tools runs only if
the environment variable SCVI_PYTHON names the Python of a separate environment with `pip install
scvi-tools`.

*Memory*: one epoch on 100,000 + 100,000 sparse cells x 2,000 genes.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import scipy.sparse as sp
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from benchmarks.common.measures import in_a_process, peak_memory
from benchmarks.common.report import Report, run
from benchmarks.common.tasks import larger_data, log_normalised
from contrast_core import CLVM, CPCA, CVAE

N_CELLS, N_GENES = 100_000, 2_000
SETS = {
    "glioblastoma": ("glioblastoma/glioblastoma_panobinostat.h5ad", "patient"),
    "Kang, 2 donors": ("kang_pbmc/kang_labelled_2donors.h5ad", "donor"),
    "Kang, 5 donors": ("kang_pbmc/kang_5donors.h5ad", "donor"),
}


def linear(method: Any) -> Any:
    """Return a function that fits a method to log counts of some cells and scores all cells."""

    def scores(counts: Any, used: Any, treated: Any) -> Any:
        logs = log_normalised(counts)
        model = method().fit(logs[used], background=logs[used & ~treated])
        return model.transform(logs)

    return scores


def autoencoder(counts: Any, used: Any, treated: Any) -> Any:
    model = CVAE(n_shared=8, noise="counts", random_state=0)
    return model.fit(counts[used], background=counts[used & ~treated]).transform(counts)


def contrastive_vi(counts: Any, used: Any, treated: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        sp.save_npz(f"{folder}/counts.npz", counts.tocsr())
        np.savez(f"{folder}/cells.npz", used=used, treated=treated)
        script = str(Path(__file__).with_name("_contrastive_vi.py"))
        subprocess.run([os.environ["SCVI_PYTHON"], script, folder], check=True)
        return np.load(f"{folder}/scores.npy")


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.children_user


def cells(report: Report) -> None:
    """Measure accuracy and time of each method on patients or donors that it has not seen."""
    methods = {"cPCA": linear(CPCA), "CLVM": linear(CLVM), "CVAE": autoencoder}
    if "SCVI_PYTHON" in os.environ:
        methods["ContrastiveVI"] = contrastive_vi
    print("mean accuracy (accuracy for each patient or donor left out); CPU seconds of a fit")
    for name, (path, column) in SETS.items():
        adata = anndata.read_h5ad(larger_data() / path)
        counts = sp.csr_matrix(adata.X)
        genes = np.sort(np.argsort(log_normalised(counts).var(axis=0))[-1000:])
        counts, who = counts[:, genes], adata.obs[column].astype(str).to_numpy()
        treated = (adata.obs["condition"].astype(str) != "ctrl").to_numpy()
        for method, embed in methods.items():
            found = []
            for left_out in np.unique(who):
                used, before = who != left_out, cpu_seconds()
                scores = embed(counts, used, treated)
                spent = cpu_seconds() - before
                discriminant = LinearDiscriminantAnalysis().fit(scores[used], treated[used])
                accuracy = discriminant.score(scores[~used], treated[~used])
                found.append((accuracy, spent))
            each = " ".join(f"{accuracy:.2f}" for accuracy, _ in found)
            mean, spent = np.mean(found, axis=0)
            print(f"{name:16}{method:14} {mean:.2f} ({each}); {spent:.1f} s", flush=True)


def epoch() -> float:
    """Train for one epoch and return the peak of the resident memory in GB."""
    rng = np.random.default_rng(0)
    counts = sp.random(N_CELLS, N_GENES, density=0.06, format="csr", rng=rng, dtype=np.float32)
    counts.data = 1.0 + rng.poisson(1.0, counts.nnz).astype(np.float32)
    model = CVAE(noise="counts", max_iter=1, random_state=0)
    model.fit(counts, background=counts[rng.permutation(N_CELLS)])
    return peak_memory()


def memory(report: Report) -> None:
    """Measure the memory of one epoch."""
    peak = in_a_process(epoch)
    report.measured("GB of memory for an epoch of 100,000 + 100,000 sparse cells", peak, most=3.0)


if __name__ == "__main__":
    run(cells, memory)
