"""PCA++ against its theory: subspace error over aspect ratios, no rank given by hand.

The setting of the paper (Sec. 5, App. H; Figure 2c, Tables 10, 11, 13 and 14): n = 500 pairs,
signal variances 50, 25, 20, 15, 10 on the first five features, background on the last five, noise
variance 1; the mean over 50 runs of the sine of the largest principal angle. Then D/n = 0.4 with
more pairs.

Bounds on the ratio of mean error and theory, for the exchangeable form with the theory at half the
aspect ratio. Strong background (500, 400, 300, 200, 100): within 5%, 10% at D/n = 0.1, while PCA
and PCA+ fail (error above 0.95). Mild background (50, 40, 30, 20, 10): within 8% from D/n = 0.5 on.
"""

from __future__ import annotations

import sys

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common.report import Report, panels
from contrast_core import PCAPlus, PCAPlusPlus
from contrast_core.contrast import expected_subspace_error
from contrast_core.linalg import leading_eigenpairs, subspace_error
from contrast_core.moments import PairMoments

N_PAIRS, RUNS = 500, 50
SIGNAL = np.array([50.0, 25.0, 20.0, 15.0, 10.0])
BACKGROUNDS = {
    "strong": np.array([500.0, 400.0, 300.0, 200.0, 100.0]),
    "mild": np.array([50.0, 40.0, 30.0, 20.0, 10.0]),
}
# The error that the paper prints for its form, at the ratios below (Tables 14 and 13).
PAPER = {
    "strong": (0.156, 0.185, 0.230, 0.283, 0.321, 0.339, 0.379, 0.353, 0.410, 0.447),
    "mild": (0.125, 0.212, 0.250, 0.275, 0.311, 0.347, 0.375, 0.388, 0.415, 0.401),
}
WHY = {
    "strong": "means of fifty runs, here and there, on either side of the theory",
    "mild": "variances of signal and background coincide here, which the theory excludes",
}
# And at D/n = 0.4 as n grows, by our runs at so many pairs (Tables 10 and 11).
GROWING = {"strong": (0.304, 0.225, 0.212), "mild": (0.293, 0.227, 0.212)}
GROWING_RUNS = {100: RUNS, 1000: RUNS, 2500: 10}
DATA = (
    "drawn from the paper's model. \"literal\" is the paper's form, whose figures are printed "
    'beside it, "default" the exchangeable one, which knows both views for what they are.'
)
RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 1.7, 1.8)
K = len(SIGNAL)


def positive_pairs(
    n_features: int, background: np.ndarray, rng: np.random.Generator, n_pairs: int = N_PAIRS
) -> PairMoments:
    signal = rng.standard_normal((n_pairs, K)) * np.sqrt(SIGNAL)

    def view() -> np.ndarray:
        rows = rng.standard_normal((n_pairs, n_features))
        rows[:, :K] += signal
        rows[:, -K:] += rng.standard_normal((n_pairs, K)) * np.sqrt(background)
        return rows

    return PairMoments.from_data(view(), view())


def errors(pairs: PairMoments) -> tuple[list[float], list[int]]:
    """Errors of PCA, PCA+, PCA++ literal and exchangeable; the truncations of the last two."""
    literal = PCAPlusPlus(K, exchangeable=False, weighted=False).fit(pairs)
    exchangeable = PCAPlusPlus(K).fit(pairs)
    found = (
        leading_eigenpairs(pairs.covariance, K).components,
        PCAPlus(K, exchangeable=False).fit(pairs).components_,
        literal.components_,
        exchangeable.components_,
    )
    truth = np.eye(K, pairs.n_features)
    return (
        [subspace_error(components, truth) for components in found],
        [literal.truncation_, exchangeable.truncation_],
    )


def bound(background: str, ratio: float) -> float | None:
    if background == "strong":
        return 0.10 if ratio < 0.3 else 0.05
    return 0.08 if ratio >= 0.5 else None


def over_ratios(report: Report, name: str, axis: object) -> None:
    """The table of a background, and its figure."""
    background = BACKGROUNDS[name]
    print(f"\n{name} background {background.astype(int).tolist()}, {RUNS} runs")
    print(
        f"{'D/n':>4} {'PCA':>6} {'PCA+':>6}   {'paper':>6} {'literal':>8} {'theory':>7} "
        f"{'ratio':>6} {'s':>6}   {'default':>8} {'theory':>7} {'ratio':>6} {'±':>5} {'s':>6}"
    )
    means, theories, good = [], [], True
    for ratio, paper in zip(RATIOS, PAPER[name], strict=True):
        d = round(ratio * N_PAIRS)
        rng = np.random.default_rng(d)
        results = [errors(positive_pairs(d, background, rng)) for _ in range(RUNS)]
        each = np.array([error for error, _ in results])
        mean, deviation = each.mean(axis=0), each.std(axis=0) / np.sqrt(RUNS)
        ranks = np.array([truncations for _, truncations in results])
        theory = [
            expected_subspace_error(SIGNAL, d, N_PAIRS, exchangeable=exchangeable)
            for exchangeable in (False, True)
        ]
        ratios, limit = mean[2:] / theory, bound(name, ratio)
        if limit is not None:
            good &= bool(np.abs(ratios - 1).max() <= limit)
            good &= name == "mild" or bool(mean[:2].min() > 0.95)
        s = [f"{rank.min()}-{rank.max()}" for rank in ranks.T]
        print(
            f"{ratio:4.1f} {mean[0]:6.3f} {mean[1]:6.3f}   {paper:6.3f} {mean[2]:8.3f} "
            f"{theory[0]:7.3f} {ratios[0]:6.3f} {s[0]:>6}   {mean[3]:8.3f} {theory[1]:7.3f} "
            f"{ratios[1]:6.3f} {deviation[3] / theory[1]:5.3f} {s[1]:>6}",
            flush=True,
        )
        means.append(mean)
        theories.append(theory)
    report.bound(f"{name} background: error as the theory has it", good)
    curves = np.array(means)
    apart = "; ".join(
        f"{ours:.3f} for {paper:.3f} at {ratio}"
        for ratio, paper, ours in zip(RATIOS, PAPER[name], curves[:, 2], strict=True)
        if ours > paper
    )
    least = f"{int((curves[:, 2] <= PAPER[name]).sum())} of {len(RATIOS)} ratios"
    report.row(
        f"literal form at most the paper's error, {name}",
        "all",
        least,
        not apart,
        short=f"{apart}: {WHY[name]}",
    )
    least = f"{int((curves[:, 3] <= PAPER[name]).sum())} of {len(RATIOS)} ratios"
    report.row(
        f"default at most the paper's error, {name}",
        "all",
        least,
        bool((curves[:, 3] <= PAPER[name]).all()),
    )
    for curve, label in zip(curves.T, ("PCA", "PCA+", "PCA++ literal", "PCA++"), strict=True):
        axis.plot(RATIOS, curve, "o-", ms=3, label=label)
    for curve in np.transpose(theories):
        axis.plot(RATIOS, curve, "k:", lw=0.8)
    axis.plot(RATIOS, PAPER[name], "x", color="0.5", label="PCA++, paper")
    axis.set(xlabel="D / n", title=f"{name} background: subspace error (dotted: theory)")
    axis.legend(fontsize=7)


def growing(report: Report, name: str) -> None:
    """D/n = 0.4."""
    for (n, runs), paper in zip(GROWING_RUNS.items(), GROWING[name], strict=True):
        rng = np.random.default_rng(n)
        found = np.array(
            [
                errors(positive_pairs(round(0.4 * n), BACKGROUNDS[name], rng, n))[0]
                for _ in range(runs)
            ]
        )
        pca, plus, literal, default = found.mean(axis=0)
        text = f"{literal:.3f} ± {found[:, 2].std():.3f}"
        short = f"our sizes are not the paper's; at the least of them {WHY[name]}"
        what = f"D/n 0.4, {name}, {n} pairs: literal"
        report.row(what, paper, text, literal <= paper, short=short if n == 100 else "")
        report.note("  default; PCA and PCA+", f"{default:.3f}; {pca:.3f} and {plus:.3f}")


def main() -> int:
    report = Report(DATA)
    figure, axes = panels(1, 2, 4.5)
    for axis, name in zip(axes[0], BACKGROUNDS, strict=True):
        over_ratios(report, name, axis)
    report.save(figure, "pca_pp_theory")
    print("\nMore pairs: three sizes, in the paper's order; ours are 100, 1000 and 2500.")
    for name in BACKGROUNDS:
        growing(report, name)
    return len(report.missed)


if __name__ == "__main__":
    with threadpool_limits(1):  # small eigenproblems: more threads only get in their own way
        sys.exit(main())
