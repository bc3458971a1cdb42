"""Picture of the table on the page `track_record.md`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

from .parts import GREY, GROUPS, METHODS, PAGE


def track_record() -> None:
    """Draw the table of the track record: accuracy over the number of components."""
    page = (Path(__file__).parents[1] / "track_record.md").read_text(encoding="utf-8")
    lines = page.split("<!-- TABLE -->")[1].splitlines()
    head, _, *rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    sizes = [int(cell.split("=")[1]) for cell in head[2:]]
    data, datasets = "", {}
    for cells in rows:
        if cells[0].startswith("**"):
            data = cells.pop(0)
            datasets[data] = {}
        found = zip(sizes, cells[1:], strict=True)
        figures = [(k, *map(float, cell.split(" ± "))) for k, cell in found if "±" in cell]
        datasets[data][cells[0]] = np.transpose(figures)
    within = {"linestyle": "--", "markerfacecolor": "white"}
    styles: dict[str, dict[str, Any]] = {
        "PCA": {"color": METHODS["PCA"], "marker": "o"},
        "PCA within": {"color": METHODS["PCA"], "marker": "o", **within},
        "cPCA": {"color": METHODS["cPCA"], "marker": "s"},
        "cPCA*": {"color": GROUPS[2], "marker": "^"},
        "cPCA* within": {"color": GROUPS[2], "marker": "^", **within},
        "whitening 0.1": {"color": GROUPS[0], "marker": "v"},
        "CLVM": {"color": GROUPS[1], "marker": "D"},
        "cPCA, best alpha": {"color": METHODS["cPCA"], "linestyle": ":"},
        "all features, with labels": {"color": "black", "linestyle": ":"},
    }
    figure, axes = plt.subplots(
        -(-len(datasets) // 2), 2, figsize=(PAGE, 19), sharex=True, sharey=True
    )
    for ax, (data, methods) in zip(axes.flat, datasets.items(), strict=False):
        name, question, n_labels = re.fullmatch(
            r"\*\*(.+)\*\*: (.+), (\d+) labels, .*", data
        ).groups()
        for method, style in styles.items():
            if method not in methods:
                continue
            k, mean, half = methods[method]
            if method == "all features, with labels":  # one value, drawn as a horizontal line
                k, mean = sizes, np.repeat(mean, len(sizes))
            ax.plot(k, mean, label=method, markersize=4, linewidth=1.4, **style)
            if method in ("PCA", "cPCA*"):
                ax.fill_between(k, mean - half, mean + half, color=style["color"], alpha=0.15, lw=0)
        ax.axhline(1 / int(n_labels), color=GREY, lw=1, label="guessing")
        ax.set(xscale="log", ylim=(0, 1.03), title=f"{name}:\n{question}")
        ax.set_xticks(sizes, sizes)
        ax.minorticks_off()
    for ax in axes.flat[len(datasets) :]:
        ax.set_axis_off()
    # If the number of panels is odd, the place below the last right panel is empty, so this panel
    # must show the tick labels. If the number is even, the call changes nothing.
    axes.flat[len(datasets) - 2].tick_params(labelbottom=True)
    figure.supxlabel("components")
    figure.supylabel("classified correctly")
    every: dict[str, Any] = {}
    for ax in axes.flat:
        handles, names = ax.get_legend_handles_labels()
        every |= dict(zip(names, handles, strict=True))
    figure.legend(every.values(), every, loc="outside upper center", ncols=3)
