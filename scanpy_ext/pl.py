"""Plots of what `scanpy_ext.tl` wrote. scanpy and matplotlib are imported when first used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _keys
from ._select import listed, text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from anndata import AnnData
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["contrast_check", "contrast_curve", "loadings", "pairs", "path", "scree"]

_FLOOR = 1e-3  # of the widest axis: what varies less is drawn as not varying


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
    floor = _FLOOR * float(max(spans))
    with _figure(len(colors), len(alphas), size=(3.4, 3.2)) as (figure, axes):
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
        return _finish(figure, list(axes.flat), show=show, save=save)


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
    with _figure(1, len(components), size=size) as (figure, axes):
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
        return _finish(figure, list(axes.flat), show=show, save=save)


def pairs(
    adata: AnnData,
    *,
    key: str | None = None,
    show: bool | None = None,
    save: str | PathLike[str] | None = None,
) -> list[Axes] | None:
    """What positive pairs were found: how many per donor, which cells they cover, how near.

    Three panels: pairs per donor; the fraction of each donor's stimulated and control cells
    that are in a pair; the distribution of the pairs' distances, a line per donor.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.pp.match_pairs` was run.
    key
        The `key_added` of `scanpy_ext.pp.match_pairs`, if one was given.
    show
        Whether to show the figure. By default as scanpy is set, and not if it is saved.
    save
        File to save the figure to; the figure is closed then, unless it is shown or returned.

    Returns
    -------
    The three axes if `show=False`; else `None`.

    Raises
    ------
    ValueError
        If there are no pairs under `key`.
    """
    keys = _keys.pairs(key)
    if keys.uns not in adata.uns or keys.distances not in adata.obsp:
        raise ValueError(
            f"adata.uns has no pairs {keys.uns!r}: run scanpy_ext.pp.match_pairs first"
            f"{'' if key is None else f' with key_added={key!r}'}."
        )
    result = adata.uns[keys.uns]
    table = result["donors"]
    names = [str(name) for name in table.index]
    spot = np.arange(len(names))
    with _figure(1, 3, size=(3.2, 0.9 + 0.28 * max(len(names), 6))) as (figure, axes):
        counts, coverage, distances = axes[0]
        counts.barh(spot, table["n_pairs"], color="tab:grey")
        counts.set(title=f"{result['n_pairs']} pairs", xlabel="pairs")
        sides = {"stimulated": "tab:red", "control": "tab:blue"}
        for offset, (side, color) in zip((-0.2, 0.2), sides.items(), strict=True):
            total = result[f"coverage_{side}"]
            values = table[f"coverage_{side}"]
            label = f"{side} ({total:.0%})"
            coverage.barh(spot + offset, values, height=0.4, color=color, label=label)
        coverage.set(xlim=(0, 1), xlabel="fraction of cells in a pair", title="coverage")
        figure.legend(handles=coverage.containers, loc="outside lower center", ncols=2)
        for ax in (counts, coverage):
            ax.set_yticks(spot, names)
            ax.invert_yaxis()

        stored = adata.obsp[keys.distances].tocsr()
        owner = _owners(adata, result["params"].get("donor"))
        edges = np.histogram_bin_edges(stored.data, bins=30)
        for name in table.index[table["n_pairs"] > 0]:
            values = stored[np.flatnonzero(owner == name)].data
            distances.hist(values, bins=edges, histtype="step", density=True, label=name)
        distances.set(title=f"median distance {result['median_distance']:.3g}")
        distances.set(xlabel="distance of a pair", ylabel="density")
        if 1 < len(names) <= 10:
            distances.legend(fontsize="small")
        for ax in axes.flat:
            ax.grid(visible=False)
            ax.spines[["top", "right"]].set_visible(False)
        return _finish(figure, list(axes.flat), show=show, save=save)


def _owners(adata: AnnData, donor: str | None) -> NDArray[Any]:
    """The donor of each cell, as text; one for all without such a column."""
    if donor is None or donor not in adata.obs.columns:
        return np.full(adata.n_obs, "all cells", dtype=object)
    return np.array([text(value) for value in adata.obs[donor].to_numpy()], dtype=object)


def contrast_curve(
    adata: AnnData,
    *,
    component: int | None = None,
    key: str | None = None,
    show: bool | None = None,
    save: str | PathLike[str] | None = None,
) -> list[Axes] | None:
    """What each contrast strength gains and costs: variance kept against variance avoided.

    A dot per strength of `scanpy_ext.tl.cpca_path`; the representatives are named. From PCA of
    the foreground (top right) on, a stronger contrast gives up foreground variance for less
    background variance. cPCA keeps and sharpens the difference between conditions: a strength
    after the background's share has fallen, before the foreground's does, shows it best.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.cpca_path` was run.
    component
        A component, counted from 1. By default the sum over all.
    key
        The `key_added` of `scanpy_ext.tl.cpca_path`, if one was given.
    show
        Whether to show the figure. By default as scanpy is set, and not if it is saved.
    save
        File to save the figure to; the figure is closed then, unless it is shown or returned.

    Returns
    -------
    A list of the one axes, if `show=False`; else `None`.

    Raises
    ------
    ValueError
        If there is no result of `scanpy_ext.tl.cpca_path` under `key`, or no such component.
    """
    keys = _keys.CPCA_PATH.added(key)
    result = _stored(adata, keys.uns, "alphas", "scanpy_ext.tl.cpca_path", key)
    n_components = np.shape(result["foreground_variance"])[1]
    if component is not None and not 1 <= component <= n_components:
        raise ValueError(f"component={component}: expected a number from 1 to {n_components}.")
    columns = slice(None) if component is None else slice(component - 1, component)
    foreground, background = (
        np.asarray(result[f"{side}_variance"])[:, columns].sum(axis=1)
        for side in ("foreground", "background")
    )
    # The same floor as an axis has: rounding has a logarithm too, but it says nothing.
    background = np.maximum(background, _FLOOR**2 * background.max())
    with _figure(1, 1, size=(4.2, 3.4)) as (figure, axes):
        ax = axes[0, 0]
        ax.plot(background, foreground, ".-", color="0.6", zorder=1)
        for i in np.asarray(result["representatives"]):
            ax.plot(background[i], foreground[i], "o", color="tab:red", zorder=2)
            ax.annotate(
                f"alpha = {np.asarray(result['alphas'])[i]:.3g}",
                (background[i], foreground[i]),
                xytext=(6, -3),
                textcoords="offset points",
                va="top",
                fontsize="small",
            )
        what = "all components" if component is None else f"component {component}"
        ax.set(
            xscale="log",
            xlabel="variance of the background",
            ylabel="variance of the foreground",
            title=what,
        )
        ax.margins(x=0.2, y=0.1)
        ax.grid(visible=False)
        ax.spines[["top", "right"]].set_visible(False)
        return _finish(figure, [ax], show=show, save=save)


def scree(
    adata: AnnData,
    *,
    key: str = "significance",
    show: bool | None = None,
    save: str | PathLike[str] | None = None,
) -> list[Axes] | None:
    """The eigenvalue of each component against chance, and how stable the component is.

    From `scanpy_ext.tl.significance`. Left: the eigenvalues, and what 95% of the relabelled data
    stay below; the p-values are written beside them, as exploratory where cells were permuted and
    not donors. Right: how well a component is met again when donors are drawn with replacement.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.significance` was run.
    key
        Name of its result in `.uns`.
    show
        Whether to show the figure. By default as scanpy is set, and not if it is saved.
    save
        File to save the figure to; the figure is closed then, unless it is shown or returned.

    Returns
    -------
    The two axes, if `show=False`; else `None`.

    Raises
    ------
    ValueError
        If there is no such result.
    """
    result = _stored(adata, key, "components", "scanpy_ext.tl.significance", None)
    table = result["components"]
    exploratory = bool(result["exploratory"])
    p_values = table["exploratory_p_value" if exploratory else "p_value"]
    spot = np.arange(1, len(table) + 1)
    with _figure(1, 2, size=(3.6, 3.2)) as (figure, axes):
        left, right = axes[0]
        left.plot(spot, table["null_95"], "_", color="0.5", markersize=22, label="95% of chance")
        left.plot(spot, table["statistic"], "o", color="tab:red", label="eigenvalue")
        for x, y, p in zip(spot, table["statistic"], p_values, strict=True):
            left.annotate(
                f"p = {p:.2g}",
                (x, y),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
            )
        by = "by cell: exploratory" if exploratory else f"by {result['unit']}"
        left.set(title=f"significance, {by}", ylabel="leading eigenvalue")
        left.legend(fontsize="small")
        right.bar(spot - 0.2, table["stability"], width=0.4, label="same component")
        right.bar(spot + 0.2, table["retention"], width=0.4, label="same subspace")
        right.set(ylim=(0, 1.3), title=f"stability, {by}", ylabel="mean squared cosine")
        right.set_yticks(np.linspace(0, 1, 6))
        right.legend(fontsize="small", loc="upper left", ncols=2)
        for ax in (left, right):
            ax.set(xticks=spot, xlabel="component")
            ax.set_xlim(0.4, len(table) + 0.9)
            ax.grid(visible=False)
            ax.spines[["top", "right"]].set_visible(False)
        left.margins(y=0.15)
        return _finish(figure, [left, right], show=show, save=save)


def contrast_check(
    adata: AnnData,
    *,
    key: str = "contrast_check",
    show: bool | None = None,
    save: str | PathLike[str] | None = None,
) -> list[Axes] | None:
    """What a contrast stands on: its cells, and its ratio beside that of donors alone.

    From `scanpy_ext.pp.contrast_check`. Left: the make-up of foreground and background; a type
    that the background lacks fakes an effect. Right: the cross-fitted ratio (red) and those of one
    donor's controls against another's (grey), which a real contrast exceeds.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.pp.contrast_check` was run.
    key
        Name of its result in `.uns`.
    show
        Whether to show the figure. By default as scanpy is set, and not if it is saved.
    save
        File to save the figure to; the figure is closed then, unless it is shown or returned.

    Returns
    -------
    The two axes, if `show=False`; else `None`.

    Raises
    ------
    ValueError
        If there is no such result.
    """
    result = _stored(adata, key, "counts", "scanpy_ext.pp.contrast_check", None)
    counts, ratios = result["counts"], result["ratios"]
    by = [name for name in ("donor", "cell_type") if name in counts]
    names = counts[by].astype(str).agg(", ".join, axis=1) if by else ["all cells"]
    sides = ["foreground", "background"]
    shares = counts[sides] / counts[sides].sum()
    spot = np.arange(len(counts))
    height = max(2.6, 0.8 + 0.28 * max(len(counts), len(ratios)))
    with _figure(1, 2, size=(4.6, height)) as (figure, axes):
        cells, ratio = axes[0]
        for side, shift, color in zip(sides, (-0.2, 0.2), ("tab:red", "0.6"), strict=True):
            cells.barh(spot + shift, shares[side], height=0.4, color=color, label=side)
            for y, share, n in zip(spot + shift, shares[side], counts[side], strict=True):
                cells.annotate(
                    f" {int(n)}", (share, y), va="center", fontsize="x-small", color="0.3"
                )
        cells.set_yticks(spot, names)
        cells.invert_yaxis()
        cells.set(xlabel="share of the cells (number)", title="foreground and background")
        cells.margins(x=0.15)
        figure.legend(handles=cells.containers, loc="outside lower left", ncols=2)
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
        for ax in (cells, ratio):
            ax.grid(visible=False)
            ax.spines[["top", "right"]].set_visible(False)
        return _finish(figure, [cells, ratio], show=show, save=save)


def _stored(adata: AnnData, name: str, entry: str, function: str, key: str | None) -> Any:
    """An entry of `adata.uns`, checked to be what `function` wrote."""
    result = adata.uns.get(name)
    if not isinstance(result, Mapping) or entry not in result:
        raise ValueError(
            f"adata.uns has no result {name!r} of {function}: run it first"
            f"{'' if key is None else f' with key_added={key!r}'}."
        )
    return result


def _widen(ax: Axes, floor: float) -> None:
    """Let neither axis be shorter than `floor`: rounding is not to fill a panel."""
    for get, put in ((ax.get_xlim, ax.set_xlim), (ax.get_ylim, ax.set_ylim)):
        low, high = get()
        if high - low < floor:
            middle = (low + high) / 2
            put(middle - floor / 2, middle + floor / 2)


@contextmanager
def _figure(
    n_rows: int, n_columns: int, *, size: tuple[float, float]
) -> Iterator[tuple[Figure, Any]]:
    """A figure with panels of `size` inches, closed again if drawing or saving fails."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(size[0] * n_columns + 0.8, size[1] * n_rows),
        layout="constrained",
        squeeze=False,
    )
    try:
        yield figure, axes
    except BaseException:
        plt.close(figure)
        raise


def _finish(
    figure: Figure, axes: list[Axes], *, show: bool | None, save: str | PathLike[str] | None
) -> list[Axes] | None:
    """Save and show; hand the axes to the caller if `show=False`, as scanpy does."""
    import scanpy as sc
    from matplotlib import pyplot as plt

    if save is not None:
        figure.savefig(save, dpi=150)
    if show is False:
        return axes
    if show or (show is None and save is None and sc.settings.autoshow):
        plt.show()
    elif save is not None:
        plt.close(figure)
    return None
