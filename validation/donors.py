"""Level, power and run time of `condition_test` when donors are the units.

    python -m validation.donors [times] [level] [power]

Level and power use 1,000 simulated datasets of 20 features for each design; the variable SETS sets
another number. The designs have 4 donors against 4, 3 against 9, or 6 with cells in both
conditions. Each donor has 40 cells, or 160 cells in one of the two conditions. To measure the
level, the means of donors vary with 0, 1 or 2 times the standard deviation of the noise, and the
contrast is automatic or alpha = 2. To measure the power, the mean of the treated cells is shifted
by a multiple of the noise's standard deviation.
"""

from __future__ import annotations

import os
from itertools import product
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.common.measures import highest_level
from benchmarks.common.report import Report, run
from contrast_core import CPCA, condition_test

FloatArray = NDArray[np.float64]
N_FEATURES = 20
SETS = int(os.environ.get("SETS", "1000"))


class Design(NamedTuple):
    """Number of donors and of cells per donor, each for the treated and for the controls."""

    donors: tuple[int, int]
    cells: tuple[int, int] = (40, 40)
    paired: bool = False

    def __str__(self) -> str:
        n, m = self.donors
        who = f"{n} donors in both" if self.paired else f"{n} donors v {m}"
        return f"{who}, {self.cells[0]} : {self.cells[1]} cells"


DESIGNS = [
    Design(donors, cells, paired)
    for donors, paired in (((4, 4), False), ((3, 9), False), ((6, 6), True))
    for cells in ((40, 40), (160, 40), (40, 160))
]
POWER = {(4, 4): (6.0, 0.85), (3, 9): (6.0, 0.85), (6, 6): (2.0, 0.9)}


def rejections(design: Design, sd: float, shift: float, alpha: Any) -> float:
    """Return the share of datasets in which the first component is significant at 5%."""
    rng, found = np.random.default_rng(0), 0
    for _ in range(SETS):
        means = sd * rng.normal(size=(2, max(design.donors), N_FEATURES))
        names = np.arange(max(design.donors)) + np.array([[0], [0 if design.paired else 100]])
        if design.paired:
            means[1] = means[0]
        means[0, :, 0] += shift
        sets = []
        for side, (n, each) in enumerate(zip(design.donors, design.cells, strict=True)):
            owner = np.repeat(np.arange(n), each)
            noise = rng.normal(size=(len(owner), N_FEATURES))
            sets.append((means[side][owner] + noise, names[side][owner]))
        (X, owners), (Y, others) = sets
        test = condition_test(
            CPCA(1, alpha=alpha),
            X,
            background=Y,
            units=owners,
            background_units=others,
            random_state=rng,
        )
        found += bool(test.p_values[0] <= 0.05)
    return found / SETS


def simulated_cells() -> tuple[Any, NDArray[np.intp]]:
    """Return 20,000 sparse cells of ten types and twelve donors."""
    rng = np.random.default_rng(0)
    types = rng.gamma(0.35, 0.3, size=2000) * rng.gamma(2.0, 0.5, size=(10, 2000))
    owners = rng.integers(12, size=20_000)
    effects = rng.gamma(20.0, 1 / 20, size=(12, 2000))
    blocks = []
    for owner in np.array_split(owners, 20):
        rates = types[rng.integers(10, size=len(owner))] * effects[owner]
        counts = rng.poisson(rates * rng.gamma(8.0, 1 / 8, size=(len(owner), 1)))
        logs = np.log1p(counts * (1e4 / counts.sum(axis=1, keepdims=True)))
        blocks.append(sp.csr_array(logs.astype(np.float32)))
    return sp.vstack(blocks, format="csr"), owners


def seconds(cells: Any, owners: NDArray[np.intp], alpha: Any) -> tuple[float, float]:
    """Return the CPU seconds before the first relabelling, and per relabelling and component."""
    treated, marks = owners < 6, [process_time()]

    def bar(labels: Any, **_: Any) -> Any:
        for chosen in labels:
            marks.append(process_time())
            yield chosen

    condition_test(
        CPCA(2, alpha=alpha),
        cells[treated],
        background=cells[~treated],
        units=owners[treated],
        background_units=owners[~treated],
        n_permutations=30,
        random_state=0,
        progress=bar,
    )
    steps = np.diff(marks)
    return float(steps[0]), float(np.median(steps[1:])) / 2


def times(report: Report) -> None:
    """CPU seconds of one thread on 20,000 x 2,000 sparse log-normalised counts of 12 donors."""
    cells, owners = simulated_cells()
    for alpha, bound in ((2.0, 0.1), ("auto", 0.4)):
        before, each = seconds(cells, owners, alpha)
        report.measured(f"alpha={alpha}: until the first relabelling", before)
        report.measured("  a relabelling and component", each, most=bound)


def level(report: Report) -> None:
    """Share of rejections at 5% where there is no effect."""
    for alpha, design, sd in product(("auto", 2.0), DESIGNS, (0.0, 1.0, 2.0)):
        rate = rejections(design, sd, 0.0, alpha)
        what = f"alpha={alpha}, {design}, donors' sd {sd:g}"
        report.measured(what, rate, most=highest_level(SETS))


def power(report: Report) -> None:
    """Share of rejections at 5% where the mean of the treated cells is shifted."""
    for design in DESIGNS[::3]:
        shift, least = POWER[design.donors]
        rate = rejections(design, 1.0, shift, "auto")
        what = f"{design}, moved by {shift:g}"
        report.measured(what, rate, least=least if SETS >= 1000 else 0.0)


if __name__ == "__main__":
    run(times, level, power)
