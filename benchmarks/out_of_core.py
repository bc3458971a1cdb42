"""Moments of rows that come in chunks, against the machine's own rate of symmetric products.

    python benchmarks/out_of_core.py          # 50,000 x 2000 float32, a minute or two
    python benchmarks/out_of_core.py --full   # 1,000,000 x 2000: 8 GB, never in memory at once

Chunks are made once and handed out again and again, so that neither a disk nor a random generator
is timed. The limit is what BLAS's symmetric product does on one such block in the same rounds,
without reading or shifting: on all threads or, where that is faster, one on each thread at once.
Wall seconds by turns, medians; CPU seconds beside them, which a busy machine changes less. Rates
count 2 n D^2 operations, of which a symmetric product does half.

Must reach: at least 60% of the float64 limit by default, of the float32 limit with
precision="single"; dask in the same process at most 10% over the plain loop; memory of a few chunks
and D^2, whatever the number of rows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from contrast_core import SecondMoments
from contrast_core.linalg import add_products

D, CHUNK = 2000, 4096
THREADS = int(os.environ.get("OPENBLAS_NUM_THREADS", os.cpu_count() or 1))


def make_pool(n: int = 4) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((CHUNK, D), np.float32) + np.float32(3) for _ in range(n)]


def chunks(pool: list[Any], n_chunks: int) -> Iterator[Any]:
    return (pool[i % len(pool)] for i in range(n_chunks))


def as_dask(pool: list[Any], n_chunks: int) -> Any:
    import dask.array as da
    from dask.delayed import delayed

    # A task for each chunk, as when they are read, so that dask frees one after the other.
    read = delayed(lambda i: pool[i % len(pool)], pure=False)
    blocks = [da.from_delayed(read(i), (CHUNK, D), np.float32) for i in range(n_chunks)]
    return da.concatenate(blocks)


def together(rows: Any, n_products: int) -> None:
    """One product on all threads, again and again."""
    out = np.zeros((D, D), rows.dtype)
    for _ in range(n_products):
        add_products(rows, out)


def side_by_side(rows: Any, n_products: int) -> None:
    """One product on each thread at once."""

    def several(n: int) -> None:
        together(rows, n)

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(THREADS) as executor:
        shares = [len(range(i, n_products, THREADS)) for i in range(THREADS)]
        list(executor.map(several, shares))


def measure(
    calls: dict[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, tuple[float, float]], dict[str, Any]]:
    """Median wall and CPU seconds of each, by turns, and what each gave."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    results = {}
    for _ in range(rounds):
        for name, call in calls.items():
            wall, cpu = time.perf_counter(), time.process_time()
            results[name] = call()
            times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    medians = {
        name: (statistics.median(w for w, _ in t), statistics.median(c for _, c in t))
        for name, t in times.items()
    }
    return medians, results


def peak_megabytes(n_chunks: int, precision: str) -> float:
    """What a fresh process needs on top of its imports and chunks."""
    done = subprocess.run(
        [sys.executable, __file__, "--memory", str(n_chunks), precision],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def peak() -> float:
    """Largest resident memory so far, MB. (Linux's ru_maxrss starts at the parent's.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def report_memory(n_chunks: int, precision: Any) -> None:
    pool = make_pool()
    SecondMoments.from_data(pool[0][:300, :10])  # what is imported on first use
    before = peak()
    SecondMoments.from_chunks(chunks(pool, n_chunks), precision=precision)
    print(peak() - before)


def verdict(text: str, reached: bool) -> bool:
    print(f"  {text}: {'reached' if reached else 'MISSED'}")
    return reached


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="a million rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", nargs=2, metavar=("CHUNKS", "PRECISION"))
    options = parser.parse_args()
    if options.memory:
        report_memory(int(options.memory[0]), options.memory[1])
        return 0

    n_chunks = -(-(1_000_000 if options.full else 50_000) // CHUNK)
    n_rows = n_chunks * CHUNK
    pool = make_pool()
    doubles, lazy = pool[0].astype(np.float64), as_dask(pool, n_chunks)
    few = 12  # products suffice for the limit
    scale = n_chunks / few
    print(
        f"{n_rows} x {D} float32 in chunks of {CHUNK}, {THREADS} threads, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    with threadpool_limits(THREADS, user_api="blas"):
        times, results = measure(
            {
                "float64 products, together": lambda: together(doubles, few),
                "float64 products, side by side": lambda: side_by_side(doubles, few),
                "chunks": lambda: SecondMoments.from_chunks(chunks(pool, n_chunks)),
                "dask": lambda: SecondMoments.from_data(lazy),
                "float32 products, together": lambda: together(pool[0], few),
                "float32 products, side by side": lambda: side_by_side(pool[0], few),
                "chunks, single": lambda: SecondMoments.from_chunks(
                    chunks(pool, n_chunks), precision="single"
                ),
            },
            options.rounds,
        )
    for name, (wall, cpu) in times.items():
        if "products" in name:
            times[name] = wall, cpu = wall * scale, cpu * scale
        rate = 2 * n_rows * D**2 / 1e9
        print(
            f"{name:32s} wall {wall:7.2f} s {rate / wall:5.0f} GFLOP/s   "
            f"cpu {cpu:7.2f} s {rate / cpu:5.0f} GFLOP/s"
        )

    reached = []
    for label, dtype, wanted in (("chunks", "float64", 0.6), ("chunks, single", "float32", 0.6)):
        limits = [times[f"{dtype} products, {way}"] for way in ("together", "side by side")]
        wall, cpu = (min(limit[i] for limit in limits) / times[label][i] for i in (0, 1))
        text = (
            f"{label}: {wall:.0%} of the {dtype} limit (by CPU seconds {cpu:.0%}), "
            f"wanted {wanted:.0%}"
        )
        reached.append(verdict(text, wall >= wanted))
    wall, cpu = (times["dask"][i] / times["chunks"][i] - 1 for i in (0, 1))
    text = f"dask over the plain loop: {wall:+.0%} (by CPU seconds {cpu:+.0%}), wanted at most +10%"
    reached.append(verdict(text, wall <= 0.1))
    same = np.allclose(results["dask"].covariance, results["chunks"].covariance, atol=1e-12)
    reached.append(verdict("dask gives the same covariance", bool(same)))
    unit = (CHUNK * D + D**2) * 8 / 2**20
    for precision in ("double", "single"):
        peaks = [peak_megabytes(n, precision) for n in (n_chunks // 2, 2 * n_chunks)]
        text = (
            f"memory, {precision}: {peaks[0]:.0f} MB for {n_rows // 2} rows, {peaks[1]:.0f} MB for "
            f"{2 * n_rows}; a chunk and D^2 in float64 are {unit:.0f} MB"
        )
        reached.append(verdict(text, peaks[1] < 1.1 * peaks[0] + 10 and peaks[1] < 5 * unit))
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
