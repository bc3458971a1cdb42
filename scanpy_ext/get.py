"""Tables about what `scanpy_ext.tl` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from . import _keys
from ._select import check_anndata, check_component, check_count, is_among, listed, quoted

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["mixing_report", "top_genes"]


def top_genes(
    adata: AnnData, component: int = 1, n: int | None = 20, *, key: str = _keys.CPCA.varm
) -> pd.DataFrame:
    """The genes with the largest loadings of a component, with their signs.

    Of cPCA, cPCA* and PCPCA, which keep and sharpen the difference between conditions, these are
    the genes that make it. Genes of one sign are higher in the cells at that end of the component;
    which end is positive has no meaning.

    Parameters
    ----------
    adata
        Annotated data matrix with loadings in `.varm`.
    component
        The component, counted from 1 as in `scanpy_ext.pl.loadings`.
    n
        Number of genes, or `None` for all. Genes with a loading of zero are left out.
    key
        Where the loadings are in `.varm`: `"cPCs"`, `"PCs_pcpca"`, a `key_added`, ...

    Returns
    -------
    A DataFrame with a row per gene, named by it, in descending order of the absolute loading, and
    these columns:

    `loading`
        The loading, with its sign.
    `weight`
        The squared loading, relative to the largest.
    `rank`
        From 1, within the genes of the same sign.

    Raises
    ------
    ValueError
        If there are no loadings under `key`, or no such component.

    Examples
    --------
    >>> import numpy as np, anndata, scanpy_ext as cx
    >>> adata = anndata.AnnData(np.zeros((2, 3)))
    >>> adata.var_names = ["a", "b", "c"]
    >>> adata.varm["cPCs"] = np.array([[0.6], [0.0], [-0.8]])
    >>> cx.get.top_genes(adata)["loading"].to_dict()
    {'c': -0.8, 'a': 0.6}
    """
    check_anndata(adata)
    if not is_among(key, adata.varm):
        raise ValueError(
            f"adata.varm has no loadings {quoted(key)}; it has {listed(list(adata.varm))}. "
            "Run scanpy_ext.tl.cpca first, or name them with key=."
        )
    table = np.asarray(adata.varm[key])
    component = check_component(component, table.shape[1])
    if n is not None:
        n = min(check_count(n, "n"), adata.n_vars)
    loading = table[:, component - 1]
    order = np.argsort(-np.abs(loading), kind="stable")
    order = order[loading[order] != 0]
    genes = pd.DataFrame({"loading": loading[order]}, index=adata.var_names[order])
    genes["weight"] = (genes["loading"] / genes["loading"].abs().max()) ** 2
    genes["rank"] = genes.groupby(genes["loading"] > 0).cumcount() + 1
    return genes.iloc[:n]


def mixing_report(
    adata: AnnData,
    condition: str,
    cell_type: str,
    *,
    reps: Sequence[str] = ("X_pca", "X_pca_plus", "X_pca_pp"),
    resolution: float = 1.0,
    n_seeds: int = 3,
    random_state: int = 0,
) -> pd.DataFrame:
    """How well embeddings mix the conditions, and how well they keep cell types apart.

    Judge by both: an embedding without any structure mixes perfectly. Cells without a condition
    or a cell type are left out; nothing is written.

    Parameters
    ----------
    adata
        Annotated data matrix with embeddings in `.obsm`.
    condition
        Column of `adata.obs` that tells the conditions apart.
    cell_type
        Column of `adata.obs` with cell types.
    reps
        The embeddings to compare, by their names in `.obsm`. Names of the default that are not
        there are left out.
    resolution
        Of the Leiden clusters.
    n_seeds
        Leiden's clusters depend on its seed: the scores of so many are averaged.
    random_state
        The first of these seeds.

    Returns
    -------
    A DataFrame with a row for each of `reps` and these columns:

    `mixing_ari`
        Adjusted Rand index of clusters and condition within a cell type, averaged over the types
        that both conditions have [1]_ (Table 12). Lower is better mixed; 0 is chance.
    `silhouette_condition`
        Silhouette score by condition. Lower is better mixed; about 0 when fully.
    `cell_type_ari`
        Adjusted Rand index of clusters and cell type. Higher is better.
    `silhouette_cell_type`
        Silhouette score by cell type. Higher is better.
    `transfer`
        Fraction of the cells whose type is that of most of their 15 nearest neighbours among the
        cells of the other conditions, averaged over conditions. Higher is better.

    Raises
    ------
    ValueError
        If a column or an embedding does not exist, or there are fewer than two conditions or cell
        types.

    References
    ----------
    .. [1] PCA++: How uniformity induces robustness to background noise in contrastive learning.

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
    from sklearn.metrics import silhouette_score

    check_anndata(adata)
    for argument, name in {"condition": condition, "cell_type": cell_type}.items():
        if not is_among(name, adata.obs.columns):
            raise ValueError(
                f"{argument}: adata.obs has no column {quoted(name)}. "
                f"Its columns are {listed([str(column) for column in adata.obs.columns])}."
            )
    if isinstance(reps, str):
        reps = [reps]
    default = ("X_pca", "X_pca_plus", "X_pca_pp")
    if tuple(reps) == default:
        reps = [rep for rep in default if rep in adata.obsm]
    if missing := [rep for rep in reps if rep not in adata.obsm]:
        raise ValueError(f"adata.obsm has no {listed(missing)}; it has {listed(list(adata.obsm))}.")
    if not reps:
        raise ValueError("adata.obsm has no embedding to report on: name some with reps=.")
    n_seeds = check_count(n_seeds, "n_seeds")
    labels = adata.obs[[condition, cell_type]]
    known = labels.notna().all(axis=1).to_numpy()
    conditions, types = (labels[name].to_numpy()[known].astype(str) for name in labels)
    for name, values in {condition: conditions, cell_type: types}.items():
        if len(np.unique(values)) < 2:
            raise ValueError(
                f"adata.obs[{name!r}] has {len(np.unique(values))} level(s) with cells; at least "
                "two are needed to compare."
            )

    rows = {}
    for rep in reps:
        scores = np.asarray(adata.obsm[rep])[known]
        clusterings = _leiden(scores, resolution, range(random_state, random_state + n_seeds))
        mixing, identity = _rand_indices(clusterings, conditions, types)
        rows[rep] = {
            "mixing_ari": mixing,
            "silhouette_condition": silhouette_score(scores, conditions),
            "cell_type_ari": identity,
            "silhouette_cell_type": silhouette_score(scores, types),
            "transfer": _transfer(scores, conditions, types),
        }
    return pd.DataFrame.from_dict(rows, orient="index").astype(float)


def _leiden(
    scores: NDArray[np.floating], resolution: float, seeds: Sequence[int]
) -> list[NDArray[Any]]:
    import anndata
    import scanpy as sc

    cells = anndata.AnnData(obsm={"X": scores})
    sc.pp.neighbors(cells, n_neighbors=min(15, len(scores) - 1), use_rep="X")
    found = []
    for seed in seeds:
        sc.tl.leiden(
            cells,
            resolution=resolution,
            flavor="igraph",
            n_iterations=2,
            directed=False,
            random_state=seed,
        )
        found.append(cells.obs["leiden"].to_numpy(dtype=str))
    return found


def _rand_indices(
    clusterings: list[NDArray[Any]], conditions: NDArray[Any], types: NDArray[Any]
) -> tuple[float, float]:
    """Mean ARI with the condition within cell types, and with the cell type."""
    from sklearn.metrics import adjusted_rand_score

    inside = [types == name for name in np.unique(types)]
    mixed = [
        adjusted_rand_score(conditions[cells], clusters[cells])
        for clusters in clusterings
        for cells in inside
        if len(np.unique(conditions[cells])) > 1
    ]
    identity = [adjusted_rand_score(types, clusters) for clusters in clusterings]
    return float(np.mean(mixed)) if mixed else float("nan"), float(np.mean(identity))


def _transfer(scores: NDArray[np.floating], conditions: NDArray[Any], types: NDArray[Any]) -> float:
    """Accuracy of 15-nearest-neighbour classification of one condition by the others."""
    from sklearn.neighbors import KNeighborsClassifier

    accuracies = []
    for name in np.unique(conditions):
        here = conditions == name
        classifier = KNeighborsClassifier(min(15, int((~here).sum())))
        accuracies.append(
            classifier.fit(scores[~here], types[~here]).score(scores[here], types[here])
        )
    return float(np.mean(accuracies))
