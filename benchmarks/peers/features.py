"""What each package does with data that are not as in its examples, tried in this run.

Every package embeds the mice in two components as it comes, but for scaling, which is switched off
where it can be (the mice are scaled), and at a strength of its own where it wants one; a try is
"yes" where the result is as said, else it is what came instead. Ours are `CPCA`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from _packages import Package, Transform, quietly

from benchmarks.common.measures import accuracy, silhouette
from benchmarks.common.report import Report
from contrast_core import CPCA
from contrast_core.datasets import digits_on_photos, load_mouse_protein
from contrast_core.linalg import subspace_error

Fit = Callable[[Any, Any, int], Transform]

_mice = load_mouse_protein()
X, Y = _mice.foreground, _mice.background
_rng = np.random.default_rng(0)


def shape(scores: Any, rows: int, k: int) -> bool:
    values = np.asarray(scores)
    return values.shape == (rows, k) and np.isrealobj(values) and bool(np.isfinite(values).all())


def same(scores: Any, others: Any, tolerance: float = 1e-6) -> bool:
    """The same span of scores: signs and lengths are free."""
    one, other = (np.linalg.qr(np.asarray(values, dtype=float))[0].T for values in (scores, others))
    return bool(np.isfinite(one).all()) and subspace_error(one, other) < tolerance


def embedded(fit: Fit, change: Callable[[Any], Any] = np.asarray) -> Any:
    """Two components of the mice, both datasets changed alike."""
    rows = change(X)
    return fit(rows, change(Y), 2)(rows)


def unchanged(change: Callable[[Any], Any], tolerance: float = 1e-6) -> Callable[[Fit], bool]:
    return lambda fit: same(embedded(fit, change), embedded(fit), tolerance)


def refused(fit: Fit, rows: Any, background: Any) -> bool:
    try:
        fit(rows, background, 2)(rows)
    except ValueError:
        return True
    return False


def with_hole() -> Any:
    holed = X.copy()
    holed[0, 0] = np.nan
    return holed


def wide(fit: Fit) -> bool:
    """1100 features, 60 and 1000 rows, and five new rows."""
    rows, background = _rng.normal(size=(60, 1100)), _rng.normal(size=(1000, 1100))
    return shape(fit(rows, background, 2)(rows[:5].copy()), 5, 2)


def new_rows(fit: Fit) -> bool:
    transform = fit(X, Y, 2)
    return bool(np.allclose(transform(X[:5].copy()), transform(X)[:5]))


TRIES: dict[str, Callable[[Fit], bool]] = {
    "one component": lambda fit: shape(fit(X, Y, 1)(X), len(X), 1),
    "five components": lambda fit: shape(fit(X, Y, 5)(X), len(X), 5),
    "new rows, alone or among others": new_rows,
    "all features moved by 5: the same": unchanged(lambda rows: rows + 5),
    "a constant feature: the same": unchanged(
        lambda rows: np.column_stack([rows, np.full(len(rows), 3.0)])
    ),
    "fewer background rows than features": lambda fit: same(
        fit(X, Y[:40], 2)(X), fit(X, Y[39::-1], 2)(X)
    ),
    "1100 features, new rows": wide,
    "float32: the same to 1e-3": unchanged(lambda rows: rows.astype(np.float32), 1e-3),
    "DataFrames: the same": unchanged(pd.DataFrame),
    "sparse rows: the same": unchanged(sp.csr_matrix),
    "NaN refused, if not understood": lambda fit: refused(fit, with_hole(), Y),
    "features that differ refused": lambda fit: refused(fit, X, Y[:, :-1]),
}


def attempt(call: Callable[[], bool]) -> str:
    try:
        return "yes" if quietly(call) else "NO"
    except Exception as error:
        return type(error).__name__


def table(found: dict[str, Package]) -> dict[str, dict[str, str]]:
    """What became of each try with each package."""
    print(f"\n{'':38}" + "".join(f"{name[:18]:>20}" for name in found))
    outcomes: dict[str, dict[str, str]] = {}
    for text, call in TRIES.items():
        row = {
            name: attempt(lambda call=call, fit=package.fit: call(fit))
            for name, package in found.items()
        }
        print(f"{text:38}" + "".join(f"{outcome:>20}" for outcome in row.values()), flush=True)
        outcomes[text] = row
    return outcomes


def by_default(found: dict[str, Package]) -> None:
    """How well known groups come apart, nothing chosen (the best of `contrastive`'s four)."""
    digits = digits_on_photos(1500)
    print(f"\n{'nothing chosen':38}{'mice: silhouette':>20}{'digits: accuracy':>20}")
    for name, package in found.items():
        measured = []
        for rows, background, labels, measure in (
            (X, Y, _mice.labels, silhouette),
            (digits.foreground, digits.background, digits.labels, accuracy),
        ):
            try:
                views = quietly(lambda a=rows, b=background, p=package: default_views(p, a, b))
                measured.append(f"{max(measure(view, labels) for view in views):.3f}")
            except Exception as error:
                measured.append(type(error).__name__)
        print(f"{name:38}" + "".join(f"{value:>20}" for value in measured), flush=True)


def default_views(package: Package, rows: Any, background: Any) -> list[Any]:
    if package.module is None:
        return [CPCA().fit(rows, background=background).transform(rows)]
    if package.name.startswith("contrastive"):
        return package.module.CPCA().fit_transform(rows, background)
    if package.name == "pcpca":
        centred, behind = (part - part.mean(axis=0) for part in (rows, background))
        return [package.module.PCPCA().fit_transform(centred.T, behind.T)[0].T]
    return [package.fit(rows, background, 2)(rows)]


def main(report: Report, found: dict[str, Package]) -> None:
    outcomes = table(found)
    by_default(found)
    failed = [text for text, row in outcomes.items() if row["contrast_core"] != "yes"]
    report.bound(f"ours fail in {failed or 'no try'}", not failed)
