"""What gamma' does in PCPCA, and alpha in cPCA: the toy, and the mice over all contrasts.

Li et al., Figures 2 to 4. Where gamma="auto" lands is marked in the figure.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common.measures import silhouette
from benchmarks.common.report import Report, panels, run, scatter
from benchmarks.common.tasks import data_folder
from contrast_core import CPCA, PCPCA
from contrast_core.datasets import load_mouse_protein, make_toy

DATA = (
    "the toy as the paper draws it (20 draws, and with CONTRAST_DATA the authors' own); mouse "
    "protein expression, the paper's, 270 + 135 rows."
)
GAMMAS = (0.0, 0.2, 0.6, 0.9)
FRACTIONS = (*np.linspace(0, 0.95, 20), 0.99)


def turn(X: np.ndarray, Y: np.ndarray) -> list[float]:
    """Degrees by which W turns from gamma' = 0 to each of the paper's that is valid, or nearly."""
    model = PCPCA(1, gamma=0.0).fit(X, background=Y)
    start, end = model.components_[0], 0.95 * model.gamma_max_
    cosines = [abs(model.at(min(gamma, end)).components_[0] @ start) for gamma in GAMMAS]
    return list(np.degrees(np.arccos(np.minimum(cosines, 1))))


def toys() -> list[tuple[np.ndarray, np.ndarray]]:
    drawn = [make_toy(random_state=seed) for seed in range(20)]
    pairs = [(toy.foreground, toy.background) for toy in drawn]
    folder = data_folder()
    if folder is not None:
        names = ("foreground", "background")
        theirs = [np.loadtxt(folder / "toy" / f"{name}.csv", delimiter=",").T for name in names]
        pairs.insert(0, (theirs[0], theirs[1]))
    return pairs


def main(report: Report) -> None:
    pairs = toys()
    turns = np.array([turn(X, Y) for X, Y in pairs])
    for gamma, degrees in zip(GAMMAS, turns.T, strict=True):
        report.note(
            f"toy, gamma' {gamma}: degrees",
            " / ".join(f"{d:.0f}" for d in np.quantile(degrees, [0, 0.5, 1])),
        )
    beyond = sum(PCPCA(1).fit(X, background=Y).gamma_max_ <= GAMMAS[-1] for X, Y in pairs)
    report.note(
        "toy: draws in which gamma' 0.9 is out of range",
        f"{beyond} of {len(pairs)}, 0.95 of the end there",
    )
    last = float(np.median(turns[:, -1]))
    report.row("toy: degrees from gamma' 0 to 0.9", "nearly 90", last, last > 80)
    figure, axes = panels(2, 4)
    X, Y = pairs[0]
    for axis, gamma in zip(axes[0], GAMMAS, strict=True):
        scatter(axis, X, np.arange(len(X)) * 2 // len(X), f"toy, gamma' {gamma}")
        axis.plot(*Y.T, ".", color="0.7", ms=2, zorder=0)
        model = PCPCA(1).fit(X, background=Y)
        ends = model.at(min(gamma, 0.95 * model.gamma_max_)).components_.T * [-5, 5]
        axis.plot(*ends, "k:")

    mice = load_mouse_protein()
    X, Y = mice.foreground, mice.background
    model, cpca = PCPCA().fit(X, background=Y), CPCA().fit(X, background=Y)
    gammas = np.array(FRACTIONS) * model.gamma_max_
    alphas = np.append(0.0, np.geomspace(0.1, 1000, 60))
    rising = np.array([silhouette(model.at(g).transform(X), mice.labels) for g in gammas])
    falling = np.array([silhouette(cpca.at(a).transform(X), mice.labels) for a in alphas])
    auto = [silhouette(m.transform(X), mice.labels) for m in (model, cpca)]
    print("The paper's best contrasts, and ours beside them, are chosen with the labels.")
    for name, paper, curve, automatic in (
        ("cPCA", 0.425, falling, auto[1]),
        ("PCPCA", 0.404, rising, auto[0]),
    ):
        best = float(curve.max())
        report.row(f"mice: {name}, best of {len(curve)} contrasts", paper, best, best >= paper)
        report.note("  automatic contrast, no labels used", automatic)
    report.bound("PCPCA with nothing chosen reaches the paper's best", auto[0] >= 0.404)
    fall = float(np.minimum(np.diff(rising), 0).min())
    report.row("mice: PCPCA's largest fall as gamma' grows", "rises", fall, fall > -0.02)
    drop = float(falling.max() - falling[-1])
    report.row("mice: cPCA's fall from its best to alpha 1000", "falls", drop, drop > 0.02)
    report.note("mice: gamma' ends at", f"{model.gamma_max_:.3f}")
    for axis, x, y, name, chosen in (
        (axes[1, 0], alphas[1:], falling[1:], "cPCA", cpca.alpha_),
        (axes[1, 1], gammas, rising, "PCPCA", model.gamma_),
    ):
        axis.plot(x, y)
        axis.axhline(y.max(), color="r", lw=0.7)
        axis.axvline(chosen, color="0.5", ls=":")
        axis.set(title=f"mice, {name}: silhouette", ylim=(0, 0.5))
    axes[1, 0].set_xscale("log")
    for axis, fitted, name in ((axes[1, 2], model.at(0.0), "PPCA"), (axes[1, 3], model, "PCPCA")):
        scatter(axis, fitted.transform(X), mice.labels, f"mice, {name}")
    report.save(figure, "pcpca_mice")


if __name__ == "__main__":
    run(main, DATA)
