"""New cells on the components of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from .. import _keys, _matrix, _read, _select, _write
from .._docs import documented

if TYPE_CHECKING:
    from anndata import AnnData


@documented
def project(
    adata_new: AnnData,
    adata_fitted: AnnData,
    *,
    key: str = "cpca",
    layer: str | _select.Default | None = _select.DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Embed new cells with the components that were fitted to other cells.

    What the method did to the effect it does to new cells too: cPCA, cPCA* and PCPCA show the
    difference between conditions, PCA+ and PCA++ leave it out. The new cells take no part in the
    fit; each is centred by the mean of the fit. Genes are matched by name, in any order.

    Parameters
    ----------
    adata_new
        Annotated data matrix of the new cells, normalised as those of the fit were. It must have
        all genes with a part in the components.
    adata_fitted
        What `scanpy_ext.tl.cpca`, `cpca_star`, `pcpca`, `pca_plus` or `pca_pp` was run on. Only
        `.var_names`, `.varm` and `.uns` are used: `adata_fitted[:0]` does as well.
    key
        Name of the result in `adata_fitted.uns`.
    layer
        The layer of `adata_new` to use, `None` for `.X`. By default the one of the fit.
    key_added
        Name of the result in `adata_new.obsm`, instead of that of the fit.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets this field:

    `.obsm['X_cpca' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The scores of the new cells.

    Raises
    ------
    ValueError
        If there is no such result or it cannot be carried over (a path, a kernel), genes are
        missing or twice there, or there are NaN or infinite values.
    TypeError
        If the matrix is of an unknown kind.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> counts = np.random.default_rng(0).poisson(2.0, size=(60, 8)).astype("float32")
    >>> adata = anndata.AnnData(np.log1p(counts))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 30
    >>> old, new = adata[:40].copy(), adata[40:, ::-1].copy()
    >>> cx.tl.cpca(old, groupby="condition", reference="ctrl", alpha=1.0)
    >>> cx.tl.project(new, old)
    >>> new.obsm["X_cpca"].shape
    (20, 2)
    """
    keys, result = _read.linear_result(adata_fitted, key)
    params = result.get("params", {})
    mean = np.asarray(result["mean"])
    cap = np.asarray(result["cap"]) if "cap" in result else None
    if "obsm" in params:
        matrix = _read.embedding(adata_new, str(params["obsm"]))
        filters = np.asarray(result["filters"] if "filters" in result else result["loadings"])
        if matrix.shape[1] != len(filters):
            raise ValueError(
                f"adata_new.obsm[{params['obsm']!r}] has {matrix.shape[1]} columns, but that of "
                f"the fit had {len(filters)}: give the new cells' scores in the same embedding."
            )
    else:
        tables = adata_fitted.varm
        name = _keys.filters(keys)
        filters = np.asarray(tables[name] if name in tables else tables[keys.varm])
        used = np.flatnonzero(filters.any(axis=1))
        places = _places(adata_new, adata_fitted.var_names[used])
        chosen = params.get("layer") if layer is _select.DEFAULT else layer
        in_use = np.zeros(adata_new.n_vars, dtype=bool)
        in_use[places] = True
        matrix = _matrix.with_columns(_read.whole_matrix(adata_new, chosen), in_use)
        order = used[np.argsort(places)]  # genes come in the order of the new cells
        filters, mean = filters[order], mean[order]
        cap = None if cap is None else cap[order]

    def scores(rows: Any) -> NDArray[np.floating]:
        if cap is not None:
            rows = _capped(rows, cap)
        return np.asarray(rows @ filters - mean @ filters)

    embedding = _matrix.apply(scores, matrix, filters.shape[1])
    target = keys.obsm if key_added is None else keys.added(key_added).obsm
    return _write.write(adata_new, obsm={target: embedding}, uns={}, copy=copy)


def _places(adata: AnnData, genes: pd.Index) -> NDArray[np.intp]:
    """Where the genes are in `adata`, (n_genes,)."""
    names = adata.var_names
    missing = genes.difference(names, sort=False)
    if len(missing):
        raise ValueError(
            f"adata_new lacks {len(missing)} of the {len(genes)} genes of the components "
            f"({_select.listed(list(missing), most=5)}). Fit on the genes that both have, with "
            "mask_var=, or name genes alike in both."
        )
    twice = names[names.duplicated() & names.isin(genes)].unique()
    if len(twice):
        raise ValueError(
            f"adata_new has several genes named {_select.listed(list(twice), most=5)}. Make them "
            "unique with adata_new.var_names_make_unique(), or drop all but one."
        )
    return np.asarray(names.get_indexer(genes))


def _capped(rows: Any, cap: NDArray[np.floating]) -> Any:
    """Values above the cap of their gene set to it; sparse rows stay sparse."""
    if not sp.issparse(rows):
        return np.minimum(rows, cap)
    rows = rows.copy()
    rows.data = np.minimum(rows.data, cap[rows.indices])
    return rows
