"""Plot the genes with the largest loadings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from anndata import AnnData

from contrast_core.feedback import check_count

from .._docs import documented
from ..get import loadings as loadings_table
from ..get import top_genes
from ._figure import AxesGiven, Drawn, Save, chosen_components, drawing, extra_width

_WIDE = 5  # largest number of panels in a row


@documented
def loadings(
    adata: AnnData,
    *,
    components: Sequence[int] | int | str | None = None,
    n_points: int = 20,
    key: str = "cpca",
    level: str | float | None = None,
    ax: AxesGiven = None,
    figsize: tuple[float, float] | None = None,
    show: bool | None = None,
    save: Save = None,
    return_fig: bool = False,
) -> Drawn:
    """Plot the genes with the largest loadings of each component, with their signs.

    This is the counterpart of `sc.pl.pca_loadings`. It draws the `n_points` genes with the largest
    absolute loadings, which may all have the same sign. Genes with positive loadings are higher in
    cells with large scores, and genes with negative loadings are higher in cells with small scores.

    Parameters
    ----------
    adata
        Annotated data matrix on which a method of `scanpy_ext.tl` was run.
    components
        The components to show, counted from 1 as in `sc.pl.pca_loadings`, such as `[3, 4]` or
        `"3,4"`. By default, the first three are shown, or all if there are fewer.
    n_points
        Number of genes per component. Genes with a loading of zero are left out.
    key, level
        The name of the result and the set of its loadings, as in `scanpy_ext.get.loadings`.
    {FIGURE}

    Returns
    -------
    The figure if `return_fig=True`, or a list of the axes, one for each component, if `show=False`
    or `ax` was given. In all other cases `None`.

    Raises
    ------
    ValueError
        If there is no such result or level, or a component is not among its loadings.
    """
    table = loadings_table(adata, key=key, level=level)
    n_components = table.shape[1]
    if components is None:
        components = range(1, min(n_components, 3) + 1)
    components = chosen_components(components, n_components)
    n_points = min(check_count(n_points, "n_points"), len(table))

    size = (2.8 + extra_width(table.index), 0.6 + 0.19 * n_points)
    n_rows = -(-len(components) // _WIDE) if ax is None else 1
    shape = n_rows, -(-len(components) // n_rows)
    with drawing("loadings", shape, size, ax, figsize, show, save, return_fig) as plot:
        for empty in plot.axes[len(components) :]:
            empty.remove()
        plot.axes = plot.axes[: len(components)]
        for panel, component in zip(plot.axes, components, strict=True):
            largest = top_genes(adata, component, n_points, key=key, level=level)["loading"]
            largest = largest.sort_values(kind="stable")
            place = np.arange(len(largest))
            colors = np.where(largest > 0, "tab:red", "tab:blue")
            panel.barh(place, largest, color=list(colors))
            panel.set_yticks(place, largest.index, fontsize="small")
            panel.margins(y=0.01)
            panel.axvline(0, color="black", linewidth=0.8)
            panel.set(title=f"component {component}", xlabel="loading")
    return plot.result
