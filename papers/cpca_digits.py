"""Digits on pictures: PCA and cPCA at alpha = 2, what they look at, what they denoise.

Abid et al., Figures 1 and 5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common.digits import SIDE, DigitsOnPictures, deals
from benchmarks.common.measures import accuracy, silhouette
from benchmarks.common.report import Report, image, panels, run, scatter, spread
from contrast_core import CPCA

ALPHA = 2.0  # the paper's
DATA = (
    "MNIST zeros and ones at a quarter of their strength on pictures, not on ImageNet's grass: "
    "twelve bundled photographs (4000 + 4000 frames) and, with CONTRAST_DATA, fifteen outdoor "
    "scenes of BSDS500 (5000 + 5000). They are few, so it matters which of them hide the digits "
    "and which are the background: twelve deals of each, least / median / largest."
)


def kept(model: CPCA, data: DigitsOnPictures) -> float:
    """Mean correlation with the clean digit of frames rebuilt from the components."""
    rebuilt = model.denoise(data.foreground, offset="difference")
    return float(
        np.mean([np.corrcoef(*pair)[0, 1] for pair in zip(rebuilt, data.clean, strict=True)])
    )


def draw(report: Report, kind: str, data: DigitsOnPictures, model: CPCA, ten: CPCA) -> None:
    figure, axes = panels(2, 4)
    frame = int(np.flatnonzero(data.labels == 1)[0])

    def show(axis: Any, pixels: Any, title: str) -> None:
        image(axis, pixels.reshape(SIDE, SIDE), title)

    show(axes[0, 0], data.foreground[frame], "a frame")
    show(axes[0, 1], data.background[0], "a background frame")
    for row, alpha in enumerate((0.0, ALPHA)):
        name = "PCA" if alpha == 0 else f"cPCA, alpha {alpha:g}"
        at = model.at(alpha)
        scatter(axes[row, 2], at.transform(data.foreground), data.labels, name)
        weights = at.components_[0] ** 2
        show(axes[row, 3], weights / weights.max(), f"{name}: pixels of component 1")
        rebuilt = ten.at(alpha).denoise(data.foreground[frame : frame + 1], offset="difference")
        show(axes[1, row], rebuilt, f"{name}: frame from 10 components")
    report.save(figure, f"cpca_digits_{kind}")


def main(report: Report) -> None:
    found: dict[str, list[list[float]]] = {}
    for kind, seed, data in deals():
        ten = CPCA(10, alpha=ALPHA).fit(data.foreground, background=data.background)
        model = CPCA(2).fit(ten.foreground_moments_, background=ten.background_moments_)
        scores = [model.at(alpha).transform(data.foreground) for alpha in (0.0, ALPHA)]
        scores.append(model.transform(data.foreground))
        same = CPCA(alpha=ALPHA).fit(data.foreground, background=data.same_pictures)
        found.setdefault(kind, []).append(
            [measure(s, data.labels) for measure in (accuracy, silhouette) for s in scores]
            + [kept(ten.at(alpha), data) for alpha in (0.0, ALPHA)]
            + [accuracy(same.transform(data.foreground), data.labels)]
        )
        if seed == 0:
            draw(report, kind, data, model, ten)
    for kind, values in found.items():
        pca, cpca, auto, *silhouettes, blurred, clear, same = np.transpose(values)
        print(f"{kind}, {len(values)} deals")
        report.row("  LDA accuracy, PCA", "no clusters", spread(pca), pca.max() < 0.75)
        report.row(
            "  LDA accuracy, cPCA, alpha 2",
            "two clusters",
            spread(cpca),
            cpca.min() > 0.9,
            short=f"{(cpca > 0.9).sum()} of {len(cpca)} deals are above .90; with the automatic "
            f"alpha {(auto > 0.9).sum()} are: {spread(auto)}. In the others the background's "
            "pictures lack some of what hides the digits: with other crops of the same pictures "
            f"as the background {(same > 0.9).sum()} are, {spread(same)}.",
        )
        for name, each in zip(
            ("PCA", "cPCA, alpha 2", "cPCA, automatic alpha"), silhouettes, strict=True
        ):
            report.note(f"  silhouette, {name}", spread(each))
        report.note("  correlation with the digit, PCA, 10 comp.", spread(blurred))
        report.row(
            "  correlation with the digit, cPCA, 10 comp.",
            "digit recovered",
            spread(clear),
            bool(np.all(clear > blurred)),
        )
        report.bound(f"{kind}: median accuracy at alpha 2 above .90", np.median(cpca) > 0.9)


if __name__ == "__main__":
    run(main, DATA)
