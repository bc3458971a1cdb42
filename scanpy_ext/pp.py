"""Preprocessing: check the choice of cells, choose genes, and find positive pairs of cells."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
from anndata import AnnData

from contrast_core.feedback import check_count, warn
from contrast_core.moments import FeatureMoments, split_feature_moments

from . import _keys, _pairs, _read, _select, _values, _write
from ._check import contrast_check
from ._docs import documented

__all__ = ["contrast_check", "genes_by_variance", "match_pairs"]

_LOST = 0.3  # largest share of the chosen genes that `highly_variable` may lack without a warning


@documented
def genes_by_variance(
    adata: AnnData,
    n_top_genes: int = 2000,
    *,
    cells: _select.Mask | None = None,
    layer: str | None = None,
    key_added: str = "most_variable",
    copy: bool = False,
) -> AnnData | None:
    """Mark the genes with the largest variance, so that `mask_var=` can select them.

    `sc.pp.highly_variable_genes` chooses genes that vary more than other genes of the same mean. It
    favours genes of rare cell types, and leaves out many strongly expressed genes that respond to a
    condition in every cell. In PCA and cPCA, the influence of a gene depends on its variance
    without correction for the mean. This function chooses genes by the same measure.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`: log-normalised counts.
    n_top_genes
        Number of genes. Genes that do not vary are never chosen.
    cells
        Cells from which the variance is computed: a mask of shape `(n_obs,)`, or the name of a
        boolean column of `adata.obs`. By default all cells. Include the foreground and the
        background of the contrast: a choice of genes from one set alone favours that set.
    layer
        Use `adata.layers[layer]` instead of `adata.X`.
    key_added
        Name of the column of `adata.var`. Avoid `highly_variable`, which other functions use by
        default.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.var['most_variable' | key_added]` : `bool`
        Whether the gene is chosen. Use it as `mask_var="most_variable"`.
    `.var['most_variable_variance' | key_added + '_variance']` : `float`
        Variance of the gene, with divisor n.
    `.uns['genes_by_variance']['most_variable' | key_added]` : `dict`
        The argument `n_top_genes`.

    Raises
    ------
    ValueError
        If a layer or mask does not exist or selects nothing, no gene varies, or there are NaN or
        infinite values.
    TypeError
        If a mask is not boolean, or the matrix is of an unknown kind.

    Warns
    -----
    contrast_core.ContrastWarning
        If `adata.var["highly_variable"]`, the default of `mask_var`, lacks many of the chosen
        genes, or if the values look like raw counts or like genes scaled to unit variance, or are
        too large for logarithms.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(60, 4)) * [1, 4, 2, 3])
    >>> cx.pp.genes_by_variance(adata, 2)
    >>> adata.var["most_variable"].to_list()
    [False, True, False, True]
    """
    _keys.checked(key_added)
    names = [key_added, f"{key_added}_variance"]
    _write.check_free(adata, copy, "genes_by_variance", {"var": names})
    n_top_genes = check_count(n_top_genes, "n_top_genes")
    mask = np.ones(adata.n_obs, dtype=bool)
    if cells is not None:
        mask = _select.boolean_mask(adata, cells, axis="obs", argument="cells")
    rows = _read.whole_matrix(adata, layer)
    if rows.in_memory:
        rows.check()
        _values.warn_of_values(rows)
    # The mask selects at least one cell, so the result is not None.
    moments = cast("FeatureMoments", split_feature_moments(rows, [mask])[0])
    variance = moments.variance
    if not np.isfinite(variance).all():  # values that are not in memory were not checked above
        rows.check()
    order = np.argsort(-variance, kind="stable")[:n_top_genes]
    order = order[moments.varies[order]]
    if not order.size:
        raise ValueError(f"no gene of {rows.name} varies among these cells.")
    chosen = np.zeros(adata.n_vars, dtype=bool)
    chosen[order] = True
    default = "highly_variable"
    if default in adata.var and key_added != default:
        lost = 1 - float(adata.var[default].to_numpy(dtype=bool)[chosen].mean())
        if lost > _LOST:
            warn(
                f"{lost:.0%} of the {len(order)} genes of largest variance are not marked in "
                f"adata.var[{default!r}], which is used by default. The responses of these "
                f"unmarked genes to a condition would be lost. Give mask_var={key_added!r}."
            )
    entry = {key_added: {"n_top_genes": n_top_genes}}
    slots = {"var": dict(zip(names, (chosen, variance), strict=True))}
    result = _write.Result("genes_by_variance", entry, slots, adds=True)
    return _write.write(adata, result, copy=copy)


@documented
def match_pairs(
    adata: AnnData,
    groupby: str,
    reference: _select.Level,
    donor: str | None = None,
    *,
    cell_type: str | None = None,
    method: Literal["neighbors", "clusters"] = "neighbors",
    clusters: str | None = None,
    n_neighbors: int = 10,
    mutual: bool = True,
    n_comps: int = 20,
    layer: str | None = None,
    mask_var: _select.Mask | _select.Default | None = _select.DEFAULT,
    key_added: str = "pairs",
    copy: bool = False,
    random_state: int | None = 0,
) -> AnnData | None:
    """Pair each donor's stimulated cells with control cells of the same kind.

    A cell is destroyed when it is measured, so no cell is seen under both conditions. Pairs of
    similar cells replace the missing measurements. First, genes are scaled to unit variance, and
    values are capped 10 standard deviations above the mean. Then the mean of each donor and
    condition is subtracted, and all cells are projected on the components of one PCA. A stimulated
    and a control cell of the same donor are paired if they are mutual nearest neighbours in this
    projection. Cell types are not used for pairing. `scanpy_ext.tl.pca_pp` and
    `scanpy_ext.tl.pca_plus` are fitted to the pairs.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`: log-normalised counts.
    {PAIRING}
    cell_type
        Column of `adata.obs` with cell types. It is used only to report how many pairs join cells
        of the same type.
    method
        `"neighbors"` pairs neighbours among all cells of a donor. `"clusters"` pairs neighbours
        within matched clusters, as in the PCA++ paper [1]_. Clusters are matched one to one within
        a donor, by the cosine of their centroids, and each match gives at most its 300 nearest
        pairs.
    clusters
        Column of `adata.obs` with clusters for `method="clusters"`. By default, Leiden clusters are
        computed for each donor and condition, which needs the package igraph.
    n_neighbors
        Number of neighbours of each cell.
    mutual
        Whether each cell of a pair must be among the neighbours of the other cell. With `False`, it
        is enough if one cell is a neighbour of the other. Then all cells are paired, even cells of
        a type that the other condition lacks.
    n_comps
        Number of principal components in which neighbours are found.
    {DATA}
    key_added
        Name of the results.
    {COPY}
    random_state
        Seed of the Leiden clusters, and of the search for neighbours, which is approximate if a
        donor has more than a billion pairs of a stimulated and a control cell. Nothing else is
        random.

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsp['pairs' | key_added]` : `csr_matrix` (shape `(n_obs, n_obs)`)
        1 if the stimulated cell of the row is paired with the control cell of the column. The
        matrix is not symmetric.
    `.obsp['pairs_distances' | key_added + '_distances']` : `csr_matrix` (shape `(n_obs, n_obs)`)
        Distance between the two cells of each pair.
    `.uns['pairs' | key_added]['n_pairs']` : `int`
        Number of pairs.
    `.uns['pairs' | key_added]['n_effective']` : `float`
        Effective number of pairs (Kish's formula), since a cell can be in several pairs.
    `.uns['pairs' | key_added]['coverage_stimulated' | 'coverage_control']` : `float`
        Fraction of the stimulated cells, or of the control cells, that are in a pair.
    `.uns['pairs' | key_added]['same_cell_type']` : `float`
        With `cell_type`: fraction of the pairs that join cells of the same type.
    `.uns['pairs' | key_added]['median_distance']` : `float`
        Median of the distances between the two cells of a pair.
    `.uns['pairs' | key_added]['n_without_donor']` : `int`
        Number of cells with a condition but no donor.
    `.uns['pairs' | key_added]['donors']` : `DataFrame`
        Numbers of cells and pairs, coverage and median distance of each donor.
    `.uns['pairs' | key_added]['cell_types']` : `DataFrame`
        With `cell_type`: numbers of cells and of paired cells of each type. The column
        `same_cell_type` refers to the pairs in which the stimulated cell has this type. It is the
        fraction of these pairs in which the control cell has this type too.
    `.uns['pairs' | key_added]['params']` : `dict`
        The arguments that were given.

    Raises
    ------
    ValueError
        If a column, level, layer or gene mask does not exist or selects nothing, no donor has
        both conditions, or there are NaN or infinite values.
    TypeError
        If a mask is not boolean, or the matrix is of an unknown kind.

    Warns
    -----
    contrast_core.ContrastWarning
        If donors or cell types have cells of one condition only, cells have no donor, or the
        values look like raw counts.

    Notes
    -----
    Two copies of the cells and genes in use are held in memory: the values as read, and the scaled
    values. Sparse data stay sparse, because the means are subtracted implicitly. {LOADED}

    References
    ----------
    .. [1] PCA++: How uniformity induces robustness to background noise in contrastive learning,
       Appendix I.2. This function departs from the paper in two points. It uses one basis for both
       conditions, because bases that are fitted to each condition separately cannot be compared,
       and it matches clusters by an optimal assignment.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> rng = np.random.default_rng(0)
    >>> adata = anndata.AnnData(rng.normal(size=(60, 8)))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 30
    >>> adata.obs["donor"] = ["a"] * 30 + ["b"] * 30
    >>> cx.pp.match_pairs(adata, "condition", "ctrl", "donor", n_comps=5, n_neighbors=3)
    >>> adata.obsp["pairs"].nnz == adata.uns["pairs"]["n_pairs"]
    True
    """
    _keys.checked(key_added)
    _write.check_free(adata, copy, key_added, {"obsp": [key_added, _keys.distances_of(key_added)]})
    matrix, _, params = _read.read_matrix(adata, layer=layer, mask_var=mask_var, n_comps=n_comps)
    options = {
        "cell_type": cell_type,
        "method": method,
        "clusters": clusters,
        "n_neighbors": n_neighbors,
        "mutual": mutual,
        "n_comps": n_comps,
        "random_state": random_state,
    }
    result = _pairs.find(adata, matrix, groupby, reference, donor, key_added, params, **options)
    return _write.write(adata, result, copy=copy)
