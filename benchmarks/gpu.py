"""Moments and the path of 41 contrasts with a GPU, against the processor and the GPU's own limits.

    python benchmarks/gpu.py       # n = m = 200,000, D = 2000; 10 GB of each memory, a few minutes
    python benchmarks/gpu.py --device cpu --rows 3000 --features 300    # only: does it run?

Not run on a GPU so far: there are no measurements of these paths yet.

Foreground and background are float32 with mean over standard deviation about 100. Measured: what
the machine can do (float64 products, device and bus bandwidth), the moments of both datasets from
tensors on the device and from arrays of the host (`device="cuda"`), each as a fraction of the
limit it is nearest to, and the same on the processor; the path on the processor from those moments,
with `torch.linalg.eigh` on the device at every contrast for comparison; `transform` of a tensor.
Wall seconds with the device synchronised, medians.

Must hold: at every contrast the subspace from the GPU's moments is within
max(1e-8, 100 eps |C| / gap) of the one from the processor's, by the sine of the largest angle.
"""

from __future__ import annotations

import argparse
import inspect
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

try:
    import torch
except ImportError:
    print("not run: it needs torch (pip install torch) and a CUDA device")
    sys.exit(0)

sys.path.insert(0, str(Path(__file__).parents[1]))  # as it is, also where it is not installed

from contrast_core import SecondMoments, contrast_path
from contrast_core.linalg import subspace_error
from contrast_core.moments._torch import DeviceAccumulator
from contrast_core.rows import DEVICE_BLOCKS, ELEMENTS

EPS = np.finfo(np.float64).eps
# Columns of the scatter that are multiplied at once; what lies below the diagonal is not.
PANEL = inspect.signature(DeviceAccumulator).parameters["panel"].default


def make_rows(n: int, d: int, device: Any, seed: int) -> Any:
    """A power-law spectrum, directions that only the foreground (seed 0) has, and a large mean."""
    shared = torch.Generator(device).manual_seed(99)
    own = torch.Generator(device).manual_seed(seed)
    options: dict[str, Any] = {"device": device, "dtype": torch.float32}
    rotation = torch.linalg.qr(torch.randn(d, d, generator=shared, **options))[0]
    extra = torch.linalg.qr(torch.randn(d, 8, generator=shared, **options))[0]
    deviations = (3 / torch.arange(1, d + 1, **options).sqrt()).clamp(min=0.15)
    rows = torch.empty(n, d, **options)
    for block in rows.split(20_000):
        torch.matmul(
            torch.randn(block.shape, generator=own, **options) * deviations, rotation, out=block
        )
        if seed == 0:
            scores = torch.randn(len(block), 8, generator=own, **options)
            block += scores * torch.linspace(3, 1, 8, **options) @ extra.T
        block += 100
    return rows


class Timer:
    """Medians of wall seconds, the device synchronised before and after."""

    def __init__(self, device: Any, repeats: int) -> None:
        self.device, self.repeats = device, repeats

    def now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def __call__(self, call: Callable[[], Any], repeats: int = 0, warm: bool = True) -> float:
        if warm:
            call()
        taken = []
        for _ in range(repeats or self.repeats):
            start = self.now()
            call()
            taken.append(self.now() - start)
        return statistics.median(taken)


def limits(timer: Timer, d: int) -> dict[str, float]:
    """Rates of this machine: FLOP/s and bytes per second."""
    device, big = timer.device, 8192 if timer.device.type == "cuda" else 1024
    found = {}
    for name, dtype in (("float64 product", torch.float64), ("float32 product", torch.float32)):
        a = torch.randn(big, big, device=device, dtype=dtype)
        found[name] = 2 * big**3 / timer(lambda a=a: a @ a)
    rows = torch.randn(DEVICE_BLOCKS * ELEMENTS // d, d, device=device, dtype=torch.float64)
    found["float64 product of a block"] = 2 * len(rows) * d**2 / timer(lambda: rows.T @ rows)
    source, target = torch.empty_like(rows), torch.empty_like(rows)
    found["device copy, read + write"] = 2 * rows.nbytes / timer(lambda: target.copy_(source))
    cuda = device.type == "cuda"
    for name, pin in (("bus, page-locked", cuda), ("bus, pageable", False)):
        host = torch.ones(rows.shape, dtype=torch.float64, pin_memory=pin)
        found[name] = host.nbytes / timer(lambda host=host: target.copy_(host, non_blocking=True))
    array = np.random.default_rng(0).normal(size=(4 * d, d))
    found["processor, A.T @ A in float64"] = 2 * len(array) * d**2 / timer(lambda: array.T @ array)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("not run: torch finds no CUDA device here, and there is nothing else to measure")
        return 0
    device = torch.empty(0, device=options.device).device
    cuda = device.type == "cuda"
    n, d = options.rows, options.features
    timer = Timer(device, options.repeats)
    name = torch.cuda.get_device_name(device) if cuda else "processor"
    print(f"{name}, torch {torch.__version__}, n = m = {n:,}, D = {d}, float32")

    rates = limits(timer, d)
    for what, rate in rates.items():
        unit = "TFLOP/s" if "@" in what or "product" in what else "TB/s"
        print(f"  {what:<30}{rate / 1e12:9.3f} {unit}")

    tensors = [make_rows(n, d, device, seed) for seed in (0, 1)]
    hosts = [rows.cpu().numpy() for rows in tensors]
    doubles = [rows.double() for rows in tensors] if cuda else tensors

    def both(data: list[Any], **how: Any) -> list[SecondMoments]:
        return [SecondMoments.from_data(rows, **how) for rows in data]

    operations = 2 * sum(2 * n * min(PANEL, d - i) * (d - i) for i in range(0, d, PANEL))
    values = 2 * n * d
    in_double = operations / rates["float64 product"]
    in_single = operations / rates["float32 product"]
    memory, bus = rates["device copy, read + write"], rates["bus, page-locked"]
    # Shifting reads the rows and writes them in the products' dtype; the sum and the products read
    # them again.
    cases: dict[str, tuple[Callable[[], Any], dict[str, float]]] = {
        "on the device, float32": (
            lambda: both(tensors, device=device),
            {"FLOP/s": in_double, "device memory": values * 28 / memory},
        ),
        "on the device, float64": (
            lambda: both(doubles, device=device),
            {"FLOP/s": in_double, "device memory": values * 32 / memory},
        ),
        "on the device, single": (
            lambda: both(tensors, device=device, precision="single"),
            {"FLOP/s": in_single, "device memory": values * 28 / memory},
        ),
        "from the host, float32": (
            lambda: both(hosts, device=device),
            {"FLOP/s": in_double, "bus": values * 4 / bus},
        ),
        "from the host, single": (
            lambda: both(hosts, device=device, precision="single"),
            {"FLOP/s": in_single, "bus": values * 4 / bus},
        ),
    }
    print("moments of both datasets, seconds; floor: all the work at the rates above")
    taken = {}
    for label, (call, floors) in cases.items():
        taken[label] = timer(call)
        nearest = max(floors, key=lambda floor: floors[floor])
        terms = ", ".join(f"{what} {floor:.3f}" for what, floor in floors.items())
        print(
            f"  {label:<26}{taken[label]:8.3f}   floor {terms}: {nearest} is the bound, "
            f"{floors[nearest] / taken[label]:.0%} of it reached"
        )
    taken["processor"] = timer(lambda: both(hosts), repeats=2, warm=False)
    print(f"  {'processor, float32':<26}{taken['processor']:8.3f}")
    fast = taken["on the device, float32"]
    print(
        f"  ratio to the processor: {taken['processor'] / fast:.1f} on the device, "
        f"{taken['processor'] / taken['from the host, float32']:.1f} from the host"
    )

    here, there = both(hosts), both(tensors, device=device)
    one = timer(lambda: contrast_path(there[0], background=there[1]), repeats=3)
    covariances = [torch.as_tensor(m.covariance, device=device) for m in here]
    moved = timer(lambda: [c.cpu() for c in covariances])
    path = contrast_path(there[0], background=there[1])
    reference: list[tuple[Any, Any]] = []

    def on_device() -> None:
        reference.clear()
        for alpha in path.alphas.tolist():
            solved = torch.linalg.eigh(covariances[0] - alpha * covariances[1])
            reference.append((solved[0].cpu().numpy(), solved[1][:, -2:].cpu().numpy().T))

    eigh = timer(on_device, repeats=1)
    print("41 contrasts, 2 components, from moments; seconds")
    print(f"  proved path on the processor {one:.3f}, bringing the covariances {moved:.4f}")
    print(f"  torch.linalg.eigh on the device at each contrast {eigh:.3f}")
    total = fast + one
    print(
        f"  moments on the device and path {total:.3f}, all on the processor "
        f"{taken['processor'] + one:.3f}: ratio {(taken['processor'] + one) / total:.1f}"
    )

    sines, relative = [], []
    for (values_all, vectors), found in zip(reference, path.components, strict=True):
        gap = values_all[-2] - values_all[-3]
        sines.append(subspace_error(found, vectors))
        relative.append(sines[-1] / max(1e-8, 100 * EPS * np.abs(values_all).max() / gap))
    print(
        f"largest sine to eigh of the processor's moments {max(sines):.1e}, "
        f"{max(relative):.2g} of its bound"
    )

    model = path.at(1.0)
    scores = timer(lambda: model.transform(tensors[0]))
    read = tensors[0].nbytes / memory
    print(f"transform of X on the device {scores:.4f} s, reading it once {read:.4f} s")
    error = np.abs(model.transform(tensors[0]).cpu().numpy() - model.transform(hosts[0])).max()
    print(f"  largest difference from the processor's scores {error:.1e} (float32 result)")
    held = max(relative) <= 1
    print("the bound holds" if held else "THE BOUND DOES NOT HOLD")
    return not held


if __name__ == "__main__":
    sys.exit(main())
