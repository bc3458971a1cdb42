"""Compare a GPU with the processor in computing moments and a path of 41 contrasts.

    # n = m = 200,000, D = 2000; takes a few minutes and 10 GB of host and of device memory
    python -m benchmarks.gpu
    # a short run that only tests the benchmark; arguments: device, rows, features, repeats
    python -m benchmarks.gpu cpu 3000 300 1

Foreground and background are float32, and their means are about 100 standard deviations from 0. The
benchmark measures the time of the moments of both datasets, and of the path from these moments. The
moments are computed in three ways: on the device from tensors that are already there, on the device
from arrays of the host (`device="cuda"`), and on the processor. Times are medians of wall seconds,
including the time until the device has finished.

Bound: at every contrast the subspace from the GPU's moments agrees with LAPACK's subspace from the
processor's moments. The sine of the largest angle is at most max(1e-8, 100 eps |C| / gap), where
eps is the precision of float64, |C| is the largest absolute eigenvalue of the contrast, and the gap
is between the last eigenvalue that is wanted and the next one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.common.measures import excess
from benchmarks.common.report import LeftOut, Report, run
from contrast_core import SecondMoments, contrast_path


def make_rows(n: int, d: int, device: Any, seed: int) -> Any:
    """Return rows with a power-law spectrum and a large mean.

    With seed 0 (the foreground) the rows vary along eight more directions.
    """
    shared = torch.Generator(device).manual_seed(99)
    own = torch.Generator(device).manual_seed(seed)
    options: dict[str, Any] = {"device": device, "dtype": torch.float32}
    rotation = torch.linalg.qr(torch.randn(d, d, generator=shared, **options))[0]
    extra = torch.linalg.qr(torch.randn(d, 8, generator=shared, **options))[0]
    deviations = (3 / torch.arange(1, d + 1, **options).sqrt()).clamp(min=0.15)
    rows = torch.empty(n, d, **options)
    for block in rows.split(20_000):
        normal = torch.randn(block.shape, generator=own, **options)
        torch.matmul(normal * deviations, rotation, out=block)
        if seed == 0:
            scores = torch.randn(len(block), 8, generator=own, **options)
            block += scores * torch.linspace(3, 1, 8, **options) @ extra.T
        block += 100
    return rows


def wall(call: Callable[[], Any], device: Any, repeats: int) -> tuple[float, Any]:
    """Return the median seconds of the calls after the first one, and the last result."""
    taken = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        result = call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - start)
    return float(np.median(taken[1:])), result


def main(report: Report) -> None:
    given = sys.argv[1:] or ["cuda", "200000", "2000", "5"]
    n, d, repeats = map(int, given[1:])
    if given[0] == "cuda" and not torch.cuda.is_available():
        raise LeftOut("torch finds no CUDA device")
    device = torch.empty(0, device=given[0]).device
    print(f"{device}, torch {torch.__version__}, n = m = {n:,}, D = {d}, float32")
    tensors = [make_rows(n, d, device, seed) for seed in (0, 1)]
    hosts = [rows.cpu().numpy() for rows in tensors]

    def moments(data: list[Any], **how: Any) -> tuple[float, Any]:
        return wall(
            lambda: [SecondMoments.from_data(rows, **how) for rows in data], device, repeats
        )

    on_device, found = moments(tensors, device=device)
    for what, data in {"on the device": tensors, "from the host": hosts}.items():
        for precision in ("double", "single"):
            taken = moments(data, device=device, precision=precision)[0]
            report.measured(f"moments of both datasets {what}, {precision}: seconds", taken)
    on_host, reference = moments(hosts)
    report.measured("  time of the processor / time of the device", on_host / on_device)
    spent, path = wall(lambda: contrast_path(found[0], background=found[1]), device, 1)
    report.measured("path of 41 contrasts from the moments: seconds", spent)
    off = excess(*(each.covariance for each in reference), path.alphas, path.components)
    report.measured("  sine to LAPACK's subspace / largest allowed", off, most=1.0)


if __name__ == "__main__":
    run(main)
