"""Plot the cells of a contrast by donor and type, and its variance ratio beside null ratios."""

from __future__ import annotations

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes

from .._docs import documented
from .._stored import stored_result
from ._figure import AxesGiven, Drawn, Save, drawing, extra_width

# In a table of more entries than this, the numbers of foreground and background cells are written
# only where one of the two is 0.
_MANY = 30
_LETTERS = 28  # number of letters of a name that fit into the default width
_FEW = 4  # a panel has room for at least this many bars, so that single bars are not too thick
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
    """Plot the cells of a contrast by donor and type, and its variance ratio beside null ratios.

    The left panel shows the composition of foreground and background, by donor and cell type.
    Check it first, because a cell type that the background lacks looks like an effect. Each entry
    stands for one donor's cells of one type. Its colour shows their share in the foreground,
    divided by their share in the background. Its two numbers count the foreground and the
    background cells. In a table of more than 30 entries, the numbers are written only where one of
    them is 0.

    The right panel shows the cross-fitted ratio of `scanpy_ext.pp.contrast_check` (red), divided by
    its baseline, the ratio of the total variances. It should exceed the null ratios (grey), in
    which the controls of one donor are compared with the controls of another.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.pp.contrast_check` was run.
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
    result = stored_result(adata, key, "pp.contrast_check", "counts")
    counts, ratios = result["counts"], result["ratios"]
    by = [name for name in ("donor", "cell_type") if name in counts]
    names = [counts[name].astype(str) for name in by] + [pd.Series("all cells", counts.index)] * 2
    null = ratios["null"].astype(bool).to_numpy()
    labels = [
        f"{'null: ' if is_null else ''}{name}" + (" (by cell)" if unit == "cell" else "")
        for name, is_null, unit in zip(ratios.index, null, ratios["unit"], strict=True)
    ]
    few, n_columns = len(counts) <= _MANY, names[1].nunique()
    n_rows = max(names[0].nunique(), len(ratios))
    width = max(4.6, 2.4 + (0.6 if few else 0.3) * n_columns)
    size = (
        width + extra_width([*names[0], *labels], _LETTERS) / 2,
        max(2.6, 0.8 + 0.28 * n_rows) + extra_width(names[1]),
    )
    with drawing("contrast_check", (1, 2), size, ax, figsize, show, save, return_fig) as plot:
        cells, ratio = plot.axes
        _table_of_cells(cells, counts, names, few)
        place = np.arange(len(ratios))
        relative = ratios["relative"].to_numpy(dtype=float)
        ratio.barh(place, relative, color=np.where(null, "0.6", "tab:red").tolist())
        ratio.axvline(1, color="black", linewidth=0.8)
        ratio.set_yticks(place, labels)
        ratio.set_ylim(max(len(ratios), _FEW) - 0.5, -0.5)
        ratio.set(xlabel="ratio / baseline", title="cross-fitted ratio")
    return plot.result


def _table_of_cells(
    panel: Axes, counts: pd.DataFrame, names: list[pd.Series[str]], few: bool
) -> None:
    """Draw a table of donors by cell types, coloured by the ratio of their shares."""
    front, back = (
        counts[side].groupby(names[:2], sort=False).sum().unstack(fill_value=0)
        for side in ("foreground", "background")
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        times = (front / front.to_numpy().sum()) / (back / back.to_numpy().sum())
        logs = np.log2(times.to_numpy(dtype=float))
    end = np.log2(_TIMES)
    image = panel.imshow(
        np.clip(logs, -end, end), cmap="RdBu_r", vmin=-end, vmax=end, aspect="auto"
    )
    for (i, j), log in np.ndenumerate(logs):
        if few or not np.isfinite(log):
            text = f"{int(front.iloc[i, j])}/{int(back.iloc[i, j])}"
            color = "white" if abs(log) > end / 2 else "black"
            panel.annotate(text, (j, i), ha="center", va="center", fontsize="xx-small", color=color)
    panel.set_yticks(np.arange(len(times)), list(times.index))
    panel.set_xticks(np.arange(times.shape[1]), list(times.columns), rotation=90)
    panel.set_title("share in the foreground / background")
    bar = panel.figure.colorbar(image, ax=panel)
    ticks = [-end, 0, end]
    bar.set_ticks(ticks, labels=[f"≤ {1 / _TIMES:g}", "1", f"≥ {_TIMES:g}"])
