"""Embed new cells with the components of other cells."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core.spectral import LinearMap

from .. import _keys, _read, _select, _stored, _values, _write
from .._arguments import check_anndata, listed
from .._docs import documented


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

    cPCA, cPCA*, PCPCA and cLVM show the difference between conditions in new cells too; PCA+ and
    PCA++ leave it out. The new cells take no part in the fit. They are centred by the mean of the
    fit, and genes are matched by name, in any order. After a fit within donors, each cell is
    centred by the mean of its donor in the fit. If the donor was not in the fit, the mean of its
    new cells is used instead.

    Parameters
    ----------
    adata_new
        Annotated data matrix of the new cells, normalised in the same way as the cells of the fit.
        It must have all genes with non-zero loadings.
    adata_fitted
        Annotated data matrix on which `scanpy_ext.tl.cpca`, `cpca_star`, `pcpca`, `clvm`,
        `pca_plus` or `pca_pp` was run. Only `.var`, `.varm` and `.uns` are used, so
        `adata_fitted[:0]` is enough.
    key
        Name of the result in `adata_fitted.uns`: the name of the method, or the `key_added` that
        was given.
    layer
        The layer of `adata_new` to use, or `None` for `.X`. By default the layer of the fit.
    key_added
        Name of the result in `adata_new.obsm`, instead of the name in `adata_fitted.obsm`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsm['X_cpca' | key_added]` : `ndarray` (shape `(n_obs, n_comps)`)
        The scores of the new cells.
    `.uns['project']['X_cpca' | key_added]` : `dict`
        The entry `key` is the name of the result from which the scores were computed.

    Raises
    ------
    ValueError
        If there is no such result, or if it has no linear map, as after `cpca_path` or
        `kernel_cpca`. The error is also raised if genes are missing, if several genes have the same
        name, if there are NaN or infinite values, or if the result would replace an embedding that
        this package did not write.
    TypeError
        If the matrix has an unknown type.

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
    check_anndata(adata_new, "adata_new")
    fitted = _stored.restore(adata_fitted, key, "adata_fitted")
    keys = fitted.keys if key_added is None else _keys.new_keys(key, key_added)
    _write.check_free(adata_new, copy, "project", {"obsm": [keys.obsm]})
    used = np.flatnonzero(fitted.filters.any(axis=1))  # other genes do not affect the scores
    linear = LinearMap(mean=fitted.vector("mean")[used], projection=fitted.filters[used])
    if fitted.genes is None:
        obsm = str(fitted.params["obsm"])
        rows = _read.embedding(adata_new, obsm, owner="adata_new")
        if rows.shape[1] != len(fitted.filters):
            raise ValueError(
                f"{rows.name} has {rows.shape[1]} columns, but the embedding of the fit had "
                f"{len(fitted.filters)}. Give the scores of the new cells in the same embedding."
            )
        rows = rows.columns(used)
    else:
        chosen = fitted.params.get("layer") if layer is _select.DEFAULT else layer
        whole = _read.whole_matrix(adata_new, chosen, owner="adata_new")
        rows = whole.columns(_places(adata_new, fitted.genes[used]))
        _values.warn_of_values(rows)
        if (linear.mean >= 0).all() and "cap" not in fitted.table:
            mean = float(linear.mean.mean())
            _values.warn_of_other_scale(
                _values.mean_of_first(rows), mean, "adata_new", "the cells of the fit"
            )
    if "cap" in fitted.table:
        function = partial(_capped_scores, linear=linear, cap=fitted.vector("cap")[used])
        scores = rows.map(function, linear.projection.shape[1])
    else:
        scores = linear.transform(rows)
    scores = np.asarray(scores)
    scores = scores - fitted.centres(adata_new, scores, "adata_new")
    scores = scores.astype(np.float32 if rows.dtype == np.float32 else np.float64)
    entry = {keys.obsm: {"key": key}}
    result = _write.Result("project", entry, {"obsm": {keys.obsm: scores}}, adds=True)
    return _write.write(adata_new, result, copy=copy)


def _places(adata: AnnData, genes: pd.Index) -> NDArray[np.intp]:
    """Return the indices of the genes in `adata`, (n_genes,)."""
    names = adata.var_names
    missing = genes.difference(names, sort=False)
    if len(missing):
        raise ValueError(
            f"adata_new lacks {len(missing)} of the {len(genes)} genes of the components "
            f"({listed(list(missing), most=5)}). Fit on the genes that both have, with "
            "mask_var=, or give the genes the same names in both."
        )
    for owner, known in (("adata_new", names), ("adata_fitted", genes)):
        twice = known[known.duplicated() & known.isin(genes)].unique()
        if len(twice):
            raise ValueError(
                f"{owner} has several genes named {listed(list(twice), most=5)}. Make "
                f"them unique with {owner}.var_names_make_unique(), or drop all but one."
            )
    return np.asarray(names.get_indexer(genes))


def _capped_scores(rows: Any, linear: LinearMap, cap: NDArray[np.floating]) -> NDArray[np.floating]:
    """Cap the values of each gene, and return the scores of the rows; sparse rows stay sparse."""
    if not sp.issparse(rows):
        return linear.transform(np.minimum(rows, cap))
    rows = rows.copy()
    rows.data = np.minimum(rows.data, cap[rows.indices])
    return linear.transform(rows)
