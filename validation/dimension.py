"""Does `contrast_dimension` find how many dimensions a foreground has that its background lacks?

    python validation/dimension.py

Fifty draws each with 0, 1, 3 and 5 own dimensions beside three shared ones, in 60 features of unit
noise: the number found, and beside it, on the first five draws, the number of components that the
permutation test finds, which asks another question: where a shared direction merely varies more in
the foreground, it finds that.

Must reach: the right number in at least 85% of the draws; more than none where there is none in at
most 10%.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from contrast_core import CPCA, ContrastWarning, contrast_dimension, permutation_test

N_DRAWS, N_TESTED = 50, 5


def draw(own: int, seed: int, *, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """`factor` is of the standard deviation of the foreground along what both share."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    X, Y = rng.normal(size=(2, 400, 60))
    shared = np.array([5.0, 4.0, 3.0])
    X += rng.normal(size=(400, 3)) * shared * factor @ basis[:3]
    Y += rng.normal(size=(400, 3)) * shared @ basis[:3]
    X += rng.normal(size=(400, own)) * np.linspace(3.0, 2.0, own) @ basis[3 : 3 + own]
    return X, Y


def main() -> int:
    missed = 0
    for own, factor in ((0, 1.0), (1, 1.0), (3, 1.0), (5, 1.0), (0, 2.0)):
        found, tested = [], []
        for seed in range(N_DRAWS):
            X, Y = draw(own, seed, factor=factor)
            found.append(contrast_dimension(X, background=Y, random_state=seed).n_own)
            if seed < N_TESTED:
                test = permutation_test(
                    CPCA(6), X, background=Y, n_permutations=99, random_state=seed
                )
                tested.append(test.n_significant())
        right = found.count(own) / N_DRAWS
        bound = 0.9 if own == 0 else 0.85
        missed += right < bound
        note = "" if factor == 1 else ", four times the variance along what both share"
        print(
            f"{own} own dimensions{note}: right in {right:.0%} (bound {bound:.0%}: "
            f"{'reached' if right >= bound else 'NOT REACHED'}); permutation test {tested}",
            flush=True,
        )
    return int(missed > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ContrastWarning)
    with threadpool_limits(1):
        sys.exit(main())
