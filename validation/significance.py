"""Is the contrast real? Significance by rows and by groups, on real data and on nulls.

    [CONTRAST_DATA=...] python validation/significance.py [SETS]

Prints, for the mouse data, p-values and stability of six components with rows taken as independent
and by mouse; how often components of SETS simulated sets (1,000 by default) come out, those that
are real and the first that is not; the same for rows that repeat, and how often the cross-fitted
trace ratio is at least 1.5 times its baseline, where there is nothing; and that ratio on nulls and
on data with known groups.

Bounds: tests at 5% reject in at most 7% of 1,000 nulls (of fewer, 99.9% of a binomial at most) and
find what is real in at least 90% (PCPCA, whose gamma stays too weak to put a strong shared
direction behind others, has no such bound); that happens in at most 7% of nulls of 12 + 12
rows and in at most 1% of 50 + 50; ratios of two halves of a background of independent rows from
0.75 to 1.25; ratios of data with known groups, rows taken as independent, at least 3.7 times
tr(C_X)/tr(C_Y).
"""

from __future__ import annotations

import itertools
import sys
import warnings
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom
from threadpoolctl import threadpool_limits

from benchmarks.common.tasks import tasks
from contrast_core import (
    CPCA,
    PCPCA,
    ContrastWarning,
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
            start = perf_counter()
            given = {"background": mice.background, "random_state": 0, **groups}
            test = permutation_test(estimator, mice.foreground, n_permutations=999, **given)
            stability = bootstrap_stability(estimator, mice.foreground, n_resamples=200, **given)
            print(
                f"  {type(estimator).__name__:9} by {name}: p {np.round(test.p_values, 3)}"
                f"  stable {np.round(stability.component_stability, 2)}"
                f"  in subspace {np.round(stability.component_retention, 2)}"
                f"  ({perf_counter() - start:.1f} s)"
            )


def _with(sd: FloatArray, *added: float) -> FloatArray:
    """Standard deviations with variances added to the fourth feature, the fifth, ..."""
    variances = sd**2
    variances[3 : 3 + len(added)] += added
    return np.sqrt(variances)


def component_rejections(
    n_sets: int, shape: tuple[int, int, int] = (50, 50, 10)
) -> list[tuple[str, FloatArray, int, float]]:
    """Share of sets in which each of three components comes out at 5%.

    After a name: the rejections, how many components are real, and CPU milliseconds a test.
    """
    n, m, n_features = shape
    plain, decaying = np.ones(n_features), np.linspace(2, 0.5, n_features)
    shared = np.where(np.arange(n_features) == 0, 7.0, 1.0)
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
    results = []
    for strength, estimator in estimators.items():
        for name, (sd_x, sd_y, n_real) in kinds.items():
            rng = np.random.default_rng(0)
            start, p_values = process_time(), []
            for _ in range(n_sets):
                X, Y = (rng.normal(size=(k, n_features)) * sd for k, sd in ((n, sd_x), (m, sd_y)))
                test = permutation_test(
                    estimator, X, background=Y, n_permutations=59, random_state=rng
                )
                p_values.append(test.p_values)
            rejections = np.mean(np.array(p_values) <= 0.05, axis=0)
            spent = 1e3 * (process_time() - start) / n_sets
            results.append((f"{strength}: {name}", rejections, n_real, spent))
    return results


def group_rejections(n_sets: int) -> dict[str, float]:
    """Share of nulls of rows that repeat in which the first component comes out at 5%."""
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
        name: float(np.mean([p_value(*design) <= 0.05 for _ in range(n_sets)]))
        for name, design in designs.items()
    }


def false_findings(n: int, n_features: int, n_sets: int) -> float:
    """Share of nulls in which the cross-fitted ratio is at least 1.5 times its baseline."""
    rng = np.random.default_rng(0)
    shape = (n, n_features)
    return float(
        np.mean(
            [
                cross_fitted_ratio(
                    rng.normal(size=shape), background=rng.normal(size=shape), random_state=rng
                ).relative
                >= 1.5
                for _ in range(n_sets)
            ]
        )
    )


def mouse_ratio_nulls() -> dict[str, list[float]]:
    """Control mice against control mice of the same class: by mouse and by row."""
    mice = load_mouse_protein()
    control = mice.labels == "Control"
    rows, groups = mice.foreground[control], mice.units[control]
    found: dict[str, list[float]] = {"by mouse (5 and 4)": [], "by row (67 and 68)": []}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        is_x = np.isin(groups, rng.permutation(np.unique(groups))[:5])
        ratio = cross_fitted_ratio(
            rows[is_x],
            background=rows[~is_x],
            units=groups[is_x],
            background_units=groups[~is_x],
            random_state=seed,
        )
        found["by mouse (5 and 4)"].append(ratio.ratio)
        order = rng.permutation(len(rows))
        ratio = cross_fitted_ratio(rows[order[:67]], background=rows[order[67:]], random_state=seed)
        found["by row (67 and 68)"].append(ratio.ratio)
    return found


def main() -> int:
    failures, n_sets = 0, int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    highest = 0.07 if n_sets >= 1000 else binom.ppf(0.999, n_sets, 0.05) / n_sets

    def check(label: str, value: float, low: float, high: float) -> None:
        nonlocal failures
        failures += not low <= value <= high
        verdict = "" if low <= value <= high else "   OUT OF BOUNDS"
        print(f"  {label:65} {value:6.3f}   bound {low:g} to {high:g}{verdict}")

    print("Mouse, six components:")
    mouse_components()

    print(f"Components that come out at 5%, of {n_sets} sets:")
    for name, rates, n_real, milliseconds in component_rejections(n_sets):
        for j, rate in enumerate(rates[: n_real + 1]):
            real = j < n_real
            part = f"{name}, component {j + 1}"
            least = 0.9 if real and not name.startswith("PCPCA") else 0.0
            check(f"{part}{' (real)' if real else ''}", rate, least, 1.0 if real else highest)
        print(f"    {milliseconds:.0f} ms of CPU for 59 relabellings and 3 components")

    print("Rejections at 5% where there is nothing, rows that repeat:")
    for name, rate in group_rejections(n_sets).items():
        if name.endswith("by row"):
            print(f"  {name:65} {rate:6.3f}   (what repeated rows fake)")
        else:
            check(name, rate, 0.0, highest)

    print("Cross-fitted ratio of at least 1.5 times its baseline where there is nothing:")
    for n, n_features in itertools.product((12, 50), (10, 20, 60)):
        name = f"{n} + {n} rows of {n_features} features"
        check(name, false_findings(n, n_features, n_sets), 0.0, highest if n == 12 else 0.01)

    print("Cross-fitted ratio where there is nothing:")
    for name, ratios in mouse_ratio_nulls().items():
        print(f"  mice {name}: " + " ".join(f"{ratio:.2f}" for ratio in sorted(ratios)))
    data = {**tasks(), "four groups": make_four_groups()}
    for name, task in data.items():
        background = np.random.default_rng(0).permutation(task.background)
        half = len(background) // 2
        if (
            name == "mouse"
        ):  # 135 rows, some far out (missing values set to 0): above, without bound
            continue
        null = cross_fitted_ratio(
            background[:half], background=background[half:], n_splits=2, random_state=0
        )
        check(f"{name}, background halves", null.ratio, 0.75, 1.25)

    print("Cross-fitted ratio with known groups:")
    for name, task in data.items():
        found = cross_fitted_ratio(
            task.foreground, background=task.background, n_splits=2, random_state=0
        )
        check(name, found.ratio / found.baseline, 3.7, np.inf)
    mice = load_mouse_protein()
    grouped = cross_fitted_ratio(
        mice.foreground,
        background=mice.background,
        units=mice.units,
        background_units=mice.background_units,
        n_splits=20,
        random_state=0,
    )
    print(f"  mouse, by mouse (18 and 9)  {grouped.ratio:.2f}  (too few mice to certify a null)")
    return failures


if __name__ == "__main__":
    warnings.simplefilter("ignore", ContrastWarning)
    with threadpool_limits(2):
        sys.exit(main())
