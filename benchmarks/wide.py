"""Elapsed time and memory of one contrast and of a path when features outnumber rows.

- "dense": 1000 + 1000 rows of 20,000 features.
- "gap": 1500 + 1500 sparse rows of 25,000 features, 7% of them not zero. Cells share gene
  programmes, so the spectrum has a gap.
- "noise": sparse rows of the same size with independent entries and no spectral gap.

Times are elapsed seconds on two threads without imports and compilation. Memory is the peak of the
resident memory beyond the data. Both are medians of five runs, each in a separate process.
`benchmarks/speed.py` compares the path with `contrastive`.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from benchmarks.common.measures import forget_peak, in_a_process, peak_memory
from benchmarks.common.report import Report, run
from contrast_core import CPCA, contrast_path
from contrast_core.linalg import subspace_error

N, D, DENSITY = 3000, 25_000, 0.07
# Upper bounds in seconds and in GB for each kind of data and each contrast.
BOUNDS = {
    ("dense", "path"): (np.inf, 1.5),
    ("dense", "1"): (2.0, 1.5),
    **{("gap", alpha): (2.0, 0.4) for alpha in ("0", "1", "10")},
    **{("noise", alpha): (5.0, 0.4) for alpha in ("0", "1", "10")},
}


def make_data(kind: str) -> tuple[Any, Any]:
    """Return data with two shared directions and two of the foreground alone ("noise": none)."""
    rng = np.random.default_rng(0)
    if kind == "dense":
        directions = rng.normal(size=(4, 20_000)) * (rng.random((4, 20_000)) < 0.05)
        X, Y = rng.normal(size=(2, 1000, 20_000))
        X += rng.normal(size=(1000, 4)) * [3.0, 2.0, 1.5, 1.0] @ directions
        Y += rng.normal(size=(1000, 2)) * [3.0, 2.0] @ directions[:2]
        return X, Y
    rows = sp.random(N, D, density=DENSITY, format="csr", rng=rng)
    rows.data = np.log1p(rng.gamma(2.0, 1.0, len(rows.data)))
    if kind == "gap":
        activity = rng.normal(size=(N, 4))
        activity[N // 2 :, 2:] = 0
        programme = np.zeros((D, 4))
        programme[:2000] = rng.normal(size=(2000, 4)) * [0.7, 0.7, 1.3, 1.3]
        for start in range(0, N, 500):
            part = rows[start : start + 500].tocoo()
            strength = (activity[start + part.row] * programme[part.col]).sum(axis=1)
            inside = slice(rows.indptr[start], rows.indptr[start + 500])
            rows.data[inside] *= np.exp(0.5 * strength.clip(-2, 2))
    return rows[: N // 2], rows[N // 2 :]


def fit_cost(kind: str, alpha: str) -> tuple[float, float]:
    """Return elapsed seconds on two threads and peak memory beyond the data."""
    X, Y = make_data(kind)
    CPCA(alpha=1.0).fit(X[:200], background=Y[:200])  # imports and compiles code
    forget_peak()
    before = peak_memory()
    with threadpool_limits(2):
        start = time.perf_counter()
        if alpha == "path":
            contrast_path(X, background=Y)
        else:
            CPCA(alpha=float(alpha), random_state=0).fit(X, background=Y)
        taken = time.perf_counter() - start
    return taken, peak_memory() - before


def main(report: Report) -> None:
    for (kind, alpha), (most_seconds, most_memory) in BOUNDS.items():
        runs = [in_a_process(fit_cost, kind, alpha) for _ in range(5)]
        elapsed, memory = np.median(runs, axis=0)
        report.measured(f"{kind}, alpha {alpha}: elapsed seconds", elapsed, most=most_seconds)
        report.measured("  GB beyond the data", memory, most=most_memory)
        if kind != "dense":
            X, Y = make_data(kind)
            models = [
                CPCA(alpha=float(alpha), random_state=0, solver=solver).fit(X, background=Y)
                for solver in ("auto", "gram")
            ]
            sine = subspace_error(*(model.components_ for model in models))
            report.measured("  sine to the Gram matrix's, by LAPACK", sine, most=1e-8)


if __name__ == "__main__":
    run(main)
