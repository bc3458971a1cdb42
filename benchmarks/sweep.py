"""`solver="auto"` beside the best forced solver, over a sweep of shapes: `python benchmarks sweep`.

CPU seconds of one thread. Prints the worst five ratios. To be reached: no ratio above 1.5, of fits
that take more than 20 ms. `--small` leaves out what takes more than some seconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from contextlib import suppress
from importlib import import_module
from itertools import product
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402

from contrast_core import CPCA  # noqa: E402

BOUND = 1.5
NOTICED = 0.02  # seconds: faster fits are not compared
ROWS = (20, 200, 1000, 5000, 20_000)
FEATURES = (10, 100, 500, 1000, 2000, 6000, 20_000)
SMALL_ROWS, SMALL_FEATURES = (60, 1000, 5000), (100, 1000, 2000, 6000)
DENSITIES = (0.01, 0.1, 1.0)
COMPONENTS = (1, 2, 10, 50)
FORCED = ("eigh", "gram", "lanczos")


def data(n: int, m: int, d: int, density: float) -> tuple[Any, Any]:
    """Rows with a falling spectrum, a few shared factors and some that only the foreground has."""
    rng = np.random.default_rng([n, d])
    scale = 0.2 + 3 * (1 + np.arange(d)) ** -0.5
    shared, own = rng.normal(size=(4, d)), rng.normal(size=(4, d))

    def rows(count: int, factors: Any) -> Any:
        values = rng.normal(size=(count, d)) * scale
        values += rng.normal(size=(count, len(factors))) @ factors * 0.5
        if density == 1:
            return values
        return sp.csr_array(np.where(rng.random((count, d)) < density, np.abs(values), 0.0))

    return rows(n, np.vstack([shared, own])), rows(m, shared)


def seconds(fit: Any) -> float:
    start = time.process_time()
    try:
        fit()
    except ValueError:  # an iteration that does not converge, or too many components
        return float("inf")
    return time.process_time() - start


def affordable(solver: str, n: int, d: int, task: str, most: float) -> bool:
    """Whether a forced solver ends within some seconds."""
    size = {"eigh": d, "gram": n, "lanczos": 0}[solver]
    sums = n * d * {"eigh": d, "gram": n, "lanczos": 500}[solver]
    contrasts = 41 if task == "path" else 8 if task == "automatic" else 1
    return sums / 2e10 + contrasts * size**3 / 2e10 < most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    small = parser.parse_args().small
    most, rows, features = (3.0, SMALL_ROWS, SMALL_FEATURES) if small else (60.0, ROWS, FEATURES)
    warnings.simplefilter("ignore")
    with suppress(ImportError):
        import_module("numba")  # its start is not what is measured
    warm = data(3000, 2000, 800, 0.1)
    for solver in FORCED:
        for alpha in (1.0, "auto"):
            CPCA(2, alpha=alpha, solver=solver).fit(warm[0], background=warm[1])  # type: ignore[arg-type]
    found = []
    for n, d, density in product(rows, features, DENSITIES):
        if n * d > 2e7 * most / 3 or n * d * density < 100:
            continue
        x, y = data(n, max(2, n // 2), d, density)
        for task, k in product(("one", "automatic", "path"), COMPONENTS):
            if k > min(n, d) // 2 or (task == "path" and k > 10):
                continue

            def fit(solver: str, task: str = task, k: int = k, x: Any = x, y: Any = y) -> Any:
                alpha: Any = "auto" if task == "automatic" else 1.0
                fitted = CPCA(k, alpha=alpha, solver=solver)  # type: ignore[arg-type]
                fitted.fit(x, background=y)
                return fitted.path() if task == "path" else fitted

            times = {
                solver: seconds(lambda solver=solver: fit(solver))  # type: ignore[misc]
                for solver in FORCED
                if affordable(solver, n + max(2, n // 2), d, task, most)
            }
            if not times or min(times.values()) == float("inf"):
                continue
            auto, best = seconds(lambda: fit("auto")), min(times, key=times.__getitem__)
            if auto < NOTICED:
                continue
            ratio = auto / times[best]
            found.append((ratio, f"{n}x{d} {density:g} {task} k={k}: {auto:.2f} s, {best} "))
            print(f"{ratio:5.2f}  {found[-1][1]}{times[best]:.2f} s", flush=True)
    worst = sorted(found, reverse=True)[:5]
    print("\nworst five:")
    for ratio, words in worst:
        print(f"  {ratio:.2f}  {words}")
    print(f"{len(found)} fits; geometric mean {np.exp(np.mean(np.log([r for r, _ in found]))):.2f}")
    return int(bool(worst) and worst[0][0] > BOUND)


if __name__ == "__main__":
    sys.exit(main())
