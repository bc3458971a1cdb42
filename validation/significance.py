"""Measure level and power of the tests, and accuracy of the estimates.

    python -m validation.significance [rows] [units] [shifts] [false_findings] [ratios] [dimensions]

The data are simulated, except those with known groups. Studies of level and power draw 1,000
datasets; the environment variable SETS sets another number. The nominal level is 5% everywhere.
"""

from __future__ import annotations

import os
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.measures import highest_level
from benchmarks.common.report import Report, run
from benchmarks.common.tasks import tasks
from contrast_core import (
    CPCA,
    PCPCA,
    condition_shift,
    condition_test,
    contrast_dimension,
    cross_fitted_ratio,
    permutation_test,
)
from contrast_core.datasets import make_four_groups

FloatArray = NDArray[np.float64]
SETS = int(os.environ.get("SETS", "1000"))
HIGHEST = highest_level(SETS)
# Least relative ratio that counts as a finding. The relative ratio is the cross-fitted ratio
# divided by the ratio of the total variances.
FINDING = 1.5


def noise(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> tuple[Any, Any]:
    """Return noise (n, D), and a scale factor for each row."""
    if kind.startswith("t entries"):
        return rng.standard_t(int(kind[-1]), size=shape), 1.0
    entries, column = rng.normal(size=shape), (shape[0], 1)
    if kind.startswith("t rows"):
        tails = int(kind[-1])
        return entries, (rng.chisquare(tails, column) / tails) ** -0.5
    if kind == "lognormal rows":
        return entries, rng.lognormal(size=column)
    if kind == "unequal features":
        return entries * np.linspace(0.5, 1.5, shape[1]), 1.0
    return entries, 1.0


def rows(report: Report) -> None:
    """Measure how often the first component is significant in a test that permutes rows.

    Each dataset has 50 + 50 rows and 10 features. Where there is an effect, one feature has 44
    times its variance in the background.
    """
    plain = np.ones(10)
    shared, own = np.where(np.arange(10) == 0, 7.0, plain), np.append(plain[1:], np.sqrt(44))
    # The standard deviations of foreground and background.
    kinds = {
        "normal": (plain, plain),
        "t rows 3": (plain, plain),
        "lognormal rows": (plain, plain),
        "one strong shared direction": (shared, shared),
        "the same, three times as large": (3 * shared, shared),
        "an effect": (own, plain),
    }
    estimators = {"auto": CPCA(1), "alpha=2": CPCA(1, alpha=2.0), "PCPCA": PCPCA(1)}
    for (strength, estimator), (name, sds) in product(estimators.items(), kinds.items()):
        rng, found = np.random.default_rng(0), 0
        for _ in range(SETS):
            parts = [noise(name, (50, 10), rng) for _ in sds]
            X, Y = (each * sd * factor for (each, factor), sd in zip(parts, sds, strict=True))
            options = {"n_permutations": 59, "random_state": rng}
            test = permutation_test(estimator, X, background=Y, **options)
            found += bool(test.p_values[0] <= 0.05)
        bounds = {"least": 0.9} if name == "an effect" else {"most": HIGHEST}
        report.measured(f"{strength}: {name}", found / SETS, **bounds)


class DonorDesign(NamedTuple):
    """Numbers of donors and of cells per donor, as pairs for treated cells and for controls."""

    donors: tuple[int, int]
    cells: tuple[int, int] = (40, 40)
    paired: bool = False

    def __str__(self) -> str:
        n, m = self.donors
        who = f"{n} donors in both" if self.paired else f"{n} against {m} donors"
        return f"{who}, {self.cells[0]} : {self.cells[1]} cells"

    def draw(self, rng: np.random.Generator, sd: float, shift: float, n_features: int = 20) -> Any:
        """Return the treated cells, and the arguments of a test: controls, and donors of all cells.

        The cells have unit noise, and the means of donors have the standard deviation `sd`. The
        shift moves the treated cells along the first feature.
        """
        most = max(self.donors)
        means = sd * rng.normal(size=(2, most, n_features))
        if self.paired:
            means[1] = means[0]
        means[0, :, 0] += shift
        sets, names = [], []
        for side, (n, each) in enumerate(zip(self.donors, self.cells, strict=True)):
            owner = np.repeat(np.arange(n), each)
            sets.append(means[side][owner] + rng.normal(size=(len(owner), n_features)))
            names.append(owner + (100 * side if not self.paired else 0))
        return sets[0], {"background": sets[1], "units": names[0], "background_units": names[1]}


DESIGNS = [
    DonorDesign(donors, cells, paired)
    for donors, paired in (((4, 4), False), ((3, 9), False), ((6, 6), True))
    for cells in ((40, 40), (160, 40), (40, 160))
]
# For each pair of numbers of donors: the shift of the treated cells, and the least power.
POWER = {(4, 4): (6.0, 0.85), (3, 9): (6.0, 0.85), (6, 6): (2.0, 0.9)}


def units(report: Report) -> None:
    """Measure how often the first component is significant if a test treats donors as units.

    The means of donors vary with 0, 1 or 2 times the standard deviation of the noise. For the power
    of `condition_test`, the mean of the treated cells is shifted.
    """

    def rejected(test: Any, estimator: CPCA, design: DonorDesign, sd: float, shift: float) -> float:
        rng, found = np.random.default_rng(0), 0
        for _ in range(SETS):
            X, given = design.draw(rng, sd, shift)
            options = {"n_permutations": 99, "random_state": rng}
            found += bool(test(estimator, X, **given, **options).p_values[0] <= 0.05)
        return found / SETS

    tests = ((condition_test, "auto"), (condition_test, 2.0), (permutation_test, "auto"))
    for (test, alpha), design, sd in product(tests, DESIGNS, (0.0, 1.0, 2.0)):
        rate = rejected(test, CPCA(1, alpha=alpha), design, sd, 0.0)
        what = f"{test.__name__}, alpha={alpha}, {design}, donors' sd {sd:g}"
        report.measured(what, rate, most=HIGHEST)
    for design in DESIGNS[::3]:
        shift, least = POWER[design.donors]
        rate = rejected(condition_test, CPCA(1), design, 1.0, shift)
        report.measured(f"condition_test, {design}, moved by {shift:g}", rate, least=least)


def shifts(report: Report) -> None:
    """Measure level and power of `condition_shift`, and the coverage of its interval.

    There are 30 rows of 30 features for each donor and condition, or 300 + 300 rows without donors.
    The means of donors have 0.4 times the standard deviation of the rows of a donor, and the
    condition moves one feature.
    """

    def tested(design: DonorDesign, shift: float) -> tuple[float, float]:
        rng, found = np.random.default_rng(0), []
        for _ in range(SETS):
            X, given = design.draw(rng, 0.4, shift, 30)
            if design.donors == (1, 1):
                given = {"background": given["background"]}
            test = condition_shift(X, **given, n_resamples=0, random_state=rng)
            _, low, high = test.ratio()
            found.append((test.p_value < 0.05, low <= 1 <= high))
        rejected, contains = np.mean(found, axis=0)
        return float(rejected), float(contains)

    by_donors = [
        DonorDesign((n, n), (30, 30), paired) for n, paired in product((3, 5, 8), (True, False))
    ]
    without = DonorDesign((1, 1), (300, 300), paired=True)
    for design in [*by_donors, without]:
        rejected, contains = tested(design, 0.0)
        report.measured(f"{design}, no effect: p < 0.05", rejected, most=HIGHEST)
        least = 0.95 - (HIGHEST - 0.05)
        report.measured("  the interval of the ratio contains 1", contains, least=least)
    for design in (by_donors[2], by_donors[3], without):
        for shift in (0.5, 1.0, 2.0, 3.0):
            report.measured(f"{design}, moved by {shift:g}: p < 0.05", tested(design, shift)[0])


def false_findings(report: Report) -> None:
    """Measure how often the relative cross-fitted ratio reaches 1.5 without an effect."""
    for n, n_features in product((12, 50), (10, 20, 60)):
        rng, found = np.random.default_rng(0), 0
        for _ in range(SETS):
            X, Y = rng.normal(size=(2, n, n_features))
            found += cross_fitted_ratio(X, background=Y, random_state=rng).relative >= FINDING
        name = f"{n} + {n} rows of {n_features} features"
        report.measured(name, found / SETS, most=HIGHEST if n == 12 else 0.01)


def ratios(report: Report) -> None:
    """Measure cross-fitted ratios of data without an effect, and of data with known groups.

    Data without an effect are two halves of a background. Along a direction with the variance s
    their expected relative ratio is ``s / (s + ridge)``, where the ridge is a quarter of the mean
    variance. This is 0.8 if all directions have the same variance, above 0.5 if s exceeds the
    ridge, and always below 1. The upper bound is 1.1, because for the smallest data (halves of 100
    rows) the ratio can exceed 1 by its standard error of 0.1.
    """
    options = {"n_splits": 2, "random_state": 0}
    for name, task in {**tasks(), "four groups": make_four_groups()}.items():
        background = np.random.default_rng(0).permutation(task.background)
        one, other = np.array_split(background, 2)
        if name != "mouse":  # rows of the same mouse are not independent
            null = cross_fitted_ratio(one, background=other, **options)
            what = f"relative ratio, {name}, background halves"
            report.measured(what, null.relative, least=0.5, most=1.1)
        found = cross_fitted_ratio(task.foreground, background=task.background, **options)
        report.measured(f"relative ratio, {name}", found.relative, least=FINDING)


def dimensions(report: Report) -> None:
    """Count in how many of forty draws `contrast_dimension` finds the right number of dimensions.

    There are 300 + 300 rows of 40 features, with three shared dimensions and 0, 1 or 3 dimensions
    of the foreground alone.
    """
    for kind, own in product(("normal", "t entries 4", "t rows 4", "unequal features"), (0, 1, 3)):
        found = []
        for seed in range(40):
            rng, sets = np.random.default_rng(seed), []
            basis = np.linalg.qr(rng.normal(size=(40, 40)))[0]
            for extra in (own, 0):
                values, factor = noise(kind, (300, 40), rng)
                values += rng.normal(size=(300, 3)) * [5.0, 4.0, 3.0] @ basis[:3]
                values += 3.0 * rng.normal(size=(300, extra)) @ basis[3 : 3 + extra]
                sets.append(values * factor)
            given = {"background": sets[1], "random_state": seed}
            found.append(contrast_dimension(sets[0], **given).n_own)
        what = f"{kind}, {own} own dimensions: correct draws of 40"
        report.measured(what, found.count(own), least=34)


if __name__ == "__main__":
    run(rows, units, shifts, false_findings, ratios, dimensions)
