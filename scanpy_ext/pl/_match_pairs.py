"""Plot the numbers, coverage and distances of positive pairs by donor."""

from __future__ import annotations

import numpy as np
from anndata import AnnData

from .. import _keys
from .._docs import documented
from .._select import column
from .._stored import stored_result
from ._figure import AxesGiven, Drawn, Save, drawing, extra_width, legend_below


@documented
def match_pairs(
    adata: AnnData,
    *,
    key: str = "pairs",
    ax: AxesGiven = None,
    figsize: tuple[float, float] | None = None,
    show: bool | None = None,
    save: Save = None,
    return_fig: bool = False,
) -> Drawn:
    """Plot the number, the coverage and the distances of positive pairs for each donor.

    The first panel shows the number of pairs of each donor. The second shows the fraction of each
    donor's stimulated and control cells that are in a pair. The third shows the distances between
    the cells of a pair (quartiles, and 5% to 95% quantiles).

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.pp.match_pairs` was run.
    key
        Name of the result in `.uns`: `pairs`, or the given `key_added`.
    {FIGURE}

    Returns
    -------
    The figure if `return_fig=True`, or a list of the three axes if `show=False` or `ax` was given.
    In all other cases `None`.

    Raises
    ------
    ValueError
        If there are no pairs under `key`.
    """
    result = stored_result(adata, key, "pp.match_pairs", "donors")
    slot = _keys.distances_of(key)
    if slot not in adata.obsp:
        raise ValueError(
            f"adata.uns[{key!r}] exists, but adata.obsp has no {slot!r}: run "
            "scanpy_ext.pp.match_pairs again."
        )
    table = result["donors"]
    names = [str(name) for name in table.index]
    spot = np.arange(len(names))
    size = (3.2 + extra_width(names), 0.9 + 0.28 * max(len(names), 6))
    with drawing("match_pairs", (1, 3), size, ax, figsize, show, save, return_fig) as plot:
        counts, coverage, distances = plot.axes
        counts.barh(spot, table["n_pairs"], color="tab:grey")
        counts.set(title=f"{result['n_pairs']} pairs", xlabel="pairs")
        sides = {"stimulated": "tab:red", "control": "tab:blue"}
        for offset, (side, color) in zip((-0.2, 0.2), sides.items(), strict=True):
            total = result[f"coverage_{side}"]
            values = table[f"coverage_{side}"]
            label = f"{side} ({total:.0%})"
            coverage.barh(spot + offset, values, height=0.4, color=color, label=label)
        coverage.set(xlim=(0, 1), xlabel="fraction of cells in a pair", title="coverage")
        legend_below(coverage, ax)

        stored = adata.obsp[slot].tocsr()
        donor = result["params"].get("donor")
        owner = np.full(adata.n_obs, "all cells", dtype=object)
        if donor in adata.obs:
            owner = column(adata, donor, "donor").to_numpy()
        of_donors = [stored[np.flatnonzero(owner == name)].data for name in table.index]
        boxes = {"whis": (5, 95), "showfliers": False, "widths": 0.6}
        distances.boxplot(of_donors, positions=spot, orientation="horizontal", **boxes)
        distances.set(title=f"median distance {result['median_distance']:.3g}")
        distances.set(xlabel="distance of a pair")
        for panel in plot.axes:
            panel.set_yticks(spot, names)
            panel.set_ylim(len(names) - 0.5, -0.5)
    return plot.result
