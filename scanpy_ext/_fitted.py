"""A fitted linear method, restored from the slots of an AnnData."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contrast_core import LinearMap

from . import _keys, _read
from ._arguments import listed, quoted

if TYPE_CHECKING:
    from anndata import AnnData

Floats = NDArray[np.float64]


def centres(
    labels: NDArray[np.str_],
    scores: NDArray[np.floating],
    groups: NDArray[Any],
    known: NDArray[np.floating],
) -> Floats:
    """What each cell's scores are centred by, (n_obs, k), after a fit within donors.

    Its donor's mean scores, `known` (n_groups, k), and of another donor the mean of these cells.
    """
    means = dict(zip(map(str, groups), known, strict=True))
    found = np.empty(scores.shape)
    for label in np.unique(labels):
        rows = labels == label
        found[rows] = means[label] if label in means else scores[rows].mean(axis=0)
    return found


def of_donors(
    adata: AnnData,
    result: Mapping[str, Any],
    scores: NDArray[np.floating],
    name: str = "adata",
) -> Floats:
    """What the scores of cells are centred by after this fit within donors, by their donors."""
    labels = _read.known_labels(
        adata, str(result["params"]["within"]), f"the fit was within donors, but {name}"
    )
    return centres(labels, scores, result["within_groups"], result["within_scores"])


@dataclass(frozen=True)
class Fitted:
    """What a linear method wrote, for the genes in use.

    Attributes
    ----------
    keys
        The slots.
    params
        The arguments that were given.
    genes, places
        Names of the genes in use, and where they are; None and all for dimensions of an embedding.
    loadings, filters
        (n_features, n_comps): the components, and what gives scores.
    means
        Vectors (n_features,) by name: `mean`, and `background_mean` or `cap` where there is one.
    """

    keys: _keys.Keys
    params: Mapping[str, Any]
    genes: pd.Index | None
    places: NDArray[np.intp]
    loadings: Floats
    filters: Floats
    means: Mapping[str, Floats]

    def scores(self) -> tuple[LinearMap, NDArray[np.intp]]:
        """The map to scores from the features with a part in them, and which these are."""
        self._check_linear()
        used = np.flatnonzero(self.filters.any(axis=1))
        return LinearMap(mean=self.means["mean"][used], projection=self.filters[used]), used

    def _check_linear(self) -> None:
        for name, value in (("robust", "entries"), ("likelihood", "counts")):
            if self.params.get(name) == value:
                raise ValueError(
                    f"adata.uns[{self.keys.uns!r}] is of scanpy_ext.tl.clvm with {name}={value!r}, "
                    "which weighs every value of a cell: its scores are not linear. Run it on old "
                    "and new cells together, or on logarithms with robust='rows' or none."
                )

    def projector(self) -> LinearMap:
        """The projector on the span of the loadings, along what the filters do not see.

        Raises
        ------
        ValueError
            If there are no components of genes with a background's mean, or scores are not linear.
        """
        self._check_linear()
        if self.genes is None or "background_mean" not in self.means:
            raise ValueError(
                f"adata.uns[{self.keys.uns!r}] cannot be used for denoising: that needs components "
                "of genes, from scanpy_ext.tl.cpca, cpca_star, pcpca or clvm without obsm=."
            )
        mean, other = self.means["mean"], self.means["background_mean"]
        # Of scores that are shrunk, as posterior means are; those shrunk to zero are lost.
        back = np.linalg.pinv(self.loadings.T @ self.filters) @ self.loadings.T
        return LinearMap(
            mean=mean,
            projection=self.filters,
            reconstruction=back,
            offsets={"foreground": mean, "difference": mean - other, "none": np.zeros_like(mean)},
        )


def restore(adata: AnnData, key: str) -> Fitted:
    """The result of a linear method named `key`, with all that the fit used.

    Vectors of a value for each gene lie in `.var` and matrices in `.varm`, where they follow the
    genes when these are chosen or reordered.

    Raises
    ------
    ValueError
        If there is no such result, it has no components, some of its genes are gone, or an
        earlier version wrote it, with vectors that do not follow the genes.
    """
    keys = _keys.linear(str(key))
    result = adata.uns.get(keys.uns) if isinstance(key, str) else None
    if not isinstance(result, Mapping):
        raise ValueError(
            f"adata.uns has no result {quoted(key)}; it has "
            f"{listed([str(name) for name in adata.uns])}. Run scanpy_ext.tl.cpca first, or "
            "name the result with key=."
        )
    params = result.get("params", {})
    if _keys.LEVELS in result:
        raise ValueError(
            f"adata.uns[{key!r}] has a contrast for each level of adata.obs[{params['by']!r}], "
            "and here one is expected. Fit that level alone: give the masks foreground= and "
            "background=, and key_added=."
        )
    if "loadings" in result and "mean" in result:
        loadings = np.asarray(result["loadings"], dtype=np.float64)
        filters = np.asarray(result.get("filters", loadings), dtype=np.float64)
        names = [name for name in _keys.VECTORS if name in result]
        means = {name: np.asarray(result[name]) for name in names}
        return Fitted(keys, params, None, np.arange(len(loadings)), loadings, filters, means)
    if keys.varm not in adata.varm or "obsm" in params:
        raise ValueError(
            f"adata.uns[{key!r}] holds no linear method with its components: expected a result of "
            "scanpy_ext.tl.cpca, cpca_star, pcpca, clvm, pca_plus or pca_pp. A kernel has none: "
            "run scanpy_ext.tl.kernel_cpca on old and new cells together, which embeds all."
        )
    marks = _keys.vector(keys, _keys.IN_USE)
    if marks not in adata.var:
        early = "an earlier version kept the means in .uns, where they do not follow the genes. "
        raise ValueError(
            f"adata.var has no column {marks!r} with the genes of adata.uns[{key!r}]: "
            f"{early if 'mean' in result else ''}Run the method again."
        )
    used = adata.var[marks].to_numpy(dtype=bool)
    n_features = int(params["n_features"])
    if used.sum() != n_features:
        raise ValueError(
            f"adata has {int(used.sum())} of the {n_features} genes that adata.uns[{key!r}] was "
            "fitted to. Take the AnnData before genes were dropped, or fit again."
        )
    columns = {name: _keys.vector(keys, name) for name in _keys.VECTORS}
    filters_key = _keys.filters(keys)
    return Fitted(
        keys,
        params,
        adata.var_names[used],
        np.flatnonzero(used),
        np.asarray(adata.varm[keys.varm])[used],
        np.asarray(adata.varm[filters_key if filters_key in adata.varm else keys.varm])[used],
        {
            name: adata.var[column].to_numpy(dtype=np.float64)[used]
            for name, column in columns.items()
            if column in adata.var
        },
    )
