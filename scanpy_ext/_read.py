"""AnnData to arrays: the cells and genes that were asked for, wherever the matrix lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray

from contrast_core import SecondMoments
from contrast_core.feedback import Progress, warn

from . import _keys, _matrix
from ._select import (
    DEFAULT,
    BoolArray,
    Default,
    Levels,
    Mask,
    Selection,
    cells,
    genes,
    is_anndata,
    listed,
)
from ._write import Slots, check_writable, storable

if TYPE_CHECKING:
    from anndata import AnnData

    from ._keys import Keys


@dataclass(frozen=True)
class ContrastInput:
    """What a method needs from an AnnData, read and checked.

    Attributes
    ----------
    matrix
        All cells and the genes in use, (n_obs, n_features): dense or CSR, as it was, or rows in a
        file or in dask.
    selection
        The foreground and background cells.
    features
        The genes in use, a mask of shape (n_vars,); None for an embedding.
    params
        How the input was asked for, fit for `.uns`.
    other
        The matrix of another AnnData whose cells are the background, if one was given.
    """

    matrix: Any
    selection: Selection
    features: BoolArray | None
    params: dict[str, Any]
    other: Any = None

    @property
    def foreground(self) -> Any:
        """The foreground cells, (n, n_features)."""
        return _matrix.with_rows(self.matrix, self.selection.foreground)

    @property
    def background(self) -> Any:
        """The background cells, (m, n_features)."""
        if self.other is not None:
            return self.other
        return _matrix.with_rows(self.matrix, self.selection.background)

    @property
    def sizes(self) -> dict[str, int]:
        """How many cells the two sets have, fit for `.uns`."""
        n_other = 0 if self.other is None else int(self.other.shape[0])
        return {
            "n_foreground": int(self.selection.foreground.sum()),
            "n_background": n_other or int(self.selection.background.sum()),
        }

    def pair(self, progress: Progress = False) -> tuple[Any, Any]:
        """Foreground and background as the linear methods take them: moments, or rows.

        Cells in both sets are read once.
        """
        n_rows = sum(self.sizes.values())
        if not _matrix.takes_moments(self.matrix, n_rows):
            return self.foreground, self.background
        inside, behind = self.selection.foreground, self.selection.background
        if self.other is not None:
            [x] = _matrix.moments(self.matrix, [inside], progress)
            [y] = _matrix.moments(self.other, [np.ones(self.other.shape[0], bool)], progress)
            return x, y
        disjoint = {"x": inside & ~behind, "both": inside & behind, "y": behind & ~inside}
        parts = {name: part for name, part in disjoint.items() if part.any()}
        found = dict(
            zip(parts, _matrix.moments(self.matrix, list(parts.values()), progress), strict=True)
        )
        shared = found.get("both")
        return _merged(found.get("x"), shared), _merged(found.get("y"), shared)

    def rows(self, progress: Progress = False) -> tuple[Any, Any]:
        """Foreground and background in memory; cells in both sets are read once."""
        inside, behind = self.selection.foreground, self.selection.background
        if self.other is not None:
            everyone = np.ones(self.other.shape[0], bool)
            return loaded(self.matrix, inside, progress), loaded(self.other, everyone, progress)
        if _matrix.is_in_memory(self.matrix):
            return self.foreground, self.background
        used = inside | behind
        both = loaded(self.matrix, used, progress)
        return tuple(_matrix.with_rows(both, part[used]) for part in (inside, behind))

    def embed(self, model: Any) -> NDArray[np.floating]:
        """Scores of all cells, (n_obs, n_comps)."""
        k = len(getattr(model, "components_", getattr(model, "dual_coef_", ())))
        return _matrix.apply(model.transform, self.matrix, k)

    def slots(
        self,
        keys: Keys,
        model: Any,
        result: Mapping[str, Any],
        *,
        loadings: NDArray[np.floating] | None = None,
        filters: NDArray[np.floating] | None = None,
    ) -> Slots:
        """What a linear method writes, for `write`: every one of them the same slots.

        Parameters
        ----------
        keys
            Names of the slots.
        model
            A fitted linear method.
        result
            What else goes to `.uns`.
        loadings
            (n_features, n_comps), the components by default.
        filters
            (n_features, n_comps), where scores are not projections on the loadings.
        """
        tables = {
            keys.varm: model.components_.T if loadings is None else loadings,
            _keys.filters(keys): filters,
        }
        vectors = {"mean": model.mean_, "background_mean": model.background_mean_}
        entry = dict(result) | self.sizes
        embedding = {keys.obsm: self.embed(model)}
        if self.features is None:  # no genes: all is about the dimensions of the embedding
            entry |= vectors | {"loadings": tables[keys.varm]}
            if filters is not None:
                entry["filters"] = filters
            return {"obsm": embedding, "varm": {}, "var": {}, "uns": {keys.uns: entry}}
        return {
            "obsm": embedding,
            "varm": {
                name: None if table is None else of_all_genes(table, self.features)
                for name, table in tables.items()
            },
            "var": gene_columns(keys, self.features, **vectors),
            "uns": {keys.uns: entry},
        }


def of_all_genes(
    values: NDArray[np.floating], features: BoolArray, fill: float = 0.0
) -> NDArray[np.floating]:
    """Values of the genes in use, (n_features, ...), as (n_vars, ...)."""
    whole = np.full((features.size, *values.shape[1:]), fill)
    whole[features] = values
    return whole


def gene_columns(
    keys: Keys, features: BoolArray, **vectors: NDArray[np.floating]
) -> dict[str, NDArray[Any] | None]:
    """The columns of `.var` of a linear method: the genes in use, and values of each of them.

    None for those that another method may have left under the same name.
    """
    columns: dict[str, NDArray[Any] | None] = {_keys.vector(keys, _keys.IN_USE): features}
    for name in _keys.VECTORS:
        found, fill = vectors.get(name), np.inf if name == "cap" else 0.0
        values = None if found is None else of_all_genes(found, features, fill)
        columns[_keys.vector(keys, name)] = values
    return columns


def read(
    adata: AnnData,
    *,
    groupby: str | None,
    reference: Levels | None,
    groups: Levels | None,
    include_reference: bool,
    foreground: Mask | None,
    background: Mask | AnnData | None,
    n_comps: int,
    layer: str | None,
    mask_var: Mask | Default | None,
    obsm: str | None = None,
    copy: bool = False,
    progress: Progress = False,
) -> ContrastInput:
    """Select cells and genes, and check them; a matrix in memory is read once.

    `progress` is about a CSC matrix in a file, whose columns in use are loaded.
    """
    check_writable(adata, copy)
    selection = cells(adata, groupby, reference, groups, include_reference, foreground, background)
    matrix, features, params = read_matrix(
        adata, layer=layer, mask_var=mask_var, n_comps=n_comps, obsm=obsm, progress=progress
    )
    other = None
    if is_anndata(background):
        other = _read_other(adata, background, layer, obsm, features, matrix)
    return ContrastInput(matrix, selection, features, selection.params | params, other)


def read_matrix(
    adata: AnnData,
    *,
    layer: str | None,
    mask_var: Mask | Default | None,
    n_comps: int,
    obsm: str | None = None,
    progress: Progress = False,
) -> tuple[Any, Any, dict[str, Any]]:
    """All cells and the genes in use, checked; the mask of the genes; and both fit for `.uns`.

    Of an embedding, all dimensions, and None for the mask. A matrix in a file or in dask is left
    there, and its values are not checked (`loaded` does); but of a CSC matrix in a file the
    columns in use are loaded.
    """
    if obsm is not None:
        if layer is not None or not (mask_var is DEFAULT or mask_var is None):
            given = "layer" if layer is not None else "mask_var"
            raise ValueError(f"got obsm= together with {given}=, which is about genes. Drop one.")
        features, mask_name = None, None
        matrix = embedding(adata, obsm)
        n_features = int(matrix.shape[1])
    else:
        features, mask_name = genes(adata, mask_var)
        matrix = None
        n_features = int(features.sum())
    if isinstance(n_comps, bool) or not isinstance(n_comps, (int, np.integer)):
        raise TypeError(f"n_comps={n_comps!r}: expected a whole number.")
    if not 1 <= n_comps <= n_features:
        in_use = "genes in use" if obsm is None else f"columns of adata.obsm[{obsm!r}]"
        raise ValueError(f"n_comps={n_comps}, but it must be from 1 to {n_features} ({in_use}).")

    name = "adata.X" if layer is None else f"adata.layers[{layer!r}]"
    if features is None:
        name = f"adata.obsm[{obsm!r}]"
    else:
        matrix = _matrix.with_columns(whole_matrix(adata, layer), features, progress)
    if _matrix.is_in_memory(matrix):
        _check_finite(matrix, name)
    params = storable(
        n_comps=int(n_comps), n_features=n_features, layer=layer, mask_var=mask_name, obsm=obsm
    )
    return matrix, features, params


def loaded(matrix: Any, rows: BoolArray, progress: Progress = False) -> Any:
    """The rows in a mask, in memory and finite: a matrix in memory was checked when it was read."""
    found = _matrix.with_rows(matrix, rows, progress)
    if not _matrix.is_in_memory(matrix):
        _check_finite(found, "the matrix")
    return found


def looks_like_counts(matrix: Any) -> float:
    """The largest of the first values in memory if all are whole numbers, as counts are; else 0."""
    values = matrix.data[: 10**6] if sp.issparse(matrix) else matrix[:1000]
    if values.size and values.max() > 1 and np.array_equal(values, np.rint(values)):
        return float(values.max())
    return 0.0


def warn_of_counts(matrix: Any) -> None:
    """Warn if the values are whole numbers, as counts are and their logarithms are not."""
    if largest := looks_like_counts(matrix):
        warn(
            f"the values look like raw counts (whole numbers, up to {largest:g}). Give log-"
            "normalised counts: sc.pp.normalize_total(adata, target_sum=1e4); sc.pp.log1p(adata).",
        )


def whole_matrix(adata: AnnData, layer: str | None) -> Any:
    """`adata.X` or a layer, in memory, in a file or in dask."""
    if layer is not None and layer not in adata.layers:
        raise ValueError(
            f"layer: adata.layers has no {layer!r}. Its layers are {listed(list(adata.layers))}."
        )
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise ValueError("adata.X is None: name the layer to use, layer=...")
    if _matrix.is_in_memory(matrix):
        return np.asarray(matrix) if isinstance(matrix, np.ndarray) else matrix
    if _matrix.is_elsewhere(matrix):
        return matrix
    kind = type(matrix)
    raise TypeError(
        f"the matrix is a {kind.__module__}.{kind.__qualname__}; expected a numpy array, a CSR "
        "or CSC matrix, a dataset in a file or a dask array."
    )


def embedding(adata: AnnData, obsm: str) -> Any:
    """An entry of `adata.obsm`: an array or a CSR matrix."""
    if obsm not in adata.obsm:
        raise ValueError(f"adata.obsm has no {obsm!r}; it has {listed(list(adata.obsm))}.")
    matrix = adata.obsm[obsm]
    if isinstance(matrix, pd.DataFrame):
        matrix = matrix.to_numpy()
    if not _matrix.is_in_memory(matrix) or matrix.ndim != 2:
        raise TypeError(
            f"adata.obsm[{obsm!r}] is {type(matrix).__name__} of shape {np.shape(matrix)}; "
            "expected a table in memory, a row for each cell."
        )
    return matrix.tocsr() if sp.issparse(matrix) else np.asarray(matrix)


def _read_other(
    adata: AnnData,
    other: AnnData,
    layer: str | None,
    obsm: str | None,
    features: BoolArray | None,
    matrix: Any,
) -> Any:
    """The matrix of another AnnData whose cells are the background."""
    if other.n_obs < 2:
        raise ValueError(f"background has {other.n_obs} cell(s); a covariance needs at least 2.")
    try:
        if features is None:
            found = embedding(other, str(obsm))
        else:
            _check_same_genes(adata, other)
            found = _matrix.with_columns(whole_matrix(other, layer), features)
    except (TypeError, ValueError) as error:
        raise type(error)(f"background, another AnnData: {error}") from None
    if found.shape[1] != matrix.shape[1]:
        raise ValueError(
            f"background.obsm[{obsm!r}] has {found.shape[1]} columns, but adata.obsm[{obsm!r}] "
            f"has {matrix.shape[1]}: both must be one embedding, fitted to the cells of both."
        )
    if _matrix.is_in_memory(found):
        _check_finite(found, "background")
    return found


def _check_same_genes(adata: AnnData, other: AnnData) -> None:
    if other.var_names.equals(adata.var_names):
        return
    missing = adata.var_names.difference(other.var_names)
    if len(missing):
        raise ValueError(
            f"it lacks {len(missing)} of adata's genes ({listed(list(missing), most=5)}). "
            "Restrict both to the genes they share."
        )
    raise ValueError(
        "it has other genes as well, or adata's in another order. Give "
        "background[:, adata.var_names]."
    )


def _merged(a: SecondMoments | None, b: SecondMoments | None) -> SecondMoments | None:
    return a.merge(b) if a is not None and b is not None else a or b


def _check_finite(matrix: Any, what: str) -> None:
    values = matrix.data if sp.issparse(matrix) else matrix
    # The sum is finite only if every value is, and needs no second array as large as the data.
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.kind != "f" or np.isfinite(values.sum(dtype=np.float64)):
            return
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise ValueError(
            f"{what} has {bad} NaN or infinite values in the genes in use. Leave these genes out "
            "with mask_var=, or remove or impute the values first."
        )
