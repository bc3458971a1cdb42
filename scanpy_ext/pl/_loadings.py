"""The genes with the largest loadings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .. import _keys
from .._select import listed
from ._figure import finish, panels

if TYPE_CHECKING:
    from os import PathLike

    from anndata import AnnData
    from matplotlib.axes import Axes


def loadings(
    adata: AnnData,
    *,
    components: Sequence[int] | None = None,
    n_points: int = 20,
    key: str = _keys.CPCA.varm,
    show: bool | None = None,
    save: str | PathLike[str] | None = None,
) -> list[Axes] | None:
    """The genes with the largest loadings of each component, with their signs.

    The counterpart of `sc.pl.pca_loadings`. It draws the `n_points` genes of largest absolute
    loading, so both ends of a component appear as far as they matter. cPCA keeps and sharpens the
    difference between conditions: genes at one end are higher in the cells at that end of
    the embedding.

    Parameters
    ----------
    adata
        Annotated data matrix with loadings in `.varm`.
    components
        The components to show, counted from 1 as in `sc.pl.pca_loadings`. All by default, at
        most three.
    n_points
        Number of genes per component. Genes with a loading of zero are left out.
    key
        Where the loadings are in `.varm`: `"cPCs"`, the `key_added` of `scanpy_ext.tl.cpca`, or
        `"cPCs_path_<i>"`.
    show
        Whether to show the figure. By default as scanpy is set, and not if it is saved.
    save
        File to save the figure to; the figure is closed then, unless it is shown or returned.

    Returns
    -------
    The axes, one per component, if `show=False`; else `None`.

    Raises
    ------
    ValueError
        If there are no loadings under `key`, or a component is not among them.
    """
    if key not in adata.varm:
        raise ValueError(
            f"adata.varm has no loadings {key!r}; it has {listed(list(adata.varm))}. "
            "Run scanpy_ext.tl.cpca first, or name them with key=."
        )
    table = np.asarray(adata.varm[key])
    n_components = table.shape[1]
    if components is None:
        components = range(1, min(n_components, 3) + 1)
    wrong = [component for component in components if not 1 <= component <= n_components]
    if wrong or not len(components):
        raise ValueError(
            f"components={list(components)}: expected numbers from 1 to {n_components}."
        )
    if n_points < 1:
        raise ValueError(f"n_points={n_points}: expected 1 or more.")

    names = adata.var_names.to_numpy()
    size = (2.8, 0.6 + 0.19 * n_points)
    with panels(1, len(components), size=size) as (figure, axes):
        for ax, component in zip(axes[0], components, strict=True):
            loading = table[:, component - 1]
            largest = np.argsort(-np.abs(loading), kind="stable")[:n_points]
            largest = largest[loading[largest] != 0]
            order = largest[np.argsort(loading[largest], kind="stable")]
            colors = np.where(loading[order] > 0, "tab:red", "tab:blue")
            ax.barh(np.arange(order.size), loading[order], color=list(colors))
            ax.set_yticks(np.arange(order.size), names[order], fontsize="small")
            ax.margins(y=0.01)
            ax.axvline(0, color="black", linewidth=0.8)
            ax.set(title=f"component {component}", xlabel="loading")
            ax.grid(visible=False)
            ax.spines[["top", "right"]].set_visible(False)
        return finish(figure, list(axes.flat), show=show, save=save)
