"""Find the results that functions wrote into an AnnData: entries, loadings and linear fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from contrast_core.feedback import shown
from contrast_core.spectral import LinearMap

from . import _keys, _select
from ._arguments import check_anndata, is_among, listed
from ._write import is_own

Floats = NDArray[np.float64]

_LINEAR = "tl.cpca, cpca_star, pcpca, clvm, pca_plus or pca_pp"


def stored_result(
    adata: AnnData, key: str, function: str, *needed: str, name: str = "adata"
) -> Mapping[str, Any]:
    """Return an entry of `adata.uns`, after checking that it is a result of `function`.

    Parameters
    ----------
    key
        Name of the entry.
    function
        The functions that write such a result. The error message recommends them.
    needed
        Names of the fields that the entry must have.
    name
        Name of the AnnData in error messages.

    Raises
    ------
    TypeError
        If `adata` is not an AnnData.
    ValueError
        If there is no such result.
    """
    check_anndata(adata, name)
    result = adata.uns[key] if isinstance(key, str) and is_among(key, adata.uns) else None
    if not isinstance(result, Mapping) or not all(entry in result for entry in needed):
        known = [str(each) for each, entry in adata.uns.items() if is_own(entry)]
        raise ValueError(
            f"{name}.uns has no result {shown(key)} of scanpy_ext.{function}; its results are "
            f"{listed(known)}. Run the function first. If it was run with key_added=, give that "
            "name as key=."
        )
    return result


def fit_table(
    names: Sequence[str] | pd.Index,
    used: NDArray[np.bool_] | slice,
    filters: NDArray[np.floating] | None,
    **vectors: NDArray[np.floating] | None,
) -> pd.DataFrame:
    """Return a table of a linear method's values for each gene, NaN for genes not in use.

    Parameters
    ----------
    names
        Names of all genes, or of the dimensions of an embedding.
    used
        The genes in use.
    filters
        Filters, (n_features, n_comps). The scores of a cell x are `(x - mean) @ filters`. None if
        the scores are not a linear function of x.
    **vectors
        Further columns of the table, such as `mean`: a value for each gene in use, (n_features,).
    """
    columns = {name: values for name, values in vectors.items() if values is not None}
    if filters is not None:
        columns |= {f"filter_{j}": column for j, column in enumerate(filters.T, start=1)}
    table = pd.DataFrame(np.nan, index=pd.Index(names), columns=list(columns))
    table.loc[used] = np.column_stack([*columns.values()])
    return table


@dataclass(frozen=True)
class Fitted:
    """Results that a linear method wrote, for the genes in use.

    Attributes
    ----------
    keys
        Names of the AnnData slots that hold the result.
    result
        The entry in `.uns`.
    genes, places
        Names and indices of the genes in use. For an embedding, None and the indices of all its
        dimensions.
    loadings
        Loadings of the components, (n_features, n_comps).
    table
        The rows of `fit_table` for the features in use.
    """

    keys: _keys.Keys
    result: Mapping[str, Any]
    genes: pd.Index | None
    places: NDArray[np.intp]
    loadings: Floats
    table: pd.DataFrame

    @property
    def params(self) -> Mapping[str, Any]:
        """The arguments of the fit."""
        return dict(self.result["params"])

    def vector(self, name: str) -> Floats:
        """Return a column of the table, (n_features,)."""
        return np.asarray(self.table[name], dtype=np.float64)

    @property
    def filters(self) -> Floats:
        """Return the filters that give scores, (n_features, n_comps).

        Raises ValueError if scores are not a linear function of the values.
        """
        columns = [name for name in self.table if str(name).startswith("filter_")]
        if not columns:
            raise ValueError(
                f"adata.uns[{self.keys.uns!r}] is a result of scanpy_ext.tl.clvm with counts or "
                "robust='entries'. This model gives every value of a cell its own weight, so its "
                "scores are not a linear function of the values. Run it on old and new cells "
                "together, or on logarithms with robust='rows' or without robust."
            )
        return np.asarray(self.table[columns], dtype=np.float64)

    def centres(self, adata: AnnData, scores: NDArray[np.floating], name: str = "adata") -> Any:
        """Return the values to subtract from the scores of cells.

        The value is 0, unless the fit had an argument `within`, so that it subtracted each donor's
        mean from the donor's cells. After such a fit, the values have shape (n_obs, n_comps): each
        cell has the mean score that its donor had in the fit. If the donor was not in the fit, the
        mean of `scores` over its cells is used instead.
        """
        if "within" not in self.params:
            return 0.0
        argument = f"the fit was within donors, but {name}"
        labels = _select.known_labels(adata, str(self.params["within"]), argument)
        groups = map(str, self.result["within_groups"])
        known = dict(zip(groups, self.result["within_scores"], strict=True))
        found = np.empty(scores.shape)
        for label in np.unique(labels):
            rows = labels == label
            found[rows] = known.get(label, scores[rows].mean(axis=0))
        return found

    def projector(self) -> LinearMap:
        """Return the linear map from cells to scores and back to genes.

        Both steps together are the projection of centred cells onto the subspace that the loadings
        span. The part of a cell that does not affect its scores is removed. Raises ValueError if
        the method was run on an embedding, the result has no mean of the background, or scores are
        not a linear function of the values.
        """
        filters = self.filters
        if self.genes is None or "background_mean" not in self.table:
            raise ValueError(
                f"adata.uns[{self.keys.uns!r}] cannot be used for denoising, which needs "
                "components of genes. Run scanpy_ext.tl.cpca, cpca_star, pcpca or clvm without "
                "obsm=."
            )
        mean, other = self.vector("mean"), self.vector("background_mean")
        return LinearMap(
            mean=mean,
            projection=filters,
            reconstruction=LinearMap.reconstruction_of(filters, self.loadings),
            offsets={"foreground": mean, "difference": mean - other, "none": np.zeros_like(mean)},
        )


def restore(adata: AnnData, key: str, name: str = "adata") -> Fitted:
    """Return the result of a linear method, for all the genes that the fit used.

    The tables of a result are in `.varm`, so they stay aligned with genes that are reordered.

    Raises
    ------
    ValueError
        If there is no such result, it has no components, or some of its genes are gone.
    """
    result = stored_result(adata, key, _LINEAR, "params", name=name)
    keys, params = _keys.keys_of(key), result["params"]
    if "fit" in result:
        table, loadings = result["fit"], np.asarray(result["loadings"], dtype=np.float64)
        return Fitted(keys, result, None, np.arange(len(table)), loadings, table)
    if keys.fit not in adata.varm or keys.varm not in adata.varm:
        raise ValueError(
            f"{name}.uns[{key!r}] has no components in {name}.varm: expected a result of "
            f"scanpy_ext.{_LINEAR}. To embed new cells by kernel cPCA, run tl.kernel_cpca on old "
            "and new cells together."
        )
    table = adata.varm[keys.fit]
    used = table["mean"].notna().to_numpy()
    n_features = int(params["n_features"])
    if used.sum() != n_features:
        raise ValueError(
            f"{name} has {int(used.sum())} of the {n_features} genes that {name}.uns[{key!r}] was "
            "fitted to. Use the AnnData from before the genes were removed, or fit again."
        )
    loadings = np.asarray(adata.varm[keys.varm], dtype=np.float64)[used]
    names, places = adata.var_names[used], np.flatnonzero(used)
    return Fitted(keys, result, names, places, loadings, table[used])
