"""Is the contrast real? Significance by rows and by groups, on real data and on nulls.

Prints, for the mouse data, p-values and stability of six components with rows taken as independent
and by mouse; how often components of SETS simulated sets (1,000 by default) come out, those that
are real and the first that is not; the same for rows that repeat, and how often the cross-fitted
trace ratio is at least 1.5 times its baseline, where there is nothing; and that ratio on nulls and
on data with known groups.
"""

from __future__ import annotations

import itertools
import sys

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.measures import highest_level
from benchmarks.common.report import Report, run
from benchmarks.common.tasks import tasks
from contrast_core import (
    CPCA,
    PCPCA,
    CPCAStar,
    bootstrap_stability,
    cross_fitted_ratio,
    permutation_test,
)
from contrast_core.datasets import load_mouse_protein, make_four_groups

FloatArray = NDArray[np.float64]


def mouse_components() -> None:
    mice = load_mouse_protein()
    by_mouse = {"units": mice.units, "background_units": mice.background_units}
    for estimator in (CPCA(6), CPCAStar(6), PCPCA(6)):
        for name, groups in (("rows", {}), ("mice", by_mouse)):
            given = {"background": mice.background, "random_state": 0, **groups}
            test = permutation_test(estimator, mice.foreground, n_permutations=999, **given)
            stability = bootstrap_stability(estimator, mice.foreground, n_resamples=200, **given)
            print(
                f"  {type(estimator).__name__:9} by {name}: p {np.round(test.p_values, 3)}"
                f"  stable {np.round(stability.component_stability, 2)}"
                f"  in subspace {np.round(stability.component_retention, 2)}"
            )


def _with(sd: FloatArray, *added: float) -> FloatArray:
    """Standard deviations with variances added to the fourth feature, the fifth, ..."""
    variances = sd**2
    variances[3 : 3 + len(added)] += added
    return np.sqrt(variances)


def component_rejections(report: Report, n_sets: int, highest: float) -> None:
    """Shares of sets of 50 + 50 rows of 10 features in which each component comes out at 5%."""
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
    print(f"Components that come out at 5%, of {n_sets} sets:")
    estimators = {"auto": CPCA(3), "alpha=2": CPCA(3, alpha=2.0), "PCPCA": PCPCA(3)}
    for strength, estimator in estimators.items():
        for name, (*sds, n_real) in kinds.items():
            rng, p_values = np.random.default_rng(0), []
            for _ in range(n_sets):
                X, Y = (rng.normal(size=(50, 10)) * sd for sd in sds)
                options = {"n_permutations": 59, "random_state": rng}
                test = permutation_test(estimator, X, background=Y, **options)
                p_values.append(test.p_values)
            rates = np.mean(np.array(p_values) <= 0.05, axis=0)
            for j, rate in enumerate(rates[: n_real + 1]):
                what = f"{strength}: {name}, component {j + 1}"
                if j == n_real:
                    report.measured(what, rate, most=highest)
                else:  # gamma stays too weak to put a strong shared direction behind others
                    least = -np.inf if strength == "PCPCA" else 0.9
                    report.measured(f"{what} (real)", rate, least=least)


def group_rejections(n_sets: int) -> dict[str, tuple[float, bool]]:
    """Share of nulls of rows that repeat in which the first component comes out at 5%.

    Beside it whether the test knows the animals; the share without is what repeated rows fake.
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
    return {
        name: (float(np.mean([p_value(*design) <= 0.05 for _ in range(n_sets)])), design[3])
        for name, design in designs.items()
    }


def false_findings(n: int, n_features: int, n_sets: int) -> float:
    """Share of nulls in which the cross-fitted ratio is at least 1.5 times its baseline."""
    rng, found = np.random.default_rng(0), 0
    for _ in range(n_sets):
        X, Y = rng.normal(size=(2, n, n_features))
        found += cross_fitted_ratio(X, background=Y, random_state=rng).relative >= 1.5
    return found / n_sets


def ratios(report: Report) -> None:
    """Cross-fitted ratios of nulls, and of data with known groups."""
    mice = load_mouse_protein()
    control = mice.labels == "Control"
    rows, units = mice.foreground[control], mice.units[control]
    by_mouse, by_row = [], []
    for seed in range(10):  # control mice against control mice of the same class
        rng = np.random.default_rng(seed)
        is_x = np.isin(units, rng.permutation(np.unique(units))[:5])
        sides = {"units": units[is_x], "background_units": units[~is_x]}
        found = cross_fitted_ratio(rows[is_x], background=rows[~is_x], **sides, random_state=seed)
        by_mouse.append(found.ratio)
        one, other = np.split(rng.permutation(rows), [67])
        by_row.append(cross_fitted_ratio(one, background=other, random_state=seed).ratio)
    print("Cross-fitted ratios of control mice: by mouse (5 and 4), by row (67 and 68):")
    print(f"  {np.sort(by_mouse).round(2)}, {np.sort(by_row).round(2)}")
    options = {"n_splits": 2, "random_state": 0}
    for name, task in {**tasks(), "four groups": make_four_groups()}.items():
        background = np.random.default_rng(0).permutation(task.background)
        one, other = np.array_split(background, 2)
        if name != "mouse":  # 135 rows that repeat: above, without bound
            null = cross_fitted_ratio(one, background=other, **options)
            report.measured(f"ratio, {name}, background halves", null.ratio, least=0.75, most=1.25)
        found = cross_fitted_ratio(task.foreground, background=task.background, **options)
        report.measured(f"relative ratio, {name}", found.ratio / found.baseline, least=3.7)
    sides = {"units": mice.units, "background_units": mice.background_units}
    grouped = cross_fitted_ratio(
        mice.foreground, background=mice.background, **sides, n_splits=20, random_state=0
    )
    report.measured("ratio, mouse, by mouse (18 and 9: too few to certify)", grouped.ratio)


def main(report: Report) -> None:
    n_sets = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    highest = highest_level(n_sets)
    print("Mouse, six components:")
    mouse_components()
    component_rejections(report, n_sets, highest)
    print("Rejections at 5% where there is nothing, rows that repeat:")
    for name, (rate, level) in group_rejections(n_sets).items():
        report.measured(name, rate, most=highest if level else np.inf)
    print("Cross-fitted ratio of at least 1.5 times its baseline where there is nothing:")
    for n, n_features in itertools.product((12, 50), (10, 20, 60)):
        name = f"{n} + {n} rows of {n_features} features"
        most = highest if n == 12 else 0.01
        report.measured(name, false_findings(n, n_features, n_sets), most=most)
    ratios(report)


if __name__ == "__main__":
    run(main, threads=2)
