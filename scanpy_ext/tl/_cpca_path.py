"""Contrastive PCA over a range of contrast strengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core import contrast_path
from contrast_core.feedback import muted

from .. import _write
from .._docs import documented
from .._read import contrast_input, on_all_genes
from .._select import DEFAULT, Default, Levels, Mask, cells


@documented
def cpca_path(
    adata: AnnData,
    *,
    groupby: str | None = None,
    reference: Levels | None = None,
    groups: Levels | None = None,
    foreground: Mask | None = None,
    background: Mask | AnnData | None = None,
    within: str | None = None,
    n_comps: int = 2,
    alphas: Sequence[float] | NDArray[np.floating] | None = None,
    n_representatives: int = 3,
    layer: str | None = None,
    obsm: str | None = None,
    mask_var: Mask | Default | None = DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
) -> AnnData | None:
    """Contrastive PCA over a grid of contrast strengths, with a few representative embeddings.

    cPCA keeps and sharpens the difference between conditions. Neighbouring strengths often give the
    same subspace. The strengths are therefore clustered by the angles between their subspaces, and
    the cells are embedded at one representative strength of each cluster [1]_ (Alg. 2).
    `scanpy_ext.pl.cpca_path` plots these embeddings.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`.
    {CELLS}
    {WITHIN}
    n_comps
        Number of components.
    alphas
        Contrast strengths, 0 or larger. By default, the grid consists of 0 and 40 values from 0.1
        to 1000 that are evenly spaced on a logarithmic scale.
    n_representatives
        Number of clusters of strengths, each with one representative. If the grid contains the
        strength 0, which is PCA of the foreground, it is added to the representatives.
    {DATA}
    {OBSM}
    key_added
        Name of the results, instead of `cpca_path`. It is the name in `.uns`; in `.obsm` and
        `.varm`, the names are `key_added + '_<i>'`.
    {COPY}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields, where `<i>`
    counts the representatives from 0 in the order of increasing alpha:

    `.obsm['X_cpca_path_<i>' | key_added + '_<i>']` : `ndarray` (shape `(n_obs, n_comps)`)
        The embedding of all cells at representative `<i>`.
    `.varm['PCs_cpca_path_<i>' | key_added + '_<i>']` : `ndarray` (shape `(n_vars, n_comps)`)
        The components (loadings) at representative `<i>`. Genes outside `mask_var` have zeros.
    `.uns['cpca_path' | key_added]['alphas']` : `ndarray` (shape `(n_alphas,)`)
        The grid.
    `.uns['cpca_path' | key_added]['representatives']` : `ndarray`
        Indices in `alphas` of all representatives, including the strength 0.
    `.uns['cpca_path' | key_added]['labels']` : `ndarray` (shape `(n_alphas,)`)
        The cluster of each alpha.
    `.uns['cpca_path' | key_added]['affinity']` : `ndarray` (shape `(n_alphas, n_alphas)`)
        Similarity of the subspaces at two alphas: the product of the cosines of the principal
        angles between them.
    `.uns['cpca_path' | key_added]['contrastive_eigenvalues']` : `ndarray` \
(shape `(n_alphas, n_comps)`)
        For each component, the foreground variance minus alpha times the background variance.
    `.uns['cpca_path' | key_added]['foreground_variance']` : `ndarray` \
(shape `(n_alphas, n_comps)`)
        Variance of the foreground cells along each component.
    `.uns['cpca_path' | key_added]['background_variance']` : `ndarray` \
(shape `(n_alphas, n_comps)`)
        Variance of the background cells along each component.
    `.uns['cpca_path' | key_added]['loadings']` : `ndarray` \
(shape `(number of representatives, n_dimensions, n_comps)`)
        Only with `obsm`: the loadings of the representatives, instead of those in `.varm`.
    `.uns['cpca_path' | key_added]['n_foreground' | 'n_background']` : `int`
        Number of cells.
    `.uns['cpca_path' | key_added]['params']` : `dict`
        The arguments that were given.

    Raises
    ------
    {RAISES}

    Notes
    -----
    {EXPECTS}

    References
    ----------
    .. [1] Abid, Zhang, Bagaria, Zou (2018). Exploring patterns enriched in a dataset with
       contrastive principal component analysis. Nature Communications 9, 2134.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> counts = np.random.default_rng(0).poisson(2.0, size=(60, 8)).astype("float32")
    >>> adata = anndata.AnnData(np.log1p(counts))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 30
    >>> cx.tl.cpca_path(adata, groupby="condition", reference="ctrl", n_representatives=2)
    >>> sorted(adata.obsm)
    ['X_cpca_path_0', 'X_cpca_path_1', 'X_cpca_path_2']
    """
    keys = _write.reserve(adata, copy, "cpca_path", key_added)
    selection = cells(adata, groupby, reference, groups, foreground, background)
    data = contrast_input(adata, selection, n_comps, layer, obsm, mask_var, within=within)
    path = contrast_path(
        data.foreground,
        background=data.background,
        n_components=n_comps,
        alphas=alphas,
        n_representatives=n_representatives,
        random_state=0,  # seed of the k-means that clusters the strengths
        **data.strata,
    )
    chosen = np.asarray(path.representatives)
    if path.alphas[0] == 0 and chosen[0] != 0:
        chosen = np.array([0, *chosen])  # PCA of the foreground, for comparison
    with muted():  # negative eigenvalues are normal at large alphas, and they are stored
        models = [path.at(alpha) for alpha in path.alphas[chosen]]
    entry: dict[str, Any] = {
        "params": data.params | {"n_representatives": n_representatives},
        "alphas": path.alphas,
        "representatives": chosen,
        "labels": path.labels,
        "affinity": path.affinity,
        "contrastive_eigenvalues": path.eigenvalues,
        "foreground_variance": path.foreground_variances,
        "background_variance": path.background_variances,
    }
    parts = [keys.part(i) for i in range(len(models))]
    slots: dict[str, dict[str, Any]] = {
        "obsm": {part.obsm: data.embed(model) for part, model in zip(parts, models, strict=True)}
    }
    loadings = [model.components_.T for model in models]
    if data.features is None:
        entry["loadings"] = np.stack(loadings)
    else:
        slots["varm"] = {
            part.varm: on_all_genes(table, data.features)
            for part, table in zip(parts, loadings, strict=True)
        }
    result = _write.Result(keys.uns, entry | data.sizes, slots)
    return _write.write(adata, result, copy=copy)
