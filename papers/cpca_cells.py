"""Cells before and after a treatment: PCA, cPCA and PCPCA in two components.

Abid et al., Figure 3; Li et al., Figures 5 and 6.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.common.measures import accuracy, silhouette
from benchmarks.common.report import Report, panels, run, scatter, spread
from benchmarks.common.tasks import glioblastoma_cells
from contrast_core import CPCA, PCPCA, contrast_path

DATA = (
    "not the bone marrow of leukaemia patients, which cannot be had: cells of five glioblastomas "
    "with a drug or without (Zhao et al. 2021), 300 genes, log1p of counts per 10,000. Foreground: "
    "a patient's 1000 cells of both kinds; background: the 2000 untreated cells of the others. "
    "Each of the five patients, and each of their ten pairs, least / median / largest."
)
FRACTIONS = np.append(np.linspace(0, 0.95, 20), 0.99)
ALPHAS = np.append(0.0, np.geomspace(0.1, 1000, 40))


def main(report: Report) -> None:
    values, patient, treated = glioblastoma_cells()
    condition = np.where(treated, "panobinostat", "ctrl")
    figure, axes = panels(2, 3)
    one_patient(report, axes, values, patient, condition)
    two_patients(report, axes, values, patient, condition)
    report.save(figure, "cpca_cells")


def one_patient(report: Report, axes: Any, values: Any, patient: Any, condition: Any) -> None:
    curves, accuracies, automatic, ends, within = [], [], [], [], []
    names = np.unique(patient)
    for name in names:
        inside = patient == name
        X, labels = values[inside], condition[inside]
        cpca = CPCA().fit(X, background=values[~inside & (condition == "ctrl")])
        pcpca = PCPCA().fit(cpca.foreground_moments_, background=cpca.background_moments_)
        gammas = FRACTIONS * pcpca.gamma_max_
        curves.append(
            [
                [silhouette(m.transform(X), labels) for m in path]
                for path in (cpca.path(ALPHAS), pcpca.path(gammas), cpca.path(gammas))
            ]
        )
        models = {"PCA": cpca.at(0.0), "cPCA": cpca, "PCPCA": pcpca}
        scores = [model.transform(X) for model in models.values()]
        accuracies.append([accuracy(each, labels) for each in scores])
        automatic.append([silhouette(each, labels) for each in scores[1:]])
        ends.append(pcpca.gamma_max_)
        within.append(max(curves[-1].pop()))
        if name == names[1]:
            for axis, title, each in zip(axes[0], models, scores, strict=True):
                scatter(axis, each, labels, f"{name}: {title}")
        axes[1, 2].plot(ALPHAS[1:], curves[-1][0][1:], "tab:orange", lw=0.8)
        axes[1, 2].plot(FRACTIONS, curves[-1][1], "tab:blue", lw=0.8)
    axes[1, 2].set(xscale="log", xlabel="alpha; share of gamma' range")
    axes[1, 2].set_title("silhouette: cPCA (orange), PCPCA (blue)")

    pca = np.array([contrast[0] for contrast, _ in curves])
    best = np.array([[max(curve) for curve in pair] for pair in curves])
    strengths = [ALPHAS[np.argmax(contrast)] for contrast, _ in curves]
    report.note("silhouette, PCA", spread(pca))
    cpca_best, pcpca_best = best.T
    report.row("silhouette, cPCA, tuned", 0.20, spread(cpca_best), np.median(cpca_best) >= 0.20)
    report.row(
        "silhouette, PCPCA, tuned",
        0.23,
        spread(pcpca_best),
        np.median(pcpca_best) >= 0.23,
        short=f"its contrast ends at gamma' {spread(ends)}, beyond which there is no such model, "
        f"and cPCA, best at alpha {spread(strengths)}, reaches no more within that range: "
        f"{spread(within)}",
    )
    for name, each in zip(("cPCA", "PCPCA"), np.transpose(automatic), strict=True):
        report.note(f"  {name}, automatic", spread(each))
    gains = np.transpose(automatic)[0] - pca
    text = "  gain of cPCA, automatic, over PCA"
    report.row(text, "separates more", spread(gains), np.median(gains) > 0.05)
    titles = ("PCA", "cPCA, automatic", "PCPCA, automatic")
    for name, each in zip(titles, np.transpose(accuracies), strict=True):
        report.note(f"LDA accuracy, {name}", spread(each))
    falls = np.array([np.minimum(np.diff(curve), 0).sum() for _, curve in curves])
    report.row(
        "PCPCA's total fall as gamma' grows",
        "rises",
        spread(falls),
        falls.min() > -0.02,
        short=f"in {(falls <= -0.02).sum()} of {len(falls)} patients the silhouette is highest "
        "within the range",
    )


def two_patients(report: Report, axes: Any, values: Any, patient: Any, condition: Any) -> None:
    names, found = np.unique(patient), []
    for pair in combinations(names, 2):
        inside = np.isin(patient, pair)
        labels = np.char.add(np.char.add(patient[inside], " "), condition[inside])
        X, Y = values[inside], values[~inside & (condition == "ctrl")]
        path = contrast_path(X, background=Y)
        views = [path.at(alpha).transform(X) for alpha in (0.0, *path.representative_alphas)]
        each = [accuracy(view, labels) for view in views]
        found.append((each[0], max(each[1:])))
        if pair == tuple(names[1:3]):
            scatter(axes[1, 0], views[0], labels, "two patients: PCA")
            best = views[1 + int(np.argmax(each[1:]))]
            scatter(axes[1, 1], best, labels, "two patients: cPCA")
    plain, contrasted = np.transpose(found)
    report.note("two patients, four groups: LDA accuracy, PCA", spread(plain))
    more = np.median(contrasted) > np.median(plain)
    report.row("  cPCA, best representative", "more separated", spread(contrasted), more)


if __name__ == "__main__":
    run(main, DATA)
