"""Online cPCA* against the batch solution on the mouse data (Online paper, Fig. 4), and its speed.

Alignment (trace of the product of the two projectors over k), k = 2, mean of 5 seeds, after up to
60 passes; eta = 0.003 and tau = 1 as in the paper, constant and decaying. Then a million steps on
one stream, and steps per second with and without numba.

    python benchmarks/online_cpca_star.py

Bounds at beta = 0.5: at least 0.97 constant and 0.995 decaying; at least 0.995 after the million.
The figure is benchmarks/output/online_cpca_star.png.
"""

from __future__ import annotations

import sys
import warnings
from time import perf_counter

import numpy as np
from _tasks import OUTPUT
from matplotlib import pyplot as plt
from threadpoolctl import threadpool_limits

from contrast_core import ContrastWarning, CPCAStar, OnlineCPCAStar, principal_angles
from contrast_core.datasets import load_mouse_protein
from contrast_core.spectral._online_steps import OnlineState, StepSizes, advance

PASSES = (1, 2, 3, 5, 8, 12, 20, 30, 40, 50, 60)
STREAM_BOUND = 0.995


def alignment(one: CPCAStar | OnlineCPCAStar, other: CPCAStar | OnlineCPCAStar) -> float:
    return float(np.mean(np.cos(principal_angles(one.components_, other.components_)) ** 2))


def main() -> int:
    mice = load_mouse_protein()
    X, Y = mice.foreground, mice.background
    missed = 0
    warnings.simplefilter("ignore", ContrastWarning)  # the first of the passes are few on purpose
    _, axis = plt.subplots(figsize=(6, 4))
    for beta, decay, bound in (
        (0.5, None, 0.97),
        (0.5, 3000, 0.995),
        (0.9, None, None),
        (0.9, 3000, None),
    ):
        batch = CPCAStar(beta=beta).fit(X, background=Y)
        curves = np.array(
            [
                [
                    alignment(
                        OnlineCPCAStar(
                            beta=beta, decay_steps=decay, n_passes=n, random_state=seed
                        ).fit(X, background=Y),
                        batch,
                    )
                    for n in PASSES
                ]
                for seed in range(5)
            ]
        )
        label = f"beta {beta}, " + ("constant" if decay is None else f"decay_steps {decay}")
        mean, spread = curves.mean(axis=0), curves.std(axis=0)
        axis.plot(PASSES, mean, label=label)
        axis.fill_between(PASSES, mean - spread, mean + spread, alpha=0.2)
        verdict = "" if bound is None else f"  (bound {bound}: {mean[-1] >= bound})"
        missed += bound is not None and mean[-1] < bound
        print(f"{label:30} alignment {mean[-1]:.4f} +- {spread[-1]:.4f}{verdict}")
    axis.set(xlabel="passes", ylabel="alignment", ylim=(0.8, 1.005))
    axis.legend()
    OUTPUT.mkdir(exist_ok=True)
    plt.savefig(OUTPUT / "online_cpca_star.png", dpi=120)

    rng = np.random.default_rng(0)
    rows, flags = np.vstack([X, Y]), np.arange(len(X) + len(Y)) < len(X)
    online = OnlineCPCAStar(beta=0.5, decay_steps=3000)
    for _ in range(100):
        order = rng.integers(0, len(rows), 10_000)
        online.partial_fit(rows[order], flags[order])
    reached = alignment(online, CPCAStar(beta=0.5).fit(X, background=Y))
    missed += reached < STREAM_BOUND
    print(f"{'after 10^6 steps of a stream':30} alignment {reached:.4f}  (bound {STREAM_BOUND})")

    order = rng.integers(0, len(rows), 100_000)
    start = OnlineState(np.eye(2, X.shape[1]), np.eye(2), 0, 0, 0)
    sizes = StepSizes(0.003, np.inf, 1.0, 0.5)
    for compiled in (True, False):
        advance(start, rows[:2], flags[:2], sizes, compiled=compiled)
        begun = perf_counter()
        advance(start, rows[order], flags[order], sizes, compiled=compiled)
        print(
            f"{'compiled' if compiled else 'plain'}: {1e5 / (perf_counter() - begun):,.0f} steps/s"
        )
    return int(missed)


if __name__ == "__main__":
    with threadpool_limits(1):
        sys.exit(main() > 0)
