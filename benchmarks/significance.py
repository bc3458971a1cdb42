"""Is the contrast real? Significance by rows and by groups, on real data and on nulls.

    [CONTRAST_DATA=...] python benchmarks/significance.py

Prints, for the mouse data, p-values and stability of six components with rows taken as independent
and by mouse; rejection rates of simulated nulls; and the cross-fitted trace ratio on nulls and on
data with known groups.

Bounds: p-values of nulls reject at 5% in 0.5% to 11% of 300 sets (99.9% of a binomial at most);
ratios of two halves of a background of independent rows from 0.75 to 1.25; ratios of data with
known groups, rows taken as independent, at least 3.7 times tr(C_X)/tr(C_Y).
"""

from __future__ import annotations

import sys
import warnings
from time import perf_counter

import numpy as np
from _tasks import tasks
from threadpoolctl import threadpool_limits

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


def mouse_components() -> None:
    mice = load_mouse_protein()
    by_mouse = {"groups": mice.groups, "background_groups": mice.background_groups}
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


def null_rejections(n_sets: int = 300) -> dict[str, float]:
    """Share of nulls in which the first component comes out at 5%."""
    rng = np.random.default_rng(0)
    sd = np.linspace(2, 0.5, 10)

    def p_value(n: int, m: int, repeats: int, grouped: bool) -> float:
        animals = np.repeat(np.arange(n + m), repeats)
        rows = (rng.normal(size=(n + m, 10)) * sd)[animals]
        rows = rows + 0.3 * (repeats > 1) * rng.normal(size=rows.shape)
        is_x = animals < n
        groups = {"groups": animals[is_x], "background_groups": animals[~is_x]} if grouped else {}
        return permutation_test(
            CPCA(1),
            rows[is_x],
            background=rows[~is_x],
            n_permutations=99,
            random_state=rng,
            **groups,
        ).p_values[0]

    designs = {
        "40 and 30 independent rows": (40, 30, 1, False),
        "9 and 9 animals of 5 rows, by animal": (9, 9, 5, True),
        "18 and 9 animals of 5 rows, by animal": (18, 9, 5, True),
        "9 and 9 animals of 5 rows, by row": (9, 9, 5, False),
    }
    return {
        name: float(np.mean([p_value(*design) <= 0.05 for _ in range(n_sets)]))
        for name, design in designs.items()
    }


def mouse_ratio_nulls() -> dict[str, list[float]]:
    """Control mice against control mice of the same class: by mouse and by row."""
    mice = load_mouse_protein()
    control = mice.labels == "Control"
    rows, groups = mice.foreground[control], mice.groups[control]
    found: dict[str, list[float]] = {"by mouse (5 and 4)": [], "by row (67 and 68)": []}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        is_x = np.isin(groups, rng.permutation(np.unique(groups))[:5])
        ratio = cross_fitted_ratio(
            rows[is_x],
            background=rows[~is_x],
            groups=groups[is_x],
            background_groups=groups[~is_x],
            random_state=seed,
        )
        found["by mouse (5 and 4)"].append(ratio.ratio)
        order = rng.permutation(len(rows))
        ratio = cross_fitted_ratio(rows[order[:67]], background=rows[order[67:]], random_state=seed)
        found["by row (67 and 68)"].append(ratio.ratio)
    return found


def main() -> int:
    failures = 0

    def check(label: str, value: float, low: float, high: float) -> None:
        nonlocal failures
        failures += not low <= value <= high
        verdict = "" if low <= value <= high else "   OUT OF BOUNDS"
        print(f"  {label:45} {value:6.3f}   bound {low:g} to {high:g}{verdict}")

    print("Mouse, six components:")
    mouse_components()

    print("Rejections at 5% where there is nothing:")
    for name, rate in null_rejections().items():
        if name.endswith("by row"):
            print(f"  {name:45} {rate:6.3f}   (what repeated rows fake)")
        else:
            check(name, rate, 0.005, 0.11)

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
        groups=mice.groups,
        background_groups=mice.background_groups,
        n_splits=20,
        random_state=0,
    )
    print(f"  mouse, by mouse (18 and 9)  {grouped.ratio:.2f}  (too few mice to certify a null)")
    return failures


if __name__ == "__main__":
    warnings.simplefilter("ignore", ContrastWarning)
    with threadpool_limits(2):
        sys.exit(main())
