"""Tables of the results of `scanpy_ext.tl`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from contrast_core.feedback import check_count, check_flag, shown

from . import _keys
from ._arguments import listed, text
from ._mixing import mixing_report
from ._stored import stored_result

__all__ = ["contrasts", "loadings", "mixing_report", "top_genes"]


def contrasts(adata: AnnData, *, key: str = "contrasts") -> pd.DataFrame:
    """Return the table of `scanpy_ext.tl.contrasts`: which levels respond, and in which genes.

    The levels are the values of the column that was given as `by`, such as cell types.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.contrasts` was run.
    key
        Name of the result in `.uns`: `contrasts`, or the `key_added` that was given.

    Returns
    -------
    A DataFrame with a row for each level. Levels with evidence of a response come first: their
    interval is above 1, and their adjusted p-value is at most 0.05. (Without donors, p-values over
    cells are used to sort the table.) Other levels follow, and levels that could not be compared
    come last. Each of these three parts is sorted by decreasing ratio. The index holds the names of
    the levels. The columns are:

    `n_foreground`, `n_background`
        Number of cells of the condition and of the reference.
    `n_foreground_donors`, `n_background_donors`
        Number of donors of the condition and of the reference; 0 if no donors were given.
    `ratio`
        Cross-fitted ratio of foreground to background along the direction that separates the two
        sets best. The ratio is `1 + d ** 2`, where d is the difference of the two means in standard
        deviations of the reference. The difference is measured on cells that had no part in
        choosing the direction. If d is negative, the ratio is `1 - d ** 2`. Without a response the
        ratio is about 1. If both sets vary equally along the direction, `1 + d ** 2` is the mean
        squared distance of the condition's cells from the mean of the reference, divided by the
        mean squared distance of the reference cells.
    `ratio_low`, `ratio_high`
        The ends of the ratio's 95% interval. The column `interval` says whether it is an interval
        over donors or, exploratory, over cells.
    `p_value`, `p_adjusted`
        The one-sided p-value over donors, and the p-value after adjustment for the number of levels
        (Benjamini-Hochberg). Both are NaN without donors.
    `top_genes`
        The ten genes with the largest loadings, each with its stability in parentheses. The
        stability is described in `scanpy_ext.tl.contrasts`.
    `left_out`
        Donors that were left out, because they have fewer than ten cells to compare.
    `reason`
        The reason why a level could not be compared; its other columns are then NaN. In these
        messages X is the condition, rows are cells and units are donors.

    Raises
    ------
    ValueError
        If there is no such result.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(80, 5)))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 40
    >>> adata.obs["cell_type"] = ["B"] * 70 + ["T"] * 10
    >>> cx.tl.contrasts(adata, groupby="condition", reference="ctrl", by="cell_type")
    >>> cx.get.contrasts(adata).loc["T", "reason"]
    'fewer than 10 cells of the condition or of the reference'
    """
    return pd.DataFrame(stored_result(adata, key, "tl.contrasts", "table")["table"]).copy()


def loadings(
    adata: AnnData,
    *,
    key: str = "cpca",
    level: str | float | None = None,
    tidy: bool = False,
) -> pd.DataFrame:
    """Return the loadings as a table of genes by components, or in long form.

    cPCA, cPCA*, PCPCA and cLVM keep and sharpen the difference between conditions: their loadings
    say how much each gene contributes to it. PCA+ and PCA++ remove that difference.

    Parameters
    ----------
    adata
        Annotated data matrix on which a method of `scanpy_ext.tl` was run.
    key
        Name of the result in `.uns`: the name of the method, or the `key_added` that was given.
    level
        The set of loadings to return, if the result has several sets. For
        `scanpy_ext.tl.cpca_path`, give the number of a representative strength, from 0. For
        `scanpy_ext.tl.clvm`, `"shared"` gives the shared loadings; by default, the salient loadings
        are returned.
    tidy
        Whether to return the table in long form, with a row for each gene and component and the
        columns `gene`, `component` and `loading`.

    Returns
    -------
    A DataFrame with a row per gene and a column per component, counted from 1. The index holds the
    gene names. Genes that were not in use have zeros. If the method was run with `obsm=`, there is
    a row for each dimension of that embedding instead.

    Raises
    ------
    ValueError
        If there is no such result or level, or it has no loadings.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(40, 3)))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 20
    >>> cx.tl.cpca(adata, groupby="condition", reference="ctrl", alpha=0.0)
    >>> cx.get.loadings(adata).shape, cx.get.loadings(adata, tidy=True).columns.to_list()
    ((3, 2), ['gene', 'component', 'loading'])
    """
    result = stored_result(adata, key, "tl with loadings", "params")
    sets = _sets(adata, _keys.keys_of(key), result)
    chosen = None if level is None else text(level)
    if chosen not in sets:
        named = [each for each in sets if each is not None]
        what = "have no levels; leave level out"
        if named:
            other = ", or leave level out" if None in sets else ""
            what = f"have the levels {listed(named)}; give one of them{other}"
        raise ValueError(f"level={shown(level)}: the loadings of adata.uns[{key!r}] {what}.")
    table, names = sets[chosen], list(adata.var_names)
    if table is None:
        raise ValueError(
            f"adata.uns[{key!r}] has no loadings in adata.varm, which has "
            f"{listed(list(adata.varm))}. Kernel cPCA has no loadings."
        )
    if "obsm" in result["params"]:
        names = _keys.dimensions(str(result["params"]["obsm"]), len(table))
    columns = pd.RangeIndex(1, np.shape(table)[1] + 1, name="component")
    found = pd.DataFrame(np.asarray(table), pd.Index(names), columns)
    if not check_flag(tidy, "tidy"):
        return found
    found = found.rename_axis("gene")
    return found.melt(value_name="loading", ignore_index=False).reset_index()


def top_genes(
    adata: AnnData,
    component: int | None = 1,
    n: int | None = 20,
    *,
    key: str = "cpca",
    level: str | float | None = None,
) -> pd.DataFrame:
    """Return the genes with the largest loadings of one component, or of every component.

    cPCA, cPCA* and PCPCA keep and sharpen the difference between conditions: these are the genes
    that differ. Genes with positive loadings are higher in the cells with positive scores, and
    genes with negative loadings are higher in the cells with negative scores. The sign of a whole
    component has no meaning.

    Parameters
    ----------
    adata
        Annotated data matrix on which a method of `scanpy_ext.tl` was run.
    component
        The component, counted from 1 as in `scanpy_ext.pl.loadings`, or `None` for all.
    n
        Number of genes of each component, or `None` for all. Genes with a loading of zero are left
        out.
    key, level
        The name of the result and the set of its loadings, as in `scanpy_ext.get.loadings`.

    Returns
    -------
    A DataFrame with a row per gene, in descending order of the absolute loading. The index holds
    the gene names. The columns are:

    `component`
        The number of the component. This column exists only with `component=None`, and the table is
        sorted by it first.
    `loading`
        The loading, with its sign.
    `weight`
        The squared loading, divided by the largest squared loading of the component.
    `rank`
        Rank among the genes with a loading of the same sign, from 1.

    Raises
    ------
    ValueError
        If there is no such result, level or component, or no loadings.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> rng = np.random.default_rng(0)
    >>> adata = anndata.AnnData(rng.normal(size=(40, 3)) * [1, 1, 5])
    >>> adata.var_names = ["a", "b", "c"]
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 20
    >>> cx.tl.cpca(adata, groupby="condition", reference="ctrl", alpha=0.0)
    >>> cx.get.top_genes(adata, n=1).index.to_list()
    ['c']
    """
    table = loadings(adata, key=key, level=level)
    if n is not None:
        n = min(check_count(n, "n"), len(table))
    if component is not None:
        component = check_count(component, "component", at_most=table.shape[1])
        return _top(table[component], n)
    parts = {number: _top(table[number], n) for number in table}
    for number, part in parts.items():
        part.insert(0, "component", number)
    return pd.concat(parts.values())


def _top(loading: pd.Series[Any], n: int | None) -> pd.DataFrame:
    """Return the genes of one component, largest loadings first."""
    order = np.argsort(-np.abs(loading.to_numpy()), kind="stable")
    order = order[loading.to_numpy()[order] != 0]
    genes = pd.DataFrame({"loading": loading.iloc[order]})
    genes["weight"] = (genes["loading"] / genes["loading"].abs().max()) ** 2
    genes["rank"] = genes.groupby(genes["loading"] > 0).cumcount() + 1
    return genes.iloc[:n]


def _sets(adata: AnnData, keys: _keys.Keys, result: Mapping[str, Any]) -> dict[str | None, Any]:
    """Return a dictionary from the level of each set of loadings to the set.

    The level of the main set of a result is None. The value is None if a set is missing.
    """
    stored = result.get("loadings")  # present only for the dimensions of an embedding
    if "representatives" in result:
        numbers = range(len(result["representatives"]))
        if stored is not None:
            return {str(i): stored[i] for i in numbers}
        return {str(i): adata.varm.get(keys.part(i).varm) for i in numbers}
    found: dict[str | None, Any] = {None: adata.varm.get(keys.varm) if stored is None else stored}
    shared = adata.varm.get(keys.part("shared").varm)
    return found if shared is None else found | {"shared": shared}
