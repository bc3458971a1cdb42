"""Plot which levels respond, in which genes, and how strong the evidence is."""

from __future__ import annotations

from typing import Any

import numpy as np
from anndata import AnnData

from contrast_core.feedback import check_count

from .. import _keys
from .._docs import documented
from ..get import contrasts as contrasts_table
from ._figure import AxesGiven, Drawn, Save, drawing, extra_width, few_log_ticks

_LARGEST = 110.0  # area of the largest dot, in square points
_SMALLEST_RATIO = 0.5  # lower end of the axis of the ratios


@documented
def contrasts(
    adata: AnnData,
    *,
    n_genes: int = 4,
    key: str = "contrasts",
    ax: AxesGiven = None,
    figsize: tuple[float, float] | None = None,
    show: bool | None = None,
    save: Save = None,
    return_fig: bool = False,
) -> Drawn:
    """Plot which levels respond, in which genes, and how strong the evidence is.

    The levels are the values of the column that `scanpy_ext.tl.contrasts` was given as `by`, such
    as cell types. The first panel is a dot plot of genes and levels, like `sc.pl.dotplot`. The
    colour of a dot is the loading of the gene on the direction that separates the condition from
    the reference in this level (red: higher in the condition). The size of a dot is the stability
    of the loading. The second panel shows the cross-fitted ratio of each level with its 95%
    interval. A ratio of 1 means no response. The mark is filled if the adjusted p-value is at most
    5%. Without p-values, it is filled if the interval is above 1. Levels that could not be compared
    are left out, but are in the table `scanpy_ext.get.contrasts`.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.contrasts` was run.
    n_genes
        Number of genes to show for each level. The genes with the largest loadings are shown.
    key
        Name of the result in `.uns`: `contrasts`, or the `key_added` that was given.
    {FIGURE}

    Returns
    -------
    The figure if `return_fig=True`, or a list of the two axes if `show=False` or `ax` was given.
    In all other cases `None`.

    Raises
    ------
    ValueError
        If there is no such result, or no level could be compared.
    """
    table = contrasts_table(adata, key=key)
    result = adata.uns[key]
    levels = [str(level) for level in result["levels"]]
    if not levels:
        raise ValueError(
            f"adata.uns[{key!r}]: no level could be compared. The column `reason` of "
            "scanpy_ext.get.contrasts says why."
        )
    names = adata.var_names.to_numpy().astype(str)
    if "loadings" in result:
        loadings, stability = np.asarray(result["loadings"]), np.asarray(result["stability"])
        names = np.array(_keys.dimensions(str(result["params"]["obsm"]), len(loadings)))
    else:
        loadings, stability = (np.asarray(adata.varm[slot]) for slot in (key, f"{key}_stability"))
    n_genes = min(check_count(n_genes, "n_genes"), len(names))
    rows = table.loc[levels]
    leading = np.argsort(-np.abs(loadings), axis=0, kind="stable")[:n_genes]
    chosen = np.array(list(dict.fromkeys(leading.T.ravel().tolist())))  # in the order of the levels

    size = (
        (0.26 * len(chosen) + extra_width(levels) + 4.4) / 2,
        0.3 * len(levels) + 1.6 + extra_width(names, 8),
    )
    with drawing(
        "contrasts", (1, 2), size, ax, figsize, show, save, return_fig, frames=True
    ) as plot:
        dots, evidence = plot.axes
        if ax is None:
            dots.get_gridspec().set_width_ratios([max(2.0, 0.26 * len(chosen)), 2.0])
        places = np.arange(len(levels))
        x, y = np.meshgrid(np.arange(len(chosen)), places)
        shown = loadings[chosen].T
        drawn = dots.scatter(
            x.ravel(),
            y.ravel(),
            s=_LARGEST * stability[chosen].T.ravel() + 1e-3,
            c=shown.ravel(),
            cmap="RdBu_r",
            vmin=-np.abs(shown).max(),
            vmax=np.abs(shown).max(),
            edgecolors="grey",
            linewidths=0.4,
        )
        dots.set_xticks(np.arange(len(chosen)), names[chosen], rotation=90, fontsize="small")
        dots.set_yticks(places, levels, fontsize="small")
        dots.set(xlim=(-0.7, len(chosen) - 0.3), ylim=(len(levels) - 0.4, -0.6))
        plot.figure.colorbar(drawn, ax=dots, label="loading", shrink=0.8, pad=0.01)
        sizes: list[Any] = [
            dots.scatter([], [], s=_LARGEST * share, c="grey", label=f"{share:g}")
            for share in (0.25, 0.5, 1.0)
        ]
        dots.legend(
            handles=sizes,
            title="stability",
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=3,
            frameon=False,
            fontsize="small",
            title_fontsize="small",
        )
        ratio, low, high = (
            np.maximum(rows[name].to_numpy(float), _SMALLEST_RATIO)
            for name in ("ratio", "ratio_low", "ratio_high")
        )
        adjusted = rows["p_adjusted"].to_numpy(float)
        filled = np.where(np.isnan(adjusted), low > 1, adjusted <= 0.05)
        evidence.hlines(places, low, high, color="black", linewidth=1)
        evidence.scatter(
            ratio, places, c=np.where(filled, "black", "white"), edgecolors="black", s=30, zorder=3
        )
        evidence.axvline(1, color="grey", linewidth=0.8, linestyle="--")
        evidence.set(xscale="log", ylim=dots.get_ylim(), yticks=[])
        over = " / ".join(dict.fromkeys(rows["interval"]))
        evidence.set_xlabel(f"ratio (95%)\n{over}", fontsize="small")
        few_log_ticks(evidence.xaxis)
        evidence.spines[["top", "right", "left"]].set_visible(False)
    return plot.result
