"""Compare a cluster of two workers with a single process on cells in a zarr file.

    python -m benchmarks.cluster [CELLS ...]      # 50000 200000 by default: some minutes

The data resemble log-normalised counts of 2,000 genes, 6% of them not zero. A tenth of the cells
belongs to neither condition. On the cluster, `cx.tl.cpca` (10 components, one alpha) reads the
cells twice: once for the moments, and once to embed them. The single process reads the chunks once
and computes the moments of both conditions.

The ratio of elapsed seconds says how long a user waits. To measure it, use an idle machine with two
cores. The ratio of CPU seconds, summed over all processes, says what the cluster costs. It depends
less on other work of the machine. The memory of a worker is its largest resident size, including
imports.

Bounds: the cluster takes at most 1.3 times as long as the single process, and each worker stays
below 600 MB for any number of cells.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import anndata as ad
import numpy as np
import scipy.sparse as sp
from distributed import Client, LocalCluster

import scanpy_ext as cx
from benchmarks.common.measures import peak_memory
from benchmarks.common.report import Report, run
from contrast_core import SecondMoments

N_GENES, BLOCK = 2000, 10_000  # number of genes, and of cells that are generated at once
SHARE = 0.06  # share of the values that are not zero
WARM = 10_000  # number of cells in a first call, which imports and compiles code untimed
WORST_TIME = 1.3  # largest ratio of elapsed seconds
WORST_MEMORY = 600  # MB of a worker
DESIGN: dict[str, Any] = {"groupby": "condition", "reference": "ctrl"}


def block(n: int, seed: int) -> sp.csr_matrix:
    rng = np.random.default_rng(seed)
    values = rng.random((n, N_GENES), np.float32)
    values[values > SHARE] = 0
    values *= np.float32(3 / SHARE)
    values[::2, :20] *= 2
    return sp.csr_matrix(values)


def write(path: Path, n: int) -> None:
    parts = [block(min(BLOCK, n - start), start) for start in range(0, n, BLOCK)]
    adata = ad.AnnData(sp.vstack(parts, format="csr"))
    kind = np.arange(n) % 10
    adata.obs["condition"] = np.where(kind == 9, None, np.where(kind % 2, "ctrl", "stim"))
    adata.write_zarr(path)


def clocks() -> np.ndarray:
    """Return the CPU seconds of this process and the elapsed seconds."""
    return np.array([time.process_time(), time.perf_counter()])


def on_one_machine(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds to read all cells, and the seconds to read them and compute the moments.

    Each result is an array with the CPU seconds and the elapsed seconds. The moments of both
    conditions are computed.
    """
    lazy = ad.experimental.read_lazy(path)
    known = lazy.obs[["condition"]].to_memory()["condition"]
    SecondMoments.from_data(block(WARM, 0))  # imports and compiles code before the timing
    start = clocks()
    chunks = [each.compute(scheduler="synchronous") for each in lazy.X.blocks.ravel()]
    rows = sp.vstack(chunks, format="csr")
    sets = [rows[(known == name).to_numpy()] for name in ("stim", "ctrl")]
    read = clocks()
    for each in sets:
        SecondMoments.from_data(each)
    return read - start, clocks() - start


def usage() -> tuple[float, float]:
    """Return the CPU seconds and the largest resident size in MB of this process."""
    return time.process_time(), 1024 * peak_memory()


def on_a_cluster(path: Path) -> tuple[np.ndarray, float]:
    """Return CPU and elapsed seconds of the cluster, and the largest memory of a worker in MB."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        lazy = ad.experimental.read_lazy(path)
        first = ad.AnnData(lazy.X[:WARM], obs=lazy.obs[["condition"]].to_memory().iloc[:WARM])
        cx.tl.cpca(first, **DESIGN, n_comps=10, alpha=1.0)  # imports and compiles code
        before = client.run(usage)
        start = clocks()
        cx.tl.cpca(lazy, **DESIGN, n_comps=10, alpha=1.0)
        seconds = clocks() - start
        after = client.run(usage)
        seconds[0] += sum(after[name][0] - before[name][0] for name in after)
        return seconds, max(peak for _, peak in after.values())


def main(report: Report) -> None:
    for n in map(int, sys.argv[1:] or ["50000", "200000"]):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "cells.zarr"
            write(path, n)
            print(f"{n:,} cells x {N_GENES:,} genes", flush=True)
            read, alone = on_one_machine(path)
            report.measured("one process: CPU seconds for reading", read[0])
            report.measured("  CPU seconds for reading and moments", alone[0])
            together, memory = on_a_cluster(path)
            report.measured("cluster: elapsed seconds", together[1])
            report.measured(
                "  elapsed / elapsed of one process", together[1] / alone[1], most=WORST_TIME
            )
            report.measured("  CPU seconds / CPU seconds of one process", together[0] / alone[0])
            report.measured("largest memory of a worker in MB", memory, most=WORST_MEMORY)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(main)
