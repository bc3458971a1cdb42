"""Tables of the results of `scanpy_ext.tl`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData

from ._arguments import check_component, check_count, check_flag
from ._loadings import loadings_of
from ._mixing import mixing_report
from ._result import stored_result

__all__ = ["contrasts", "loadings", "mixing_report", "top_genes"]


def contrasts(adata: AnnData, *, key: str = "contrasts") -> pd.DataFrame:
    """Return which levels respond, and by which genes: the table of `scanpy_ext.tl.contrasts`.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.contrasts` was run.
    key
        Name of the result in `.uns`: `contrasts`, or the `key_added` that was given.

    Returns
    -------
    A DataFrame with a row for each level, named by it: first those whose interval is above
    1 and whose adjusted p-value is at most 0.05 (over cells where there are no donors), each in
    descending order of the ratio, last those that could not be compared. Its columns:

    `n_foreground`, `n_background`
        Cells of the condition and of the reference.
    `n_foreground_donors`, `n_background_donors`
        Their donors; 0 if none were given.
    `ratio`
        Cross-fitted foreground : background ratio: the mean squared distance from the reference's
        mean, along the direction of the level, relative to that of the reference cells. It is 1
        plus the squared difference of the two means in standard deviations of the reference, on
        cells that did not choose the direction (1 minus, where they differ the other way). Without
        a response it is about 1.
    `ratio_low`, `ratio_high`
        Its 95% interval, and in `interval` what it is over: donors, or (exploratory) cells.
    `p_value`, `p_adjusted`
        Over donors, one-sided, and adjusted over the levels (Benjamini-Hochberg); NaN without
        donors.
    `top_genes`
        The ten genes of largest loading, each with its stability in parentheses.
    `left_out`
        Donors that were left out: fewer than ten cells where they would be compared.
    `reason`
        Why a level could not be compared, where X is the condition, rows are cells and units are
        donors; its other columns are then NaN.

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
    'fewer than 10 cells on a side'
    """
    return pd.DataFrame(stored_result(adata, key, "tl.contrasts", "table")["table"]).copy()


def loadings(
    adata: AnnData,
    *,
    key: str = "cpca",
    level: str | float | None = None,
    tidy: bool = False,
) -> pd.DataFrame:
    """Return the loadings as a table, genes by components, or in long form.

    cPCA, cPCA*, PCPCA and cLVM keep and sharpen the difference between conditions: their loadings
    say how much each gene contributes to it. PCA+ and PCA++ remove that difference.

    Parameters
    ----------
    adata
        Annotated data matrix on which a method of `scanpy_ext.tl` was run.
    key
        Name of the result in `.uns`: the method's, or the `key_added` that was given.
    level
        Which set of loadings, for a result with several: the number of the
        representative of `scanpy_ext.tl.cpca_path` (from 0), or `"shared"` for
        `scanpy_ext.tl.clvm`.
    tidy
        Return a row for each gene and component, with the columns `gene`, `component` and
        `loading`.

    Returns
    -------
    A DataFrame with a row per gene, named by it, and a column per component, counted from 1. Genes
    that were not in use have zeros. With `obsm=` there is a row for each dimension instead.

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
    table = loadings_of(adata, key, level)
    if not check_flag(tidy, "tidy"):
        return table
    table = table.rename_axis("gene")
    return table.melt(value_name="loading", ignore_index=False).reset_index()


def top_genes(
    adata: AnnData,
    component: int | None = 1,
    n: int | None = 20,
    *,
    key: str = "cpca",
    level: str | float | None = None,
) -> pd.DataFrame:
    """Return the genes with the largest loadings of a component, or of each, with their signs.

    cPCA, cPCA* and PCPCA keep and sharpen the difference between conditions: these are the genes
    that make it. Genes of one sign are higher in the cells at that end of the component;
    which end is positive has no meaning.

    Parameters
    ----------
    adata
        Annotated data matrix on which a method of `scanpy_ext.tl` was run.
    component
        The component, counted from 1 as in `scanpy_ext.pl.loadings`, or `None` for all.
    n
        Number of genes of each, or `None` for all. Genes with a loading of zero are left out.
    key, level
        The result, and which set of its loadings: see `scanpy_ext.get.loadings`.

    Returns
    -------
    A DataFrame with a row per gene, named by it, in descending order of the absolute loading, and
    these columns:

    `component`
        Only with `component=None`; the components one after the other.
    `loading`
        The loading, with its sign.
    `weight`
        The squared loading, relative to the largest.
    `rank`
        From 1, within the genes of the same sign.

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
    table = loadings_of(adata, key, level)
    if n is not None:
        n = min(check_count(n, "n"), len(table))
    if component is not None:
        return _top(table[check_component(component, table.shape[1])], n)
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
