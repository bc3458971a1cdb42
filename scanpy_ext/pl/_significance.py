"""Plot the significance and the stability of the components."""

from __future__ import annotations

import numpy as np
from anndata import AnnData

from .._docs import documented
from .._stored import stored_result
from ._figure import AxesGiven, Drawn, Save, drawing, legend_below


@documented
def significance(
    adata: AnnData,
    *,
    key: str = "significance",
    ax: AxesGiven = None,
    figsize: tuple[float, float] | None = None,
    show: bool | None = None,
    save: Save = None,
    return_fig: bool = False,
) -> Drawn:
    """Plot the significance and the stability of each component.

    The left panel shows the statistic of each component, and the 95% quantile of the statistics of
    relabelled data. The p-values are written below the components. They are marked as exploratory
    if cells were permuted instead of donors. The right panel shows how well each component is
    recovered when donors are drawn with replacement: by the resampled component that matches it
    ("same component"), and by all resampled components together ("same subspace").

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.significance` was run.
    key
        Name of the result in `.uns`: the name of the function, or the given `key_added`.
    {FIGURE}

    Returns
    -------
    The figure if `return_fig=True`, or a list of the two axes if `show=False` or `ax` was given.
    In all other cases `None`.

    Raises
    ------
    ValueError
        If there is no such result.
    """
    result = stored_result(adata, key, "tl.significance", "components")
    table = result["components"]
    exploratory = bool(result["exploratory"])
    p_values = table["exploratory_p_value" if exploratory else "p_value"]
    spot = np.arange(1, len(table) + 1)
    size = max(3.6, 0.45 * len(table)), 3.5
    with drawing("significance", (1, 2), size, ax, figsize, show, save, return_fig) as plot:
        left, right = plot.axes
        left.plot(
            spot, table["null_95"], "_", color="0.5", markersize=14, label="95% quantile by chance"
        )
        left.plot(spot, table["statistic"], "o", color="tab:red", label="component")
        by = "by cell (exploratory)" if exploratory else f"by {result['unit']}"
        left.set(title=f"significance {by}", ylabel="statistic")
        legend_below(left, ax, side="left")
        right.bar(spot - 0.2, table["stability"], width=0.4, label="same component")
        right.bar(spot + 0.2, table["retention"], width=0.4, label="same subspace")
        right.set(ylim=(0, 1.05), title=f"stability {by}", ylabel="mean squared cosine")
        legend_below(right, ax, side="right")
        for panel in (left, right):
            panel.set(xticks=spot, xlabel="component")
            panel.set_xlim(0.4, len(table) + 0.9)
        left.margins(y=0.15)
        with_p_values = [f"{i}\n{p:.2g}" for i, p in zip(spot, p_values, strict=True)]
        left.set_xticks(spot, with_p_values, fontsize="small")
        left.set_xlabel("component, and its p-value")
    return plot.result
