"""Gibbs posterior of PCPCA: Li et al.'s experiments (Sec. 6.5), and the time of the draws.

*Axes* (6.5.1): 30, 60 and 300 rows of each set, gamma' = 0.85, D = 2, d = 1; the foreground is two
groups at (-1.5, 1.5) and (1.5, -1.5), all with covariance [[4, 2.6], [2.6, 4]]. The spread of the
axes is 1 minus the length of the mean of doubled angles: 0 where all draws agree, 1 where they are
uniform. At so strong a contrast the closed form has no positive noise variance in a third of the
sets: there the posterior sits on its floor and is narrow however few the rows, so such sets are
marked, and spreads are compared where none is.

*Rate* (6.5.2): the foreground one Gaussian of the same covariance, and the share of the draws whose
divergence sqrt(R - R*) from the best parameters exceeds C / sqrt(n), over the rows n of both sets.
The paper leaves C, gamma and covariances open, and takes d = 2 in two dimensions, where the noise
has none left: here C = 3, gamma' = 0.5 and d = 1. The divergence times sqrt(n) stays about
constant, which is the rate.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import arviz
import numpy as np

from benchmarks.common.report import Report, panels, run
from contrast_core import PCPCA, ContrastWarning

DATA = "two-dimensional sets drawn as in the paper, five seeds of each size."
SHARED = np.array([[4.0, 2.6], [2.6, 4.0]])
BETWEEN = np.array([-1.0, 1.0]) / np.sqrt(2)
APART = 1.5 * np.sqrt(2)  # of a group's mean from 0
SIZES, SEEDS = (30, 60, 300), range(5)
TOTALS, CONSTANT = (50, 100, 200, 300, 400, 500), 3.0


def drawn(X: Any, Y: Any, gamma: float, draws: int) -> tuple[Any, bool]:
    """The posterior, and whether it sits on its floor."""
    model = PCPCA(1).fit(X, background=Y)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ContrastWarning)
        found = model.posterior(draws, gamma=gamma, random_state=0)
    return found.posterior, any("sits on its floor" in str(one.message) for one in told)


def axes(report: Report) -> None:
    found: dict[int, list[Any]] = {n: [] for n in SIZES}
    figure, (shown,) = panels(1, 3, 4.0)
    factor = np.linalg.cholesky(SHARED)
    for n, panel in zip(SIZES, shown, strict=True):
        for seed in SEEDS:
            rng = np.random.default_rng(seed)
            sides = np.where(rng.random(n) < 0.5, 1.0, -1.0)
            X = rng.normal(size=(n, 2)) @ factor.T + APART * sides[:, None] * BETWEEN
            Y = rng.normal(size=(n, 2)) @ factor.T
            before = time.process_time()
            posterior, on_floor = drawn(X, Y, 0.85, 1000)
            seconds = time.process_time() - before
            axis = posterior["components"].to_numpy()[:, :, 0]
            doubled = (axis @ BETWEEN + 1j * (axis @ [BETWEEN[1], -BETWEEN[0]])) ** 2
            mean = doubled.mean()
            rhat = max(float(arviz.rhat(part)) for part in (doubled.real, doubled.imag))
            found[n].append(
                (abs(np.degrees(np.angle(mean)) / 2), 1 - abs(mean), on_floor, rhat, seconds)
            )
            if seed == 3:
                panel.scatter(*X.T, s=8, c=np.where(sides > 0, "tab:blue", "tab:orange"))
                panel.scatter(*Y.T, s=8, color="0.7", zorder=0)
                for x, y in axis.reshape(-1, 2)[:: len(axis) * 10]:
                    panel.plot([-6 * x, 6 * x], [-6 * y, 6 * y], color="k", alpha=0.08, lw=0.8)
                panel.set(title=f"n = m = {n}", aspect="equal")
        text = ", ".join(f"{off:.0f}|{wide:.4f}{'*' * low}" for off, wide, low, *_ in found[n])
        report.note(f"axes, {n} rows: degrees off|spread (* on floor)", text)
    report.save(figure, "posterior_axes")
    pairs = [(a[1], b[1]) for a, b in zip(found[30], found[300], strict=True) if not a[2]]
    shrunk = sum(many < few for few, many in pairs)
    text = f"{shrunk} of {len(pairs)} seeds not on the floor"
    report.row("Fig. 11: spread from 30 to 300 rows", "shrinks", text, shrunk == len(pairs))
    near = sum(off < 10 for off, *_ in found[300])
    text = "  mean axes within 10 degrees, 300 rows"
    report.row(text, "near", f"{near} of {len(SEEDS)}", near >= 4)
    every = [row for rows in found.values() for row in rows]
    report.measured("largest R-hat of the axis", max(row[3] for row in every), most=1.01)
    report.measured("CPU seconds, 4 chains of 1000 draws", max(row[4] for row in every), most=10)


def rate(report: Report) -> None:
    gamma = 0.5
    inner = SHARED + APART**2 * np.outer(BETWEEN, BETWEEN)
    contrast = inner - gamma * SHARED
    values, vectors = np.linalg.eigh(contrast)
    noise = values[0] / (1 - gamma)
    best = vectors @ np.diag([noise, values[1] / (1 - gamma)]) @ vectors.T

    def risk(covariance: Any) -> Any:
        """Eq. 11, half of all rows being foreground."""
        log_determinant = np.linalg.slogdet(covariance)[1]
        trace = np.trace(np.linalg.solve(covariance, contrast), axis1=-2, axis2=-1)
        return 0.25 * ((1 - gamma) * log_determinant + trace)

    shares: list[list[float]] = []
    for total in TOTALS:
        row, medians = [], []
        for seed in SEEDS:
            rng = np.random.default_rng(100 + seed)
            X, Y = (
                rng.normal(size=(total // 2, 2)) @ np.linalg.cholesky(covariance).T
                for covariance in (inner, SHARED)
            )
            posterior, _ = drawn(X, Y, gamma, 250)
            loadings = posterior["loadings"].to_numpy().reshape(-1, 2, 1)
            noises = posterior["noise_variance"].to_numpy().ravel()
            covariances = loadings @ np.swapaxes(loadings, 1, 2) + noises[:, None, None] * np.eye(2)
            distances = np.sqrt(np.maximum(risk(covariances) - risk(best), 0.0))
            row.append(float((distances > CONSTANT / np.sqrt(total)).mean()))
            medians.append(float(np.median(distances) * np.sqrt(total)))
        shares.append(row)
        text = f"{np.mean(row):.3f}, {np.mean(medians):.2f}"
        report.note(f"rate, {total} rows: share beyond, divergence * sqrt(n)", text)
    figure, ((panel,),) = panels(1, 1, 4.0)
    panel.boxplot(shares, tick_labels=[str(total) for total in TOTALS])
    panel.set(xlabel="rows of both sets", ylabel=f"share beyond {CONSTANT:g} / sqrt(n)")
    report.save(figure, "posterior_rate")
    first, *_, last = np.mean(shares, axis=1)
    text = f"{first:.3f} to {last:.3f}"
    report.row("Fig. 12: share beyond C / sqrt(n)", "falls", text, last <= 0.01 and last < first)


def main(report: Report) -> None:
    axes(report)
    rate(report)


if __name__ == "__main__":
    run(main, DATA)
