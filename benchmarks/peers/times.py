"""CPU seconds of one thread on the same data, embedding included; ours beside each peer's.

The median of three by turns. "one contrast" is at a given strength, "path" the peers' automatic
mode of 41 contrasts beside `contrast_path`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _packages import Package, quietly
from threadpoolctl import threadpool_limits

from contrast_core import CPCA, PCPCA, CPCAStar, contrast_path
from contrast_core.datasets import digits_on_photos, load_mouse_protein


def datasets() -> dict[str, tuple[Any, Any]]:
    mice, digits = load_mouse_protein(), digits_on_photos(5000)
    return {
        "mice, 270 + 135 x 77": (mice.foreground, mice.background),
        "digits, 5000 + 5000 x 784": (digits.foreground, digits.background),
    }


def calls(found: dict[str, Package], X: Any, Y: Any) -> dict[str, Callable[[], Any]]:
    """Pairs of name and call, ours first in each group."""
    ours = {
        "one contrast: CPCA": lambda: CPCA(alpha=2.0).fit(X, background=Y).transform(X),
        "contrastive": found,
        "contrastive-cv": found,
        "ratio: CPCAStar": lambda: (
            CPCAStar(beta=1, condition_limit=1e13).fit(X, background=Y).transform(X)
        ),
        "generalized_contrastive_PCA": found,
        "rhopca": found,
        "likelihood: PCPCA": lambda: PCPCA(gamma=0.2).fit(X, background=Y).transform(X),
        "pcpca": found,
        "path: contrast_path": lambda: contrast_path(X, background=Y),
    }
    made: dict[str, Callable[[], Any]] = {}
    for name, call in ours.items():
        if call is not found:
            made[name] = call
        elif name in found:
            made[name] = lambda fit=found[name].fit: fit(X, Y, 2)(X)
    for name in ("contrastive", "contrastive-cv"):
        if name in found:
            model = found[name].module.CPCA(standardize=False)
            made[f"{name}, automatic"] = lambda model=model: model.fit_transform(X, Y)
    return made


def seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    quietly(call)
    return time.process_time() - start


def main(found: dict[str, Package]) -> int:
    missed, small = [], []
    with threadpool_limits(1):
        for title, (X, Y) in datasets().items():
            print(f"\n{title}: CPU seconds, and so many times ours")
            own = np.nan
            for name, call in calls(found, X, Y).items():
                try:
                    seconds(call)  # what is loaded on first use is not counted
                    taken = float(np.median([seconds(call) for _ in range(3)]))
                except Exception as error:
                    print(f"    {name:36}{type(error).__name__}: {str(error)[:60]}")
                    continue
                if ":" in name:
                    own = taken
                    print(f"  {name:38}{taken:9.4f}", flush=True)
                else:
                    print(f"    {name:36}{taken:9.4f}{taken / own:9.1f}", flush=True)
                    if taken < own:
                        (missed if title.startswith("digits") else small).append(name)
    print("\nslower on the digits than: " + ("; ".join(missed) or "none"))
    print(
        "on the mice, by milliseconds of checks and proofs, than: " + ("; ".join(small) or "none")
    )
    return bool(missed)
