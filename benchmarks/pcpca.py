"""PCPCA on its papers' data: what gamma does, and where gamma="auto" lands.

    python benchmarks/pcpca.py

Silhouettes are of the two-dimensional posterior means with each axis scaled to unit sd, and each
dataset is standardised on its own, both as in the scripts of the paper's authors. The digits need
CONTRAST_DATA. In raw pixels gamma' = 0.8 is a weaker contrast where the background's pictures vary
less than the foreground's, and an invalid one where they vary more: the paper's 0.8 means
standardised pixels.

The scenes are few: along some directions those that hide the digits vary more than the others, and
what 0.8 leaves of that can exceed the digits. Twelve deals of the scenes are printed; the first is
the one that the bounds are for.

Must reach: mouse >= 0.42 at "auto" (paper: 0.404 at the best gamma); digits on scenes, first deal,
>= 0.36 at gamma' = 0.8 (paper: 0.33) where probabilistic PCA stays below 0.05 (paper: 0.007), and a
higher likelihood of held-out clean digits than probabilistic PCA's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from digits_on_scenes import digits_on_scenes
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from contrast_core import PCPCA
from contrast_core.datasets import load_mouse_protein, make_toy

FRACTIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.85, 0.9, 0.95, 0.99)
N_DEALS = 12


def standardised(rows: Any) -> Any:
    """Features at zero mean and unit sd; those that do not vary stay at zero."""
    sd = rows.std(axis=0)
    return (rows - rows.mean(axis=0)) / np.where(sd > 0, sd, 1)


def silhouette(model: PCPCA, rows: Any, labels: Any) -> float:
    scores = model.transform(rows)
    sample = 2000 if len(rows) > 2000 else None
    return silhouette_score(scores / scores.std(axis=0), labels, sample_size=sample, random_state=0)


def report(name: str, X: Any, Y: Any, labels: Any, k: int) -> PCPCA:
    model = PCPCA(k).fit(X, background=Y)
    print(f"\n{name}: gamma_max {model.gamma_max_:.3f}")
    print("  gamma/gamma_max  gamma'   sigma^2  silhouette")
    rows = [(f"{f:15.2f}", model.at(f * model.gamma_max_)) for f in FRACTIONS]
    for text, other in [*rows, ("           auto", model)]:
        line = f"  {text}  {other.gamma_:6.3f}  {other.noise_variance_:8.4f}"
        print(line + f"  {silhouette(other, X, labels):10.3f}")
    return model


def main() -> int:
    failures = []
    mouse = load_mouse_protein()
    X, Y = standardised(mouse.foreground), standardised(mouse.background)
    auto = silhouette(report("mouse protein", X, Y, mouse.labels, 2), X, mouse.labels)
    if auto < 0.42:
        failures.append(f"mouse at auto {auto:.3f} < 0.42")
    toy = make_toy()
    report("toy (d = 1)", toy.foreground, toy.background, toy.labels, 1)

    if "CONTRAST_DATA" not in os.environ:
        print("\ndigits on scenes: left out, CONTRAST_DATA does not name the larger data")
        return finish(failures)
    print("\ndigits on scenes, 5000 + 5000, d = 2; the seed deals out the scenes")
    print("  seed  gamma_max  silhouette: PPCA  0.8    auto   held-out: PPCA     0.8     auto")
    reached = []
    for seed in range(N_DEALS):
        data = digits_on_scenes(Path(os.environ["CONTRAST_DATA"]), seed=seed)
        X, Y, held_out = (
            standardised(rows) for rows in (data.foreground, data.background, data.held_out)
        )
        model = PCPCA().fit(X, background=Y)
        models = (model.at(0.0), model.at(0.8), model)
        values = [silhouette(other, X, data.labels) for other in models]
        likelihoods = [other.score(held_out) for other in models]
        line = f"  {seed:4d}  {model.gamma_max_:9.3f}"
        line += "{:18.3f}  {:.3f}  {:.3f}".format(*values)
        print(line + "{:18.1f}  {:.1f}  {:.1f}".format(*likelihoods))
        reached.append((values[1] >= 0.36 and values[0] < 0.05, likelihoods[1] > likelihoods[0]))
        if seed == 0 and not all(reached[0]):
            failures.append(f"digits: silhouettes {values[:2]}, likelihoods {likelihoods[:2]}")
    silhouettes, gains = np.sum(reached, axis=0)
    print(f"  of {N_DEALS} deals {silhouettes} reach 0.36 and {gains} the likelihood")
    return finish(failures)


def finish(failures: list[str]) -> int:
    print("\n" + ("; ".join(["NOT REACHED", *failures]) if failures else "all bounds reached"))
    return bool(failures)


if __name__ == "__main__":
    with threadpool_limits(2):
        sys.exit(main())
