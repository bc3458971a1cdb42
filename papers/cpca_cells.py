"""Cells before and after a treatment: PCA, cPCA and PCPCA in two components.

Abid et al., Figure 3; Li et al., Figures 5 and 6.
"""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common.measures import accuracy, silhouette
from benchmarks.common.report import Report, panels, scatter, spread
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


def main() -> int:
    report = Report(DATA)
    values, patient, treated = glioblastoma_cells()
    condition = np.where(treated, "panobinostat", "ctrl")
    names = np.unique(patient)
    curves, found, chosen, ends, within = [], [], [], [], []
    for name in names:
        inside = patient == name
        X, Y = values[inside], values[~inside & ~treated]
        cpca, pcpca = CPCA().fit(X, background=Y), PCPCA().fit(X, background=Y)
        models = [cpca.path(ALPHAS), [pcpca.at(f * pcpca.gamma_max_) for f in FRACTIONS]]
        curves.append(
            [[silhouette(m.transform(X), condition[inside]) for m in each] for each in models]
        )
        found.append(
            [accuracy(m.transform(X), condition[inside]) for m in (cpca.at(0.0), cpca, pcpca)]
        )
        ends.append(pcpca.gamma_max_)
        mild = cpca.path(FRACTIONS * pcpca.gamma_max_)
        within.append(max(silhouette(m.transform(X), condition[inside]) for m in mild))
        chosen.append([silhouette(m.transform(X), condition[inside]) for m in (cpca, pcpca)])
        if name == names[1]:
            figure, axes = panels(2, 3)
            for axis, model, title in zip(
                axes[0], (cpca.at(0.0), cpca, pcpca), ("PCA", "cPCA", "PCPCA"), strict=True
            ):
                scatter(axis, model.transform(X), condition[inside], f"{name}: {title}")
    contrast, probabilistic = ([np.array(each[i]) for each in curves] for i in range(2))
    pca = [curve[0] for curve in contrast]
    best, other = ([float(curve.max()) for curve in each] for each in (contrast, probabilistic))
    report.note("silhouette, PCA", spread(pca))
    report.row("silhouette, cPCA, best contrast", 0.20, spread(best), bool(np.median(best) >= 0.20))
    strengths = [float(ALPHAS[curve.argmax()]) for curve in contrast]
    report.row(
        "silhouette, PCPCA, best contrast",
        0.23,
        spread(other),
        bool(np.median(other) >= 0.23),
        short=f"its contrast ends at gamma' {spread(ends)}, beyond which there is no such model, "
        f"and cPCA, best at alpha {spread(strengths)}, reaches no more within that range: "
        f"{spread(within)}",
    )
    for name, each in zip(("cPCA", "PCPCA"), np.transpose(chosen), strict=True):
        report.note(f"  {name}, automatic", spread(each))
    gains = np.transpose(chosen)[0] - pca
    report.row(
        "  gain of cPCA, automatic, over PCA",
        "separates more",
        spread(gains),
        bool(np.median(gains) > 0.05),
    )
    for name, each in zip(
        ("PCA", "cPCA, automatic", "PCPCA, automatic"), np.transpose(found), strict=True
    ):
        report.note(f"LDA accuracy, {name}", spread(each))
    falls = [float(np.minimum(np.diff(curve), 0).sum()) for curve in probabilistic]
    report.row(
        "PCPCA's total fall as gamma' grows",
        "rises",
        spread(falls),
        min(falls) > -0.02,
        short=f"in {sum(fall <= -0.02 for fall in falls)} of {len(falls)} patients the silhouette "
        "is highest within the range",
    )

    four = []
    for pair in combinations(names, 2):
        inside = np.isin(patient, pair)
        labels = np.char.add(np.char.add(patient[inside], " "), condition[inside])
        X, Y = values[inside], values[~inside & ~treated]
        path = contrast_path(X, background=Y)
        views = [path.at(alpha).transform(X) for alpha in (0.0, *path.representative_alphas)]
        four.append(
            [accuracy(view, labels) for view in views[:1]]
            + [max(accuracy(view, labels) for view in views[1:])]
        )
        if pair == tuple(names[1:3]):
            best_view = max(views[1:], key=lambda view: accuracy(view, labels))
            scatter(axes[1, 0], views[0], labels, "two patients: PCA")
            scatter(axes[1, 1], best_view, labels, "two patients: cPCA")
    for curve, other_curve in zip(contrast, probabilistic, strict=True):
        axes[1, 2].plot(ALPHAS[1:], curve[1:], "tab:orange", lw=0.8)
        axes[1, 2].plot(FRACTIONS, other_curve, "tab:blue", lw=0.8)
    axes[1, 2].set(
        xscale="log",
        title="silhouette: cPCA (orange), PCPCA (blue)",
        xlabel="alpha; share of gamma' range",
    )
    report.save(figure, "cpca_cells")
    plain, contrasted = np.transpose(four)
    report.note("two patients, four groups: LDA accuracy, PCA", spread(plain))
    report.row(
        "  cPCA, best representative",
        "more separated",
        spread(contrasted),
        bool(np.median(contrasted) > np.median(plain)),
    )
    return len(report.missed)


if __name__ == "__main__":
    with threadpool_limits(1):
        sys.exit(main())
