"""Tables about what `scanpy_ext.tl` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from . import _keys
from ._arguments import check_anndata, check_component, check_count, check_flag, is_among, quoted
from ._loadings import loadings_of
from ._mixing import mixing_report

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["contrasts", "loadings", "mixing_report", "top_genes"]


def contrasts(adata: AnnData, *, key: str = _keys.CPCA.uns) -> pd.DataFrame:
    """Which levels respond, and by which genes: the table of `scanpy_ext.tl.cpca` with `by=`.

    Parameters
    ----------
    adata
        Annotated data matrix on which `scanpy_ext.tl.cpca` was run with `by=`.
    key
        Name of the result in `.uns`: the method's, or the `key_added` that was given.

    Returns
    -------
    A DataFrame with a row for each level and component, as `scanpy_ext.tl.cpca` says.

    Raises
    ------
    ValueError
        If there is no such result.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(80, 5)))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 40
    >>> adata.obs["cell_type"] = ["B"] * 40 + ["T"] * 40
    >>> cx.tl.cpca(adata, groupby="condition", reference="ctrl", by="cell_type", alpha=1.0)
    >>> cx.get.contrasts(adata)["level"].to_list()
    ['B', 'B', 'T', 'T']
    """
    check_anndata(adata)
    result = adata.uns[key] if isinstance(key, str) and is_among(key, adata.uns) else None
    if not isinstance(result, Mapping) or "contrasts" not in result:
        raise ValueError(
            f"adata.uns has no result {quoted(key)} of scanpy_ext.tl.cpca with by=: run it first, "
            "or name its key_added with key=."
        )
    return pd.DataFrame(result["contrasts"]).copy()


def loadings(
    adata: AnnData,
    *,
    key: str = _keys.CPCA.uns,
    level: str | float | None = None,
    tidy: bool = False,
) -> pd.DataFrame:
    """The loadings as a table, genes by components, or in long form.

    Of cPCA, cPCA*, PCPCA and cLVM, which keep and sharpen the difference between conditions, they
    say how much each gene has a part in it; of PCA+ and PCA++ in what is left without it.

    Parameters
    ----------
    adata
        Annotated data matrix on which a method of `scanpy_ext.tl` was run.
    key
        Name of the result in `.uns`: the method's, or the `key_added` that was given.
    level
        Of a result with several sets of loadings, which: the level of `by=`, the number of the
        representative of `scanpy_ext.tl.cpca_path` (from 0), or `"shared"` of `scanpy_ext.tl.clvm`.
    tidy
        A row for each gene and component, with the columns `gene`, `component` and `loading`.

    Returns
    -------
    A DataFrame with a row per gene, named by it, and a column per component, counted from 1. Genes
    that were not in use have zeros. Of an embedding (`obsm=`), its dimensions instead of genes.

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
    n_genes, k = table.shape
    return pd.DataFrame(
        {
            "gene": np.tile(table.index.to_numpy(), k),
            "component": np.repeat(table.columns.to_numpy(), n_genes),
            "loading": table.to_numpy().T.ravel(),
        }
    )


def top_genes(
    adata: AnnData,
    component: int | None = 1,
    n: int | None = 20,
    *,
    key: str = _keys.CPCA.uns,
    level: str | float | None = None,
) -> pd.DataFrame:
    """The genes with the largest loadings of a component, or of each, with their signs.

    Of cPCA, cPCA* and PCPCA, which keep and sharpen the difference between conditions, these are
    the genes that make it. Genes of one sign are higher in the cells at that end of the component;
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
    """The genes of one component, largest loadings first."""
    order = np.argsort(-np.abs(loading.to_numpy()), kind="stable")
    order = order[loading.to_numpy()[order] != 0]
    genes = pd.DataFrame({"loading": loading.iloc[order]})
    genes["weight"] = (genes["loading"] / genes["loading"].abs().max()) ** 2
    genes["rank"] = genes.groupby(genes["loading"] > 0).cumcount() + 1
    return genes.iloc[:n]
