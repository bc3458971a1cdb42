"""Does `contrast_dimension` find how many dimensions a foreground has that its background lacks?

The data have 60 features with unit noise, three shared dimensions, and 0, 1, 3 or 5 dimensions of
the foreground alone, in fifty draws each. The study prints how often the right number is found. For
the first five draws it also prints the number of components that the permutation test finds. That
test asks another question: it also finds a shared direction that varies more in the foreground.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common.report import Report, run
from contrast_core import CPCA, contrast_dimension, permutation_test

N_DRAWS, N_TESTED = 50, 5


def draw(own: int, seed: int, *, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return both datasets; `factor` scales the foreground along the shared directions."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    X, Y = rng.normal(size=(2, 400, 60))
    shared = np.array([5.0, 4.0, 3.0])
    X += rng.normal(size=(400, 3)) * shared * factor @ basis[:3]
    Y += rng.normal(size=(400, 3)) * shared @ basis[:3]
    X += rng.normal(size=(400, own)) * np.linspace(3.0, 2.0, own) @ basis[3 : 3 + own]
    return X, Y


def main(report: Report) -> None:
    for own, factor in ((0, 1.0), (1, 1.0), (3, 1.0), (5, 1.0), (0, 2.0)):
        found, tested = [], []
        for seed in range(N_DRAWS):
            X, Y = draw(own, seed, factor=factor)
            found.append(contrast_dimension(X, background=Y, random_state=seed).n_own)
            if seed < N_TESTED:
                options = {"n_permutations": 99, "random_state": seed}
                test = permutation_test(CPCA(6), X, background=Y, **options)
                tested.append(test.n_significant())
        note = "" if factor == 1 else ", 4 times the shared variance"
        share = found.count(own) / N_DRAWS
        what = f"{own} own dimensions{note}: right (permutation test {tested})"
        report.measured(what, share, least=0.9 if own == 0 else 0.85)


if __name__ == "__main__":
    run(main)
