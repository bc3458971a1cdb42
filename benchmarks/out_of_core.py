"""Moments of rows that come in chunks, compared with the speed of BLAS's symmetric product.

The data have 50,000 x 2000 float32 values. A few chunks are made once and used repeatedly, so that
neither a disk nor a random generator is timed. The limit is the time that BLAS needs for the
symmetric products of such chunks alone, without reading or shifting them. The calls alternate, and
times are medians of CPU seconds on one thread. Dask runs in the same process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed

from benchmarks.common.measures import seconds
from benchmarks.common.report import Report, run
from contrast_core import SecondMoments
from contrast_core.linalg import add_products

D, CHUNK, N_CHUNKS, FEW = 2000, 4096, 13, 4  # the limit is measured on FEW products


def chunks(pool: list[Any], n_chunks: int) -> Iterator[Any]:
    return (pool[i % len(pool)] for i in range(n_chunks))


def products(rows: Any) -> None:
    out = np.zeros((D, D), rows.dtype)
    for _ in range(FEW):
        add_products(rows, out)


def main(report: Report) -> None:
    rng = np.random.default_rng(0)
    pool = [rng.standard_normal((CHUNK, D), np.float32) + np.float32(3) for _ in range(4)]
    # Each chunk is a separate task, as if it were read from a file, so that dask can free it.
    read = delayed(lambda i: pool[i % len(pool)], pure=False)
    blocks = [da.from_delayed(read(i), (CHUNK, D), np.float32) for i in range(N_CHUNKS)]
    doubles, lazy = pool[0].astype(np.float64), da.concatenate(blocks)
    (limit, _), (plain, found), (by_dask, other), (limit_single, _), (single, _) = seconds(
        lambda: products(doubles),
        lambda: SecondMoments.from_chunks(chunks(pool, N_CHUNKS)),
        lambda: SecondMoments.from_data(lazy),
        lambda: products(pool[0]),
        lambda: SecondMoments.from_chunks(chunks(pool, N_CHUNKS), precision="single"),
    )
    scale = N_CHUNKS / FEW
    report.measured("chunks: share of the rate in float64", scale * limit / plain, least=0.6)
    share = scale * limit_single / single
    report.measured('chunks, precision="single": share in float32', share, least=0.6)
    report.measured("dask / the plain loop", by_dask / plain, most=1.1)
    same = np.abs(other.covariance - found.covariance).max()
    report.measured("  difference of covariances", float(same), most=1e-12)


if __name__ == "__main__":
    run(main)
