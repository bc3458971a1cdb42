"""Colours, panels and legends that the pictures of the documentation share."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import pyplot as plt

PAGE = 7.2  # width of a page in inches
CONTROL, TREATED, OTHER = "#0072b2", "#d55e00", "#56b4e9"
GROUPS = ["#009e73", "#cc79a7", "#e69f00", "#332288"]  # for groups other than conditions
METHODS = {"PCA": "0.5", "cPCA": "#332288"}
GREY = "0.8"
MICE = {"Control": ("control", CONTROL), "Ts65Dn": ("Down syndrome model", TREATED)}


def panels(n: int, height: float = 2.6) -> Any:
    """Return the axes of n panels in a row as wide as the page."""
    return plt.subplots(1, n, figsize=(PAGE, height))[1]


def bare(ax: Any, title: str, xlabel: str = "", ylabel: str = "") -> None:
    """Set title and labels and remove the ticks, because their values have no meaning."""
    ax.set(xticks=[], yticks=[], title=title, xlabel=xlabel, ylabel=ylabel)
    for side in ax.spines.values():
        side.set_visible(True)
        side.set_color(GREY)


def points(ax: Any, scores: np.ndarray, labels: np.ndarray, groups: dict[Any, Any]) -> None:
    """Draw rows in the colour of their group; `groups` maps a label to a name and a colour."""
    for label, (name, color) in groups.items():
        ax.scatter(*scores[labels == label].T, s=7, color=color, label=name, linewidths=0)


def legend_below(ax: Any, title: str | None = None) -> None:
    """Place the legend of a panel below the figure, where it covers no points."""
    handles, names = ax.get_legend_handles_labels()
    ax.figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=len(names),
        markerscale=2.5 if ax.collections and not ax.lines else 1,
        title=title,
    )


def panels_of_points(
    shown: dict[str, np.ndarray],
    labels: np.ndarray,
    groups: dict[Any, Any],
    height: float = 3.6,
    xlabel: str = "component 1",
    ylabel: str = "component 2",
    legend_title: str | None = None,
) -> None:
    """Draw the same rows in one panel for each title in `shown`, which holds their scores."""
    axes = panels(len(shown), height)
    for ax, (title, scores) in zip(axes, shown.items(), strict=True):
        points(ax, scores, labels, groups)
        bare(ax, title, xlabel, ylabel)
    legend_below(axes[0], legend_title)
