"""Run time and memory of PCA++ over the sizes of the paper's table (Appendix D).

The table's own seconds are of an Intel Xeon at 2.20 GHz, and so many threads as it does not say;
here CPU seconds of one BLAS thread, moments and all, and the peak memory of a process of its own,
the data included.
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.common.measures import in_a_process, peak_memory, seconds
from benchmarks.common.report import Report, run
from contrast_core import PCAPlusPlus

# (pairs, features): the paper's seconds.
N_FEATURES = (100, 1000, 5000, 10000)
SECONDS = {
    100: (0.002, 0.157, 2.288, 9.492),
    1000: (0.003, 0.204, 3.781, 15.666),
    5000: (0.009, 0.662, 13.919, 53.610),
    10000: (0.017, 1.310, 26.433, 100.656),
}
K = 5
DATA = (
    f"pairs with {K} shared directions and {K} of background over unit noise, drawn here; {K} "
    "components of the paper's form, truncation at the edge of the noise. CPU seconds of one "
    "thread, median of three of the small sizes; peak memory with the data, of which there are "
    "0.16 GB at 10,000 x 1,000 and 1.6 GB at the largest size."
)


def measure(n: int, d: int) -> None:
    """Print seconds and gigabytes of one size, and the least that its two moments can take here."""
    rng = np.random.default_rng(0)
    directions, behind = rng.normal(size=(2, K, d))
    X, positive = np.empty((2, n, d))
    for start in range(0, n, 1000):  # in blocks, so that the peak is that of the fit
        rows = slice(start, start + 1000)
        signal = rng.normal(size=(len(X[rows]), K)) @ directions
        for view in (X, positive):
            view[rows] = signal + 2 * rng.normal(size=(len(signal), K)) @ behind
            view[rows] += rng.normal(size=signal.shape)
    model = PCAPlusPlus(K, exchangeable=False)
    repeats = 3 if n * d < 2e7 else 1
    [(taken, _)] = seconds(lambda: model.fit(X, positive=positive), repeats=repeats)
    block = X[:2000, :2000].copy()
    [(product, _)] = seconds(lambda: block.T @ positive[: len(block), :2000], repeats=1)
    products = n * d**2 / (len(block) * block.shape[1] ** 2)  # of the cross-moment; half for S
    print(taken, peak_memory(), 1.5 * products * product)


def main(report: Report) -> None:
    if sys.argv[1:]:
        measure(*map(int, sys.argv[1:]))
        return
    for n, row in SECONDS.items():
        for d, paper in zip(N_FEATURES, row, strict=True):
            taken, peak, floor = in_a_process(__file__, n, d)
            slow = floor > 0.5 * paper or paper < 0.02
            why = (
                f"one thread needs {floor:.4f} s here for the products of the two moments alone, "
                "and some milliseconds go to checking the input; the paper does not say how many "
                "threads it had"
            )
            what = f"{n:,} pairs x {d:,} features: seconds"
            here = f"{taken:.4f} s, {peak:.2f} GB"
            report.row(what, paper, here, taken <= paper, short=why if slow else "")


if __name__ == "__main__":
    run(main, "" if sys.argv[1:] else DATA)
