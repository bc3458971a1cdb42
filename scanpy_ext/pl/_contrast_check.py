"""Cells on both sides of a contrast, and its ratio beside that of donors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._docs import documented
from ._figure import finish, legend_below, panels
from ._result import stored_result

if TYPE_CHECKING:
    from anndata import AnnData

    from ._figure import AxesGiven, Drawn, Save


_MANY = 40  # rows of donors and cell types, from which on they are drawn closer


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
    """What a contrast stands on: its cells, and its ratio beside that of donors alone.

    From `scanpy_ext.pp.contrast_check`. Left: the make-up of foreground and background; a type
    that the background lacks fakes an effect. Right: the cross-fitted ratio (red) and those of one
    donor's controls against another's (grey), which a real contrast exceeds.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.pp.contrast_check` was run.
    key
        Name of the result in `.uns`: the method's, or the `key_added` that was given.
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
    result = stored_result(adata, key, "counts", "scanpy_ext.pp.contrast_check")
    counts, ratios = result["counts"], result["ratios"]
    by = [name for name in ("donor", "cell_type") if name in counts]
    names = counts[by].astype(str).agg(", ".join, axis=1) if by else ["all cells"]
    sides = ["foreground", "background"]
    shares = counts[sides] / counts[sides].sum()
    spot = np.arange(len(counts))
    n_bars = max(len(counts), len(ratios))
    small = n_bars > _MANY
    font = 4 if small else "x-small"
    height = max(2.6, 0.8 + (0.14 if small else 0.28) * n_bars)
    with panels(1, 2, size=(4.6, height), figsize=figsize, ax=ax) as (figure, axes):
        cells, ratio = axes.flat
        for side, shift, color in zip(sides, (-0.2, 0.2), ("tab:red", "0.6"), strict=True):
            cells.barh(spot + shift, shares[side], height=0.4, color=color, label=side)
            for y, share, n in zip(spot + shift, shares[side], counts[side], strict=True):
                cells.annotate(
                    f" {int(n)}",
                    (share, y),
                    va="center",
                    fontsize=font,
                    color="0.3",
                )
        cells.set_yticks(spot, names, fontsize="xx-small" if small else None)
        cells.invert_yaxis()
        cells.set(xlabel="share of the cells (number)", title="foreground and background")
        cells.margins(x=0.15)
        legend_below(cells, ax)
        place = np.arange(len(ratios))
        null = ratios["null"].astype(bool).to_numpy() if len(ratios) else place.astype(bool)
        relative = ratios["relative"].to_numpy(dtype=float)
        ratio.barh(place, relative, color=np.where(null, "0.6", "tab:red").tolist())
        ratio.axvline(1, color="black", linewidth=0.8)
        labels = [
            f"{'null: ' if is_null else ''}{name}" + (" (by cell)" if unit == "cell" else "")
            for name, is_null, unit in zip(ratios.index, null, ratios["unit"], strict=True)
        ]
        ratio.set_yticks(place, labels)
        ratio.invert_yaxis()
        ratio.set(xlabel="times the ratio without contrast", title="cross-fitted ratio")
        for panel in (cells, ratio):
            panel.grid(visible=False)
            panel.spines[["top", "right"]].set_visible(False)
        return finish(
            figure,
            [cells, ratio],
            "contrast_check",
            show=show,
            save=save,
            return_fig=return_fig,
            ax=ax,
        )
