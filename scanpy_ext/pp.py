"""Preprocessing: positive pairs of cells, and whether a contrast is sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from . import _pairs, _read, _select, _write
from ._check import contrast_check
from ._docs import documented

if TYPE_CHECKING:
    from anndata import AnnData

    from contrast_core.feedback import Progress

__all__ = ["contrast_check", "match_pairs"]


@documented
def match_pairs(
    adata: AnnData,
    condition: str,
    reference: _select.Level,
    donor: str | None = None,
    *,
    cell_type: str | None = None,
    method: Literal["neighbors", "clusters"] = "neighbors",
    clusters: str | None = None,
    n_neighbors: int = 10,
    mutual: bool = True,
    max_pairs: int | None = 300,
    search: Literal["auto", "exact", "approximate"] = "auto",
    n_comps: int = 20,
    layer: str | None = None,
    mask_var: _select.Mask | _select.Default | None = _select.DEFAULT,
    key_added: str | None = None,
    copy: bool = False,
    random_state: int | None = 0,
    progress: Progress = False,
) -> AnnData | None:
    """Pair each donor's stimulated cells with control cells of the same kind.

    Cells are destroyed when they are measured, so that none is seen under both conditions. Pairs
    that stand for it: genes at unit variance (cut 10 standard deviations above the mean), the
    mean of each donor and condition subtracted, one PCA of all cells, and in it the mutual
    nearest neighbours within each donor. `scanpy_ext.tl.pca_pp` and `tl.pca_plus` are fitted on
    them. No cell type is used for pairing.

    Parameters
    ----------
    adata
        Annotated data matrix of shape `(n_obs, n_vars)`: log-normalised counts.
    {PAIRING}
    cell_type
        Column of `adata.obs` with cell types, only to report how many pairs join one type.
    method
        `"neighbors"`: neighbours among all cells of a donor. `"clusters"`: the variant of the
        PCA++ paper [1]_, neighbours within matched clusters; clusters are matched one to one
        within a donor, by the cosine of their centroids.
    clusters
        Column of `adata.obs` with the clusters of `method="clusters"`. By default Leiden
        clusters of each donor and condition (needs the package igraph).
    n_neighbors
        How many neighbours of each cell count.
    mutual
        Whether both cells of a pair must be among the neighbours of the other. With `False` one
        of the two suffices: all cells are paired, also those of a type that the other condition
        lacks.
    max_pairs
        With `method="clusters"`, how many pairs each two clusters have at most: the nearest.
    search
        `"exact"` neighbours through scikit-learn, `"approximate"` ones through pynndescent, or
        `"auto"`: exact unless a donor has very many cells.
    n_comps
        Number of principal components in which neighbours are found.
    {DATA}
    key_added
        Name of the results instead of `pairs`.
    {COPY}
    random_state
        Seed of the Leiden clusters and of the approximate neighbours. All else is deterministic.
    {PROGRESS}

    Returns
    -------
    `None`, or the updated copy with `copy=True`. Sets these fields:

    `.obsp['pairs' | key_added]` : `csr_matrix` (shape `(n_obs, n_obs)`)
        1 where the stimulated cell of the row is paired with the control cell of the column. Not
        symmetric.
    `.obsp['pairs_distances' | key_added + '_distances']` : `csr_matrix` (shape `(n_obs, n_obs)`)
        The distance of the two cells.
    `.uns['pairs' | key_added]['n_pairs']` : `int`
        Number of pairs.
    `.uns['pairs' | key_added]['n_effective']` : `float`
        How many independent pairs they are worth, cells being in several (Kish).
    `.uns['pairs' | key_added]['coverage_stimulated' | 'coverage_control']` : `float`
        Fraction of the cells that are in a pair.
    `.uns['pairs' | key_added]['same_cell_type']` : `float`
        With `cell_type`: fraction of the pairs that join cells of one type.
    `.uns['pairs' | key_added]['median_distance']` : `float`
        Median distance of the pairs.
    `.uns['pairs' | key_added]['n_without_donor']` : `int`
        How many cells have a condition but no donor.
    `.uns['pairs' | key_added]['donors']` : `DataFrame`
        A row per donor: cells, pairs, coverage and median distance.
    `.uns['pairs' | key_added]['cell_types']` : `DataFrame`
        With `cell_type`, a row per type: cells, paired cells, and the fraction of its stimulated
        cells' pairs that join one type.
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
    The cells that may be paired and the genes in use are held in memory twice, as read and scaled:
    sparse ones stay sparse, for no mean is subtracted from the values themselves. {LOADED}

    References
    ----------
    .. [1] PCA++: How uniformity induces robustness to background noise in contrastive learning,
       Appendix I.2. The common basis and the optimal assignment are departures: bases fitted to
       each condition separately are not comparable.

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
    _write.check_writable(adata, copy)
    matrix, _, params = _read.read_matrix(
        adata, layer=layer, mask_var=mask_var, n_comps=n_comps, progress=progress
    )
    pairs = _pairs.find(
        adata,
        matrix,
        condition,
        reference,
        donor,
        cell_type=cell_type,
        method=method,
        clusters=clusters,
        n_neighbors=n_neighbors,
        mutual=mutual,
        max_pairs=max_pairs,
        search=search,
        n_comps=n_comps,
        params=params,
        key=key_added,
        random_state=random_state,
    )
    return _write.write(adata, obsp=pairs.obsp, uns=pairs.uns, copy=copy)
