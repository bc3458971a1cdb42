"""Plot a path of contrast strengths: its representative embeddings, and its variances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scanpy as sc
from anndata import AnnData
from matplotlib.axes import Axes

from contrast_core.feedback import check_count, shown

from .. import _keys
from .._arguments import is_among, listed
from .._docs import documented
from .._stored import stored_result
from ._figure import FLOOR, AxesGiven, Drawn, Save, chosen_components, drawing, few_log_ticks


@documented
def cpca_path(
    adata: AnnData,
    color: str | Sequence[str] | None = None,
    *,
    components: Sequence[int] | str = (1, 2),
    key: str = "cpca_path",
    ax: AxesGiven = None,
    figsize: tuple[float, float] | None = None,
    show: bool | None = None,
    save: Save = None,
    return_fig: bool = False,
    **kwargs: Any,
) -> Drawn:
    """Plot the embeddings at the representative contrast strengths, side by side.

    There is one panel for each representative strength of `scanpy_ext.tl.cpca_path`, with its alpha
    as title. If alpha = 0 is on the grid, it is the first panel and shows PCA of the foreground.
    Look for a strength that separates groups which PCA mixes. Each panel has its own scale, but an
    axis along which cells hardly vary is not stretched. Embeddings in which cells do not vary at
    all have no panel.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.cpca_path` was run.
    color
        Column of `adata.obs`, or gene, by which the cells are coloured. If several are given, each
        has its own row of panels.
    components
        The two components to draw, counted from 1: `(3, 4)` or `"3,4"`.
    key
        Name of the result in `.uns`: the name of the function, or the given `key_added`.
    {FIGURE}
    **kwargs
        Further arguments of `scanpy.pl.embedding`, such as `size`, `palette`, `cmap` or
        `legend_loc`.

    Returns
    -------
    The figure if `return_fig=True`, or a list of the axes, row by row, if `show=False` or `ax` was
    given. In all other cases `None`.

    Raises
    ------
    ValueError
        If there is no result of `scanpy_ext.tl.cpca_path` under `key`, or no such `color`.
    """
    result = stored_result(adata, key, "tl.cpca_path", "alphas")
    keys = _keys.keys_of(key)
    alphas = np.asarray(result["alphas"])[np.asarray(result["representatives"])]
    colors: list[Any] = [color]
    if isinstance(color, Iterable) and not isinstance(color, str):
        colors = list(color)
    if not colors:
        raise ValueError("color is an empty list: name columns of adata.obs, or leave it out.")
    for name in colors:
        if name is not None and not any(is_among(name, n) for n in (adata.obs, adata.var_names)):
            raise ValueError(
                f"color: {shown(name)} is neither a gene nor a column of adata.obs. "
                f"Its columns are {listed([str(column) for column in adata.obs.columns])}."
            )

    tables = [np.asarray(adata.obsm[keys.part(i).obsm]) for i in range(len(alphas))]
    chosen = chosen_components(components, tables[0].shape[1])
    if len(chosen) != 2:
        raise ValueError(f"components={shown(components)}: expected two components to draw.")
    columns = np.array(chosen) - 1
    spans = [np.ptp(table[:, columns], axis=0).max() for table in tables]
    floor = FLOOR * float(max(spans))
    bases = [
        (keys.part(i).obsm, _titled(alpha) if alpha else "PCA (alpha = 0)")
        for i, (alpha, span) in enumerate(zip(alphas, spans, strict=True))
        if span >= floor
    ]
    shape = len(colors), len(bases)
    with drawing(
        "cpca_path", shape, (3.4, 3.2), ax, figsize, show, save, return_fig, frames=True
    ) as plot:
        for row, name in zip(plot.axes.reshape(shape), colors, strict=True):
            for panel, (basis, title) in zip(row, bases, strict=True):
                # One legend or colour bar per row is enough: the panels share their colours.
                keep: dict[str, Any] = {"show": False, "return_fig": False}
                if panel is not row[-1]:
                    keep |= {"legend_loc": "none", "colorbar_loc": None}
                sc.pl.embedding(
                    adata,
                    basis=basis,
                    color=name,
                    ax=panel,
                    title=title if len(colors) == 1 else f"{name}, {title}",
                    **(kwargs | keep | {"components": f"{chosen[0]},{chosen[1]}"}),
                )
                x, y = (f"component {component}" for component in chosen)
                panel.set(xlabel=x, ylabel=y if panel is row[0] else "")
                _widen(panel, floor)
    return plot.result


def _widen(ax: Axes, floor: float) -> None:
    """Make both axes at least `floor` long, so that rounding errors do not fill a panel."""
    for get, put in ((ax.get_xlim, ax.set_xlim), (ax.get_ylim, ax.set_ylim)):
        low, high = get()
        if high - low < floor:
            middle = (low + high) / 2
            put(middle - floor / 2, middle + floor / 2)


@documented
def contrast_curve(
    adata: AnnData,
    *,
    component: int | None = None,
    key: str = "cpca_path",
    ax: AxesGiven = None,
    figsize: tuple[float, float] | None = None,
    show: bool | None = None,
    save: Save = None,
    return_fig: bool = False,
) -> Drawn:
    """Plot foreground variance against background variance over a range of contrast strengths.

    There is a dot for each strength of `scanpy_ext.tl.cpca_path`, and the representatives are
    labelled. PCA of the foreground is at the top right. A stronger contrast has less background
    variance, and also less foreground variance. At the best strengths, the background variance has
    fallen and the foreground variance has hardly fallen.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.cpca_path` was run.
    component
        A component, counted from 1. By default, the variances are summed over all components.
    key
        Name of the result in `.uns`: the name of the function, or the given `key_added`.
    {FIGURE}

    Returns
    -------
    The figure if `return_fig=True`, or a list with the axes if `show=False` or `ax` was given. In
    all other cases `None`.

    Raises
    ------
    ValueError
        If there is no result of `scanpy_ext.tl.cpca_path` under `key`, or no such component.
    """
    result = stored_result(adata, key, "tl.cpca_path", "alphas")
    n_components = np.shape(result["foreground_variance"])[1]
    if component is not None:
        component = check_count(component, "component", at_most=n_components)
    columns = slice(None) if component is None else slice(component - 1, component)
    foreground, background = (
        np.asarray(result[f"{side}_variance"])[:, columns].sum(axis=1)
        for side in ("foreground", "background")
    )
    # Variances below the floor are rounding errors. Their logarithms would stretch the axis.
    background = np.maximum(background, FLOOR**2 * background.max())
    with drawing("contrast_curve", (1, 1), (4.2, 3.4), ax, figsize, show, save, return_fig) as plot:
        [panel] = plot.axes
        panel.plot(background, foreground, ".-", color="0.6", zorder=1)
        for i in np.asarray(result["representatives"]):
            panel.plot(background[i], foreground[i], "o", color="tab:red", zorder=2)
            alpha = np.asarray(result["alphas"])[i]
            panel.annotate(
                _titled(alpha),
                (background[i], foreground[i]),
                xytext=(6, -3) if alpha else (-6, 3),  # so that the first two labels do not overlap
                textcoords="offset points",
                ha="left" if alpha else "right",
                va="top" if alpha else "bottom",
                fontsize="small",
            )
        what = "all components" if component is None else f"component {component}"
        panel.set(
            xscale="log",
            xlabel="variance of the background",
            ylabel="variance of the foreground",
            title=what,
        )
        panel.margins(x=0.2, y=0.1)
        panel.autoscale_view()
        few_log_ticks(panel.xaxis)
    return plot.result


def _titled(alpha: float) -> str:
    """Return a title that shows a contrast strength."""
    return f"alpha = {float(f'{alpha:.3g}'):g}"  # 1000 rather than 1e+03
