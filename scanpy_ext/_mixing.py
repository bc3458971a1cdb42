"""Report on how well embeddings mix conditions and keep cell types apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core.feedback import check_count, check_number, shown
from contrast_core.pairing import mixing_scores

from ._arguments import check_anndata, is_among, listed
from ._select import column

_DEFAULT = ("X_pca", "X_pca_plus", "X_pca_pp")


def mixing_report(
    adata: AnnData,
    groupby: str,
    cell_type: str,
    *,
    reps: Sequence[str] = _DEFAULT,
    resolution: float = 1.0,
    n_seeds: int = 3,
    max_cells: int | None = 20_000,
    random_state: int = 0,
) -> pd.DataFrame:
    """Report how well embeddings mix the conditions, and how well they keep cell types apart.

    Judge an embedding by both measures, because an embedding without any structure mixes perfectly.
    Cells without a condition or a cell type are left out. Nothing is written into `adata`.

    Parameters
    ----------
    adata
        Annotated data matrix with embeddings in `.obsm`.
    groupby
        Column of `adata.obs` with the conditions.
    cell_type
        Column of `adata.obs` with cell types.
    reps
        Names in `.obsm` of the embeddings to compare. By default `X_pca`, `X_pca_plus` and
        `X_pca_pp`, as far as they exist.
    resolution
        Resolution of the Leiden clusters.
    n_seeds
        Number of seeds of the Leiden clusters. The scores are averaged over the seeds.
    max_cells
        Largest number of cells to use. If there are more cells, this many are drawn at random. All
        embeddings are compared on the same cells. `None` uses all cells. The computing time grows
        with the square of the number of cells.
    random_state
        Seed of the draw of cells, and the first seed of the Leiden clusters.

    Returns
    -------
    A DataFrame with a row for each of `reps` and these columns:

    `mixing_ari`
        Adjusted Rand index of clusters and condition within a cell type, averaged over the types
        that occur in more than one condition [1]_ (Table 12). Lower values mean better mixing, and
        0 is the value of random clusters.
    `silhouette_condition`
        Silhouette score by condition. Lower values mean better mixing. The score is about 0 for
        perfect mixing.
    `cell_type_ari`
        Adjusted Rand index of clusters and cell type. Higher is better.
    `silhouette_cell_type`
        Silhouette score by cell type. Higher is better.
    `transfer`
        Fraction of the cells that have the same type as most of their 15 nearest neighbours in the
        other conditions, averaged over conditions. Higher is better.
    `ilisi`
        Effective number of conditions among the neighbours of a cell (LISI [2]_ at perplexity 30).
        The median over the cells is scaled so that 0 means one condition and 1 means equal shares
        of all conditions. Higher values mean better mixing.
    `kbet`
        Fraction of the cells that pass the chi-squared test of kBET [3]_ at level .05, averaged
        over the types with at least 20 cells. The test compares the shares of the conditions among
        a cell's nearest neighbours of its own type with their shares in the whole type. Higher
        values mean better mixing. With perfect mixing, about .95 is expected for large types, and
        more for small ones.
    `n_cells`
        Number of cells that the scores were computed from.

    Raises
    ------
    ValueError
        If a column or an embedding does not exist, or there are fewer than two conditions or cell
        types.
    TypeError
        If an argument has the wrong type.

    References
    ----------
    .. [1] PCA++: How uniformity induces robustness to background noise in contrastive learning.
    .. [2] Korsunsky et al. (2019). Fast, sensitive and accurate integration of single-cell data
       with Harmony. Nature Methods 16.
    .. [3] Büttner et al. (2019). A test metric for assessing single-cell RNA-seq batch correction.
       Nature Methods 16.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> adata = anndata.AnnData(np.zeros((80, 1)))
    >>> adata.obs["condition"] = ["ctrl", "stim"] * 40
    >>> adata.obs["cell_type"] = ["T"] * 40 + ["B"] * 40
    >>> rng = np.random.default_rng(0)
    >>> adata.obsm["X_pca"] = rng.normal(size=(80, 2)) + 20.0 * (np.arange(80) < 40)[:, None]
    >>> float(cx.get.mixing_report(adata, "condition", "cell_type").loc["X_pca", "transfer"])
    1.0
    """
    check_anndata(adata)
    columns = {"groupby": groupby, "cell_type": cell_type}
    labels = pd.DataFrame({name: column(adata, columns[name], name) for name in columns})
    names = [reps] if isinstance(reps, str) or not isinstance(reps, Iterable) else list(reps)
    if names == list(_DEFAULT):
        names = [rep for rep in names if rep in adata.obsm]
    missing = [shown(rep) for rep in names if not is_among(rep, adata.obsm)]
    if missing or not names:
        raise ValueError(
            f"reps: adata.obsm has no {', '.join(missing) or 'embedding to report on'}; it has "
            f"{listed(list(adata.obsm))}."
        )
    resolution = check_number(resolution, "resolution", above=0)
    n_seeds = check_count(n_seeds, "n_seeds")
    seed = check_count(random_state, "random_state", at_least=0)
    known = np.flatnonzero(labels.notna().all(axis=1).to_numpy())
    if max_cells is not None and len(known) > (n := check_count(max_cells, "max_cells")):
        known = np.sort(np.random.default_rng(seed).choice(known, n, replace=False))
    conditions, types = (labels[name].to_numpy()[known].astype(str) for name in labels)
    for name, values in ((groupby, conditions), (cell_type, types)):
        if len(np.unique(values)) < 2:
            raise ValueError(
                f"adata.obs[{name!r}] has {len(np.unique(values))} level(s) with cells; at least "
                "two are needed to compare."
            )

    rows = {}
    for rep in names:
        scores = np.asarray(adata.obsm[rep])[known]
        clusterings = leiden(scores, range(seed, seed + n_seeds), resolution)
        rows[rep] = mixing_scores(scores, conditions, types, clusterings)
    return pd.DataFrame.from_dict(rows, orient="index").astype(float).assign(n_cells=len(known))


def leiden(
    scores: NDArray[np.floating], seeds: Iterable[int | None], resolution: float = 1.0
) -> list[NDArray[Any]]:
    """Return Leiden clusters of cells in an embedding, for each of several seeds."""
    import anndata
    import scanpy as sc

    cells = anndata.AnnData(obsm={"X": scores}, shape=(len(scores), 0))
    # The neighbours are exact, because the approximate search fails with some combinations of
    # versions of scanpy and pynndescent.
    k = min(15, len(scores) - 1)
    sc.pp.neighbors(cells, n_neighbors=k, use_rep="X", transformer="sklearn")
    found = []
    options = {"flavor": "igraph", "n_iterations": 2, "directed": False}
    for seed in seeds:
        sc.tl.leiden(cells, resolution=resolution, random_state=seed, **options)
        found.append(cells.obs["leiden"].to_numpy(dtype=str))
    return found
