"""PCPCA with missing values: Li et al.'s experiments (Sec. 7.3, Figures 13 and 14).

*Simulated* (7.3.1): foreground and background from PPCA models of their own, D = 10, d = 2,
n = m = 100, unit noise; a share p of all values is removed; means over 8 sets. Beside PCPCA at half
of its gamma_max_, and at "auto", stand PPCA of both datasets pooled, as in the paper, and PPCA of
the foreground alone. Held-out log-densities are of 1000 complete foreground rows, imputation errors
the mean over rows of the mean squared error of the values removed.

*Mouse protein* (7.3.2): each set standardised by its observed values, d = 2, gamma' half of the
gamma_max_ of the rows without gaps; five masks. Silhouettes are of the posterior means of all 270
foreground mice, each given what is observed of it, as they are. "Zero-filled" replaces NaN by 0
before standardising, as in the papers' scripts, "mean-filled" after it; both are fitted at the same
gamma' and see the same gaps. Errors are of the values removed from the foreground, also at the
paper's gamma' = 0.2 and at 0.

Must hold beside the paper's statements: all starts at one maximum for p up to 0.3; the silhouette
of all mice within 0.03 of that of the rows without gaps; with 60% removed at least 70% of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common.measures import silhouette, standardised
from benchmarks.common.report import Report, panels, run
from contrast_core import PCPCA
from contrast_core.datasets import load_mouse_protein

DATA = "drawn as in the paper, and its mice, 270 + 135 rows."
N_SETS, N_MASKS = 8, 5
PAPER = 0.2  # the gamma' of the paper's mice
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
REMOVED = (0.2, 0.6, 0.9)
NAMES = ("pooled PPCA", "foreground PPCA", "half of gamma_max_", "automatic gamma")


def removed(values: Any, share: float, rng: np.random.Generator) -> Any:
    return np.where(rng.random(values.shape) < share, np.nan, values)


def fit(X: Any, Y: Any, gamma: Any) -> PCPCA:
    return PCPCA(2, gamma=gamma).fit(X, background=Y)


def ppca(X: Any) -> PCPCA:
    return fit(X, X, 0.0)


def imputation_error(model: PCPCA, gaps: Any, truth: Any) -> float:
    some = np.isnan(gaps).any(axis=1)
    if not some.any():
        return np.nan
    squared = np.where(np.isnan(gaps), (model.impute(gaps) - truth) ** 2, np.nan)
    return float(np.nanmean(squared[some], axis=1).mean())


def simulated(report: Report) -> None:
    table, apart = [], []
    print("log-density; error of imputation: " + ", ".join(NAMES))
    for share in SHARES:
        found, ranges = [], []
        for seed in range(N_SETS):
            rng = np.random.default_rng(seed)
            W = rng.normal(size=(2, 10, 2))
            X, Y, test = (
                rng.normal(size=(n, 2)) @ W[side].T + rng.normal(size=(n, 10))
                for n, side in ((100, 0), (100, 1), (1000, 0))
            )
            x, y = removed(X, share, rng), removed(Y, share, rng)
            auto = fit(x, y, "auto")
            half = fit(x, y, 0.5 * auto.gamma_max_)
            models = (ppca(np.vstack([x, y])), ppca(x), half, auto)
            found.append([(m.score(test), imputation_error(m, x, X)) for m in models])
            ranges.append(np.ptp(half.start_objectives_) if share else 0.0)
        table.append(np.mean(found, axis=0))
        apart.append(ranges)
        text = "; ".join(" ".join(f"{v:.3f}" for v in column) for column in table[-1].T)
        several = (np.array(ranges) > 1e-6).sum()
        report.note(f"p = {share}", f"{text}; several maxima in {several} of {N_SETS}")
    values = np.array(table)
    kinds = ("held-out log-density", "imputation error")
    draw(
        report,
        "missing_simulated",
        SHARES,
        dict(zip(NAMES, values.swapaxes(0, 1), strict=True)),
        kinds,
    )
    for column, name in ((2, "half of gamma_max_"), (3, "automatic gamma")):
        gains = values[:, column, 0] - values[:, 0, 0]
        below = [share for share, gain in zip(SHARES, gains, strict=True) if gain <= 0]
        first = values[0, [column, 0], 0]
        report.row(
            f"Fig. 13: log-density, {name}",
            "above pooled",
            f"by {gains.min():.2f} to {gains.max():.2f}",
            not below,
            short=f"below at {below}; with nothing missing {first[0]:.1f} for {first[1]:.1f}",
        )
    upto = SHARES.index(0.5) + 1
    most = (values[1:upto, 2, 1] / values[1:upto, 0, 1]).max()
    report.measured("imputation error / pooled PPCA's, p <= 0.5, half", most, most=1.0)
    report.measured("starts apart, p <= 0.3, half", np.max(apart[:4]), most=1e-6)


def draw(
    report: Report, file: str, shares: Any, curves: dict[str, Any], kinds: tuple[str, ...]
) -> None:
    """Curves (shares, kinds) over the share of values removed, a panel for each kind."""
    figure, (axes,) = panels(1, len(kinds), 4.0)
    for kind, panel in enumerate(axes):
        for name, values in curves.items():
            panel.plot(shares, values[:, kind], marker="o", label=name)
        panel.set(xlabel="share of values removed", ylabel=kinds[kind])
    axes[-1].legend(fontsize=7)
    report.save(figure, file)


def mouse(report: Report) -> None:
    raw = load_mouse_protein(raw=True)
    levels, behind, labels = raw.foreground, raw.background, raw.labels
    X, Y = standardised(levels), standardised(behind)
    whole = [rows[~np.isnan(rows).any(axis=1)] for rows in (X, Y)]
    complete = fit(*whole, "auto")
    gamma = 0.5 * complete.gamma_max_

    def judged(model: PCPCA, rows: Any) -> float:
        return silhouette(model.transform(rows), labels, scaled=False)

    def filled(sets: list[Any]) -> float:
        try:
            return judged(fit(*sets, gamma), sets[0])
        except ValueError:  # gamma is out of the range of the filled sets
            return np.nan

    without, natural = judged(complete.at(gamma), X), judged(fit(X, Y, gamma), X)
    report.note(f"mice, gamma' = {gamma:.3f}: fit to rows without gaps", without)
    automatic = judged(fit(X, Y, "auto"), X)
    report.note("mice, fit to all rows; automatic gamma", f"{natural:.3f}; {automatic:.3f}")
    report.measured("loss by the gaps that the data have", without - natural, most=0.03)
    found: dict[float, dict[str, list[float]]] = {share: {} for share in REMOVED}
    for share in REMOVED:
        for seed in range(N_MASKS):
            rng = np.random.default_rng(seed)
            x_raw, y_raw = removed(levels, share, rng), removed(behind, share, rng)
            x, y = standardised(x_raw), standardised(y_raw)
            truth = (levels - np.nanmean(x_raw, axis=0)) / np.nanstd(x_raw, axis=0)
            zeros = [standardised(np.nan_to_num(values)) for values in (x_raw, y_raw)]
            averages = [np.nan_to_num(values) for values in (x, y)]
            known = np.where(np.isnan(levels), np.nan, x)  # what was removed is judged
            gone = np.isnan(x) & ~np.isnan(levels)
            half = fit(x, y, gamma)
            mild = fit(x, y, PAPER)
            values = {
                "paper's form": judged(mild, truth),
                "half": judged(half, x),
                "automatic gamma": judged(fit(x, y, "auto"), x),
                "mean-filled": filled(averages),
                "zero-filled": filled(zeros),
            }
            for name, model in {
                "error of half": half,
                "error at 0.2": mild,
                "error at 0": fit(x, y, 0.0),
                "error of pooled PPCA": ppca(np.vstack([x, y])),
            }.items():
                values[name] = float(((model.impute(known) - truth)[gone] ** 2).mean())
            for name, value in values.items():
                found[share].setdefault(name, []).append(value)
    means = {
        share: {k: float(np.mean(v)) for k, v in rows.items()} for share, rows in found.items()
    }
    for share, row in means.items():
        silhouettes = ", ".join(f"{k} {v:.3f}" for k, v in row.items() if "error" not in k)
        report.note(f"mice, {share:.0%} removed: silhouette", silhouettes)
        report.row(
            f"Fig. 13: mice, {share:.0%} removed, imputation error",
            "below pooled",
            f"{row['error at 0.2']:.3f}, pooled {row['error of pooled PPCA']:.3f}",
            row["error at 0.2"] < row["error of pooled PPCA"],
            short=f"a contrast removes what the sets share ({row['error at 0']:.3f} without one), "
            "and pooled PPCA learns from half as many rows again",
        )
        report.note("  at half of gamma_max_", row["error of half"])
    for name, kind in (("missing_mice", "silhouette"), ("missing_mice_errors", "error")):
        chosen = [key for key in means[0.6] if ("error" in key) == (kind == "error")]
        curves = {k: np.array([[means[share][k]] for share in REMOVED]) for k in chosen}
        draw(report, name, REMOVED, curves, (kind,))
    paper = judged(fit(X, Y, PAPER), X)
    kept = [means[share]["paper's form"] / paper for share in REMOVED]
    text = ", ".join(f"{share:.0%}" for share in kept)
    what = "Fig. 14: silhouette kept, 20, 60, 90% removed"
    report.row(what, "steady below 60%", text, kept[0] > 0.9)
    at = means[0.6]
    whole = {"half": natural, "automatic gamma": automatic}
    text = ", ".join(f"{name} {at[name] / value:.0%}" for name, value in whole.items())
    report.note("  60% removed, rows with their gaps", text)
    report.measured("  of it at half of gamma_max_", at["half"] / natural, least=0.7)
    report.measured("  over zero-filled", at["half"] - at["zero-filled"], least=0.0)


def main(report: Report) -> None:
    simulated(report)
    mouse(report)


if __name__ == "__main__":
    run(main, DATA)
