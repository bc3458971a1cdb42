"""CPU seconds of one thread on the same data, embedding included; ours beside each peer's.

The median of three by turns. "one contrast" is at a given strength, "path" the peers' automatic
mode of 41 contrasts beside `contrast_path`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _packages import Package, quietly

from benchmarks.common.measures import seconds
from benchmarks.common.report import Report
from contrast_core import CPCA, PCPCA, CPCAStar, contrast_path
from contrast_core.datasets import digits_on_photos, load_mouse_protein


def calls(found: dict[str, Package], X: Any, Y: Any) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Our call of each kind, and those of the peers."""
    groups = {
        "one contrast": (CPCA(alpha=2.0), ("contrastive", "contrastive-cv")),
        "ratio": (
            CPCAStar(beta=1, condition_limit=1e13),
            ("generalized_contrastive_PCA", "rhopca"),
        ),
        "likelihood": (PCPCA(gamma=0.2), ("pcpca",)),
    }
    made: dict[str, tuple[Any, dict[str, Any]]] = {}
    for kind, (model, names) in groups.items():
        peers: dict[str, Callable[[], Any]] = {
            name: lambda fit=found[name].fit: fit(X, Y, 2)(X) for name in names if name in found
        }
        made[kind] = (lambda model=model: model.fit(X, background=Y).transform(X), peers)
    automatic = {
        name: found[name].module.CPCA(standardize=False)
        for name in ("contrastive", "contrastive-cv")
        if name in found
    }
    made["path"] = (
        lambda: contrast_path(X, background=Y),
        {name: lambda peer=peer: peer.fit_transform(X, Y) for name, peer in automatic.items()},
    )
    return made


def main(report: Report, found: dict[str, Package]) -> None:
    mice, digits = load_mouse_protein(), digits_on_photos(5000)
    for title, data, least in (
        ("mice, 270 + 135 x 77", mice, 0.0),  # milliseconds of checks and proofs
        ("digits, 5000 + 5000 x 784", digits, 1.0),
    ):
        print(f"\n{title}: CPU seconds, and so many times ours")
        for kind, (ours, peers) in calls(found, data.foreground, data.background).items():
            [(own, _)] = seconds(lambda call=ours: quietly(call))
            report.measured(f"{kind}, ours", own)
            for name, call in peers.items():
                try:
                    [(taken, _)] = seconds(lambda call=call: quietly(call))
                except Exception as error:
                    print(f"    {name}: {type(error).__name__}: {str(error)[:60]}")
                    continue
                report.measured(f"  {name} / ours", taken / own, least=least)
