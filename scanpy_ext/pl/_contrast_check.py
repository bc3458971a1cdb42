"""Plot the cells of both sets of a contrast, and compare its ratio with ratios between donors."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes

from .._docs import documented
from .._result import stored_result
from ._figure import AxesGiven, Drawn, Save, drawing, legend_below, room

_MANY = 30  # with more combinations of donor and cell type, the left panel is a table
_LETTERS = 28  # number of letters of a name that fit into the default width
_FEW = 4  # a panel has room for at least this many bars, so that a few bars are not thick
_TIMES = 4.0  # largest ratio of shares on the colour scale


@documented
def contrast_check(
    adata: AnnData,
    *,
    key: str = "contrast_check",
    ax: AxesGiven = None,
    figsize: tuple[float, float] | None = None,
    show: bool | None = None,
    save: Save = None,
    return_fig: bool = False,
) -> Drawn:
    """Plot the cells of a contrast, and compare its ratio with the ratios between donors.

    The left panel shows the composition of foreground and background. Check it first, because a
    cell type that the background lacks looks like an effect. If there are many donors and cell
    types, this panel is a table, whose colours show ratios: the share of a donor's cells of one
    type in the foreground, divided by their share in the background. Where one of the two numbers
    of cells is 0, both numbers are written.

    The right panel shows the cross-fitted ratio (red). It should exceed the grey ratios, in which
    the controls of one donor are compared with the controls of another.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.pp.contrast_check` was run.
    key
        Name of the result in `.uns`: the name of the function, or the given `key_added`.
    {FIGURE}

    Returns
    -------
    The two axes if `show=False` or with `ax`, the figure if
    `return_fig=True`, else `None`.

    Raises
    ------
    ValueError
        If there is no such result.
    """
    result = stored_result(adata, key, "pp.contrast_check", "counts")
    counts, ratios = result["counts"], result["ratios"]
    by = [name for name in ("donor", "cell_type") if name in counts]
    many = len(by) == 2 and len(counts) > _MANY
    names = counts[by].astype(str).agg(", ".join, axis=1) if by else pd.Series(["all cells"])
    null = ratios["null"].astype(bool).to_numpy()
    labels = [
        f"{'null: ' if is_null else ''}{name}" + (" (by cell)" if unit == "cell" else "")
        for name, is_null, unit in zip(ratios.index, null, ratios["unit"], strict=True)
    ]
    n_bars = max(counts[by[0]].nunique() if many else len(counts), len(ratios))
    width, height = 4.6, max(2.6, 0.8 + 0.28 * n_bars)
    if many:
        kinds = counts[by[1]].astype(str)
        names = counts[by[0]].astype(str)
        width = max(6.0, 2.4 + 0.3 * kinds.nunique())
        height += room(kinds)
    width += room([*names, *labels], _LETTERS) / 2
    size = width, height
    with drawing("contrast_check", (1, 2), size, ax, figsize, show, save, return_fig) as plot:
        cells, ratio = plot.axes
        if many:
            _table_of_cells(cells, counts, by)
        else:
            _bars_of_cells(cells, counts, list(names))
            legend_below(cells, ax)
        place = np.arange(len(ratios))
        relative = ratios["relative"].to_numpy(dtype=float)
        ratio.barh(place, relative, color=np.where(null, "0.6", "tab:red").tolist())
        ratio.axvline(1, color="black", linewidth=0.8)
        ratio.set_yticks(place, labels)
        ratio.set_ylim(max(len(ratios), _FEW) - 0.5, -0.5)
        ratio.set(xlabel="times the ratio without contrast", title="cross-fitted ratio")
    return plot.result


def _bars_of_cells(panel: Axes, counts: pd.DataFrame, names: list[str]) -> None:
    """Draw a pair of bars for each row of the counts."""
    sides = ["foreground", "background"]
    shares = counts[sides] / counts[sides].sum()
    spot = np.arange(len(counts))
    for side, shift, color in zip(sides, (-0.2, 0.2), ("tab:red", "0.6"), strict=True):
        panel.barh(spot + shift, shares[side], height=0.4, color=color, label=side)
        for y, share, n in zip(spot + shift, shares[side], counts[side], strict=True):
            panel.annotate(f" {int(n)}", (share, y), va="center", fontsize="x-small", color="0.3")
    panel.set_yticks(spot, names)
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.set(xlabel="share of the cells (number)", title="foreground and background")
    panel.locator_params(axis="x", nbins=5)
    panel.margins(x=0.15)


def _table_of_cells(panel: Axes, counts: pd.DataFrame, by: list[str]) -> None:
    """Draw a table of donors by cell types, coloured by the ratio of their shares."""
    front, back = (
        counts.pivot_table(side, by[0], by[1], "sum", fill_value=0, observed=False)
        for side in ("foreground", "background")
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        times = (front / front.to_numpy().sum()) / (back / back.to_numpy().sum())
        logs = np.log2(times.to_numpy(dtype=float))
    end = np.log2(_TIMES)
    image = panel.imshow(
        np.clip(logs, -end, end), cmap="RdBu_r", vmin=-end, vmax=end, aspect="auto"
    )
    for i, j in np.argwhere((front.to_numpy() == 0) | (back.to_numpy() == 0)):
        text = f"{int(front.iloc[i, j])}/{int(back.iloc[i, j])}"
        color = "white" if front.iloc[i, j] or back.iloc[i, j] else "black"
        panel.annotate(text, (j, i), ha="center", va="center", fontsize="xx-small", color=color)
    panel.set_yticks(np.arange(len(times)), [str(name) for name in times.index])
    panel.set_xticks(np.arange(times.shape[1]), [str(n) for n in times.columns], rotation=90)
    panel.set_title("share in the foreground / background")
    bar = panel.figure.colorbar(image, ax=panel)
    ticks = [-end, 0, end]
    bar.set_ticks(ticks, labels=[f"≤ {1 / _TIMES:g}", "1", f"≥ {_TIMES:g}"])
