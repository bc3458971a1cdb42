"""Validation of the significance tests, by rows and by groups, on null data and on real data.

    python -m validation.significance [components] [repeated_rows] [false_findings] [ratios]

Studies of level and power draw 1,000 simulated datasets; the variable SETS sets another number.
"""

from __future__ import annotations

import os
from itertools import product

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.measures import highest_level
from benchmarks.common.report import Report, run
from benchmarks.common.tasks import tasks
from contrast_core import CPCA, PCPCA, cross_fitted_ratio, permutation_test
from contrast_core.datasets import load_mouse_protein, make_four_groups

FloatArray = NDArray[np.float64]
SETS = int(os.environ.get("SETS", "1000"))
HIGHEST = highest_level(SETS)
FINDING = 1.5  # relative ratio that counts as a finding, which nulls rarely reach
# Along the two directions that split the four groups, the foreground's variances are 91 and 23.5,
# the background's 9 and 1, and each ridge 9.2; the total variances are 1132.5 and 1100.
FOUR_GROUPS = (91 + 23.5) / (9 + 1 + 2 * 1100 / 120) * 1100 / 1132.5


def _with(sd: FloatArray, *added: float) -> FloatArray:
    """Return standard deviations with variances added to the fourth feature, the fifth, ..."""
    variances = sd**2
    variances[3 : 3 + len(added)] += added
    return np.sqrt(variances)


def components(report: Report) -> None:
    """Share of datasets (50 + 50 rows, 10 features) with each component significant at 5%."""
    plain, decaying = np.ones(10), np.linspace(2, 0.5, 10)
    shared = np.where(np.arange(10) == 0, 7.0, 1.0)
    # Standard deviations of the foreground and the background, and how many components are real.
    kinds = {
        "nothing": (plain, plain, 0),
        "nothing, decaying spectrum": (decaying, decaying, 0),
        "nothing, one strong shared direction": (shared, shared, 0),
        "nothing but scale, one shared": (3 * shared, shared, 0),
        "one of 44": (_with(plain, 43), plain, 1),
        "one of 400": (_with(plain, 399), plain, 1),
        "one of 44, one shared": (_with(shared, 43), shared, 1),
        "one of 44, decaying spectrum": (_with(decaying, 43), decaying, 1),
        "two, of 44 and 9": (_with(plain, 43, 8), plain, 2),
        "two, of 44 and 9, one shared": (_with(shared, 43, 8), shared, 2),
    }
    estimators = {"auto": CPCA(3), "alpha=2": CPCA(3, alpha=2.0), "PCPCA": PCPCA(3)}
    for strength, estimator in estimators.items():
        for name, (*sds, n_real) in kinds.items():
            rng, p_values = np.random.default_rng(0), []
            for _ in range(SETS):
                X, Y = (rng.normal(size=(50, 10)) * sd for sd in sds)
                options = {"n_permutations": 59, "random_state": rng}
                test = permutation_test(estimator, X, background=Y, **options)
                p_values.append(test.p_values)
            rates = np.mean(np.array(p_values) <= 0.05, axis=0)
            for j, rate in enumerate(rates[: n_real + 1]):
                what = f"{strength}: {name}, component {j + 1}"
                if j == n_real:
                    report.measured(what, rate, most=HIGHEST)
                else:  # gamma stays too weak to put a strong shared direction behind others
                    least = -np.inf if strength == "PCPCA" else 0.9
                    report.measured(f"{what} (real)", rate, least=least)


def repeated_rows(report: Report) -> None:
    """Share of null datasets with repeated rows whose first component is significant at 5%.

    "By row" the test does not know the animals; repeated rows then lead to false findings.
    """
    rng = np.random.default_rng(0)
    sd = np.linspace(2, 0.5, 10)

    def p_value(n: int, m: int, repeats: tuple[int, int], grouped: bool, paired: bool) -> float:
        rows = rng.normal(size=(1 if paired else 2, n, 10)) * sd
        sets, names = [], []
        for side, (count, each) in enumerate(zip((n, m), repeats, strict=True)):
            owner = np.repeat(np.arange(count), each)
            own = rows[0 if paired else side][:count] + 0.5 * rng.normal(size=(count, 10))
            sets.append(own[owner] + 0.5 * rng.normal(size=(len(owner), 10)))
            names.append(owner + (0 if paired else 100 * side))
        groups = {"units": names[0], "background_units": names[1]} if grouped else {}
        return permutation_test(
            CPCA(1), sets[0], background=sets[1], n_permutations=99, random_state=rng, **groups
        ).p_values[0]

    designs = {
        "4 and 4 animals of 20 rows, by animal": (4, 4, (20, 20), True, False),
        "4 and 4 animals of 40 and 10 rows, by animal": (4, 4, (40, 10), True, False),
        "9 and 3 animals of 5 rows, by animal": (9, 3, (5, 5), True, False),
        "9 and 9 animals of 5 rows, by animal": (9, 9, (5, 5), True, False),
        "6 animals, 20 rows in both, by animal": (6, 6, (20, 20), True, True),
        "6 animals, 40 and 10 rows, by animal": (6, 6, (40, 10), True, True),
        "9 and 9 animals of 5 rows, by row": (9, 9, (5, 5), False, False),
    }
    for name, design in designs.items():
        rate = float(np.mean([p_value(*design) <= 0.05 for _ in range(SETS)]))
        report.measured(name, rate, most=HIGHEST if design[3] else np.inf)


def false_findings(report: Report) -> None:
    """Share of nulls in which the cross-fitted ratio is at least 1.5 times its baseline."""
    for n, n_features in product((12, 50), (10, 20, 60)):
        rng, found = np.random.default_rng(0), 0
        for _ in range(SETS):
            X, Y = rng.normal(size=(2, n, n_features))
            found += cross_fitted_ratio(X, background=Y, random_state=rng).relative >= FINDING
        name = f"{n} + {n} rows of {n_features} features"
        report.measured(name, found / SETS, most=HIGHEST if n == 12 else 0.01)


def ratios(report: Report) -> None:
    """Cross-fitted ratios of nulls, and of data with known groups.

    Along directions with the variance s, two samples of one distribution have the expected relative
    ratio ``s / (s + ridge)``, where the ridge is a quarter of the mean variance: 0.8 if all
    directions vary alike, above 0.5 if s exceeds the ridge, and always below 1. The upper bound
    leaves room for the standard error of the smallest data (halves of 100 rows, 0.1).
    """
    options = {"n_splits": 2, "random_state": 0}
    for name, task in {**tasks(), "four groups": make_four_groups()}.items():
        background = np.random.default_rng(0).permutation(task.background)
        one, other = np.array_split(background, 2)
        if name != "mouse":  # its rows repeat
            null = cross_fitted_ratio(one, background=other, **options)
            what = f"relative ratio, {name}, background halves"
            report.measured(what, null.relative, least=0.5, most=1.1)
        found = cross_fitted_ratio(task.foreground, background=task.background, **options)
        least = 0.9 * FOUR_GROUPS if name == "four groups" else FINDING
        report.measured(f"relative ratio, {name}", found.relative, least=least)
    mice = load_mouse_protein()
    sides = {"units": mice.units, "background_units": mice.background_units}
    grouped = cross_fitted_ratio(
        mice.foreground, background=mice.background, **sides, n_splits=20, random_state=0
    )
    report.measured("ratio, mouse, by mouse (18 and 9: too few to certify)", grouped.ratio)


if __name__ == "__main__":
    run(components, repeated_rows, false_findings, ratios, threads=2)
