"""The embedding of a path at each representative contrast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _keys
from .._select import listed
from ._figure import FLOOR, finish, panels

if TYPE_CHECKING:
    from os import PathLike

    from anndata import AnnData
    from matplotlib.axes import Axes


def path(
    adata: AnnData,
    color: str | Sequence[str] | None = None,
    *,
    key: str | None = None,
    show: bool | None = None,
    save: str | PathLike[str] | None = None,
    **kwargs: Any,
) -> list[Axes] | None:
    """The embedding at each representative contrast strength, side by side.

    One panel per representative of `scanpy_ext.tl.cpca_path`, titled with its alpha; alpha = 0
    is PCA of the foreground. cPCA keeps and sharpens the difference between conditions: look for
    the strength at which the groups that PCA mixes come apart. Panels have scales of their own,
    but an axis is not stretched to show what hardly varies at all.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.cpca_path` was run.
    color
        Column of `adata.obs`, or gene, that colours the cells. With several names there is a
        row of panels for each.
    key
        The `key_added` of `scanpy_ext.tl.cpca_path`, if one was given.
    show
        Whether to show the figure. By default as scanpy is set, and not if it is saved.
    save
        File to save the figure to; the figure is closed then, unless it is shown or returned.
    **kwargs
        Passed on to `scanpy.pl.embedding`, such as `size`, `palette`, `cmap`, `legend_loc`.

    Returns
    -------
    The axes, row by row, if `show=False`; else `None`.

    Raises
    ------
    ValueError
        If there is no result of `scanpy_ext.tl.cpca_path` under `key`, or no such `color`.
    """
    import scanpy as sc

    keys = _keys.CPCA_PATH.added(key)
    if keys.uns not in adata.uns or keys.numbered(0).obsm not in adata.obsm:
        raise ValueError(
            f"adata.uns has no path {keys.uns!r}: run scanpy_ext.tl.cpca_path first"
            f"{'' if key is None else f' with key_added={key!r}'}."
        )
    result = adata.uns[keys.uns]
    alphas = np.asarray(result["alphas"])[np.asarray(result["representatives"])]
    colors = [color] if color is None or isinstance(color, str) else list(color)
    if not colors:
        raise ValueError("color is an empty list: name columns of adata.obs, or leave it out.")
    for name in colors:
        if name is not None and name not in adata.obs.columns and name not in adata.var_names:
            raise ValueError(
                f"color: {name!r} is neither a gene nor a column of adata.obs. "
                f"Its columns are {listed([str(column) for column in adata.obs.columns])}."
            )

    spans = [np.ptp(adata.obsm[keys.numbered(i).obsm], axis=0).max() for i in range(len(alphas))]
    floor = FLOOR * float(max(spans))
    with panels(len(colors), len(alphas), size=(3.4, 3.2)) as (figure, axes):
        for row, name in zip(axes, colors, strict=True):
            for i, (ax, alpha) in enumerate(zip(row, alphas, strict=True)):
                is_last = i == len(alphas) - 1
                # One legend or colour bar per row is enough: the panels share their colours.
                keep = {} if is_last else {"legend_loc": "none", "colorbar_loc": None}
                title = (
                    f"alpha = {alpha:.3g}" if len(colors) == 1 else f"{name}, alpha = {alpha:.3g}"
                )
                sc.pl.embedding(
                    adata,
                    basis=keys.numbered(i).obsm,
                    color=name,
                    ax=ax,
                    title=title,
                    show=False,
                    **(kwargs | keep),
                )
                ax.set(xlabel="cPC1", ylabel="cPC2" if i == 0 else "")
                _widen(ax, floor)
        return finish(figure, list(axes.flat), show=show, save=save)


def _widen(ax: Axes, floor: float) -> None:
    """Let neither axis be shorter than `floor`: rounding is not to fill a panel."""
    for get, put in ((ax.get_xlim, ax.set_xlim), (ax.get_ylim, ax.set_ylim)):
        low, high = get()
        if high - low < floor:
            middle = (low + high) / 2
            put(middle - floor / 2, middle + floor / 2)
